package fsm_test

import (
	"crypto/sha256"
	"reflect"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

func TestExecutionCompletesAndIsCharged(t *testing.T) {
	w := newWorld(t)
	full := 100 * compute.Credit
	id := w.submit("H100", func(e *compute.Execution) {
		e.CallbackURLs = []string{"https://example.com/a", "https://example.com/b"}
	})
	w.wantStatus(id, compute.StatusQueued, compute.ReasonScheduling)
	w.wantMoney(full, micro(60*900))
	if e := w.get(id); e.Profile != "gpu.h100" || e.Request.VCPUMilli != 8000 ||
		e.Request.MemoryMiB != 64<<10 || e.Price != 900 {
		t.Fatalf("execution was recorded as %+v", e)
	}
	w.place("n1", id)
	w.wantStatus(id, compute.StatusStarting, compute.ReasonNone)
	if n := w.node("n1"); n.GPUs[0].UsedMilli != 1000 || n.UsedVCPUMilli != 8000 {
		t.Fatalf("node gave %d of its GPU and %d vCPU", n.GPUs[0].UsedMilli, n.UsedVCPUMilli)
	}
	work := w.view().Work(w.node("n1").ID)
	if len(work) != 1 || work[0].Execution.ID != id || work[0].GPUs[0].Type != "h100" {
		t.Fatalf("work of the node is %+v", work)
	}
	w.must(w.started(id))
	w.wantStatus(id, compute.StatusRunning, compute.ReasonNone)
	w.must(w.ended(id, compute.StatusCompleted, 1500*time.Millisecond))
	w.wantStatus(id, compute.StatusCompleted, compute.ReasonNone)
	w.wantMoney(full-micro(1350), 0)
	if e := w.get(id); e.Billed != 1350 || e.Held != 0 || e.FinishedAt != w.now {
		t.Fatalf("execution ended as %+v", e)
	}
	if n := w.node("n1"); n.GPUs[0].UsedMilli != 0 || n.UsedVCPUMilli != 0 {
		t.Fatal("the GPU was not given back")
	}
	var urls []string
	for c := range w.view().Callbacks() {
		urls = append(urls, c.URL)
	}
	if strings.Join(urls, " ") != "https://example.com/a https://example.com/b" {
		t.Fatalf("callbacks are %v", urls)
	}
}

func TestFinishComesBeforeStart(t *testing.T) {
	w := newWorld(t)
	id := w.submit("cpu")
	w.place("n1", id)
	late := w.started(id)
	w.must(w.ended(id, compute.StatusCompleted, time.Second))
	w.refused(late, compute.CodeConflict, "stale_attempt")
	if e := w.get(id); e.StartedAt.IsZero() || e.Billed != 15 {
		t.Fatalf("execution ended as %+v", e)
	}
}

func TestStaleReportsAreHarmless(t *testing.T) {
	w := newWorld(t)
	id := w.submit("t4")
	w.place("n3", id)
	start, end := w.started(id), w.ended(id, compute.StatusCompleted, time.Second)

	other := start
	other.Node = w.node("n1").ID
	w.refused(other, compute.CodeConflict, "stale_attempt")
	older := end
	older.Outcome.Epoch--
	w.refused(older, compute.CodeConflict, "stale_attempt")
	newer := end
	newer.Outcome.Epoch++
	w.refused(newer, compute.CodeConflict, "stale_attempt")
	unknown := end
	unknown.Outcome.Execution = w.executionID()
	w.refused(unknown, compute.CodeConflict, "stale_attempt")
	live := end
	live.Outcome.Status = compute.StatusRunning
	w.refused(live, compute.CodeInvalid, "outcome")

	w.must(start)
	if r := w.must(start); !r.Repeat {
		t.Error("a repeated start is not said to be one")
	}
	w.must(end)
	w.refused(end, compute.CodeConflict, "stale_attempt")
	w.refused(start, compute.CodeConflict, "stale_attempt")
	w.wantStatus(id, compute.StatusCompleted, compute.ReasonNone)
}

func TestChargeOfEachEnd(t *testing.T) {
	tests := []struct {
		name   string
		change func(*compute.Outcome)
		status compute.Status
		billed compute.Credits
	}{
		{"completed", func(*compute.Outcome) {}, compute.StatusCompleted, 200},
		{"failed", func(o *compute.Outcome) {
			o.Status, o.Reason, o.ExitCode = compute.StatusFailed, compute.ReasonExitCode, 3
		}, compute.StatusFailed, 200},
		{
			"rounded up once", func(o *compute.Outcome) { o.Duration = 1001 * time.Millisecond },
			compute.StatusCompleted, 101,
		},
		{
			"longer than what is held", func(o *compute.Outcome) { o.Duration = time.Hour },
			compute.StatusCompleted, 6000,
		},
		{"system failure", func(o *compute.Outcome) {
			o.Status, o.Reason = compute.StatusSystemFailure, compute.ReasonStartFailed
		}, compute.StatusSystemFailure, 0},
		{"never ran", func(o *compute.Outcome) { o.Ran = false }, compute.StatusCompleted, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			id := w.submit("t4")
			w.place("n3", id)
			end := w.ended(id, compute.StatusCompleted, 2*time.Second)
			test.change(&end.Outcome)
			w.must(end)
			if e := w.get(id); e.Status != test.status || e.Billed != test.billed {
				t.Errorf("ended as %s, billed %d; want %s, %d",
					e.Status, e.Billed, test.status, test.billed)
			}
			w.wantMoney(100*compute.Credit-test.billed, 0)
			var last *compute.LedgerEntry
			for e := range w.view().Ledger(w.org, 0) {
				last = e
			}
			if last.Execution != id || last.Note == "" {
				t.Errorf("the last ledger line says nothing: %+v", last)
			}
		})
	}
}

func TestSubmitIsRefused(t *testing.T) {
	tests := []struct {
		name   string
		change func(*world, *command.Submit)
		code   compute.Code
		detail string
	}{
		{
			"no id", func(_ *world, c *command.Submit) { c.Execution.ID = compute.ExecutionID{} },
			compute.CodeInvalid, "no_execution_id",
		},
		{
			"unknown type", func(_ *world, c *command.Submit) { c.Execution.Profile = "gpu.b200" },
			compute.CodeInvalid, "unknown_profile",
		},
		{
			"malformed profile", func(_ *world, c *command.Submit) { c.Execution.Profile = "gpu.t4.3x" },
			compute.CodeInvalid, "unknown_profile",
		},
		{"no price", func(w *world, c *command.Submit) {
			w.addNode("n4", "l4")
			c.Execution.Profile = "l4"
		}, compute.CodeInvalid, "unknown_profile"},
		{
			"slice", func(_ *world, c *command.Submit) { c.Execution.Profile = "a100.mig_1g_5gb" },
			compute.CodeInvalid, "unknown_profile",
		},
		{
			"more GPUs than a node has", func(_ *world, c *command.Submit) { c.Execution.Profile = "h100.4x" },
			compute.CodeInvalid, "never_fits",
		},
		{
			"more vCPUs than a node has", func(_ *world, c *command.Submit) { c.Execution.Profile = "cpu.49x" },
			compute.CodeInvalid, "never_fits",
		},
		{
			"absurdly many vCPUs", func(_ *world, c *command.Submit) { c.Execution.Profile = "cpu.9223372036854775807x" },
			compute.CodeInvalid, "unknown_profile",
		},
		{
			"no timeout", func(_ *world, c *command.Submit) { c.Execution.Timeout = 0 },
			compute.CodeInvalid, "timeout",
		},
		{
			"long timeout", func(_ *world, c *command.Submit) { c.Execution.Timeout = 25 * time.Hour },
			compute.CodeInvalid, "timeout",
		},
		{
			"priority", func(_ *world, c *command.Submit) { c.Execution.Priority = 101 },
			compute.CodeInvalid, "priority",
		},
		{
			"negative ceiling", func(_ *world, c *command.Submit) { c.Execution.MaxCredits = -1 },
			compute.CodeInvalid, "negative",
		},
		{
			"tiny ceiling", func(_ *world, c *command.Submit) { c.Execution.MaxCredits = 99 },
			compute.CodeInvalid, "max_credits",
		},
		{
			"sub-execution", func(_ *world, c *command.Submit) { c.Execution.Kind = compute.KindSubSelection },
			compute.CodeInvalid, "kind",
		},
		{
			"unknown kind", func(_ *world, c *command.Submit) { c.Execution.Kind = 77 },
			compute.CodeInvalid, "kind",
		},
		{
			"selection of nothing", func(_ *world, c *command.Submit) { c.Execution.Kind = compute.KindSelection },
			compute.CodeInvalid, "selection",
		},
		{
			"outputs to no folder", func(_ *world, c *command.Submit) { c.Execution.OutputsPrefix = "a/../b" },
			compute.CodeInvalid, "outputs_prefix",
		},
		{
			"callbacks", func(_ *world, c *command.Submit) { c.Execution.CallbackURLs = make([]string, 11) },
			compute.CodeInvalid, "callbacks",
		},
		{"another bundle than its hash says", func(_ *world, c *command.Submit) {
			c.Execution.Bundle.Inline = []byte("code")
		}, compute.CodeInvalid, "bundle"},
		{"more than the balance", func(_ *world, c *command.Submit) {
			c.Execution.Profile, c.Execution.Timeout = "t4.4x", 24*time.Hour
			c.Execution.MaxCredits = 101 * compute.Credit
			c.Execution.Profile = "a100.4x"
			c.Execution.Kind = compute.KindSelection
			c.Execution.Selection = &compute.Selection{}
		}, compute.CodeForbidden, "credits_exhausted"},
		{
			"root", func(w *world, c *command.Submit) { c.Actor = w.root },
			compute.CodeForbidden, "no_org",
		},
		{
			"another's organization", func(w *world, c *command.Submit) { c.Actor.Org = w.other.Org },
			compute.CodeForbidden, "not_a_member",
		},
		{
			"old access token", func(_ *world, c *command.Submit) { c.Actor.TokenVersion = 1 },
			compute.CodeUnauthenticated, "token_revoked",
		},
		{
			"unknown user", func(w *world, c *command.Submit) { c.Actor.User.UUID = w.uuid() },
			compute.CodeUnauthenticated, "user_inactive",
		},
		{
			"unknown key", func(w *world, c *command.Submit) { c.Actor.Key.UUID = w.uuid() },
			compute.CodeUnauthenticated, "key_unknown",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			c := w.python("t4")
			test.change(w, &c)
			w.refused(c, test.code, test.detail)
		})
	}
}

func TestRefusalNamesTheValidProfiles(t *testing.T) {
	w := newWorld(t)
	r := w.do(w.python("gpu.b200"))
	want := "cpu, cpu.16x, cpu.2x, cpu.32x, cpu.4x, cpu.8x, gpu.a100, gpu.a100.2x, gpu.a100.4x, " +
		"gpu.h100, gpu.h100.2x, gpu.l40s, gpu.l40s.2x, gpu.l40s.4x, gpu.t4, gpu.t4.2x, gpu.t4.4x"
	if !strings.HasSuffix(r.Refusal.Message, want) {
		t.Errorf("message is %q, want it to end in %q", r.Refusal.Message, want)
	}
}

func TestProfilesResolve(t *testing.T) {
	w := newWorld(t)
	tests := []struct {
		profile, canonical string
		want               compute.Request
		price              compute.Price
	}{
		{"cpu", "cpu", compute.Request{VCPUMilli: 1000, MemoryMiB: 2048}, 15},
		{"CPU.4X", "cpu.4x", compute.Request{VCPUMilli: 4000, MemoryMiB: 8192}, 60},
		{"H100", "gpu.h100", compute.Request{
			GPUType: "h100", GPUs: 1, MilliGPU: 1000, VCPUMilli: 8000, MemoryMiB: 64 << 10,
		}, 900},
		{"gpu.a100.2x", "gpu.a100.2x", compute.Request{
			GPUType: "a100", GPUs: 2, MilliGPU: 1000, VCPUMilli: 16000, MemoryMiB: 128 << 10,
		}, 1100},
		{"t4.500m", "gpu.t4.500m", compute.Request{
			GPUType: "t4", GPUs: 1, MilliGPU: 500, VCPUMilli: 4000, MemoryMiB: 32 << 10,
		}, 50},
		{"t4.1m", "gpu.t4.1m", compute.Request{
			GPUType: "t4", GPUs: 1, MilliGPU: 1, VCPUMilli: 8, MemoryMiB: 65,
		}, 1},
	}
	for _, test := range tests {
		p, r, price, err := w.view().Resolve(test.profile)
		if err != nil || p.String() != test.canonical || !reflect.DeepEqual(r, test.want) || price != test.price {
			t.Errorf("Resolve(%q) = %s %+v %d, %v; want %s %+v %d",
				test.profile, p, r, price, err, test.canonical, test.want, test.price)
		}
	}
}

func TestSmallestNodeSizesProfiles(t *testing.T) {
	w := newWorld(t)
	small := inventory(w.node("n3").ID, "n3", 2, "t4", "t4", "t4", "t4")
	small.VCPUMilli, small.MemoryMiB = 10_001, 1001
	w.must(command.SetInventory{Term: 1, Inventory: small})
	w.addNode("n4", "t4")
	_, r, _, err := w.view().Resolve("t4")
	if err != nil || r.VCPUMilli != 2500 || r.MemoryMiB != 250 {
		t.Errorf("t4 is sized %+v, %v", r, err)
	}
}

func TestQueueOrderAndLimits(t *testing.T) {
	w := newEmptyWorld(t)
	s := settings()
	s.Queued, s.Concurrent = 3, 1
	w.bootstrap(s)
	w.addNode("n1", "t4", "t4")
	w.ada = w.addUser("ada")
	w.org = w.ada.Org
	first := w.submit("t4", func(e *compute.Execution) { e.Priority = 50 })
	second := w.submit("t4", func(e *compute.Execution) { e.Priority = 50 })
	urgent := w.submit("t4", func(e *compute.Execution) { e.Priority = 51 })
	var order []compute.ExecutionID
	for e := range w.view().Queue() {
		order = append(order, e.ID)
	}
	if len(order) != 3 || order[0] != urgent || order[1] != first || order[2] != second {
		t.Fatalf("queue is %v, want %v %v %v", order, urgent, first, second)
	}
	w.refused(w.python("t4"), compute.CodeForbidden, "queue_full")

	w.place("n1", urgent)
	r := w.must(command.CommitPlan{Term: 1, Plan: compute.Plan{
		Assignments: []compute.Assignment{w.assign(first, "n1")},
	}})
	if r.Count != 0 {
		t.Fatal("more attempts than the organization may have")
	}
	w.wantStatus(first, compute.StatusQueued, compute.ReasonOrgConcurrency)
	if w.running() != 1 || w.view().QueueLen() != 2 {
		t.Errorf("%d running, %d queued", w.running(), w.view().QueueLen())
	}
	w.submit("t4") // The queue has space again.
}

func TestStop(t *testing.T) {
	tests := []struct {
		name   string
		stops  []compute.Stop
		placed bool
		end    compute.Status // The node's report afterwards.
		reason compute.Reason
		want   compute.Status
		why    compute.Reason
		billed compute.Credits
	}{
		{
			"queued, hard",
			[]compute.Stop{compute.StopHard},
			false, 0, 0,
			compute.StatusAborted, compute.ReasonAborted, 0,
		},
		{
			"queued, graceful",
			[]compute.Stop{compute.StopGraceful},
			false, 0, 0,
			compute.StatusCancelled, compute.ReasonStopped, 0,
		},
		{
			"running, hard",
			[]compute.Stop{compute.StopHard},
			true, compute.StatusAborted,
			compute.ReasonAborted, compute.StatusAborted, compute.ReasonAborted, 200,
		},
		{
			"running, graceful",
			[]compute.Stop{compute.StopGraceful},
			true, compute.StatusCancelled,
			compute.ReasonStopped, compute.StatusCancelled, compute.ReasonStopped, 200,
		},
		{
			"killed by the signal of the stop",
			[]compute.Stop{compute.StopGraceful},
			true,
			compute.StatusFailed, compute.ReasonSignal, compute.StatusCancelled, compute.ReasonStopped, 200,
		},
		{
			"ended by itself first",
			[]compute.Stop{compute.StopHard},
			true, compute.StatusCompleted,
			compute.ReasonNone, compute.StatusCompleted, compute.ReasonNone, 200,
		},
		{
			"failed by itself first",
			[]compute.Stop{compute.StopHard},
			true, compute.StatusFailed,
			compute.ReasonExitCode, compute.StatusFailed, compute.ReasonExitCode, 200,
		},
		{
			"hard after graceful",
			[]compute.Stop{compute.StopGraceful, compute.StopHard},
			true,
			compute.StatusAborted, compute.ReasonAborted, compute.StatusAborted, compute.ReasonAborted, 200,
		},
		{
			"graceful after hard",
			[]compute.Stop{compute.StopHard, compute.StopGraceful},
			true,
			compute.StatusAborted, compute.ReasonAborted, compute.StatusAborted, compute.ReasonAborted, 200,
		},
		{
			"our failure all the same",
			[]compute.Stop{compute.StopHard},
			true,
			compute.StatusSystemFailure, compute.ReasonSupervisorLost,
			compute.StatusSystemFailure, compute.ReasonSupervisorLost, 0,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			id := w.submit("t4")
			if test.placed {
				w.place("n3", id)
				w.must(w.started(id))
			}
			for _, stop := range test.stops {
				w.must(command.StopExecution{Actor: w.ada, Execution: id, Stop: stop})
			}
			if test.placed {
				end := w.ended(id, test.end, 2*time.Second)
				end.Outcome.Reason = test.reason
				w.must(end)
			}
			w.wantStatus(id, test.want, test.why)
			if e := w.get(id); e.Billed != test.billed {
				t.Errorf("billed %d, want %d", e.Billed, test.billed)
			}
			w.refused(command.StopExecution{Actor: w.ada, Execution: id, Stop: compute.StopHard},
				compute.CodeConflict, "already_ended")
		})
	}
}

// TestDeleteIncludesChildren checks that no code of a deleted GPU
// selection is left in its sub-executions.
func TestDeleteIncludesChildren(t *testing.T) {
	w := newWorld(t)
	parent := w.selection(func(*compute.Execution) {})
	w.must(w.take(parent, "gpu.t4"))
	child := w.children(parent)[0].ID
	w.complete(child, "n3", time.Second)
	w.must(command.DeleteExecution{Actor: w.ada, Execution: parent})
	if _, ok := w.view().Execution(w.org, child); ok {
		t.Error("a sub-execution of a deleted GPU selection can be read")
	}
	if c := w.children(parent); len(c) != 1 || c[0].Bundle.Size != 0 || c[0].Billed == 0 {
		t.Errorf("the sub-execution's billing row is %+v", c)
	}
}

func TestStopAndDeleteNeedTheOrganization(t *testing.T) {
	w := newWorld(t)
	id := w.submit("t4")
	w.refused(command.StopExecution{Actor: w.other, Execution: id, Stop: compute.StopHard},
		compute.CodeNotFound, "execution_not_found")
	w.refused(command.StopExecution{Actor: w.ada, Execution: id}, compute.CodeInvalid, "stop")
	w.refused(command.DeleteExecution{Actor: w.ada, Execution: id}, compute.CodeConflict, "still_live")
	w.complete(id, "n3", time.Second)
	w.refused(command.DeleteExecution{Actor: w.other, Execution: id},
		compute.CodeNotFound, "execution_not_found")
	w.must(command.DeleteExecution{Actor: w.ada, Execution: id})
	if _, ok := w.view().Execution(w.org, id); ok {
		t.Error("a deleted execution can be read")
	}
	rows := 0
	for e := range w.view().History(w.org, fsm.HistoryFilter{}) {
		rows++
		if !e.Deleted || e.Billed != 100 {
			t.Errorf("the billing row is %+v", e)
		}
	}
	if rows != 1 {
		t.Errorf("%d billing rows, want 1", rows)
	}
	w.refused(command.DeleteExecution{Actor: w.ada, Execution: id},
		compute.CodeNotFound, "execution_not_found")
}

func TestLostNodeEndsItsExecutions(t *testing.T) {
	w := newWorld(t)
	lost, other, queued := w.submit("t4"), w.submit("t4"), w.submit("t4")
	w.place("n3", lost, other)
	w.must(w.started(lost))
	node := w.node("n3").ID
	w.must(command.SetNodeState{Term: 1, Node: node, State: compute.NodeDown})
	w.wantStatus(lost, compute.StatusRunning, compute.ReasonNodeUnreached)
	w.wantStatus(other, compute.StatusStarting, compute.ReasonNodeUnreached)
	if r := w.must(command.CommitPlan{Term: 1, Plan: compute.Plan{
		Assignments: []compute.Assignment{w.assign(queued, "n3")},
	}}); r.Count != 0 {
		t.Fatal("placed on a node that is down")
	}
	refs := []command.AttemptRef{{Execution: lost, Epoch: 1}, {Execution: queued, Epoch: 1}, {Execution: other, Epoch: 2}}
	if r := w.must(command.LoseAttempts{Term: 1, Node: node, Attempts: refs}); r.Count != 1 {
		t.Fatalf("lost %d attempts, want 1", r.Count)
	}
	w.wantStatus(lost, compute.StatusSystemFailure, compute.ReasonNodeLost)
	if w.get(lost).Billed != 0 {
		t.Error("a lost execution was charged")
	}
	w.must(command.SetNodeState{Term: 1, Node: node, State: compute.NodeUp})
	w.wantStatus(other, compute.StatusStarting, compute.ReasonNone)
	w.must(w.ended(other, compute.StatusCompleted, time.Second))
}

func TestHistoryAndTotals(t *testing.T) {
	w := newWorld(t)
	first := w.submit("t4")
	w.complete(first, "n3", 2*time.Second)
	w.now = w.now.Add(time.Minute)
	second := w.submit("t4")
	live := w.submit("cpu")
	w.must(command.StopExecution{Actor: w.ada, Execution: second, Stop: compute.StopHard})
	ids := func(f fsm.HistoryFilter) (out []compute.ExecutionID) {
		for e := range w.view().History(w.org, f) {
			out = append(out, e.ID)
		}
		return out
	}
	aborted, selection := compute.StatusAborted, compute.KindSelection
	tests := []struct {
		name   string
		filter fsm.HistoryFilter
		want   []compute.ExecutionID
	}{
		{"all", fsm.HistoryFilter{}, []compute.ExecutionID{live, second, first}},
		{"status", fsm.HistoryFilter{Status: &aborted}, []compute.ExecutionID{second}},
		{"kind", fsm.HistoryFilter{Kind: &selection}, nil},
		{"parent", fsm.HistoryFilter{Parent: &first}, nil},
		{"from", fsm.HistoryFilter{From: w.now}, []compute.ExecutionID{live, second}},
		{"to", fsm.HistoryFilter{To: w.now}, []compute.ExecutionID{first}},
		{"all but one", fsm.HistoryFilter{Skip: 1}, []compute.ExecutionID{second, first}},
		{"from, but one", fsm.HistoryFilter{From: w.now, Skip: 1}, []compute.ExecutionID{second}},
		{"none", fsm.HistoryFilter{Skip: 3}, nil},
	}
	for _, test := range tests {
		if got := ids(test.filter); !equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	total, spent, by := w.view().Totals(w.org)
	if total != 3 || spent != 200 || by[compute.StatusCompleted] != 1 || by[compute.StatusQueued] != 1 {
		t.Errorf("totals are %d, %d, %v", total, spent, by)
	}
	var lives []compute.ExecutionID
	for e := range w.view().Live(w.org) {
		lives = append(lives, e.ID)
	}
	if !equal(lives, []compute.ExecutionID{live}) {
		t.Errorf("live are %v", lives)
	}
	if total, _, _ := w.view().Totals(w.other.Org); total != 0 {
		t.Error("another organization sees the executions")
	}
}

func equal(a, b []compute.ExecutionID) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestRootStopsAndDeletesForAnyone(t *testing.T) {
	w := newWorld(t)
	id := w.submit("t4")
	w.must(command.StopExecution{Actor: w.root, Execution: id, Stop: compute.StopHard})
	w.wantStatus(id, compute.StatusAborted, compute.ReasonAborted)
	w.must(command.DeleteExecution{Actor: w.root, Execution: id})
	w.refused(command.StopExecution{Actor: w.root, Execution: id, Stop: compute.StopHard},
		compute.CodeNotFound, "execution_not_found")
}

func TestSubmitSetsTheStatesFields(t *testing.T) {
	w := newWorld(t)
	id := w.submit("t4", func(e *compute.Execution) {
		e.Org, e.User = w.other.Org, w.other.User
		e.Status, e.Reason, e.Epoch = compute.StatusCompleted, compute.ReasonTimeout, 7
		e.Price, e.Held, e.Billed = 1, -5, 5
		e.Request = compute.Request{GPUs: 9}
		e.SubmitIndex, e.CreatedAt, e.FinishedAt = 1, 1, 1
		e.Parent.UUID = w.uuid()
		e.Stop, e.Ran, e.Deleted = compute.StopHard, true, true
	})
	e := w.get(id)
	if e.Org != w.org || e.User != w.ada.User || e.Epoch != 0 || e.Price != 100 || e.Held != 6000 ||
		e.Billed != 0 || e.Request.GPUs != 1 || e.SubmitIndex != w.index || e.CreatedAt != w.now ||
		!e.FinishedAt.IsZero() || !e.Parent.IsZero() || e.Stop != compute.StopNone || e.Ran || e.Deleted {
		t.Errorf("a client filled in what is not its own: %+v", e)
	}
	w.wantStatus(id, compute.StatusQueued, compute.ReasonScheduling)
}

func TestOneEntryDecidesInOrder(t *testing.T) {
	w := newPoorWorld(t, 13_000, "n3", "t4", "t4", "t4") // A little more than two minutes of a t4.
	first, second, third := w.python("t4"), w.python("t4"), w.python("t4")
	repeat := first
	repeat.Execution.ID = w.executionID()
	w.index++
	results := w.fsm.ApplyFrames(w.index,
		w.frame(first), w.frame(repeat), w.frame(second), w.frame(third))
	if results[0].Refusal != nil || !results[1].Repeat || results[1].Execution != first.Execution.ID ||
		results[2].Refusal != nil || results[3].Refusal == nil ||
		results[3].Refusal.Detail != "credits_exhausted" {
		t.Errorf("results are %+v", results)
	}
	w.wantMoney(13_000, 12_000)
}

func TestBundleTravelsWithItsExecution(t *testing.T) {
	w := newWorld(t)
	code := []byte("print(1)")
	id := w.submit("t4", func(e *compute.Execution) {
		e.Bundle = compute.BundleRef{Hash: sha256.Sum256(code), Size: int64(len(code)), Inline: code}
	})
	f, err := restore(w.snapshot())
	if err != nil {
		t.Fatal(err)
	}
	e, _ := f.View().AnyExecution(id)
	if string(e.Bundle.Inline) != string(code) || f.View().Hash() != w.view().Hash() {
		t.Errorf("the bundle came back as %+v", e.Bundle)
	}
	large := w.python("t4")
	large.Execution.Bundle.Inline = make([]byte, compute.MaxInlineBundle+1)
	large.Execution.Bundle.Hash = sha256.Sum256(large.Execution.Bundle.Inline)
	w.refused(large, compute.CodeInvalid, "bundle")
	w.complete(id, "n3", time.Second)
	w.must(command.DeleteExecution{Actor: w.ada, Execution: id})
	for e := range w.view().History(w.org, fsm.HistoryFilter{}) {
		if e.Bundle.Inline != nil || e.Bundle.Hash != (compute.Hash{}) {
			t.Error("the code of a deleted execution is still there")
		}
	}
}

// TestStatusIsThatOfTheExecution reads the status of executions in each state, which is
// decoded apart from the rest of them.
func TestStatusIsThatOfTheExecution(t *testing.T) {
	w := newWorld(t)
	queued, running, failed, deleted := w.submit("t4"), w.submit("t4"), w.submit("t4"), w.submit("t4")
	w.complete(deleted, "n3", time.Second)
	w.must(command.DeleteExecution{Actor: w.ada, Execution: deleted})
	w.place("n3", failed)
	w.must(w.started(failed))
	outcome := w.ended(failed, compute.StatusFailed, time.Second)
	outcome.Outcome.Reason, outcome.Outcome.Detail = compute.ReasonExitCode, "exit code 3"
	w.must(outcome)
	w.place("n3", running)
	w.must(w.started(running))
	for _, id := range []compute.ExecutionID{queued, running, failed} {
		want := w.get(id)
		got, ok := w.view().Status(w.org, id)
		if !ok || got.ID != id || got.Kind != want.Kind || got.Status != want.Status || got.Reason != want.Reason || got.Detail != want.Detail {
			t.Errorf("status %+v, the execution is %+v", got, want)
		}
	}
	for id, org := range map[compute.ExecutionID]compute.OrgID{deleted: w.org, running: w.other.Org, {}: w.org} {
		if got, ok := w.view().Status(org, id); ok {
			t.Errorf("status %+v of an execution that is deleted, another's or unknown", got)
		}
	}
}
