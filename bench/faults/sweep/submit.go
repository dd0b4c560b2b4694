package sweep

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/bench/faults/check"
	"berth/bench/faults/world"
	"berth/compute"
)

// Limits of the workload.
const (
	answerLimit  = 2 * time.Minute // Until a submit is acknowledged, with a node down meanwhile.
	quickSeconds = 0.1             // Working time of most code.
	longSeconds  = 4.0             // Working time of code that outlives its node's process.
	lostSeconds  = 25.0            // Working time of code that outlives its lost node's lease.
	largeBytes   = 20 << 10        // Size of code sent as a small blob, which is journaled.
	blobBytes    = 100 << 10       // Size of code sent as a blob that is not journaled.
	granted      = 1000 * compute.Credit
	benchSlug    = "sweep"
)

// load is a kind of workload.
type load uint8

const (
	loadQuick     load = iota // On every node, with and without a GPU, small and large.
	loadLong                  // Code that outlives its node's process, with the shortest grace time.
	loadLost                  // The same, with a working time until the node is given up.
	loadSelection             // GPU selections, one of which times out.
	loadBlob                  // Code that is a large blob.
	loadPrinting              // Code that prints.
)

// submit is one request and its result.
type submit struct {
	node  int // The node that received it.
	key   constant
	start client.Start
	types []string // The types of a GPU selection; empty for one execution.

	id  compute.ExecutionID
	err error
}

// constant is a random source that always returns the same bytes, so that a
// client repeats its Idempotency-Key.
type constant [32]byte

func (c *constant) Read(p []byte) (int, error) { return copy(p, c[:]), nil }

// submitter submits executions.
type submitter struct {
	world *world.World
	http  *http.Client
	token string // The token of the submitting organization.
	admin *client.Client

	waves sync.WaitGroup

	mu      sync.Mutex
	submits []*submit // Submits of this trial.
}

// open creates the submitting organization.
func (b *submitter) open(ctx context.Context, w *world.World) (err error) {
	b.world = w
	b.http = &http.Client{Transport: &http.Transport{
		DialContext: (&net.Dialer{Timeout: time.Second}).DialContext, MaxIdleConnsPerHost: 8,
	}}
	if b.admin, err = b.client(w.RootToken, nil, b.urls()...); err != nil {
		return err
	}
	user := wire.NewUser{
		Email: benchSlug + "@example.com", Password: "correct horse battery", OrgSlug: benchSlug, OrgName: benchSlug,
	}
	if _, err := b.admin.CreateUser(ctx, user); err != nil {
		return fmt.Errorf("create user: %w", err)
	}
	session, err := b.admin.WithToken("").Login(ctx, user.Email, user.Password)
	if err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	key, err := b.admin.WithToken(session.AccessToken).CreateKey(ctx, benchSlug, benchSlug)
	if err != nil {
		return fmt.Errorf("create key: %w", err)
	}
	b.token = key.PlaintextKey
	return b.admin.Grant(ctx, benchSlug, granted, "sweep")
}

func (b *submitter) urls() []string {
	var urls []string
	for _, n := range b.world.Nodes {
		urls = append(urls, n.URL())
	}
	return urls
}

// client returns a patient client. With a key, all its changes carry the key.
func (b *submitter) client(token string, key *constant, urls ...string) (*client.Client, error) {
	cfg := client.Config{Addrs: urls, Token: token, RetryFor: answerLimit, HTTP: b.http}
	if key != nil {
		cfg.Rand = key
	}
	return client.New(cfg)
}

// begin forgets the submits of the previous trial.
func (b *submitter) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.submits = nil
}

// wave submits once to every node, in the background.
func (b *submitter) wave(ctx context.Context, what load) {
	for node := range b.world.Nodes {
		for _, one := range submitsOf(what, node) {
			_, _ = rand.Read(one.key[:]) // It never fails.
			b.mu.Lock()
			b.submits = append(b.submits, one)
			b.mu.Unlock()
			b.waves.Go(func() { one.id, one.err = b.send(ctx, one, one.node) })
		}
	}
}

// submitsOf returns the submits of a wave to one node.
func submitsOf(what load, node int) []*submit {
	code := func(seconds float64) string { return fmt.Sprintf(check.Code, seconds, 0) }
	start := client.Start{Code: code(quickSeconds), Timeout: 600, Network: compute.NetworkNone.String()}
	switch what {
	case loadLong, loadLost:
		seconds := longSeconds
		if what == loadLost {
			seconds = lostSeconds
		}
		start.Code, start.DisconnectGrace = code(seconds), new(15)
		return []*submit{{node: node, start: start}, {node: node, start: start}, {node: node, start: start}}
	case loadSelection:
		slow := start
		slow.Code = code(longSeconds)
		return []*submit{{node: node, start: slow, types: []string{"h100", "l40s"}}}
	case loadBlob:
		start.Code += noise(blobBytes)
		return []*submit{{node: node, start: start}}
	case loadPrinting:
		start.Code = "print('printed', flush=True)\n" + start.Code
		return []*submit{{node: node, start: start}}
	case loadQuick:
	}
	large, gpu := start, start
	large.Code += noise(largeBytes)
	gpu.ExecutionType = "h100"
	return []*submit{{node: node, start: start}, {node: node, start: large}, {node: node, start: gpu}}
}

// noise returns a comment of code that compresses to size bytes.
func noise(size int) string {
	random := make([]byte, size)
	_, _ = rand.Read(random) // It never fails.
	return "# " + hex.EncodeToString(random) + "\n"
}

// send sends a submit to one node after another until it is answered.
func (b *submitter) send(ctx context.Context, one *submit, node int) (compute.ExecutionID, error) {
	c, err := b.client(b.token, &one.key, b.world.Nodes[node].URL())
	if err != nil {
		return compute.ExecutionID{}, err
	}
	if len(one.types) == 0 {
		started, err := c.Submit(ctx, one.start)
		return started.ExecutionID, err
	}
	start := one.start
	start.GPUTypes = one.types
	started, err := c.SubmitSelection(ctx, client.StartSelection{Start: start, DeadlineSeconds: 2})
	return started.ExecutionID, err
}
