package fsm

import "berth/compute"

// The parts of the state that apply commands, one for each noun. All work on the
// same tables; each names the other parts that it needs. None embeds the view: Go would
// compile a copy of each of its 300 methods for each part, half of this package.
type (
	// access decides whose command may be applied: it checks the credential
	// behind a command again.
	access struct {
		view *View
	}

	// lifecycle applies commands about the cluster as a whole: its clock, settings,
	// format and epochs, and Tick.
	lifecycle struct {
		view *View

		execution  *execution
		identity   *identity
		membership *membership
		money      *money
		quota      *quota
		requests   *requests
		retention  *retention
		statistics *statistics
		upload     *upload
		object     *object
	}

	// membership applies commands about nodes: they are registered, drained and removed.
	// It also has the brake on rescheduling.
	membership struct {
		view *View

		access    *access
		execution *execution
	}

	// identity applies changes of organizations, users, keys and tokens.
	identity struct {
		view *View

		access    *access
		execution *execution
		money     *money
		quota     *quota
		upload    *upload
		object    *object
	}

	// money applies everything that a ledger records.
	money struct {
		view *View

		access     *access
		deployment *deployment
		execution  *execution
	}

	// placement applies plans: it checks assignments again, and preempts.
	placement struct {
		view *View

		execution  *execution
		quota      *quota
		statistics *statistics
	}

	// execution applies the life of executions and of their attempts.
	execution struct {
		view *View

		access     *access
		identity   *identity
		membership *membership
		money      *money
		placement  *placement
		quota      *quota
		selection  *selection
		service    *service
		statistics *statistics
		upload     *upload
	}

	// selection applies the life of GPU selections.
	selection struct {
		view *View

		execution  *execution
		money      *money
		statistics *statistics
	}

	// service applies the life of services and of their replicas.
	service struct {
		view *View

		access     *access
		deployment *deployment
		execution  *execution
		money      *money
		statistics *statistics
	}

	// deployment applies the additions of deployments of models to services.
	deployment struct {
		view *View

		access    *access
		execution *execution
		identity  *identity
		service   *service
	}

	// quota applies quotas and counts the use for fair share.
	quota struct {
		view *View

		access *access
	}

	// requests remembers the answers to requests.
	requests struct {
		view *View
	}

	// upload applies the life of uploaded bundles.
	upload struct {
		view *View

		access *access
	}

	// object applies the life of stored objects.
	object struct {
		view *View

		access *access
	}

	// trail keeps the audit trails.
	trail struct{ view *View }

	// retention drops executions that ended long ago, or archives them.
	retention struct {
		view *View

		execution *execution

		waiting map[compute.ExecutionID]compute.ExecutionID // Parents of the executions that retire skipped last.
		buffer  []byte                                      // For the encoding of a record.
	}

	// statistics learns from attempts: estimates, the mix of arrivals, and tallies.
	statistics struct {
		view *View

		execution *execution
	}
)

// newState returns an empty state.
func newState() *state { return stateOf(newView()) }

// stateOf returns the parts that apply commands to v. If v is published, only methods
// that change nothing may be called.
func stateOf(v *View) *state {
	s := &state{
		view: v, applied: applied,
		access: new(access), lifecycle: new(lifecycle), membership: new(membership),
		identity: new(identity), money: new(money), placement: new(placement),
		execution: new(execution), selection: new(selection), service: new(service), quota: new(quota),
		deployment: new(deployment),
		requests:   new(requests), retention: new(retention), statistics: new(statistics),
		upload: new(upload), object: new(object), trail: new(trail),
	}
	*s.access = access{view: v}
	*s.lifecycle = lifecycle{
		view:      v,
		execution: s.execution, identity: s.identity, membership: s.membership,
		money: s.money, requests: s.requests, retention: s.retention,
		statistics: s.statistics, upload: s.upload, object: s.object, quota: s.quota,
	}
	*s.membership = membership{
		view:   v,
		access: s.access, execution: s.execution,
	}
	*s.identity = identity{
		view:   v,
		access: s.access, execution: s.execution, money: s.money, quota: s.quota, upload: s.upload, object: s.object,
	}
	*s.money = money{
		view:   v,
		access: s.access, deployment: s.deployment, execution: s.execution,
	}
	*s.placement = placement{
		view:      v,
		execution: s.execution, quota: s.quota, statistics: s.statistics,
	}
	*s.execution = execution{
		view:   v,
		access: s.access, identity: s.identity, membership: s.membership, money: s.money,
		placement: s.placement, quota: s.quota, selection: s.selection, service: s.service,
		statistics: s.statistics, upload: s.upload,
	}
	*s.selection = selection{
		view:      v,
		execution: s.execution, money: s.money, statistics: s.statistics,
	}
	*s.service = service{
		view:   v,
		access: s.access, execution: s.execution, money: s.money, statistics: s.statistics,
		deployment: s.deployment,
	}
	*s.deployment = deployment{
		view:   v,
		access: s.access, execution: s.execution, identity: s.identity, service: s.service,
	}
	*s.quota = quota{
		view:   v,
		access: s.access,
	}
	*s.requests = requests{view: v}
	*s.upload = upload{view: v, access: s.access}
	*s.object = object{view: v, access: s.access}
	*s.trail = trail{view: v}
	*s.retention = retention{
		view:      v,
		execution: s.execution,
	}
	*s.statistics = statistics{
		view:      v,
		execution: s.execution,
	}
	return s
}
