package scheduler

import (
	"context"
	"iter"
	"time"

	"berth/compute"
)

// View is what the scheduler needs of the state at one index. A view never
// changes and its records are shared: a record that changed is another
// pointer in the next view.
type View interface {
	// Index returns the index of the last entry that the view includes.
	Index() uint64
	// Now returns the state's own time.
	Now() compute.Instant
	// Nodes yields all nodes by id; what attempts hold is counted in them.
	Nodes() iter.Seq[*compute.Node]
	// Node returns one node.
	Node(id compute.NodeID) (*compute.Node, bool)
	// NodesChanged returns which nodes have another record than at a revision
	// that an earlier view returned, some of them perhaps more than once, and
	// the revision of this view. It is not complete when a node came or went,
	// or when the view does not know.
	NodesChanged(since compute.Revision) (changed []compute.NodeID, now compute.Revision, complete bool)
	// Mix returns the demand that has been seen, nil for none. A mix with
	// another content is another pointer and has a higher version.
	Mix() *compute.Mix
	// Lines returns the highest priority under below that work waits at, and
	// the organizations whose it is, by id; none when there is no such work.
	Lines(below int) (priority int, orgs []compute.OrgID)
	// Line returns at most limit executions of an organization that wait at a
	// priority, the oldest first, those behind after when that is one. The
	// order of the whole queue is Order's.
	Line(priority int, org compute.OrgID, after *compute.Execution, limit int) []*compute.Execution
	// Share returns what fair share knows of an organization.
	Share(org compute.OrgID) compute.Share
	// Quotas returns what an organization is granted: its own quota first,
	// complete, then those of its keys and tags.
	Quotas(org compute.OrgID) []compute.Quota
	// Load returns what the live attempts hold that count in a quota.
	Load(q compute.Quota) compute.Load
	// Work returns the live attempts of a node. Between two views in which the
	// node has the same record they are the same.
	Work(node compute.NodeID) []compute.Work
	// Held yields the live attempts of an organization, in an order that depends
	// on the view alone.
	Held(org compute.OrgID) iter.Seq[compute.Work]
	// Victims yields the live attempts of preemptible executions of a priority
	// under below, in an order that depends on the view alone.
	Victims(below int) iter.Seq[compute.Work]
	// MinRun returns for how long an attempt may run before it is preempted.
	MinRun() time.Duration
	// PreemptNotice returns how long before SIGTERM the preempted are told.
	PreemptNotice() time.Duration
	// PendingSelections yields the parents of GPU selections whose queue
	// message was not taken, the oldest first.
	PendingSelections() iter.Seq[*compute.Execution]
	// GPUTypes returns the sorted GPU types that known nodes report.
	GPUTypes() []string
}

// Committer writes decisions to the state. An error means that the decision is
// not known to hold: the loop reads the state again and decides anew.
type Committer interface {
	// CommitPlan proposes a plan that was computed in term from the view at
	// viewIndex, and returns the index of its entry.
	CommitPlan(ctx context.Context, term, viewIndex uint64, plan compute.Plan) (index uint64, err error)
	// TakeSelection takes the queue message of a GPU selection: the
	// parent's number of runs per profile, or the parent's end with the detail when
	// there is none. The state refuses a message that was taken.
	TakeSelection(ctx context.Context, term uint64, parent *compute.Execution,
		profiles []string, detail string) (index uint64, err error)
}
