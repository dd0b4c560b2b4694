package fsm

import "berth/compute"

// The parts of the state that apply commands, one for each noun. All work on the
// same tables; each names the other parts that it needs.
type (
	// access decides whose command may be applied: it checks the credential
	// behind a command again.
	access struct {
		*View
	}

	// lifecycle applies commands about the cluster as a whole: its clock, settings,
	// format and epochs, and Tick.
	lifecycle struct {
		*View

		execution  *execution
		identity   *identity
		membership *membership
		money      *money
		requests   *requests
		retention  *retention
		statistics *statistics
		upload     *upload
		object     *object
	}

	// membership applies commands about nodes: they are registered, drained and removed.
	// It also has the brake on rescheduling.
	membership struct {
		*View

		access    *access
		execution *execution
	}

	// identity applies changes of organizations, users, keys and tokens.
	identity struct {
		*View

		access    *access
		execution *execution
		money     *money
		upload    *upload
		object    *object
	}

	// money applies everything that a ledger records.
	money struct {
		*View

		access     *access
		deployment *deployment
		execution  *execution
	}

	// placement applies plans: it checks assignments again, and preempts.
	placement struct {
		*View

		execution  *execution
		quota      *quota
		statistics *statistics
	}

	// execution applies the life of executions and of their attempts.
	execution struct {
		*View

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
		*View

		execution  *execution
		money      *money
		statistics *statistics
	}

	// service applies the life of services and of their replicas.
	service struct {
		*View

		access     *access
		deployment *deployment
		execution  *execution
		money      *money
		statistics *statistics
	}

	// deployment applies the additions of deployments of models to services.
	deployment struct {
		*View

		access    *access
		execution *execution
		identity  *identity
		service   *service
	}

	// quota applies quotas and counts the use for fair share.
	quota struct {
		*View

		access *access
	}

	// requests remembers the answers to requests.
	requests struct {
		*View
	}

	// upload applies the life of uploaded bundles.
	upload struct {
		*View

		access *access
	}

	// object applies the life of stored objects.
	object struct {
		*View

		access *access
	}

	// trail keeps the audit trails.
	trail struct{ *View }

	// retention drops executions that ended long ago, or archives them.
	retention struct {
		*View

		execution *execution

		waiting map[compute.ExecutionID]compute.ExecutionID // Parents of the executions that retire skipped last.
		buffer  []byte                                      // For the encoding of a record.
	}

	// statistics learns from attempts: estimates, the mix of arrivals, and tallies.
	statistics struct {
		*View

		execution *execution
	}
)

// newState returns an empty state.
func newState() *state { return stateOf(newView()) }

// stateOf returns the parts that apply commands to v. If v is published, only methods
// that change nothing may be called.
func stateOf(v *View) *state {
	s := &state{
		View: v, commands: commands,
		access: new(access), lifecycle: new(lifecycle), membership: new(membership),
		identity: new(identity), money: new(money), placement: new(placement),
		execution: new(execution), selection: new(selection), service: new(service), quota: new(quota),
		deployment: new(deployment),
		requests:   new(requests), retention: new(retention), statistics: new(statistics),
		upload: new(upload), object: new(object), trail: new(trail),
	}
	*s.access = access{View: v}
	*s.lifecycle = lifecycle{
		View:      v,
		execution: s.execution, identity: s.identity, membership: s.membership,
		money: s.money, requests: s.requests, retention: s.retention,
		statistics: s.statistics, upload: s.upload, object: s.object,
	}
	*s.membership = membership{
		View:   v,
		access: s.access, execution: s.execution,
	}
	*s.identity = identity{
		View:   v,
		access: s.access, execution: s.execution, money: s.money, upload: s.upload, object: s.object,
	}
	*s.money = money{
		View:   v,
		access: s.access, deployment: s.deployment, execution: s.execution,
	}
	*s.placement = placement{
		View:      v,
		execution: s.execution, quota: s.quota, statistics: s.statistics,
	}
	*s.execution = execution{
		View:   v,
		access: s.access, identity: s.identity, membership: s.membership, money: s.money,
		placement: s.placement, quota: s.quota, selection: s.selection, service: s.service,
		statistics: s.statistics, upload: s.upload,
	}
	*s.selection = selection{
		View:      v,
		execution: s.execution, money: s.money, statistics: s.statistics,
	}
	*s.service = service{
		View:   v,
		access: s.access, execution: s.execution, money: s.money, statistics: s.statistics,
		deployment: s.deployment,
	}
	*s.deployment = deployment{
		View:   v,
		access: s.access, execution: s.execution, identity: s.identity, service: s.service,
	}
	*s.quota = quota{
		View:   v,
		access: s.access,
	}
	*s.requests = requests{View: v}
	*s.upload = upload{View: v, access: s.access}
	*s.object = object{View: v, access: s.access}
	*s.trail = trail{View: v}
	*s.retention = retention{
		View:      v,
		execution: s.execution,
	}
	*s.statistics = statistics{
		View:      v,
		execution: s.execution,
	}
	return s
}
