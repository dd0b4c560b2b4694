//go:build long

package exhaustion_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/bench/usage"
	"berth/compute"
	"berth/loop"
	"berth/node/nodetest"
)

// Periods of measurements.
const (
	sampleEvery = 50 * time.Millisecond
	askEvery    = time.Second
	settleStep  = 500 * time.Millisecond
	settleLimit = 15 * time.Second
	settled     = 2 << 20 // Bytes by which settled processes shrink in a step, at most.
)

// Work of the attacked cluster.
const (
	queuedExecutions = 300
	printedBytes     = 3 << 20 // By the execution with the large answer.
	endlessCode      = `
import sys, time
line = "x" * 60000
for i in range(400):
    print(line)
sys.stdout.flush()
time.sleep(500)
`
	largeCode = `
for i in range(48):
    print("\x01" * 65535)
`
)

// victims is the attacked cluster: three servers, the first of which executes, and a
// worker.
type victims struct {
	cluster  *nodetest.Processes
	nodes    []*nodetest.Process
	metrics  []string // Addresses.
	token    string   // For the metrics.
	root     string
	attacker nodetest.Account
	honest   nodetest.Account
	large    compute.ExecutionID // Has printed much.
	endless  compute.ExecutionID // Prints much, then sleeps.
	pids     []int
}

// mustVictims starts the cluster, and work for attackers to ask for.
func mustVictims(t *testing.T) *victims {
	t.Helper()
	v := &victims{token: "the token of metrics and profiles"}
	tokenFile := filepath.Join(t.TempDir(), "metrics")
	if err := os.WriteFile(tokenFile, []byte(v.token), 0o600); err != nil {
		t.Fatal(err)
	}
	profiled := func(cfg *nodetest.NodeConfig) {
		cfg.Metrics.Addr, cfg.Metrics.TokenFile = "127.0.0.1:0", tokenFile
	}
	c := nodetest.StartWith(t, 3, profiled)
	c.AddWith(func(cfg *nodetest.NodeConfig) {
		profiled(cfg)
		cfg.Role, cfg.GPUs.Simulated = nodetest.Worker, []string{"l4:1"}
	})
	v.cluster, v.nodes, v.root = c, c.Nodes, c.RootToken
	v.attacker, v.honest = c.MustAccount("attacker"), c.MustAccount("honest")
	for _, n := range v.nodes {
		v.pids = append(v.pids, n.Pid())
	}
	root := nodetest.MustClient(t, c.RootToken, v.nodes[0].URL)
	for _, n := range v.nodes {
		nodetest.Eventually(t, time.Minute, "the addresses of metrics", func() bool {
			nodes, err := root.Nodes(t.Context())
			i := slices.IndexFunc(nodes, func(known wire.Node) bool { return known.ID.String() == n.ID })
			if err != nil || i < 0 || len(nodes[i].GPUs) == 0 {
				return false
			}
			v.metrics = append(v.metrics, nodes[i].Metrics)
			return true
		})
	}
	if err := root.Grant(t.Context(), v.attacker.Slug, 1000*compute.Credit, "test"); err != nil {
		t.Fatal(err)
	}
	v.mustWork(t)
	return v
}

// mustWork starts executions: one with much output, one that prints and goes on, and
// many that wait.
func (v *victims) mustWork(t *testing.T) {
	t.Helper()
	api := nodetest.MustClient(t, v.attacker.Key, v.nodes[0].URL)
	start := func(in client.Start) compute.ExecutionID {
		t.Helper()
		started, err := api.Submit(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		return started.ExecutionID
	}
	v.large = start(client.Start{Code: largeCode, ExecutionType: "h100", Timeout: 600})
	v.endless = start(client.Start{Code: endlessCode, ExecutionType: "h100", Timeout: 600})
	if e, err := api.Finished(t.Context(), v.large); err != nil || e.Status != compute.StatusCompleted {
		t.Fatalf("the execution with the large answer: %v, %v", e.Status, err)
	}
	start(client.Start{Code: endlessCode, ExecutionType: "l4", Timeout: 600})
	waits := client.Start{Code: "pass", ExecutionType: "l4", Timeout: 600, PriorImports: []string{"import sys"}}
	for range 10 {
		waits.Tags = append(waits.Tags, strings.Repeat("é", 64))
	}
	for range queuedExecutions {
		start(waits)
	}
}

// settle collects garbage in every node and returns what memory they have once they
// shrink no more.
func (v *victims) settle(t *testing.T) []uint64 {
	t.Helper()
	before := v.resident(t)
	for range settleLimit / settleStep {
		for i := range v.nodes {
			v.profile(t, i, "gc=1", io.Discard)
		}
		loop.Sleep(t.Context(), settleStep)
		now := v.resident(t)
		shrunk := false
		for i := range now {
			shrunk = shrunk || now[i]+settled < before[i]
		}
		if before = now; !shrunk {
			break
		}
	}
	return before
}

// profile writes a heap profile of the i-th node.
func (v *victims) profile(t *testing.T, i int, query string, w io.Writer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerLimit)
	defer cancel()
	url := v.metrics[i]
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	url = strings.TrimSuffix(url, "/metrics") + "/debug/pprof/heap?" + query
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+v.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Logf("profile of %s: %v", v.nodes[i].Config.Name, err)
		return
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("profile of %s: %s, %v", v.nodes[i].Config.Name, resp.Status, err)
	}
}

// resident returns the memory of each node's process.
func (v *victims) resident(t *testing.T) []uint64 {
	t.Helper()
	out := make([]uint64, len(v.pids))
	for i, pid := range v.pids {
		used, err := usage.Read(pid)
		if err != nil {
			t.Fatalf("node %s has ended: %v", v.nodes[i].Config.Name, err)
		}
		out[i] = used.Resident
	}
	return out
}

// mustStand returns the term of the cluster. It fails the test if a node has ended or
// panicked, or knows no state.
func (v *victims) mustStand(t *testing.T) (term uint64) {
	t.Helper()
	v.resident(t)
	for _, n := range v.nodes {
		state, err := nodetest.MustClient(t, v.root, n.URL).State(t.Context(), false)
		if err != nil || state.Term == 0 {
			t.Errorf("node %s does not know the state: %v", n.Config.Name, err)
		}
		term = max(term, state.Term)
	}
	if v.cluster.Logged("panic") {
		t.Error("a node has panicked")
	}
	return term
}

// watcher samples the nodes and asks each of them as an honest client.
type watcher struct {
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu sync.Mutex

	seen seen
}

// seen is what a watcher has seen.
type seen struct {
	peaks   []uint64
	slowest time.Duration
	slow    string // The node that gave the slowest answer.
	failed  error
}

// watch begins to sample.
func (v *victims) watch(t *testing.T) *watcher {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &watcher{stop: stop, seen: seen{peaks: make([]uint64, len(v.nodes))}}
	w.wg.Go(func() {
		for ctx.Err() == nil {
			for i, now := range v.resident(t) {
				w.seen.peaks[i] = max(w.seen.peaks[i], now)
			}
			loop.Sleep(ctx, sampleEvery)
		}
	})
	for i, n := range v.nodes {
		w.wg.Go(func() { w.ask(ctx, n.Config.Name, n.URL, v.honest.Key) })
		if *heapProfiles != "" {
			w.wg.Go(func() { v.keepProfile(ctx, t, i) })
		}
	}
	return w
}

// keepProfile writes a heap profile of a node towards the end of the attack.
func (v *victims) keepProfile(ctx context.Context, t *testing.T, i int) {
	if !loop.Sleep(ctx, attackTime*8/10) {
		return
	}
	name := strings.ReplaceAll(t.Name(), "/", "-") + "-" + v.nodes[i].Config.Name
	file, err := os.Create(filepath.Join(*heapProfiles, name))
	if err != nil {
		t.Error(err)
		return
	}
	defer file.Close()
	v.profile(t, i, "", file)
}

// ask asks a node once a second, until ctx ends. The last question is answered too.
func (w *watcher) ask(ctx context.Context, name, url, key string) {
	for ctx.Err() == nil {
		took, err := ask(context.WithoutCancel(ctx), url, key)
		w.mu.Lock()
		if took > w.seen.slowest {
			w.seen.slowest, w.seen.slow = took, name
		}
		w.seen.failed = errors.Join(w.seen.failed, err)
		w.mu.Unlock()
		loop.Sleep(ctx, askEvery-took)
	}
}

// ask reads something up to date, over a new connection.
func ask(ctx context.Context, url, key string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+api+"/billing/credits", http.NoBody)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Close = true
	begun := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return time.Since(begun), err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return time.Since(begun), fmt.Errorf("%s answers %s: %w", url, resp.Status, err)
	}
	return time.Since(begun), nil
}

// end returns what was seen.
func (w *watcher) end() seen {
	w.stop()
	w.wg.Wait()
	return w.seen
}
