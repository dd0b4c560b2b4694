//go:build long

package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/cluster"
	"berth/cluster/file"
	"berth/compute"
	"berth/node/nodetest"
	"berth/node/worker"
)

// manyWorkers says how many workers TestManyWorkers has; 20 when it is unset.
const manyWorkers = "BERTH_TEST_WORKERS"

// standIn is a worker in all but its executor: it joins, gossips, sends
// heartbeats, polls, keeps a durable file of each attempt and reports, and
// executes nothing.
type standIn struct {
	cluster *cluster.Cluster
	own     *worker.Assignments
	report  worker.Reporter
	dir     string

	mu      sync.Mutex
	starts  map[string]int // Starts of each attempt, by its file.
	delays  []time.Duration
	refused []error
}

// live polls until ctx ends.
func (s *standIn) live(ctx context.Context, runs *sync.WaitGroup) {
	for ctx.Err() == nil {
		assigned, err := s.own.Work(ctx, 0)
		if err != nil {
			pauseTest(ctx, 100*time.Millisecond)
			continue
		}
		for _, w := range assigned.Work {
			runs.Go(func() { s.run(ctx, w) })
		}
	}
}

// run begins what has not begun, and ends it a moment later.
func (s *standIn) run(ctx context.Context, w compute.Work) {
	name := fmt.Sprintf("%s.%d", w.Attempt.Execution, w.Attempt.Epoch)
	s.mu.Lock()
	s.starts[name]++
	first := s.starts[name] == 1
	s.mu.Unlock()
	if !first {
		return
	}
	if err := file.Write(filepath.Join(s.dir, name), []byte("starting\n")); err != nil {
		s.note(err)
		return
	}
	began := compute.InstantOf(time.Now())
	ref := compute.AttemptStart{Execution: w.Attempt.Execution, Epoch: w.Attempt.Epoch, ExecletAt: began, StartedAt: began}
	s.until(ctx, func(ctx context.Context) error { return s.report.StartAttempt(ctx, ref) })
	s.mu.Lock()
	s.delays = append(s.delays, compute.InstantOf(time.Now()).Sub(w.Attempt.PlacedAt))
	s.mu.Unlock()
	pauseTest(ctx, 200*time.Millisecond)
	ended := compute.InstantOf(time.Now())
	outcome := compute.Outcome{
		Execution: ref.Execution, Epoch: ref.Epoch, Status: compute.StatusCompleted, Ran: true,
		ExecletAt: began, StartedAt: began, EndedAt: ended, Duration: ended.Sub(began),
	}
	s.until(ctx, func(ctx context.Context) error { return s.report.FinishAttempt(ctx, outcome) })
}

// until repeats a report until it is taken or refused for good.
func (s *standIn) until(ctx context.Context, report func(context.Context) error) {
	for ctx.Err() == nil {
		err := report(ctx)
		switch compute.CodeOf(err) {
		case "":
			return
		case compute.CodeConflict, compute.CodeNotFound:
			s.note(err)
			return
		default:
			pauseTest(ctx, 50*time.Millisecond)
		}
	}
}

func (s *standIn) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = append(s.refused, err)
}

// mustStandIn joins the cluster as a worker with one simulated GPU.
func mustStandIn(t *testing.T, name string, hosts []string, token string) *standIn {
	t.Helper()
	dir := t.TempDir()
	c, err := cluster.Open(t.Context(), cluster.Config{
		DataDir: filepath.Join(dir, "data"), Name: name, Role: compute.RoleWorker,
		Listen: "127.0.0.1:0", GossipListen: "127.0.0.1:0", API: "http://127.0.0.1:1/" + name, Version: "test",
		JoinHosts: hosts, JoinToken: token, Logger: slog.New(slog.DiscardHandler),
		Fatal: func(err error) { t.Errorf("%s: %v", name, err) },
	})
	if err != nil {
		t.Fatalf("open %s: %v", name, err)
	}
	err = c.Gossip().SetInventory(compute.Inventory{
		Version: 1, VCPUMilli: 8000, MemoryMiB: 32 << 10,
		GPUs: []compute.GPU{{
			ID: compute.GPUID("SIM-" + name), Type: "b200", Model: "Simulated B200", VRAMMiB: 180 << 10, Simulated: true,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &standIn{
		cluster: c, own: worker.NewAssignments(c), report: worker.Reporter{Up: c}, dir: dir, starts: map[string]int{},
	}
}

// TestManyWorkers has the workers of a fleet execute at once: each execution is
// given to one worker, as one attempt, and none is forgotten. It says what that
// takes. A worker may be told of an attempt again; that it is not started again
// is for the executor, which a stand-in only acts as if it had.
func TestManyWorkers(t *testing.T) {
	if testing.Short() {
		t.Skip("a fleet takes a while")
	}
	count := 20
	if text := os.Getenv(manyWorkers); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	c := nodetest.Start(t, 3)
	root := nodetest.MustClient(t, c.RootToken, c.Nodes[0].URL, c.Nodes[1].URL, c.Nodes[2].URL)
	token, err := root.CreateJoinToken(t.Context(), wire.NewJoinToken{Role: nodetest.Worker, TTL: 3600, Uses: count})
	if err != nil {
		t.Fatal(err)
	}
	fleet := make([]*standIn, count)
	var hosts []string
	for _, n := range c.Nodes {
		hosts = append(hosts, n.Config.RPC.Addr)
	}
	ctx, stop := context.WithCancel(t.Context())
	var runs sync.WaitGroup
	defer func() {
		stop()
		runs.Wait()
		for _, w := range fleet {
			if err := w.cluster.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	for i := range fleet {
		turned := append(slices.Clone(hosts[i%3:]), hosts[:i%3]...)
		w := mustStandIn(t, fmt.Sprintf("w%03d", i), turned, token.Token)
		fleet[i] = w
		runs.Go(func() {
			if err := w.cluster.Run(ctx); err != nil {
				t.Errorf("worker %d: %v", i, err)
			}
		})
		runs.Go(func() { w.live(ctx, &runs) })
	}
	nodetest.Eventually(t, 5*time.Minute, "every worker to be up with its GPU", func() bool {
		nodes, err := root.Nodes(t.Context())
		up := 0
		for _, n := range nodes {
			if n.Role == compute.RoleWorker && len(n.GPUs) == 1 && n.State == compute.NodeUp {
				up++
			}
		}
		return err == nil && up == count
	})
	idle := measure(c)
	pauseTest(t.Context(), 10*time.Second)
	t.Logf("%d workers at rest: %s", count, measure(c).since(idle, 10*time.Second))
	execute(t, c, fleet)
}

// execute has each worker execute five times, on average, and checks what came
// of it.
func execute(t *testing.T, c *nodetest.Processes, fleet []*standIn) {
	t.Helper()
	account := c.MustAccount("acme")
	api := nodetest.MustClient(t, account.Key, c.Nodes[0].URL, c.Nodes[1].URL, c.Nodes[2].URL)
	before, from := measure(c), time.Now()
	total := 5 * len(fleet)
	ids := make(chan compute.ExecutionID, total)
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			for range total / 8 {
				started, err := api.Submit(t.Context(), client.Start{Code: "pass\n", ExecutionType: "b200", Timeout: 60})
				if err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				ids <- started.ExecutionID
			}
		})
	}
	clients.Wait()
	close(ids)
	submitted := 0
	for id := range ids {
		submitted++
		if e := mustFinish(t, api, id); e.Status != compute.StatusCompleted {
			t.Errorf("%s ended as %v", id, e.Status)
		}
	}
	took := time.Since(from)
	used := measure(c).since(before, took)
	var delays []time.Duration
	starts := 0
	for _, w := range fleet {
		w.mu.Lock()
		delays = append(delays, w.delays...)
		starts += len(w.starts)
		for _, err := range w.refused {
			t.Errorf("a report was refused: %v", err)
		}
		w.mu.Unlock()
	}
	if starts != submitted {
		t.Errorf("%d attempts were given to workers for %d executions", starts, submitted)
	}
	slices.Sort(delays)
	t.Logf("%d executions in %v: placed to started p50 %v, p99 %v; %s", submitted, took.Round(time.Millisecond),
		delays[len(delays)/2].Round(time.Millisecond), delays[len(delays)*99/100].Round(time.Millisecond), used)
}

// cost is what processes have used: this one, with the workers in it, and each
// server.
type cost struct {
	cpu []time.Duration
	rss []int // MiB.
}

func measure(c *nodetest.Processes) cost {
	runtime.GC()
	m := cost{}
	for _, pid := range []int{os.Getpid(), c.Nodes[0].Pid(), c.Nodes[1].Pid(), c.Nodes[2].Pid()} {
		cpu, rss := usage(pid)
		m.cpu, m.rss = append(m.cpu, cpu), append(m.rss, rss)
	}
	return m
}

// since says what was used since before, in a time of length took.
func (m cost) since(before cost, took time.Duration) string {
	var out []string
	for i := range m.cpu {
		name := "workers"
		if i > 0 {
			name = "server"
		}
		out = append(out, fmt.Sprintf("%s %.0f%% of a core, %d MiB", name, 100*float64(m.cpu[i]-before.cpu[i])/float64(took), m.rss[i]))
	}
	return strings.Join(out, "; ")
}

// usage returns the CPU time and the resident memory of a process, zero for one
// that is gone.
func usage(pid int) (cpu time.Duration, rss int) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks, pages int
	for i, at := range []*int{&ticks, &ticks, &pages} {
		n, err := strconv.Atoi(fields[[]int{11, 12, 21}[i]])
		if err != nil {
			return 0, 0
		}
		*at += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, pages * syscall.Getpagesize() >> 20
}
