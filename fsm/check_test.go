package fsm

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/fsm/ledger"
	"berth/fsm/store"
)

// populated returns a state with a node, a user, a live execution, an ended
// one and a running GPU selection.
func populated(t *testing.T) *state {
	t.Helper()
	f := New()
	var n uint64
	id := func(i byte) (u compute.UUID) { u[0] = i; return u }
	do := func(cmds ...command.Command) {
		t.Helper()
		for _, cmd := range cmds {
			frame, err := command.Encode(cmd)
			if err != nil {
				t.Fatal(err)
			}
			n++
			if r := f.ApplyFrames(n, frame); r[0].Refusal != nil {
				t.Fatalf("%T: %v", cmd, r[0].Refusal)
			}
		}
	}
	root, node := command.Actor{Root: true}, compute.NodeID{UUID: id(1)}
	ada := command.Actor{User: compute.UserID{UUID: id(2)}, Org: compute.OrgID{UUID: id(3)}}
	execution := func(i byte) compute.ExecutionID { return compute.ExecutionID{UUID: id(i)} }
	submit := func(i byte, selection *compute.Selection) command.Submit {
		e := compute.Execution{ID: execution(i), Profile: "t4", Timeout: time.Minute, Selection: selection}
		if selection != nil {
			e.Kind = compute.KindSelection
		}
		return command.Submit{Actor: ada, Execution: e}
	}
	place := func(i byte) command.CommitPlan {
		return command.CommitPlan{Plan: compute.Plan{Assignments: []compute.Assignment{{
			Execution: execution(i), Node: node,
			GPUs: []compute.GPUShare{{GPU: compute.GPUID([]string{"a", "b"}[i%2]), Milli: 1000}},
		}}}}
	}
	do(command.Clock{At: 1_000_000},
		command.Bootstrap{
			ClusterID: id(9), Prices: map[string]compute.Price{"t4": 100},
			Settings: command.Settings{SignupGrant: compute.Credit},
		},
		command.RegisterNode{Node: compute.Node{ID: node}, First: true},
		command.SetInventory{Inventory: compute.Inventory{
			Node: node, Version: 1, VCPUMilli: 2000, MemoryMiB: 100,
			GPUs: []compute.GPU{{ID: "a", Type: "t4"}, {ID: "b", Type: "t4"}},
		}},
		command.CreateUser{Actor: root, User: compute.User{ID: ada.User, Email: "e"}, Org: compute.Org{ID: ada.Org, Slug: "s"}},
		command.CreateKey{Actor: ada, Key: compute.Key{ID: compute.KeyID{UUID: id(4)}, Lookup: "l"}},
		submit(10, nil), place(10), submit(11, nil), place(11),
		command.FinishAttempt{Node: node, Outcome: compute.Outcome{
			Execution: execution(11), Epoch: 1,
			Status: compute.StatusCompleted, Ran: true, Duration: time.Second,
		}},
		submit(12, &compute.Selection{}),
		command.TakeSelection{Parent: execution(12), Children: []command.Child{{ID: execution(13), Profile: "t4"}}},
	)
	if err := f.View().Check(); err != nil {
		t.Fatal(err)
	}
	return f.state
}

// change stores a changed copy of a record without updating the data derived
// from it.
func change[K, V any](r store.Records[K, V], k K, f func(*V)) {
	old, _ := r.Get(k)
	changed := *old
	f(&changed)
	r.Put(&changed)
}

// TestCheckFindsViolations breaks every invariant once.
func TestCheckFindsViolations(t *testing.T) {
	execution := func(i byte) (id compute.ExecutionID) { id.UUID[0] = i; return id }
	edit := func(i byte, f func(*compute.Execution)) func(*state) {
		return func(s *state) {
			old, _ := s.view.executions.Get(execution(i))
			e := *old
			f(&e)
			s.putExecution(&e)
		}
	}
	attempt := func(i byte, f func(*compute.Attempt)) func(*state) {
		return func(s *state) {
			old, _ := s.view.attempts.Get(numberKey{execution(i).UUID, 1})
			a := *old
			f(&a)
			s.view.putAttempt(&a)
		}
	}
	org, node := compute.OrgID{UUID: compute.UUID{3}}, compute.NodeID{UUID: compute.UUID{1}}
	editLine := func(seq uint64, f func(*compute.LedgerEntry)) func(*state) {
		return func(s *state) { change(s.view.ledger.Records, ledger.Key{Owner: org.UUID, Seq: seq}, f) }
	}
	gpu := func(f func(*compute.GPU)) func(*state) {
		return func(s *state) {
			change(s.view.nodes.Records, node, func(n *compute.Node) {
				n.GPUs = append([]compute.GPU(nil), n.GPUs...)
				f(&n.GPUs[0])
			})
		}
	}
	selection := func(f func(*compute.Execution, *compute.Selection)) func(*state) {
		return edit(12, func(e *compute.Execution) {
			copied := *e.Selection
			f(e, &copied)
			e.Selection = &copied
		})
	}
	tests := []struct {
		name  string
		spoil func(*state)
		want  string
	}{
		{"record written to", func(s *state) {
			e, _ := s.view.executions.Get(execution(10))
			e.Detail = "written"
		}, "hash of the state"},
		{"count", func(s *state) { s.view.counts.held++ }, "counts are"},
		{"missing in an index", func(s *state) {
			e, _ := s.view.executions.Get(execution(13))
			s.view.queue.Update(e, nil)
		}, "queue: 0 rows"},
		{"wrong row", func(s *state) { s.view.slugs.Set("s", compute.OrgID{}) }, "slugs: at s"},
		{"offer", func(s *state) { s.view.offered = offer{} }, "nodes offer"},
		{"ledger amount", editLine(2, func(e *compute.LedgerEntry) { e.Amount++ }), "line 2 does not add up"},
		{"ledger note", editLine(2, func(e *compute.LedgerEntry) { e.Note = "forged" }), "chain breaks at line 2"},
		{"ledger hash", editLine(1, func(e *compute.LedgerEntry) { e.Hash[0]++ }), "chain breaks at line 1"},
		{"ledger negative", editLine(1, func(e *compute.LedgerEntry) { e.Amount = -e.Amount }), "negative amount"},
		{"ledger line gone", func(s *state) { s.view.ledger.Drop(ledger.Key{Owner: org.UUID, Seq: 2}) }, "line 2 is missing"},
		{"last ledger line gone", func(s *state) {
			a, _ := s.view.accounts.Get(org)
			s.view.ledger.Drop(ledger.Key{Owner: org.UUID, Seq: a.Seq})
		}, "the account does not match its lines"},
		{"balance", func(s *state) {
			change(s.view.accounts, org, func(a *compute.Account) { a.Charged++ })
		}, "the account does not match its lines"},
		{"held by nobody", edit(10, func(e *compute.Execution) { e.Held-- }), "its executions hold"},
		{"vCPUs of a node", func(s *state) {
			change(s.view.nodes.Records, node, func(n *compute.Node) { n.UsedVCPUMilli++ })
		}, "its attempts hold"},
		{"GPU", gpu(func(g *compute.GPU) { g.UsedMilli-- }), "GPU a: gave 999"},
		{"held GPU gone", func(s *state) {
			change(s.view.nodes.Records, node, func(n *compute.Node) { n.GPUs = n.GPUs[1:] })
		}, "GPUs that it has not"},
		{"free GPU missing", func(s *state) {
			change(s.view.nodes.Records, node, func(n *compute.Node) {
				n.GPUs = append([]compute.GPU(nil), n.GPUs...)
				n.GPUs[1].Health = compute.HealthMissing
			})
		}, "is gone and held by nothing"},
		{"ended without a time", edit(11, func(e *compute.Execution) { e.FinishedAt = 0 }), "go together"},
		{"live with a time", edit(10, func(e *compute.Execution) { e.FinishedAt = 1 }), "go together"},
		{"ended and holding", edit(11, func(e *compute.Execution) { e.Held = 1 }), "still set aside"},
		{"negative", edit(11, func(e *compute.Execution) { e.Billed = -1 }), "negative credits"},
		{"over the ceiling", edit(11, func(e *compute.Execution) { e.MaxCredits = 99 }), "over its ceiling"},
		{
			"queued with an attempt", edit(10, func(e *compute.Execution) { e.Status = compute.StatusQueued }),
			"without a live attempt",
		},
		{
			"placed without one", edit(13, func(e *compute.Execution) { e.Status = compute.StatusRunning }),
			"without a live attempt",
		},
		{
			"charged for our failure", edit(11, func(e *compute.Execution) { e.Status = compute.StatusSystemFailure }),
			"was charged",
		},
		{"long detail", edit(10, func(e *compute.Execution) { e.Detail = strings.Repeat("x", 513) }), "too long"},
		{"live children", selection(func(_ *compute.Execution, s *compute.Selection) { s.Live++ }), "counted 2"},
		{"parent's bill", selection(func(e *compute.Execution, _ *compute.Selection) { e.Billed++ }), "its children"},
		{"forgotten child", func(s *state) { s.dropExecution(execution(13)) }, "live children"},
		{
			"taken twice", selection(func(_ *compute.Execution, s *compute.Selection) { s.Taken = false }),
			"queue message do not agree",
		},
		{
			"attempt of nothing", attempt(11, func(a *compute.Attempt) { a.Execution = execution(99) }),
			"has no execution",
		},
		{"attempt from the future", attempt(11, func(a *compute.Attempt) { a.Epoch = 2 }), "has no execution"},
		{
			"attempt ended as running", attempt(11, func(a *compute.Attempt) { a.Status = compute.StatusRunning }),
			"ended as running",
		},
		{"member of nothing", func(s *state) {
			s.view.putMembership(&compute.Membership{Org: org})
		}, "one does not exist"},
		{"key of nobody", func(s *state) {
			k, _ := s.view.keys.Get(compute.KeyID{UUID: compute.UUID{4}})
			other := *k
			other.User = compute.UserID{}
			s.view.putKey(&other)
		}, "nobody's member"},
		{
			"execution of nobody", edit(11, func(e *compute.Execution) { e.Org = compute.OrgID{} }),
			"belongs to no organization",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := populated(t)
			test.spoil(s)
			if err := s.publish().Check(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Check says %v, want %q in it", err, test.want)
			}
		})
	}
}

// TestOldestOpsAreDropped reaches the limit on the number of remembered requests
// instead of their age.
func TestOldestOpsAreDropped(t *testing.T) {
	s := newState()
	for i := range 3 {
		s.remember(command.Op{ID: compute.OpID{UUID: compute.UUID{byte(i + 1)}}}, command.Result{Count: i})
	}
	s.forgetOldest(&s.view.opAges)
	if _, known := s.view.Recall(command.Op{ID: compute.OpID{UUID: compute.UUID{1}}}); known {
		t.Error("the oldest is still known")
	}
	if r, known := s.view.Recall(command.Op{ID: compute.OpID{UUID: compute.UUID{2}}}); !known || r.Count != 1 {
		t.Error("a newer one was forgotten")
	}
	if err := (checker{s.publish()}).checkDerived(); err != nil {
		t.Error(err)
	}
}

func TestBuysNeverMoreThanTheCredits(t *testing.T) {
	const limit = 1000 * time.Hour
	for _, price := range []compute.Price{0, 1, 15, 100, 999, 1000, 1001, compute.MaxPrice} {
		for _, credits := range []compute.Credits{-1, 0, 1, 99, 100, 101, compute.Credit, maxAmount} {
			d := price.Buys(credits, limit)
			switch {
			case price == 0 && d != limit:
				t.Errorf("nothing costs nothing, but %d buys %s", credits, d)
			case d < 0 || d > limit || d < limit && price.Charge(d) > max(credits, 0):
				t.Errorf("%d at %d buys %s, which costs %d", credits, price, d, price.Charge(d))
			case d < limit && price.Charge(d+time.Millisecond) <= credits:
				t.Errorf("%d at %d buys more than %s", credits, price, d)
			}
		}
	}
}

func TestClipKeepsWholeCharacters(t *testing.T) {
	tests := []struct {
		text string
		want int
	}{
		{"", 0},
		{strings.Repeat("x", 512), 512},
		{strings.Repeat("x", 513), 512},
		{strings.Repeat("é", 300), 512},
		{"x" + strings.Repeat("é", 300), 511},
	}
	for _, test := range tests {
		if got := clip(test.text); len(got) != test.want || !strings.HasPrefix(test.text, got) {
			t.Errorf("%d bytes were clipped to %d, want %d", len(test.text), len(got), test.want)
		}
	}
}

// TestTickGrowsABoundedNumberOfHolds has one more hold to extend than one Tick
// takes: the one that is due last waits for the next Tick.
func TestTickGrowsABoundedNumberOfHolds(t *testing.T) {
	s := newState()
	s.view.meta.Settings.Meter = true
	s.view.meta.Now = 1_000_000_000_000
	begun := s.view.meta.Now.Add(-2 * time.Hour)
	execution := func(n int) (id compute.ExecutionID) {
		binary.BigEndian.PutUint64(id.UUID[:], uint64(n))
		return id
	}
	for n := range growSweep + 1 {
		s.putExecution(&compute.Execution{
			ID: execution(n), Status: compute.StatusRunning, Timeout: 10 * time.Hour, Price: 100, Held: 1,
			PlacedAt: begun.Add(-time.Duration(n) * time.Millisecond),
		})
	}
	for tick := range 2 {
		s.tick()
		for _, n := range []int{0, 1, growSweep} {
			e, _ := s.view.executions.Get(execution(n))
			if waits := n == 0 && tick == 0; (e.Held == 1) != waits {
				t.Errorf("after Tick %d, execution %d holds %s", tick, n, e.Held)
			}
		}
	}
}

// TestManyDrainingReplicasDelayNoHold has more draining replicas than one Tick extends holds,
// all of them due before the hold of an execution that runs. Below format 14 they are not
// extended, and the execution is, as older programs do it: states of both agree.
func TestManyDrainingReplicasDelayNoHold(t *testing.T) {
	for _, reached := range []uint64{format.Updates, format.Drains} {
		s := newState()
		s.view.meta.Settings.Meter, s.view.meta.Format = true, reached
		s.view.meta.Now = 1_000_000_000_000
		execution := func(n int) (id compute.ExecutionID) {
			binary.BigEndian.PutUint64(id.UUID[:], uint64(n))
			return id
		}
		e := compute.Execution{Status: compute.StatusRunning, Timeout: 10 * time.Hour, Price: 100, Held: 1}
		for n := range growSweep + 2 {
			draining := e
			draining.ID, draining.PlacedAt = execution(n), s.view.meta.Now.Add(-3*time.Hour+time.Duration(n)*time.Millisecond)
			draining.Kind, draining.Stop = compute.KindReplica, compute.StopGraceful
			s.putExecution(&draining)
		}
		runs := e
		runs.ID, runs.PlacedAt = execution(growSweep+2), s.view.meta.Now.Add(-2*time.Hour)
		s.putExecution(&runs)
		s.tick()
		for n, want := range map[int]bool{
			0: reached >= format.Drains, growSweep - 1: reached >= format.Drains, growSweep + 1: false, growSweep + 2: true,
		} {
			if e, _ := s.view.executions.Get(execution(n)); (e.Held > 1) != want {
				t.Errorf("format %d: execution %d holds %s", reached, n, e.Held)
			}
		}
	}
}
