// Package format names the formats of the replicated state. A format is a set of commands,
// fields and tables. A replica that meets an unknown format stops. Additions of a format are
// therefore proposed only once every server can apply them; see
// docs/adr/0002-state-format.md.
//
// It is not for the format that a state has, which package fsm keeps.
package format

// The formats. Each has what the ones before it have.
const (
	First    = 1
	Fairness = 2 // Estimates of starts, stops of candidates, quotas.
	Trust    = 3 // Retries, the brake, drains with a deadline, cluster epochs, checks of the state, archives.
	Owed     = 4 // Attempts that the organization's own work preempted are charged.
	Imports  = 5 // Records count import files and keep few of their paths; nodes have gaps.
	Lab      = 6 // Prices by the operator, bundles, outputs, environments, members.
	Deliver  = 7 // Deliveries of callbacks.
	Services = 8 // Several GPU types, services, notebook cells, variables, organizations that users make, invites.

	// Containers adds Docker and Compose executions, named environments and
	// stored objects.
	Containers = 9
	Accounts   = 10 // Deployments of models; audit records, budgets and ceilings.

	// Serverless adds models that every organization may use, and charges for
	// tokens.
	Serverless = 11
	Alerts     = 12 // Callbacks about budgets belong to organizations too.
	Updates    = 13 // Replicas are replaced by others that are ready first; deployments are updated.
	Drains     = 14 // The holds of replicas grow while they drain.
	Output     = 15 // The output of ended attempts is archived as objects of their organization.
	// Asked records the GPU memory that was asked for a deployment apart from that of
	// its model, and where executions want copies of their outputs. Deployments are stopped, not
	// ended, when nothing pays for them.
	Asked = 16

	// Chunks allows chunks of objects that are sealed with AES-256-GCM, and manifests
	// with their IVs. They are in blobs: no command needs it.
	Chunks = 17

	// Rotation reseals the tokens of deployments when a data key is rotated, and checks with
	// which key they were sealed; one of two rotations of the master key at once goes on.
	// Users whose address nobody has proved are marked, logins, and changes that a password
	// confirms, are bound to the password that was checked, and logins end that nobody uses.
	// Work is warned before it is stopped without credits, and budgets report what it uses up
	// while it runs, and stay, as quotas of keys do, while work of deleted keys and accounts goes on. Keys make none
	// that outlive them, and keys and members with a ceiling start no replicas of services that
	// they did not create. Tokens are charged as far as holds or free credits cover them, and holds of
	// nodes that are gone end as leases do. Trails of organizations list logouts and how people
	// come and go, lines have the values that were replaced, and routine ones have a share of
	// the trail. Objects are replaced beyond a limit of their number. Nodes whose Docker engine
	// does not answer get no containers. A new execution waits for what the oldest like it waits
	// for. Members of an organization do not share Idempotency-Keys. Quotas are for hardware
	// profiles too. The root token is rotated. Users are renamed as at the identity provider.
	Rotation = 18

	// Newest is the newest format that this program can apply.
	Newest = Rotation
)
