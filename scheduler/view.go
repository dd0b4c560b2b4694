package scheduler

import (
	"context"
	"iter"
	"time"

	"berth/compute"
)

// View has the parts of the state at one index that the scheduler reads. A view is
// immutable and its records are shared: a changed record is another pointer in
// the next view.
type View interface {
	// Index returns the index of the last entry that the view includes.
	Index() uint64
	// Now returns the state's time.
	Now() compute.Instant
	// Nodes yields all nodes by id. Their records count the capacity that attempts hold.
	Nodes() iter.Seq[*compute.Node]
	// Node returns one node.
	Node(id compute.NodeID) (*compute.Node, bool)
	// NodesChanged returns the nodes whose record differs from the one at a
	// revision that an earlier view returned, some perhaps more than once, and
	// the revision of this view. It is not complete when a node came or went,
	// or when the view does not know.
	NodesChanged(since compute.Revision) (changed []compute.NodeID, now compute.Revision, complete bool)
	// Mix returns the demand seen so far, nil for none. A mix with other
	// content is another pointer and has a higher version.
	Mix() *compute.Mix
	// Lines returns the highest priority under below at which executions wait,
	// and their organizations by id; none when no execution waits there.
	Lines(below int) (priority int, orgs []compute.OrgID)
	// Line returns at most limit executions of an organization that wait at a
	// priority, the oldest first, those behind after if it is not nil. Package
	// queue gives the order of the whole queue.
	Line(priority int, org compute.OrgID, after *compute.Execution, limit int) []*compute.Execution
	// Queued returns an execution of the queue.
	Queued(id compute.ExecutionID) (*compute.Execution, bool)
	// QueueChanged returns the executions that joined or left the queue or whose
	// record there differs since a revision that an earlier view returned, some
	// perhaps more than once, and the revision of this view. It is not complete
	// when the view does not know.
	QueueChanged(since compute.Revision) (changed []compute.ExecutionID, now compute.Revision, complete bool)
	// Share returns the fair-share record of an organization.
	Share(org compute.OrgID) compute.Share
	// Quotas returns the quotas of an organization: its own first, complete,
	// then those of its keys and tags.
	Quotas(org compute.OrgID) []compute.Quota
	// Load returns the sum of the live attempts that count in a quota.
	Load(q compute.Quota) compute.Load
	// Work returns the live attempts of a node. They are the same in two views
	// in which the node has the same record.
	Work(node compute.NodeID) []compute.Work
	// Held yields the live attempts of an organization, in an order that
	// depends on the view alone.
	Held(org compute.OrgID) iter.Seq[compute.Work]
	// Victims yields the live attempts of preemptible executions of a priority
	// under below, in an order that depends on the view alone.
	Victims(below int) iter.Seq[compute.Work]
	// MinRun returns how long an attempt runs before it may be preempted.
	MinRun() time.Duration
	// PreemptNotice returns how long before SIGTERM preempted executions are
	// notified.
	PreemptNotice() time.Duration
	// PendingSelections yields the parents of GPU selections whose queue
	// message has not been taken, the oldest first.
	PendingSelections() iter.Seq[*compute.Execution]
	// GPUTypes returns the sorted GPU types that known nodes report.
	GPUTypes() []string
}

// Committer writes decisions to the state. After an error a decision may or may
// not hold: the loop reads the state and decides again.
type Committer interface {
	// CommitPlan proposes a plan that was computed in term from the view at
	// viewIndex, and returns the index of its entry.
	CommitPlan(ctx context.Context, term, viewIndex uint64, plan compute.Plan) (index uint64, err error)
	// TakeSelection takes the queue message of a GPU selection. It creates the
	// parent's sub-executions for each profile, or ends the parent with the
	// detail when there are no profiles. The state refuses a message that was
	// taken.
	TakeSelection(ctx context.Context, term uint64, parent *compute.Execution,
		profiles []string, detail string) (index uint64, err error)
}
