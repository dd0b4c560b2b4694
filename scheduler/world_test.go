package scheduler_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"berth/compute"
	"berth/scheduler"
)

// world is a small state machine: it holds the state that the scheduler reads, applies
// plans after checking them as the real one does, and publishes views.
type world struct {
	tb testing.TB

	mu      sync.Mutex
	changed chan struct{} // Closed and replaced with each change.
	index   uint64
	nodes   []*compute.Node // By id.
	queue   []*compute.Execution
	live    map[compute.ExecutionID]compute.Assignment
	known   map[compute.ExecutionID]*compute.Execution
	limits  map[compute.OrgID]int
	parents []*compute.Execution
	learner compute.Learner
	past    map[uint64][]*compute.Node // The nodes of each view, by its index.
	queues  map[uint64][]*compute.Execution

	shares map[compute.OrgID]compute.Share // Used and Weight; Rate is computed from the live attempts.
	quotas []compute.Quota
}

func newWorld(tb testing.TB, nodes ...*compute.Node) *world {
	tb.Helper()
	w := &world{
		tb: tb, index: 1, changed: make(chan struct{}),
		live:   map[compute.ExecutionID]compute.Assignment{},
		known:  map[compute.ExecutionID]*compute.Execution{},
		limits: map[compute.OrgID]int{},
		past:   map[uint64][]*compute.Node{},
		queues: map[uint64][]*compute.Execution{},
		shares: map[compute.OrgID]compute.Share{},
	}
	for _, n := range nodes {
		w.setNode(n)
	}
	return w
}

// id returns a distinct UUID for n that sorts as n does.
func id(n int) (u compute.UUID) {
	binary.BigEndian.PutUint64(u[8:], uint64(n))
	u[0] = 1
	return u
}

func executionID(n int) compute.ExecutionID { return compute.ExecutionID{UUID: id(n)} }
func nodeID(n int) compute.NodeID           { return compute.NodeID{UUID: id(n)} }
func orgID(n int) compute.OrgID             { return compute.OrgID{UUID: id(n)} }
func keyID(n int) compute.KeyID             { return compute.KeyID{UUID: id(n)} }

// gpuNode returns an idle node with count GPUs of a type, 8 vCPU and 64 GiB
// for each, the n-th in the order of nodes.
func gpuNode(n int, gpuType string, count int) *compute.Node {
	node := cpuNode(n, 8*count, 64*count)
	for i := range count {
		node.GPUs = append(node.GPUs, compute.GPU{
			ID: compute.GPUID(fmt.Sprintf("SIM-%s-%d", node.ID, i)), Index: i, Type: gpuType,
		})
	}
	return node
}

// cpuNode returns an idle node without GPUs.
func cpuNode(n, vcpu, memoryGiB int) *compute.Node {
	return &compute.Node{
		ID: nodeID(n), Name: fmt.Sprintf("n%d", n),
		VCPUMilli: int64(vcpu) * 1000, MemoryMiB: int64(memoryGiB) << 10,
	}
}

// execution returns a queued execution, the n-th in submit order.
func execution(n int, r compute.Request) *compute.Execution {
	return &compute.Execution{
		ID: executionID(n), Org: orgID(1), Status: compute.StatusQueued,
		Reason: compute.ReasonScheduling, SubmitIndex: uint64(n), Request: r,
	}
}

// whole returns a request of count GPUs with their share of the node.
func whole(gpuType string, count int) compute.Request {
	return compute.Request{
		GPUType: gpuType, GPUs: count, MilliGPU: compute.WholeGPU,
		VCPUMilli: int64(count) * 8000, MemoryMiB: int64(count) * 64 << 10,
	}
}

// share returns a request of a part of one GPU.
func share(gpuType string, milli int) compute.Request {
	return compute.Request{
		GPUType: gpuType, GPUs: 1, MilliGPU: milli,
		VCPUMilli: int64(milli) * 8, MemoryMiB: int64(milli) * 64 << 10 / 1000,
	}
}

// cpus returns a CPU-only request with 2 GiB for each vCPU.
func cpus(n int) compute.Request {
	return compute.Request{VCPUMilli: int64(n) * 1000, MemoryMiB: int64(n) << 11}
}

// bump publishes a change. The caller holds mu.
func (w *world) bump() uint64 {
	w.index++
	close(w.changed)
	w.changed = make(chan struct{})
	return w.index
}

// setNode adds or replaces a node's record.
func (w *world) setNode(n *compute.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes = slices.Clone(w.nodes)
	i, found := slices.BinarySearchFunc(w.nodes, n, func(a, b *compute.Node) int {
		return bytes.Compare(a.ID.UUID[:], b.ID.UUID[:])
	})
	if found {
		w.nodes[i] = n
	} else {
		w.nodes = slices.Insert(w.nodes, i, n)
	}
	w.bump()
}

// removeNode forgets a node, unless an attempt is there.
func (w *world) removeNode(n *compute.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.live {
		if a.Node == n.ID {
			return
		}
	}
	w.nodes = slices.DeleteFunc(slices.Clone(w.nodes), func(m *compute.Node) bool { return m.ID == n.ID })
	w.bump()
}

// submit adds executions to the queue.
func (w *world) submit(es ...*compute.Execution) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(slices.Clone(w.queue), es...)
	for _, e := range es {
		w.known[e.ID] = e
		w.learner.Learn(e.Request)
	}
	slices.SortStableFunc(w.queue, func(a, b *compute.Execution) int {
		return cmp.Or(-cmp.Compare(a.Priority, b.Priority), bytes.Compare(a.Org.UUID[:], b.Org.UUID[:]),
			cmp.Compare(a.SubmitIndex, b.SubmitIndex))
	})
	w.bump()
}

// commit applies a plan and fails the test when the state would refuse it.
func (w *world) commit(plan compute.Plan) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = slices.Clone(w.queue)
	for _, a := range plan.Assignments {
		i := slices.IndexFunc(w.queue, func(e *compute.Execution) bool { return e.ID == a.Execution })
		if i < 0 {
			w.tb.Errorf("execution %s is assigned but not queued", a.Execution)
			continue
		}
		w.hold(w.queue[i], a, +1)
		w.queue = slices.Delete(w.queue, i, i+1)
		w.live[a.Execution] = a
	}
	reasons := map[compute.ExecutionID]compute.Reason{}
	for _, x := range plan.Waiting {
		reasons[x.Execution] = x.Reason
	}
	for i, e := range w.queue {
		if reason, ok := reasons[e.ID]; ok {
			changed := *e
			changed.Reason = reason
			w.queue[i] = &changed
		}
	}
	w.checkOrgs()
	return w.bump()
}

// finish ends a live execution.
func (w *world) finish(e compute.ExecutionID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold(w.known[e], w.live[e], -1)
	delete(w.live, e)
	w.bump()
}

// hold adds (sign 1) or gives back (-1) the capacity that an assignment takes, on a copy
// of the node's record, and checks the node.
func (w *world) hold(e *compute.Execution, a compute.Assignment, sign int) {
	i := slices.IndexFunc(w.nodes, func(n *compute.Node) bool { return n.ID == a.Node })
	n := *w.nodes[i]
	n.GPUs = slices.Clone(n.GPUs)
	n.UsedVCPUMilli += int64(sign) * e.Request.VCPUMilli
	n.UsedMemoryMiB += int64(sign) * e.Request.MemoryMiB
	if len(a.GPUs) != e.Request.GPUs {
		w.tb.Errorf("execution %s: %d GPUs assigned, %d asked", e.ID, len(a.GPUs), e.Request.GPUs)
	}
	seen := map[compute.GPUID]bool{}
	for _, s := range a.GPUs {
		g := slices.IndexFunc(n.GPUs, func(g compute.GPU) bool { return g.ID == s.GPU })
		if g < 0 || seen[s.GPU] || s.Milli != e.Request.MilliGPU {
			w.tb.Errorf("execution %s: bad share %v of node %s", e.ID, s, n.Name)
			continue
		}
		seen[s.GPU] = true
		n.GPUs[g].UsedMilli += sign * s.Milli
		if sign > 0 && (!n.GPUs[g].Is(e.Request) || n.GPUs[g].Health != compute.HealthOK) {
			w.tb.Errorf("execution %s: GPU %+v does not serve %+v", e.ID, n.GPUs[g], e.Request)
		}
		if n.GPUs[g].UsedMilli > compute.WholeGPU {
			w.tb.Errorf("GPU %s is given away twice: %d", s.GPU, n.GPUs[g].UsedMilli)
		}
	}
	if n.UsedVCPUMilli > n.VCPUMilli || n.UsedMemoryMiB > n.MemoryMiB {
		w.tb.Errorf("node %s is oversold: %+v", n.Name, n)
	}
	if sign > 0 && !n.Schedulable() {
		w.tb.Errorf("node %s takes no work, execution %s was put there", n.Name, e.ID)
	}
	w.nodes = slices.Clone(w.nodes)
	w.nodes[i] = &n
}

// checkOrgs checks that no organization is over its concurrency.
func (w *world) checkOrgs() {
	for org, limit := range w.limits {
		if n := w.runningOf(org); n > limit {
			w.tb.Errorf("organization %s has %d live attempts, its limit is %d", org, n, limit)
		}
	}
}

func (w *world) runningOf(org compute.OrgID) int {
	n := 0
	for e := range w.live {
		if w.known[e].Org == org {
			n++
		}
	}
	return n
}

// view returns the newest published view.
func (w *world) view() *fakeView {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := &fakeView{
		index: w.index, nodes: w.nodes, queue: w.queue, parents: w.parents,
		limits: maps.Clone(w.limits),
		mix:    w.learner.Mix(), world: w,
		shares: maps.Clone(w.shares), quotas: slices.Clone(w.quotas), held: map[compute.ExecutionID]*compute.Attempt{},
	}
	w.past[w.index], w.queues[w.index] = w.nodes, w.queue
	for e, a := range w.live {
		v.live = append(v.live, w.known[e])
		v.held[e] = &compute.Attempt{Execution: e, Node: a.Node}
	}
	return v
}

// pack packs and commits until nothing changes, and returns how many
// executions were placed.
func (w *world) pack() int {
	placed := 0
	for range 1000 {
		plan := scheduler.Pack(w.view())
		if plan.Empty() {
			return placed
		}
		placed += len(plan.Assignments)
		w.commit(plan)
	}
	w.tb.Fatal("no end of plans")
	return placed
}

// reasons returns why each queued execution waits, by its number.
func (w *world) reasons() map[int]compute.Reason {
	out := map[int]compute.Reason{}
	for _, e := range w.view().queue {
		out[int(e.SubmitIndex)] = e.Reason
	}
	return out
}

// await waits for a view newer than after.
func (w *world) await(ctx context.Context, after uint64) error {
	for {
		w.mu.Lock()
		index, changed := w.index, w.changed
		w.mu.Unlock()
		if index > after {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// fakeView is one published view.
type fakeView struct {
	index   uint64
	held    map[compute.ExecutionID]*compute.Attempt // Attempts of live executions.
	nodes   []*compute.Node
	queue   []*compute.Execution
	parents []*compute.Execution
	limits  map[compute.OrgID]int
	mix     *compute.Mix
	world   *world               // Knows the nodes of earlier views.
	live    []*compute.Execution // In no order.
	shares  map[compute.OrgID]compute.Share
	quotas  []compute.Quota
}

var _ scheduler.View = (*fakeView)(nil)

// Node returns one node.
func (v *fakeView) Node(id compute.NodeID) (*compute.Node, bool) {
	i := slices.IndexFunc(v.nodes, func(n *compute.Node) bool { return n.ID == id })
	if i < 0 {
		return nil, false
	}
	return v.nodes[i], true
}

// NodesChanged compares with the nodes of an earlier view of the same world.
func (v *fakeView) NodesChanged(since compute.Revision) ([]compute.NodeID, compute.Revision, bool) {
	now := compute.Revision{Origin: v.world, Change: v.index}
	if v.world == nil || since.Origin != any(v.world) || since.Change > v.index {
		return nil, now, false
	}
	var changed []compute.NodeID
	before := v.world.past[since.Change]
	if len(before) != len(v.nodes) {
		return nil, now, false
	}
	for i, n := range v.nodes {
		if before[i].ID != n.ID {
			return nil, now, false
		}
		if before[i] != n {
			changed = append(changed, n.ID)
		}
	}
	return changed, now, true
}

// QueueChanged compares with the queue of an earlier view of the same world.
func (v *fakeView) QueueChanged(since compute.Revision) ([]compute.ExecutionID, compute.Revision, bool) {
	now := compute.Revision{Origin: v.world, Change: v.index}
	if v.world == nil || since.Origin != any(v.world) || since.Change > v.index {
		return nil, now, false
	}
	var changed []compute.ExecutionID
	before := map[compute.ExecutionID]*compute.Execution{}
	for _, e := range v.world.queues[since.Change] {
		before[e.ID] = e
	}
	for _, e := range v.queue {
		if before[e.ID] != e {
			changed = append(changed, e.ID)
		}
		delete(before, e.ID)
	}
	return slices.AppendSeq(changed, maps.Keys(before)), now, true
}

// Queued returns one execution of the queue.
func (v *fakeView) Queued(id compute.ExecutionID) (*compute.Execution, bool) {
	i := slices.IndexFunc(v.queue, func(e *compute.Execution) bool { return e.ID == id })
	if i < 0 {
		return nil, false
	}
	return v.queue[i], true
}

func (v *fakeView) Mix() *compute.Mix              { return v.mix }
func (v *fakeView) Index() uint64                  { return v.index }
func (v *fakeView) Now() compute.Instant           { return 1 }
func (v *fakeView) Nodes() iter.Seq[*compute.Node] { return slices.Values(v.nodes) }

func (v *fakeView) Lines(below int) (priority int, orgs []compute.OrgID) {
	for _, e := range v.queue {
		if e.Priority >= below || len(orgs) > 0 && e.Priority != priority {
			continue
		}
		if priority = e.Priority; !slices.Contains(orgs, e.Org) {
			orgs = append(orgs, e.Org)
		}
	}
	return priority, orgs
}

func (v *fakeView) Line(priority int, org compute.OrgID, after *compute.Execution, limit int) []*compute.Execution {
	var out []*compute.Execution
	for _, e := range v.queue {
		behind := after == nil || e.SubmitIndex > after.SubmitIndex
		if e.Priority == priority && e.Org == org && behind && len(out) < limit {
			out = append(out, e)
		}
	}
	return out
}

func (v *fakeView) Share(org compute.OrgID) compute.Share {
	s := v.shares[org]
	s.Weight = cmp.Or(s.Weight, compute.DefaultWeight)
	for _, e := range v.live {
		if e.Org == org {
			s.Rate += e.FairPrice()
		}
	}
	return s
}

func (v *fakeView) Quotas(org compute.OrgID) []compute.Quota {
	out := []compute.Quota{{Org: org, Concurrent: v.limits[org], Weight: compute.DefaultWeight}}
	for _, q := range v.quotas {
		if q.Org == org {
			out = append(out, q)
		}
	}
	return out
}

func (v *fakeView) Load(q compute.Quota) (l compute.Load) {
	for _, e := range v.live {
		if q.AppliesTo(e) {
			l.Attempts++
			l.MilliGPU += e.Request.HeldMilliGPU()
		}
	}
	return l
}

// Nobody knows when the attempts of this world end: it has no time limits.
func (v *fakeView) Work(compute.NodeID) []compute.Work { return nil }

func (v *fakeView) Held(org compute.OrgID) iter.Seq[compute.Work] {
	return func(yield func(compute.Work) bool) {
		for _, e := range v.live {
			if a, ok := v.held[e.ID]; ok && e.Org == org && !yield(compute.Work{Execution: e, Attempt: a}) {
				return
			}
		}
	}
}
func (v *fakeView) Victims(int) iter.Seq[compute.Work] { return func(func(compute.Work) bool) {} }
func (v *fakeView) MinRun() time.Duration              { return 0 }
func (v *fakeView) PreemptNotice() time.Duration       { return 0 }
func (v *fakeView) PendingSelections() iter.Seq[*compute.Execution] {
	return slices.Values(v.parents)
}

func (v *fakeView) GPUTypes() []string {
	found := map[string]bool{}
	for _, n := range v.nodes {
		for _, g := range n.GPUs {
			found[g.Type] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
