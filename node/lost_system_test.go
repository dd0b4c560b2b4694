package node_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/attempt"
	"berth/compute"
	"berth/node/nodetest"
	"berth/testsize"
)

// sharedGPU is the type of which each node of losses has one beside its own.
const sharedGPU = "l4"

// losses is a cluster whose nodes are lost, one way after another. All but the
// leader execute what is asked of them by the GPU type of their own.
type losses struct {
	*testing.T

	cluster *nodetest.Processes
	account nodetest.Account
	root    *client.Client
	leader  *nodetest.Process
}

// TestLostNodes loses a node to SIGKILL, and then, in its long form, the quorum for
// longer than any lease.
func TestLostNodes(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.StartWith(t, 3, func(cfg *nodetest.NodeConfig) {
		cfg.GPUs.Simulated = append(cfg.GPUs.Simulated, sharedGPU+":1")
	})
	l := &losses{T: t, cluster: c, account: c.MustAccount("acme"), root: nodetest.MustClient(t, c.RootToken, c.Nodes[0].URL)}
	mustVoters(t, l.root, 3)
	l.leader, _ = split(t, c, l.root)
	stories := map[string]func(*losses){"killed": (*losses).killed}
	if testsize.Long {
		stories["no quorum"] = (*losses).noQuorum
	}
	for name, tell := range stories {
		t.Run(name, func(t *testing.T) {
			own := *l
			own.T = t
			tell(&own)
		})
	}
}

// ownGPU returns the type that no other node has.
func ownGPU(p *nodetest.Process) string {
	return map[string]string{"n1": "h100", "n2": "a100", "n3": "t4"}[p.Config.Name]
}

// others returns the nodes but one.
func (l *losses) others(one *nodetest.Process) (others []*nodetest.Process) {
	for _, p := range l.cluster.Nodes {
		if p != one {
			others = append(others, p)
		}
	}
	return others
}

// api returns a client of some nodes alone.
func (l *losses) api(nodes ...*nodetest.Process) *client.Client {
	var urls []string
	for _, p := range nodes {
		urls = append(urls, p.URL)
	}
	return nodetest.MustClient(l, l.account.Key, urls...)
}

// mustRun submits code, and returns once it executes.
func (l *losses) mustRun(api *client.Client, start client.Start) compute.ExecutionID {
	l.Helper()
	started, err := api.Submit(l.Context(), start)
	if err != nil {
		l.Fatal(err)
	}
	l.eventually(api, started.ExecutionID, "to run", func(e wire.Execution) bool { return e.Status == compute.StatusRunning })
	return started.ExecutionID
}

// eventually waits until an execution is as it should be.
func (l *losses) eventually(api *client.Client, id compute.ExecutionID, what string, is func(wire.Execution) bool) {
	l.Helper()
	nodetest.Eventually(l, endWait, "the execution "+what, func() bool {
		e, err := api.Execution(l.Context(), id, 0)
		return err == nil && is(e)
	})
}

// killed kills a node while it executes an execution that may restart and one that
// may not. The first restarts elsewhere, once; the other ends as a system failure.
// The lost work is not charged, and the node's reports when it comes back change
// nothing.
func (l *losses) killed() {
	victim := l.others(l.leader)[0]
	left := l.others(victim)
	api := l.api(left...)
	grace := int(attempt.Lease.Seconds())
	const forever = "import time\nprint('here', flush=True)\ntime.sleep(300)\n"
	stays := l.mustRun(api, client.Start{Code: forever, Timeout: 400, DisconnectGrace: &grace, ExecutionType: ownGPU(victim)})
	goes := l.mustRunOn(victim, api, client.Start{Code: forever, Timeout: 400, MaxRetries: 2, ExecutionType: sharedGPU})
	measured := l.mustMeasure(victim, api)
	prints := l.mustPrint(victim, api)
	l.mustDie(victim, prints.id)
	lost := mustFinish(l.T, api, stays)
	if lost.Status != compute.StatusSystemFailure || lost.StatusDetails == nil || *lost.StatusDetails != "node_lost" {
		l.Errorf("got %v (%v), want system_failure (node_lost)", lost.Status, lost.StatusDetails)
	}
	if lost.Billed == nil || *lost.Billed != 0 {
		l.Errorf("got billed %v, want 0", lost.Billed)
	}
	l.eventually(api, goes, "to begin elsewhere", func(e wire.Execution) bool {
		return e.Status == compute.StatusRunning && e.Retries == 1
	})
	prints.mustBeWhole(l.T, api, victim)
	measured.mustBeArchived(l.T, api)
	l.staysDown(victim)
	victim.Start()
	nodetest.Eventually(l, time.Minute, "the node's words to be refused", func() bool {
		return hasReported(l.T, victim, stays) && hasReported(l.T, victim, goes)
	})
	prints.mustReturn(l.T, api, victim)
	back := mustFinish(l.T, l.api(victim), stays)
	if back.Status != lost.Status || *back.Billed != *lost.Billed {
		l.Errorf("the node's return made it %v for %v", back.Status, back.Billed)
	}
	if err := api.Abort(l.Context(), goes); err != nil {
		l.Fatal(err)
	}
	e := mustFinish(l.T, api, goes)
	if len(e.Attempts) != 2 || e.Attempts[0].Node != victim.Config.Name || e.Attempts[1].Node == victim.Config.Name ||
		e.Attempts[0].Status != compute.StatusSystemFailure.String() || e.Status != compute.StatusAborted {
		l.Errorf("it ended as %v after %+v", e.Status, e.Attempts)
	}
	if out, _ := mustStream(l.T, api, goes); strings.Count(out, "here") != 2 {
		l.Errorf("its code was not started twice: its output is %q", out)
	}
	mustBalance(l.T, api)
}

// staysDown has another server lead: a node that is down is so for a leader too that
// has heard nobody yet.
func (l *losses) staysDown(dead *nodetest.Process) {
	l.Helper()
	root := nodetest.MustClient(l, l.cluster.RootToken, l.others(dead)[0].URL)
	record := func() wire.Node {
		nodes, err := root.Nodes(l.Context())
		i := slices.IndexFunc(nodes, func(n wire.Node) bool { return n.Name == dead.Config.Name })
		if err != nil || i < 0 {
			l.Fatalf("no record of %s: %v", dead.Config.Name, err)
		}
		return nodes[i]
	}
	before := record()
	if _, err := root.TransferLeadership(l.Context(), compute.NodeID{}); err != nil {
		l.Fatal(err)
	}
	pauseTest(l.Context(), 3*time.Second) // Each second the leader checks its nodes.
	if after := record(); before.State != compute.NodeDown || after.State != compute.NodeDown || after.ChangedAt != before.ChangedAt {
		l.Errorf("%s was %v since %v, and is %v since %v for a new leader",
			dead.Config.Name, before.State, before.ChangedAt, after.State, after.ChangedAt)
	}
}

// mustRunOn is mustRun on one node: the others take no work meanwhile.
func (l *losses) mustRunOn(p *nodetest.Process, api *client.Client, start client.Start) compute.ExecutionID {
	l.Helper()
	l.drain(l.others(p), true)
	id := l.mustRun(api, start)
	l.drain(l.others(p), false)
	return id
}

func (l *losses) drain(nodes []*nodetest.Process, drained bool) {
	l.Helper()
	for _, p := range nodes {
		id, err := compute.ParseNodeID(p.ID)
		if err == nil {
			_, err = l.root.DrainNode(l.Context(), id, drained)
		}
		if err != nil {
			l.Fatal(err)
		}
	}
}

// noQuorum stops two of three servers for longer than a lease. Executions that may not
// restart continue undisturbed on all of them. The one that may restart ends by its
// lease, and restarts once afterwards.
func (l *losses) noQuorum() {
	stands := l.others(l.cluster.Nodes[0])
	awake := l.cluster.Nodes[0]
	api := l.api(l.cluster.Nodes...)
	const counts = "import time\nfor i in range(30):\n    print(i, flush=True)\n    time.sleep(1)\n"
	var stay []compute.ExecutionID
	for _, p := range l.cluster.Nodes {
		stay = append(stay, l.mustRun(api, client.Start{Code: counts, Timeout: 400, ExecutionType: ownGPU(p)}))
	}
	goes := l.mustRunOn(awake, api, client.Start{
		Code: "import time\ntime.sleep(300)\n", Timeout: 400, MaxRetries: 1, ExecutionType: sharedGPU,
	})
	l.signal(stands, syscall.SIGSTOP)
	l.Cleanup(func() { l.signal(stands, syscall.SIGCONT) }) // Else they could not be stopped.
	pauseTest(l.Context(), attempt.Lease+5*time.Second)
	l.signal(stands, syscall.SIGCONT)
	l.eventually(api, goes, "to restart", func(e wire.Execution) bool {
		return e.Status == compute.StatusRunning && e.Retries == 1
	})
	for i, id := range stay {
		e := mustFinish(l.T, api, id)
		out, _ := mustStream(l.T, api, id)
		if e.Status != compute.StatusCompleted || len(e.Attempts) != 1 || strings.Count(out, "\n") != 30 || e.Billed == nil || *e.Billed == 0 {
			l.Errorf("on %s it ended as %v (%v) after %d attempts, billed %v, with the output %q",
				l.cluster.Nodes[i].Config.Name, e.Status, e.StatusDetails, len(e.Attempts), e.Billed, out)
		}
	}
	if err := api.Abort(l.Context(), goes); err != nil {
		l.Fatal(err)
	}
	if e := mustFinish(l.T, api, goes); len(e.Attempts) != 2 || e.Retries != 1 {
		l.Errorf("it ended as %v after %+v", e.Status, e.Attempts)
	}
	mustBalance(l.T, api)
}

func (l *losses) signal(nodes []*nodetest.Process, sig syscall.Signal) {
	for _, p := range nodes {
		if err := syscall.Kill(p.Pid(), sig); err != nil {
			l.Errorf("signal %s: %v", p.Config.Name, err)
		}
	}
}

func pauseTest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// hasReported reports whether the state has accepted or finally refused what a node has to
// say of all attempts of an execution there.
func hasReported(t *testing.T, p *nodetest.Process, id compute.ExecutionID) bool {
	t.Helper()
	attempts, err := filepath.Glob(filepath.Join(p.Config.DataDir, "attempts", id.String(), "*"))
	if err != nil {
		t.Fatal(err)
	}
	return !slices.ContainsFunc(attempts, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "reported"))
		return err != nil
	})
}
