package fsm

import (
	"iter"
	"math"
	"slices"

	"berth/compute"
	"berth/fsm/archive"
	"berth/fsm/command"
	"berth/fsm/partial"
	"berth/fsm/store"
)

// Index returns the Raft index of the last entry in v.
func (v *clusterState) Index() uint64 { return v.meta.Index }

// Now returns the state's clock: the time of the last entry.
func (v *clusterState) Now() compute.Instant { return v.meta.Now }

// Term returns the newest leader's term that an entry carried.
func (v *clusterState) Term() uint64 { return v.meta.Term }

// Bootstrapped reports whether the cluster has been set up.
func (v *clusterState) Bootstrapped() bool { return !v.meta.Cluster.IsZero() }

// ClusterID returns the cluster's identifier, zero before Bootstrap.
func (v *clusterState) ClusterID() compute.UUID { return v.meta.Cluster }

// RootToken returns the SHA-256 of the root token.
func (v *clusterState) RootToken() compute.Hash { return v.meta.RootToken }

// RootVersion returns the version of the root token, which actors name that have it.
func (v *clusterState) RootVersion() uint64 { return v.meta.RootVersion }

// ClusterEpoch returns the epoch of the cluster: 0 at first, and one more after
// each restore or recovery.
func (v *clusterState) ClusterEpoch() uint64 { return v.meta.Epoch }

// Settings returns the operator's settings.
func (v *clusterState) Settings() command.Settings { return v.meta.Settings }

// Node returns the node id.
func (v *nodeTables) Node(id compute.NodeID) (*compute.Node, bool) { return v.nodes.Get(id) }

// Nodes yields the nodes by identifier.
func (v *nodeTables) Nodes() iter.Seq[*compute.Node] { return v.nodes.Values() }

// RemovedNode reports whether the node id was permanently removed.
func (v *nodeTables) RemovedNode(id compute.NodeID) bool {
	_, removed := v.removed.Get(id)
	return removed
}

// Prices returns a copy of the price list: by GPU type, and "cpu".
func (v *moneyTables) Prices() map[string]compute.Price {
	book := make(map[string]compute.Price, v.prices.Len())
	for p := range v.prices.Values() {
		book[p.Name] = p.Price
	}
	return book
}

// Execution returns an organization's execution. It does not return deleted
// ones.
func (v *View) Execution(org compute.OrgID, id compute.ExecutionID) (*compute.Execution, bool) {
	e, ok := v.AnyExecution(id)
	if !ok || e.Org != org {
		return nil, false
	}
	return e, true
}

// Listed returns an organization's execution, a deleted one too, which may be the last of a page
// that was read before.
func (v *View) Listed(org compute.OrgID, id compute.ExecutionID) (*compute.Execution, bool) {
	e, ok := v.known(id)
	return e, ok && e.Org == org
}

// Status returns an execution of an organization with its identity, kind, status and
// reason only. That takes a small part of the time that Execution takes.
func (v *View) Status(org compute.OrgID, id compute.ExecutionID) (*compute.Execution, bool) {
	e, encoded, ok := v.executions.Peek(id, nil)
	if !ok {
		return v.Execution(org, id) // It may be archived.
	}
	if e == nil {
		if e = new(compute.Execution); !partial.Execution(encoded, e) {
			return v.Execution(org, id)
		}
	}
	if e.Deleted || e.Org != org {
		return nil, false
	}
	return e, true
}

// AnyExecution returns the execution id of any organization. It is for the
// system itself, never for a tenant's request.
func (v *View) AnyExecution(id compute.ExecutionID) (*compute.Execution, bool) {
	e, ok := v.known(id)
	if !ok || e.Deleted {
		return nil, false
	}
	return e, true
}

// Children returns the known sub-executions of a parent, ordered by GPU type
// and then by repeat, or those that the slots of a service name.
func (v *View) Children(parent compute.ExecutionID) []*compute.Execution {
	p, ok := v.known(parent)
	if !ok {
		return nil
	}
	return v.ChildrenOf(p)
}

// ChildrenOf is Children of an execution that was read already.
func (v *View) ChildrenOf(parent *compute.Execution) []*compute.Execution {
	ids := parent.Children()
	out := make([]*compute.Execution, 0, len(ids))
	for _, id := range ids {
		if c, ok := v.known(id); ok {
			out = append(out, c)
		}
	}
	return out
}

// Attempts returns the attempts of an execution, oldest first.
func (v *View) Attempts(id compute.ExecutionID) []*compute.Attempt {
	if c, ok := v.extra[id]; ok {
		return c.Attempts
	}
	var out []*compute.Attempt
	for k, a := range v.attempts.From(numberKey{owner: id.UUID}) {
		if k.owner != id.UUID {
			break
		}
		out = append(out, a)
	}
	return out
}

// Work returns the tasks of a node: its live attempts, each with its execution
// and the GPUs it holds.
func (v *View) Work(node compute.NodeID) []compute.Work {
	n, ok := v.nodes.Get(node)
	if !ok {
		return nil
	}
	var out []compute.Work
	for k := range v.work.Keys(pair{owner: node.UUID}) {
		if k.owner != node.UUID {
			break
		}
		e, _ := v.executions.Get(compute.ExecutionID{UUID: k.id})
		a, _ := v.attempts.Get(numberKey{k.id, e.Epoch})
		out = append(out, compute.Work{Attempt: a, Execution: e, GPUs: described(n, a.GPUs)})
	}
	return out
}

// described returns the GPUs of n that shares names.
func described(n *compute.Node, shares []compute.GPUShare) []compute.GPU {
	out := make([]compute.GPU, 0, len(shares))
	for _, s := range shares {
		if i := gpuAt(n.GPUs, s.GPU); i >= 0 {
			out = append(out, n.GPUs[i])
		}
	}
	return out
}

// gpuAt returns the position of the GPU id in gpus, -1 for none.
func gpuAt(gpus []compute.GPU, id compute.GPUID) int {
	return slices.IndexFunc(gpus, func(g compute.GPU) bool { return g.ID == id })
}

// Live yields an organization's executions that have not ended, newest first.
func (v *executionTables) Live(org compute.OrgID) iter.Seq[*compute.Execution] {
	return v.newest(v.live.Descend(lastHistoryKey(org)), org)
}

// LiveAfter yields the executions that Live yields behind an execution of the
// organization, whether that one is still live or not.
func (v *executionTables) LiveAfter(e *compute.Execution) iter.Seq[*compute.Execution] {
	place := archive.PlaceOf(e)
	return func(yield func(*compute.Execution) bool) {
		for next := range v.newest(v.live.Descend(place), e.Org) {
			if next.ID != e.ID && !yield(next) {
				return
			}
		}
	}
}

// Held yields the live attempts of an organization, the newest execution
// first.
func (v *executionTables) Held(org compute.OrgID) iter.Seq[compute.Work] {
	return func(yield func(compute.Work) bool) {
		for e := range v.Live(org) {
			if !holds(e) {
				continue
			}
			a, _ := v.attempts.Get(numberKey{e.ID.UUID, e.Epoch})
			if !yield(compute.Work{Attempt: a, Execution: e}) {
				return
			}
		}
	}
}

// lastHistoryKey is behind all history keys of an organization.
func lastHistoryKey(org compute.OrgID) archive.Place {
	return archive.Place{Org: org, Index: math.MaxUint64}
}

// newest yields the executions at places, as long as the places are org's.
func (v *executionTables) newest(places iter.Seq[archive.Place], org compute.OrgID) iter.Seq[*compute.Execution] {
	return func(yield func(*compute.Execution) bool) {
		for k := range places {
			if k.Org != org {
				return
			}
			e, _ := v.executions.Get(k.ID)
			if !yield(e) {
				return
			}
		}
	}
}

// HistoryFilter selects executions. A zero field selects all.
type HistoryFilter struct {
	Status *compute.Status
	Kind   *compute.Kind
	Parent *compute.ExecutionID
	From   compute.Instant // Submitted at or after.
	To     compute.Instant // Submitted before.

	Skip int // How many of the newest selected executions are left out.
}

// matches reports whether f selects e.
func (f HistoryFilter) matches(e *compute.Execution) bool {
	return (f.Status == nil || *f.Status == e.Status) &&
		(f.Kind == nil || *f.Kind == e.Kind) &&
		(f.Parent == nil || *f.Parent == e.Parent) &&
		(f.From.IsZero() || e.CreatedAt >= f.From) &&
		(f.To.IsZero() || e.CreatedAt < f.To)
}

// History yields an organization's executions in the state, newest first. It
// yields the billing data of deleted ones. Skipped executions are not decoded,
// and with no other filter not even read.
func (v *executionTables) History(org compute.OrgID, f HistoryFilter) iter.Seq[*compute.Execution] {
	if f == (HistoryFilter{Skip: f.Skip}) {
		return v.newest(v.history.Descend(lastHistoryKey(org), archive.Place{Org: org}, f.Skip), org)
	}
	return func(yield func(*compute.Execution) bool) {
		skip := f.Skip
		for _, load := range v.selected(lastHistoryKey(org), f) {
			if skip--; skip < 0 && !yield(load()) {
				return
			}
		}
	}
}

// selected yields the executions in the state that f selects, including those
// that it skips, from a place in an organization's history down. It yields the
// place of each, and a function that loads it before the next one.
func (v *executionTables) selected(
	from archive.Place, f HistoryFilter,
) iter.Seq2[archive.Place, func() *compute.Execution] {
	f.Skip = 0
	return func(yield func(archive.Place, func() *compute.Execution) bool) {
		var buffer []byte
		var part compute.Execution
		var at archive.Place
		load := func() *compute.Execution {
			e, _ := v.executions.Get(at.ID)
			return e
		}
		for at = range v.history.Descend(from, archive.Place{Org: from.Org}, 0) {
			var is bool
			if is, buffer = v.selects(f, at.ID, &part, buffer); is && !yield(at, load) {
				return
			}
		}
	}
}

// selects reports whether f selects the execution id. It may partially decode
// the execution into part and read its encoding into buffer, which it returns.
func (v *executionTables) selects(
	f HistoryFilter, id compute.ExecutionID, part *compute.Execution, buffer []byte,
) (bool, []byte) {
	if f == (HistoryFilter{}) {
		return true, buffer
	}
	e, encoded, _ := v.executions.Peek(id, buffer)
	if e != nil {
		return f.matches(e), buffer
	}
	return partial.Execution(encoded, part) && f.matches(part), encoded
}

// Bundles yields the hashes of the bundles that executions have in blob stores,
// including archived executions, some more than once, and those of the metrics of
// executions that are not archived.
func (v *View) Bundles() iter.Seq[compute.Hash] {
	return func(yield func(compute.Hash) bool) {
		for a := range v.Archives() {
			for _, hash := range a.Bundles {
				if !yield(hash) {
					return
				}
			}
		}
		v.executionBundles(yield)
	}
}

// executionBundles yields the hashes of Bundles that are not of archives.
func (v *View) executionBundles(yield func(compute.Hash) bool) {
	var buffer []byte
	v.executions.Scan(nil, func(_ compute.ExecutionID, e *compute.Execution, key, packed []byte) bool {
		var ref compute.BundleRef
		var series []byte
		if e != nil {
			ref, series = e.Bundle, e.Series
		} else {
			buffer = v.executions.Unpack(buffer[:0], key, packed)
			ref, series = partial.Bundle(buffer), partial.Series(buffer)
		}
		for _, hash := range compute.SeriesIn(series) {
			if !yield(hash) {
				return false
			}
		}
		return ref.Size == 0 || len(ref.Inline) > 0 || yield(ref.Hash)
	})
}

// Totals returns the number of executions in an organization's history, in
// total and by status, and their cost, including archived ones. Parents count,
// but their credits do not: those are their children's.
func (v *View) Totals(org compute.OrgID) (total int, spent compute.Credits, byStatus [compute.Statuses]int) {
	t, _ := v.totals.Get(org)
	archived, _ := v.archivedTotals.Get(org)
	t.merge(&archived)
	return t.executions, t.spent, t.byStatus
}

// Queue yields the queued executions: by priority, highest first, then by
// organization, then by age. The scheduler has its own order.
func (v *executionTables) Queue() iter.Seq[*compute.Execution] {
	return func(yield func(*compute.Execution) bool) {
		for k := range v.queue.All() {
			e, _ := v.executions.Get(k.id)
			if !yield(e) {
				return
			}
		}
	}
}

// Lines returns the highest priority under below at which work waits, and the
// organizations of that work, by identifier. It returns none when there is no
// such work.
func (v *executionTables) Lines(below int) (priority int, orgs []compute.OrgID) {
	at := queueKey{priority: below - 1}
	for {
		k, ok := v.queue.Next(at)
		if !ok || len(orgs) > 0 && k.priority != priority {
			return priority, orgs
		}
		priority, orgs = k.priority, append(orgs, k.org)
		at = queueKey{k.priority, k.org, math.MaxUint64, compute.ExecutionID{}}
	}
}

// Line returns at most limit queued executions of an organization at a
// priority, the oldest first, starting behind after unless after is nil.
func (v *executionTables) Line(
	priority int, org compute.OrgID, after *compute.Execution, limit int,
) []*compute.Execution {
	at := queueKey{priority: priority, org: org}
	if after != nil {
		at = queueKeyOf(after)
	}
	out := make([]*compute.Execution, 0, limit)
	for k := range v.queue.Keys(at) {
		if len(out) == limit || k.priority != priority || k.org != org {
			break
		}
		if after == nil || k.id != after.ID {
			e, _ := v.executions.Get(k.id)
			out = append(out, e)
		}
	}
	return out
}

// Queued returns an execution of the queue.
func (v *executionTables) Queued(id compute.ExecutionID) (*compute.Execution, bool) {
	e, ok := v.executions.GetHot(id) // Queued ones are never cold.
	if !ok || !queued(e) {
		return nil, false
	}
	return e, true
}

// queueChangesKept is how many changes of the queue are remembered at least: those
// of a few of the largest plans.
const queueChangesKept = 8192

// QueueChanged returns the executions that joined or left the queue or whose
// record there differs since a revision that a view has returned, some of them
// more than once, and the revision of v. It is not complete when that is too
// long ago; the zero revision is always.
func (v *executionTables) QueueChanged(
	since compute.Revision,
) (changed []compute.ExecutionID, now compute.Revision, complete bool) {
	return v.queueChanges.since(since, 0)
}

// QueueLen returns how many executions are queued.
func (v *executionTables) QueueLen() int { return v.queue.Len() }

// PendingSelections yields the parents whose queue message has not been taken.
func (v *executionTables) PendingSelections() iter.Seq[*compute.Execution] {
	return v.byPriority(v.pendingSelections)
}

// RunningSelections yields the parents of GPU selections whose sub-executions
// have not all ended.
func (v *executionTables) RunningSelections() iter.Seq[*compute.Execution] {
	return v.byPriority(v.runningSelections)
}

func (v *executionTables) byPriority(x store.Index[priorityKey, compute.Execution]) iter.Seq[*compute.Execution] {
	return func(yield func(*compute.Execution) bool) {
		for k := range x.All() {
			e, _ := v.executions.Get(k.id)
			if !yield(e) {
				return
			}
		}
	}
}

// Calibration returns the calibration of start estimates.
func (v *clusterState) Calibration() compute.Calibration { return v.meta.Calibration }

// Ended yields the executions that have ended, including deleted ones, the
// newest end first. Each has only its organization, status and times.
func (v *executionTables) Ended() iter.Seq[*compute.Execution] {
	last := timeKey{at: math.MaxInt64}
	return func(yield func(*compute.Execution) bool) {
		var buffer []byte
		for k := range v.finished.Descend(last, timeKey{at: math.MinInt64}, 0) {
			e, encoded, _ := v.executions.Peek(k.execution(), buffer)
			if e == nil {
				e, buffer = new(compute.Execution), encoded
				if !partial.Execution(encoded, e) {
					e = store.MustDecode[compute.Execution](encoded)
				}
			}
			if !yield(e) {
				return
			}
		}
	}
}

// Callbacks yields the pending notifications about executions that ended.
func (v *executionTables) Callbacks() iter.Seq[*compute.Callback] { return v.callbacks.Values() }

// JoinTokens yields the tokens with which nodes may join.
func (v *nodeTables) JoinTokens() iter.Seq[*compute.JoinToken] { return v.joins.Values() }
