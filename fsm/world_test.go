package fsm_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/fsm/format"
)

// epoch is the start time of every test.
var epoch = compute.InstantOf(time.Date(2026, 3, 31, 22, 0, 0, 0, time.UTC))

// world is a state machine with a few nodes and users, and a clock that the
// test moves. When the test ends, every invariant must hold.
type world struct {
	testing.TB

	fsm   *fsm.FSM
	index uint64
	now   compute.Instant
	term  uint64
	last  uint64 // The last identifier created.

	format uint64 // The format of added nodes.

	entries [][]byte // All applied entries; the first has index 1.

	root  command.Actor
	ada   command.Actor // Owner of the organization org.
	org   compute.OrgID
	other command.Actor // Owner of another organization.
}

// settings returns the settings of most tests.
func settings() command.Settings {
	return command.Settings{
		SignupGrant: 100 * compute.Credit, Concurrent: 100, Queued: 1000, Keys: 50,
		TimeoutMax: 24 * time.Hour, SelectionMax: 16,
	}
}

func prices() map[string]compute.Price {
	return map[string]compute.Price{
		"cpu": 15, "t4": 100, "l40s": 400, "a100": 550, "h100": 900,
	}
}

// newEmptyWorld returns a world before its first command.
func newEmptyWorld(t testing.TB) *world {
	w := &world{TB: t, fsm: fsm.New(), now: epoch, term: 1, root: command.Actor{Root: true}}
	t.Cleanup(func() {
		if err := w.view().Check(); err != nil {
			t.Errorf("the state breaks an invariant: %v", err)
		}
	})
	return w
}

// newWorld returns a world with a cluster of three nodes (n1 h100:2,l40s:4;
// n2 a100:4; n3 t4:4) and two users with an organization each.
func newWorld(t testing.TB) *world {
	w := newEmptyWorld(t)
	w.fill()
	return w
}

// newestWorld returns the same with the newest format of the state.
func newestWorld(t testing.TB) *world {
	w := newEmptyWorld(t)
	w.format = format.Newest
	w.fill()
	w.must(command.SetFormat{Term: w.term, Format: format.Newest})
	return w
}

// fill makes the cluster and the users of newWorld.
func (w *world) fill() {
	w.Helper()
	w.bootstrap(settings())
	w.addNode("n1", "h100", "h100", "l40s", "l40s", "l40s", "l40s")
	w.addNode("n2", "a100", "a100", "a100", "a100")
	w.addNode("n3", "t4", "t4", "t4", "t4")
	w.ada = w.addUser("ada")
	w.other = w.addUser("bob")
	w.org = w.ada.Org
}

// newPoorWorld returns a world with one node of the given GPU types and one
// user, whose organization has only the grant.
func newPoorWorld(t testing.TB, grant compute.Credits, node string, gpus ...string) *world {
	w := newEmptyWorld(t)
	s := settings()
	s.SignupGrant = grant
	w.bootstrap(s)
	w.addNode(node, gpus...)
	w.ada = w.addUser("ada")
	w.org = w.ada.Org
	return w
}

func (w *world) bootstrap(s command.Settings) {
	w.Helper()
	w.must(command.Bootstrap{
		ClusterID: w.uuid(), RootToken: hash("root"), Settings: s, Prices: prices(),
		Signing: compute.SigningKey{ID: "first", Public: []byte{1}, Sealed: []byte{2}},
	})
}

func (w *world) view() *fsm.View { return w.fsm.View() }

// uuid returns an identifier that rises with each call.
func (w *world) uuid() (id compute.UUID) {
	w.last++
	id[0] = 1
	binary.BigEndian.PutUint64(id[8:], w.last)
	return id
}

func (w *world) executionID() compute.ExecutionID { return compute.ExecutionID{UUID: w.uuid()} }

// op returns an Op of the organization org for a request that text names.
func (w *world) op(org compute.OrgID, text string) command.Op {
	return command.Op{ID: compute.OpID{UUID: w.uuid()}, Org: org, Request: hash(text)}
}

func hash(text string) (h compute.Hash) {
	copy(h[:], text)
	return h
}

// do applies the clock and commands as one entry and returns the result of
// the last command.
func (w *world) do(cmds ...command.Command) command.Result {
	w.Helper()
	frames := [][]byte{w.frame(command.Clock{At: w.now, Term: w.term})}
	for _, cmd := range cmds {
		frames = append(frames, w.frame(cmd))
	}
	w.index++
	w.entries = append(w.entries, bytes.Join(frames, nil))
	results := w.fsm.ApplyFrames(w.index, frames...)
	return results[len(results)-1]
}

func (w *world) frame(cmd command.Command) []byte {
	w.Helper()
	frame, err := command.Encode(cmd)
	if err != nil {
		w.Fatalf("encode %T: %v", cmd, err)
	}
	return frame
}

// must applies a command that has to be accepted.
func (w *world) must(cmd command.Command) command.Result {
	w.Helper()
	r := w.do(cmd)
	if r.Refusal != nil {
		w.Fatalf("%T was refused: %v (%s)", cmd, r.Refusal, r.Refusal.Detail)
	}
	return r
}

// refused applies a command that must be refused for a case, and must change
// nothing.
func (w *world) refused(cmd command.Command, code compute.Code, detail string) {
	w.Helper()
	w.do() // Only the clock, so that the hashes can be compared.
	w.index--
	w.entries = w.entries[:len(w.entries)-1]
	before := w.view().Hash()
	r := w.do(cmd)
	switch {
	case r.Refusal == nil:
		w.Fatalf("%T was accepted, want %s %s", cmd, code, detail)
	case r.Refusal.Code != code || r.Refusal.Detail != detail:
		w.Fatalf("%T was refused with %s %s (%s), want %s %s", cmd,
			r.Refusal.Code, r.Refusal.Detail, r.Refusal.Message, code, detail)
	case w.view().Hash() != before:
		w.Fatalf("%T was refused and changed the state", cmd)
	}
}

// pass advances the clock in steps that the state accepts, with a Tick after
// each.
func (w *world) pass(d time.Duration) {
	w.Helper()
	for d > 0 {
		step := min(d, 5*time.Minute)
		w.now = w.now.Add(step)
		d -= step
		w.must(command.Tick{Term: w.term})
	}
}

// addNode joins a node with 8 vCPUs and 64 GiB per GPU and reports its GPUs.
func (w *world) addNode(name string, types ...string) compute.NodeID {
	w.Helper()
	id := compute.NodeID{UUID: w.uuid()}
	c := command.RegisterNode{Node: compute.Node{ID: id, Name: name, Format: w.format}, First: true}
	if w.anyNode() {
		c.First, c.TokenID, c.TokenHash = false, name, hash(name)
		w.must(command.CreateJoinToken{Actor: w.root, Token: compute.JoinToken{
			ID: name, Hash: hash(name), Uses: 1, ExpiresAt: w.now.Add(time.Hour),
		}})
	}
	w.must(c)
	w.must(command.SetInventory{Term: w.term, Inventory: inventory(id, name, 1, types...)})
	return id
}

// upgrade makes all nodes know the newest format, and the state use it.
func (w *world) upgrade() {
	w.Helper()
	w.format = format.Newest
	for n := range w.view().Nodes() {
		renewed := *n
		renewed.Format = format.Newest
		w.must(command.RegisterNode{Node: renewed})
	}
	w.must(command.SetFormat{Term: w.term, Format: format.Newest})
}

func (w *world) anyNode() bool {
	for range w.view().Nodes() {
		return true
	}
	return false
}

// inventory returns the inventory of a node with GPUs of these types. A type
// such as "a100.mig_3g_20gb" is one GPU in MIG mode, divided into such slices.
// The memory of a GPU does not divide evenly.
func inventory(id compute.NodeID, name string, version uint64, types ...string) compute.Inventory {
	inv := compute.Inventory{
		Node: id, Version: version,
		VCPUMilli: int64(max(len(types), 1)) * 8000, MemoryMiB: int64(max(len(types), 1)) * 64 << 10,
	}
	for i, kind := range types {
		gpuType, mig, sliced := strings.Cut(kind, ".mig_")
		g := compute.GPU{
			ID: compute.GPUID(fmt.Sprintf("SIM-%s-%d", name, i)), Index: i, Type: gpuType,
			Model: gpuType + " (simulated)", VRAMMiB: 16<<10 - 1, Simulated: true,
		}
		if sliced {
			g.MIG = compute.MIGEnabled
		}
		inv.GPUs = append(inv.GPUs, g)
		if s, err := compute.ParseMIG(mig); err == nil {
			for n := range compute.MIGParts(gpuType) / s.Compute {
				slice := g
				slice.ID, slice.Parent = compute.GPUID(fmt.Sprintf("%s-%d", g.ID, n+1)), g.ID
				slice.MIG, slice.Instance, slice.VRAMMiB = mig, n+1, int64(s.MemoryGiB)<<10
				inv.GPUs = append(inv.GPUs, slice)
			}
		}
	}
	return inv
}

// node returns the node with a name.
func (w *world) node(name string) *compute.Node {
	w.Helper()
	for n := range w.view().Nodes() {
		if n.Name == name {
			return n
		}
	}
	w.Fatalf("no node %s", name)
	return nil
}

// addUser creates a user with an organization and returns it as an actor.
func (w *world) addUser(name string) command.Actor {
	w.Helper()
	a := command.Actor{User: compute.UserID{UUID: w.uuid()}, Org: compute.OrgID{UUID: w.uuid()}}
	w.must(command.CreateUser{
		Op: w.op(compute.OrgID{}, name), Actor: w.root,
		User: compute.User{ID: a.User, Email: name + "@example.com"},
		Org:  compute.Org{ID: a.Org, Slug: name},
	})
	return a
}

// python returns the submit of code for a minute on a profile.
func (w *world) python(profile string) command.Submit {
	id := w.executionID()
	return command.Submit{
		Op: w.op(w.ada.Org, profile), Actor: w.ada,
		Execution: compute.Execution{ID: id, Profile: profile, Timeout: time.Minute},
	}
}

// submit submits code on a profile and returns its identifier.
func (w *world) submit(profile string, change ...func(*compute.Execution)) compute.ExecutionID {
	w.Helper()
	c := w.python(profile)
	for _, f := range change {
		f(&c.Execution)
	}
	return w.must(c).Execution
}

// get returns an execution.
func (w *world) get(id compute.ExecutionID) *compute.Execution {
	w.Helper()
	e, ok := w.view().AnyExecution(id)
	if !ok {
		w.Fatalf("no execution %s", id)
	}
	return e
}

// assign returns the assignment of an execution to the first GPUs of a node
// with free capacity.
func (w *world) assign(id compute.ExecutionID, node string) compute.Assignment {
	w.Helper()
	n, r := w.node(node), w.get(id).Request
	a := compute.Assignment{Execution: id, Node: n.ID}
	for _, g := range n.GPUs {
		if len(a.GPUs) < r.GPUs && g.Is(r) && g.Health == compute.HealthOK &&
			g.UsedMilli+r.MilliGPU <= compute.WholeGPU {
			a.GPUs = append(a.GPUs, compute.GPUShare{GPU: g.ID, Milli: r.MilliGPU})
		}
	}
	return a
}

// place places executions on a node and fails if one cannot be placed.
func (w *world) place(node string, ids ...compute.ExecutionID) {
	w.Helper()
	for _, id := range ids {
		r := w.must(command.CommitPlan{Term: w.term, Plan: compute.Plan{
			Assignments: []compute.Assignment{w.assign(id, node)},
		}})
		if r.Count != 1 {
			w.Fatalf("execution %s was not placed on %s", id, node)
		}
	}
}

// attempt returns the newest attempt of an execution.
func (w *world) attempt(id compute.ExecutionID) *compute.Attempt {
	w.Helper()
	all := w.view().Attempts(id)
	if len(all) == 0 {
		w.Fatalf("execution %s has no attempt", id)
	}
	return all[len(all)-1]
}

// started returns a node's report that an execution's code started.
func (w *world) started(id compute.ExecutionID) command.StartAttempt {
	w.Helper()
	a := w.attempt(id)
	return command.StartAttempt{Node: a.Node, Start: compute.AttemptStart{
		Execution: id, Epoch: a.Epoch, ExecletAt: w.now, StartedAt: w.now,
	}}
}

// ended returns a node's report that an execution's code exited after d.
func (w *world) ended(id compute.ExecutionID, status compute.Status, d time.Duration) command.FinishAttempt {
	w.Helper()
	a := w.attempt(id)
	return command.FinishAttempt{Node: a.Node, Outcome: compute.Outcome{
		Execution: id, Epoch: a.Epoch, Status: status, Ran: true, Duration: d,
		ExecletAt: w.now, StartedAt: w.now, EndedAt: w.now.Add(d),
	}}
}

// complete places an execution on a node and lets it run for d.
func (w *world) complete(id compute.ExecutionID, node string, d time.Duration) {
	w.Helper()
	w.place(node, id)
	w.must(w.started(id))
	w.must(w.ended(id, compute.StatusCompleted, d))
}

// running returns how many attempts of the organization are live.
func (w *world) running() int { return w.view().Load(compute.Quota{Org: w.org}).Attempts }

// account returns the organization's account.
func (w *world) account() *compute.Account { return w.view().Account(w.org) }

// wantStatus fails unless an execution has a status for a reason.
func (w *world) wantStatus(id compute.ExecutionID, status compute.Status, reason compute.Reason) {
	w.Helper()
	if e := w.get(id); e.Status != status || e.Reason != reason {
		w.Fatalf("execution is %s for %q (%s), want %s for %q",
			e.Status, e.Reason, e.Detail, status, reason)
	}
}

// wantMoney fails unless the organization has a balance and holds an amount.
func (w *world) wantMoney(balance, held compute.Credits) {
	w.Helper()
	if a := w.account(); a.Balance != balance || a.Held != held {
		w.Fatalf("balance is %s with %s held, want %s with %s", a.Balance, a.Held, balance, held)
	}
}

// micro is an amount of micro-credits.
func micro(n int64) compute.Credits { return compute.Credits(n) }
