package load

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"berth/api/client"
)

const apiRoot = "/api/v2/external"

// warmUp is the share of submits, one in so many, that are sent before those that are
// measured: a node's first ones fill its heap with pages that the machine has to clear.
const warmUp = 10

// RequestsConfig says how much is asked.
type RequestsConfig struct {
	Submits  int // Submits that nothing starts, half of them to the leader. An organization may queue 10,000.
	Clients  int // That submit at once.
	Readers  int // That read at once.
	ReadFor  time.Duration
	BareRaft float64 // Entries a second of Raft alone on this machine, measured before.
}

// Requests has the times and rates of submits, and of a follower's answers to reads.
type Requests struct {
	SubmitsPS  float64 `json:"submits_per_s"`
	SubmitCPU  float64 `json:"submit_cpu_ms"` // CPU time of all nodes, for each submit.
	Submits    Spread  `json:"submits"`
	BareRaftPS float64 `json:"bare_raft_per_s"`
	Ratio      float64 `json:"of_bare_raft"`

	Linearizable Reads `json:"linearizable_status"`
	Stale        Reads `json:"stale_status"`
	Whole        Reads `json:"whole_record"` // Reads of an execution that has ended.
}

// Reads is a series of reads.
type Reads struct {
	PerSecond float64 `json:"per_second"`
	CPUMS     float64 `json:"cpu_ms"` // CPU time of all nodes, for each read.
	Spread
}

// MeasureRequests drains all nodes, so that nothing starts, submits, and reads.
func MeasureRequests(ctx context.Context, c *Cluster, cfg RequestsConfig) (out Requests, err error) {
	user, err := c.client(c.APIKey)
	if err != nil {
		return out, err
	}
	ended, err := user.Submit(ctx, client.Start{Code: noop, Timeout: noopTimeout})
	if err != nil {
		return out, err
	}
	if _, err := user.Finished(ctx, ended.ExecutionID); err != nil {
		return out, err
	}
	if err := drainAll(ctx, c); err != nil {
		return out, err
	}
	out.BareRaftPS = cfg.BareRaft
	submit, err := submitOf(c.APIKey)
	if err != nil {
		return out, err
	}
	clients, turn := newAsker(cfg.Clients), c.turns()
	defer clients.close()
	submits := func(n int) ([]time.Duration, error) {
		return times(ctx, cfg.Clients, upTo(n), func(context.Context) error {
			one := submit
			one.op = rand.Text()
			return clients.ask(turn(), one)
		})
	}
	if _, err := submits(cfg.Submits / warmUp); err != nil {
		return out, fmt.Errorf("submit: %w", err)
	}
	begun := time.Now() //nolint:forbidigo // Real processes have real time.
	var took []time.Duration
	spent, err := c.spent(func() (err error) {
		took, err = submits(cfg.Submits)
		return err
	})
	if err != nil {
		return out, fmt.Errorf("submit: %w", err)
	}
	out.SubmitsPS = float64(cfg.Submits) / time.Since(begun).Seconds()
	out.SubmitCPU = float64(spent.Microseconds()) / 1000 / float64(cfg.Submits)
	out.Submits = spreadOf(took)
	if cfg.BareRaft > 0 {
		out.Ratio = out.SubmitsPS / cfg.BareRaft
	}
	path := apiRoot + "/execution/streaming/" + ended.ExecutionID.String()
	for _, series := range []struct {
		reads *Reads
		path  string
	}{
		{&out.Linearizable, path + "/status"},
		{&out.Stale, path + "/status?consistency=stale"},
		{&out.Whole, apiRoot + "/execution/" + ended.ExecutionID.String()},
	} {
		if *series.reads, err = c.read(ctx, cfg, series.path); err != nil {
			return out, fmt.Errorf("read %s: %w", series.path, err)
		}
	}
	return out, nil
}

// submitOf returns the submit of code that does nothing, without its Idempotency-Key.
func submitOf(key string) (request, error) {
	body, err := json.Marshal(client.Start{Code: noop, Timeout: noopTimeout})
	return request{
		method: http.MethodPost, path: apiRoot + "/execution/streaming/start", token: key, body: string(body),
		wants: []int{http.StatusOK, http.StatusAccepted},
	}, err
}

// readOf returns the request for a path.
func readOf(key, path string) request {
	return request{method: http.MethodGet, path: path, token: key, wants: []int{http.StatusOK}}
}

// drainAll has no node take new work.
func drainAll(ctx context.Context, c *Cluster) error {
	root, err := c.client(c.RootToken)
	if err != nil {
		return err
	}
	nodes, err := root.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if _, err := root.DrainNode(ctx, n.ID, true); err != nil {
			return err
		}
	}
	return nil
}

// read reads a path of the follower for a time.
func (c *Cluster) read(ctx context.Context, cfg RequestsConfig, path string) (out Reads, err error) {
	readers := newAsker(cfg.Readers)
	defer readers.close()
	one := readOf(c.APIKey, path)
	begun := time.Now() //nolint:forbidigo // Real processes have real time.
	var took []time.Duration
	spent, err := c.spent(func() (err error) {
		took, err = times(ctx, cfg.Readers, func() bool { return time.Since(begun) < cfg.ReadFor },
			func(context.Context) error { return readers.ask(c.Follower(), one) })
		return err
	})
	if err != nil || len(took) == 0 {
		return out, err
	}
	out.PerSecond = float64(len(took)) / time.Since(begun).Seconds()
	out.CPUMS = float64(spent.Microseconds()) / 1000 / float64(len(took))
	out.Spread = spreadOf(took)
	return out, nil
}
