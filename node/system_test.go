package node_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// endWait is how long executions of tests have to end.
const endWait = 3 * time.Minute

// TestExecutionFromFollower follows one execution through the whole house:
// submitted to a follower, placed by the leader, executed in the sandbox on
// whichever node, its output streamed from every node, its charge on the
// ledger.
func TestExecutionFromFollower(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.New(t, 3)
	follower := c.Follower()
	account := c.MustAccount("acme")
	api := nodetest.MustClient(t, account.Key, follower.URL())

	code := "import os, sys\nsys.stdout.write('hello from ' + os.environ['BERTH_GPU_TYPE'] + '\\n')\n" + // In one piece.
		"print('warned', file=sys.stderr)\nsys.exit(3)\n"
	started, err := api.Submit(t.Context(), client.Start{Code: code, ExecutionType: "a100", Timeout: 60})
	if err != nil {
		t.Fatal(err)
	}
	e := mustFinish(t, api, started.ExecutionID)
	if e.Status != compute.StatusFailed || e.ReturnCode == nil || *e.ReturnCode != 3 {
		t.Fatalf("got %v with code %v, want failed with 3", e.Status, e.ReturnCode)
	}
	for _, n := range c.Nodes {
		out, finished := mustStream(t, nodetest.MustClient(t, account.Key, n.URL()), started.ExecutionID)
		if !strings.Contains(out, "hello from a100\n") || !strings.Contains(out, "warned") {
			t.Errorf("node %s: got output %q", n.Config.Name, out)
		}
		if finished.ReturnCode != "3" {
			t.Errorf("node %s: got return code %q, want 3", n.Config.Name, finished.ReturnCode)
		}
		mustFindLines(t, nodetest.MustClient(t, account.Key, n.URL()), &e)
	}
	if e.Billed == nil || *e.Billed <= 0 {
		t.Errorf("got billed %v, want a charge", e.Billed)
	}
	t.Run("log limits", func(t *testing.T) { checkLogLimits(t, c, account) })
	t.Run("unread stream", func(t *testing.T) { checkUnreadStream(t, c, account) })
	mustBalance(t, api)
}

// mustFindLines searches what the code of TestExecutionFromFollower printed.
func mustFindLines(t *testing.T, api *client.Client, e *wire.Execution) {
	t.Helper()
	one, err := api.ExecutionLogs(t.Context(), e.ExecutionID, client.LogQuery{Search: "HELLO"})
	if err != nil || one.Total != 1 || one.Logs[0].Message != "hello from a100" ||
		e.Metadata.Node == nil || one.Logs[0].Hostname != *e.Metadata.Node {
		t.Errorf("got %+v, %v", one, err)
	}
	all, err := api.UserLogs(t.Context(), client.LogQuery{Level: "error"})
	if err != nil || all.Total != 1 || all.Logs[0].Message != "warned" || all.Logs[0].ExecutionID != e.ExecutionID {
		t.Errorf("got %+v, %v", all, err)
	}
}

// TestSelectionFindsTheBest gives the same code to four types of simulated
// GPUs and wants the fastest one recommended.
func TestSelectionFindsTheBest(t *testing.T) {
	c := nodetest.New(t, 3)
	account := c.MustAccount("acme")
	api := nodetest.MustClient(t, account.Key, c.Follower().URL())

	code := "n = 0\nfor i in range(4_000_000):\n    n += i * i\n    if i % 500_000 == 0: print(f'BERTH_PROGRESS {i}/4000000')\nprint(n)\n"
	started, err := api.SubmitSelection(t.Context(), client.StartSelection{
		Start: client.Start{Code: code, Timeout: 120, NBCode: 1}, Objective: "fastest", EarlyStop: new(bool),
	})
	if err != nil {
		t.Fatal(err)
	}
	mustFinish(t, api, started.ExecutionID)
	s, err := api.Selection(t.Context(), started.ExecutionID)
	if err != nil {
		t.Fatal(err)
	}
	if s.Status != compute.StatusCompleted || len(s.Rows) != 4 {
		t.Fatalf("got %v with %d rows, want completed with 4", s.Status, len(s.Rows))
	}
	if s.Recommendation == nil || *s.Recommendation != fastest(s.Rows).HardwareProfile {
		t.Errorf("recommended %v, want the fastest of %+v", s.Recommendation, s.Rows)
	}
	// A busy machine can hold up h100 as long as it likes, but nothing makes t4 faster.
	t4 := row(s.Rows, "t4")
	slow, err := api.Execution(t.Context(), t4.ExecutionID, 0)
	if err != nil {
		t.Fatal(err)
	}
	const cores, periods = 0.5 * 0.12, 2 // Its speed is 0.12. A period of the quota is a second.
	if most := cores * (*t4.Duration + periods); slow.Usage.CPUSeconds <= 0 || slow.Usage.CPUSeconds > most {
		t.Errorf("t4 had %v s of a core in %v s, at most %v are its own", slow.Usage.CPUSeconds, *t4.Duration, most)
	}
	for _, r := range s.Rows {
		if !r.Simulated || len(r.Samples) == 0 || r.PowerWatt == nil || *r.PowerWatt <= 0 ||
			r.EnergyJoule == nil || *r.EnergyJoule <= 0 || r.GPUUtilPercent == nil || *r.GPUUtilPercent == 0 {
			t.Errorf("%s was not measured: %+v", r.HardwareProfile, r)
		}
	}
	if s.Reason == nil || *s.Reason == "" || s.Confidence == nil || *s.Confidence <= 0 || *s.Confidence > 1 {
		t.Errorf("got reason %v, confidence %v; want a sentence and a probability", s.Reason, s.Confidence)
	}
	mustExecuteNextCell(t, api, started.ExecutionID)
	mustSelectNextCell(t, api, started.ExecutionID)
	mustBalance(t, api)
}

// mustExecuteNextCell executes a cell with what the recommended run of a GPU selection
// left.
func mustExecuteNextCell(t *testing.T, api *client.Client, selection compute.ExecutionID) {
	t.Helper()
	e, err := api.Execution(t.Context(), selection, 0)
	if err != nil || e.KernelState == nil {
		t.Fatalf("the selection has no state: %+v, %v", e, err)
	}
	started, err := api.Submit(t.Context(), client.Start{Code: "n == sum(i * i for i in range(4_000_000))", NBCode: 2, KernelState: *e.KernelState})
	if err != nil {
		t.Fatal(err)
	}
	if e = mustFinish(t, api, started.ExecutionID); e.Stdout != "True\n" || e.KernelState == nil {
		t.Errorf("the next cell ended as %v with output %q %q", e.Status, e.Stdout, e.Stderr)
	}
}

// mustSelectNextCell selects a GPU type for the cell after that of another GPU selection.
// Each run has the state, echoes the last expression, names the value that no state can
// have, and leaves a state for one more cell. The selection has that of the recommended run.
func mustSelectNextCell(t *testing.T, api *client.Client, selection compute.ExecutionID) {
	t.Helper()
	before, err := api.Execution(t.Context(), selection, 0)
	if err != nil || before.KernelState == nil {
		t.Fatalf("the selection has no state: %+v, %v", before, err)
	}
	const code = "import os, threading\nlock, on = threading.Lock(), os.environ['BERTH_GPU_TYPE']\ndef more(): return n + 1\non, more() - n"
	started, err := api.SubmitSelection(t.Context(), client.StartSelection{
		Start: client.Start{
			Code: code, Timeout: 120, NBCode: 2, KernelState: *before.KernelState, GPUTypes: []string{"h100", "t4"},
		},
		Objective: "fastest", EarlyStop: new(bool),
	})
	if err != nil {
		t.Fatal(err)
	}
	if e := mustFinish(t, api, started.ExecutionID); e.Status != compute.StatusCompleted || e.KernelState == nil {
		t.Fatalf("the selection of the next cell is %v, errors %v", e.Status, e.Errors)
	}
	s := mustSelection(t, api, started.ExecutionID)
	if len(s.Rows) != 2 || s.Recommendation == nil {
		t.Fatalf("it recommends %v of %+v", s.Recommendation, s.Rows)
	}
	left := map[compute.ExecutionID]string{started.ExecutionID: strings.TrimPrefix(*s.Recommendation, "gpu.")}
	for _, r := range s.Rows {
		left[r.ExecutionID] = r.GPUType
		e := mustFinish(t, api, r.ExecutionID)
		if e.Status != compute.StatusCompleted || e.Stdout != fmt.Sprintf("('%s', 1)\n", r.GPUType) ||
			e.Stderr != "berth: lock is not kept for the next cell: TypeError: cannot pickle '_thread.lock' object\n" {
			t.Errorf("on %s the cell is %v with output %q %q", r.GPUType, e.Status, e.Stdout, e.Stderr)
		}
	}
	for id, gpuType := range left {
		e, err := api.Execution(t.Context(), id, 0)
		if err != nil || e.KernelState == nil {
			t.Errorf("on %s no state was left: %v", gpuType, err)
			continue
		}
		third := mustSubmit(t, api, client.Start{Code: "on, more() - n, 'lock' in globals()", NBCode: 3, KernelState: *e.KernelState})
		if e = mustFinish(t, api, third); e.Stdout != fmt.Sprintf("('%s', 1, False)\n", gpuType) {
			t.Errorf("after the cell on %s the next one is %v with output %q %q", gpuType, e.Status, e.Stdout, e.Stderr)
		}
	}
}

// TestSelectionStopsEarly holds that a GPU type whose progress says that it
// cannot win is stopped, and that one without capacity is given up at the
// deadline: neither holds up the answer.
func TestSelectionStopsEarly(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.New(t, 3)
	account := c.MustAccount("acme")
	api := nodetest.MustClient(t, account.Key, c.Follower().URL())
	busy, err := api.Submit(t.Context(), client.Start{Code: "import time\ntime.sleep(300)", ExecutionType: "a100.4x", Timeout: 300})
	if err != nil {
		t.Fatal(err)
	}
	started, err := api.SubmitSelection(t.Context(), client.StartSelection{
		Start: client.Start{Code: paced, Timeout: 200, GPUTypes: []string{"h100", "a100", "t4"}}, Objective: "fastest",
		DeadlineSeconds: 25,
	})
	if err != nil {
		t.Fatal(err)
	}
	mustFinish(t, api, started.ExecutionID)
	s, err := api.Selection(t.Context(), started.ExecutionID)
	if err != nil {
		t.Fatal(err)
	}
	h100, a100, t4 := row(s.Rows, "h100"), row(s.Rows, "a100"), row(s.Rows, "t4")
	if s.Status != compute.StatusCompleted || s.Recommendation == nil || *s.Recommendation != "gpu.h100" || !h100.Pareto {
		t.Errorf("got %+v", s)
	}
	if a100.Status != compute.StatusCancelled || *a100.StatusDetails != "no_capacity" || a100.CreditsSpent != 0 {
		t.Errorf("the starved type is %+v", a100)
	}
	if !t4.StoppedEarly || t4.Predicted == nil || *t4.Predicted < 20 || *t4.Duration > 60 || t4.Detail == nil {
		t.Errorf("the slow type is %+v", t4)
	}
	if err := api.Abort(t.Context(), busy.ExecutionID); err != nil {
		t.Error(err)
	}
	mustFinish(t, api, busy.ExecutionID)
	mustBalance(t, api)
}

// paced takes about five seconds on an h100 and about forty on a t4, however
// busy the machine is, and says how far it is.
const paced = `
import os, time
step = {"h100": 0.1, "a100": 0.2, "t4": 0.8}[os.environ["BERTH_GPU_TYPE"]]
for i in range(50):
    time.sleep(step)
    print(f"BERTH_PROGRESS {i + 1}/50", flush=True)
`

// fastest returns the row with the shortest duration. Which one that is
// depends on what else the machine does.
func fastest(rows []wire.SelectionRow) wire.SelectionRow {
	return slices.MinFunc(rows, func(a, b wire.SelectionRow) int { return cmp.Compare(*a.Duration, *b.Duration) })
}

// row returns the row of a GPU type.
func row(rows []wire.SelectionRow, gpuType string) wire.SelectionRow {
	return rows[slices.IndexFunc(rows, func(r wire.SelectionRow) bool { return r.GPUType == gpuType })]
}

// TestLeaderKilled kills the leader's process in the middle of many submits to
// a follower: every execution that was acknowledged ends once and is charged
// once, and the node that was killed catches up.
func TestLeaderKilled(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.Start(t, 3)
	account := c.MustAccount("acme")
	root := nodetest.MustClient(t, c.RootToken, c.Nodes[0].URL)
	mustVoters(t, root, 3)
	leader, survivors := split(t, c, root)
	api := nodetest.MustClient(t, account.Key, survivors...)

	const executions = 16
	ids := make([]compute.ExecutionID, executions)
	var submits sync.WaitGroup
	half := make(chan struct{})
	for i := range executions {
		submits.Go(func() {
			if i >= executions/2 {
				<-half
			}
			started, err := api.Submit(t.Context(), client.Start{
				Code: fmt.Sprintf("import time\ntime.sleep(1)\nprint(%d)\n", i), Timeout: 120,
			})
			if err != nil {
				t.Errorf("submit %d: %v", i, err)
				return
			}
			ids[i] = started.ExecutionID
			if i == 0 {
				close(half)
			}
		})
	}
	<-half
	leader.Kill()
	submits.Wait()
	if t.Failed() {
		return
	}
	leader.Start()
	seen := map[compute.ExecutionID]bool{}
	for i, id := range ids {
		e := mustFinish(t, api, id)
		if e.Status != compute.StatusCompleted {
			t.Errorf("execution %d: got %v (%v), want completed", i, e.Status, e.StatusDetails)
		}
		if seen[id] {
			t.Errorf("execution %s was acknowledged twice", id)
		}
		seen[id] = true
	}
	history, err := api.History(t.Context(), client.HistoryQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	if history.TotalExecutions != executions {
		t.Errorf("got %d executions in the history, want %d", history.TotalExecutions, executions)
	}
	mustBalance(t, api)
	back := nodetest.MustClient(t, account.Key, leader.URL)
	if again := mustFinish(t, back, ids[executions-1]); again.Status != compute.StatusCompleted {
		t.Errorf("the restarted node says %v", again.Status)
	}
}

// mustFinish waits until an execution has ended.
func mustFinish(t *testing.T, api *client.Client, id compute.ExecutionID) wire.Execution {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), endWait)
	defer cancel()
	e, err := api.Finished(ctx, id)
	if err != nil {
		t.Fatalf("wait for %s: %v", id, err)
	}
	return e
}

// mustStream returns all output of an execution, and its end.
func mustStream(t *testing.T, api *client.Client, id compute.ExecutionID) (string, *client.Finished) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), endWait)
	defer cancel()
	var out strings.Builder
	for event, err := range api.Stream(ctx, id, 0) {
		if err != nil {
			t.Fatalf("stream of %s: %v", id, err)
		}
		out.WriteString(event.Content)
		if event.Finished != nil {
			return out.String(), event.Finished
		}
	}
	t.Fatalf("the stream of %s ended without its last event", id)
	return "", nil
}

// mustBalance wants nothing held and every execution charged at most once.
func mustBalance(t *testing.T, api *client.Client) {
	t.Helper()
	credits, err := api.Credits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	history, err := api.History(t.Context(), client.HistoryQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var billed compute.Credits
	for _, e := range history.Executions {
		if e.Billed != nil && e.ExecutionType != compute.KindSelection {
			billed += *e.Billed
		}
	}
	if credits.Held != 0 || credits.TotalUsed != billed || history.TotalCreditsSpent != billed {
		t.Errorf("got held %v, used %v, spent %v; want 0 and twice the %v of the history",
			credits.Held, credits.TotalUsed, history.TotalCreditsSpent, billed)
	}
}

// mustVoters waits until the cluster has n voters.
func mustVoters(t *testing.T, root *client.Client, n int) {
	t.Helper()
	nodetest.Eventually(t, time.Minute, fmt.Sprintf("%d voters", n), func() bool {
		peers, err := root.Peers(t.Context())
		if err != nil {
			return false
		}
		voters := 0
		for _, p := range peers {
			if p.Voter {
				voters++
			}
		}
		return voters == n
	})
}

// split returns the process that leads, and the URLs of the others.
func split(t *testing.T, c *nodetest.Processes, root *client.Client) (leader *nodetest.Process, others []string) {
	t.Helper()
	peers, err := root.Peers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range c.Nodes {
		leads := false
		for _, peer := range peers {
			leads = leads || peer.Leader && peer.ID.String() == p.ID
		}
		if leads {
			leader = p
		} else {
			others = append(others, p.URL)
		}
	}
	if leader == nil {
		t.Fatal("no node leads")
	}
	return leader, others
}
