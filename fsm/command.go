package fsm

import (
	"time"

	"berth/compute"
)

// Command is one change of the state: a payload below, by value, that has a row
// in the table of commands. Encode makes a frame of it, Apply decides it on every
// replica alike.
type Command any

// Op names the request behind a command, so that a repeat of it gives the
// first answer. A zero ID is never remembered.
type Op struct {
	ID      compute.OpID  `cbor:"1,keyasint"`
	Org     compute.OrgID `cbor:"2,keyasint,omitempty"` // The scope in which ID is unique.
	Request compute.Hash  `cbor:"3,keyasint"`           // Hash of the request: an ID with another hash is a conflict.
}

// Actor is the sender of a request. Apply checks again that the credential is still
// good, so that a revocation holds from the next entry on.
type Actor struct {
	User         compute.UserID `cbor:"1,keyasint"`
	Key          compute.KeyID  `cbor:"2,keyasint,omitempty"` // Zero with an access token.
	TokenVersion uint64         `cbor:"3,keyasint,omitempty"` // Version of the access token.
	Org          compute.OrgID  `cbor:"4,keyasint"`           // The organization it acts in.
	Root         bool           `cbor:"5,keyasint,omitempty"` // The cluster's root token: no user, no organization.

	// The address of the client and the identifier of its request, for the audit
	// record of a command that has one. See View.Audits.
	From    string `cbor:"80,keyasint,omitempty"`
	Request string `cbor:"81,keyasint,omitempty"`
}

type (
	// Clock is the leader's time and term. The leader puts it in front of each entry.
	// The time raises the state's clock, and the term fences older leaders.
	Clock struct {
		At   compute.Instant `cbor:"1,keyasint"`
		Term uint64          `cbor:"2,keyasint"`
	}

	// Bootstrap is the first command of a cluster.
	Bootstrap struct {
		ClusterID compute.UUID             `cbor:"1,keyasint"`
		RootToken compute.Hash             `cbor:"2,keyasint"` // SHA-256 of the root token.
		Settings  Settings                 `cbor:"3,keyasint"`
		Prices    map[string]compute.Price `cbor:"4,keyasint"` // By GPU type, and "cpu".
		Signing   compute.SigningKey       `cbor:"5,keyasint"`
		Own       []string                 `cbor:"6,keyasint,omitempty"` // Those of Prices that the operator chose.
	}

	// SetSettings replaces the operator's configuration of the whole cluster, except the
	// billing mode, which SetBillingMode changes.
	SetSettings struct {
		Term     uint64   `cbor:"1,keyasint"`
		Settings Settings `cbor:"2,keyasint"`
	}

	// Settings is the part of the configuration that the state needs, so that every
	// replica decides alike.
	Settings struct {
		SignupGrant  compute.Credits `cbor:"1,keyasint"`
		Meter        bool            `cbor:"2,keyasint,omitempty"` // billing.mode meter: never refuse for credits.
		Concurrent   int             `cbor:"3,keyasint"`           // Live attempts per organization.
		Queued       int             `cbor:"4,keyasint"`           // Executions that wait, per organization.
		Keys         int             `cbor:"5,keyasint"`           // API keys per organization.
		TimeoutMax   time.Duration   `cbor:"6,keyasint"`
		KeepFinished time.Duration   `cbor:"7,keyasint"` // How long terminal executions stay in the state.
		MaxFinished  int             `cbor:"8,keyasint"` // How many terminal executions stay in the state.
		SelectionMax int             `cbor:"9,keyasint"` // GPU types of one GPU selection.

		// StopGrace is how long code may take to end after SIGTERM, which is
		// paid for like the rest of its time.
		StopGrace time.Duration `cbor:"10,keyasint,omitempty"`

		// ShareHalfLife is the time after which fair share counts half of an
		// organization's use; 0 for a day.
		ShareHalfLife time.Duration `cbor:"11,keyasint,omitempty"`

		// PreemptMinRun is how long a preemptible attempt runs before it can be
		// preempted. PreemptNotice is how long before SIGTERM its code is notified.
		PreemptMinRun time.Duration `cbor:"12,keyasint,omitempty"`
		PreemptNotice time.Duration `cbor:"13,keyasint,omitempty"`

		// Forget has Tick forget executions that need not stay, instead of
		// waiting for their archive. It is for simulations, which keep no blobs.
		Forget bool `cbor:"14,keyasint,omitempty"`

		// TimeoutDefault is the time limit of an execution that asks for none; 0 for
		// a minute.
		TimeoutDefault time.Duration `cbor:"20,keyasint,omitempty"`
	}

	// RegisterNode makes a node a member, or renews a member's description of
	// itself. A node that is not known yet must bring a join token.
	RegisterNode struct {
		Node      compute.Node `cbor:"1,keyasint"` // Identity, role, addresses, version; the rest is ignored.
		TokenID   string       `cbor:"2,keyasint,omitempty"`
		TokenHash compute.Hash `cbor:"3,keyasint,omitempty"`
		First     bool         `cbor:"4,keyasint,omitempty"` // The node that made the cluster; only while there is none.
		Key       compute.Hash `cbor:"5,keyasint,omitzero"`  // SHA-256 of the public key that it wants a certificate for.
	}

	// SetInventory replaces a node's report on its hardware. An older version
	// than the recorded one changes nothing.
	SetInventory struct {
		Term      uint64            `cbor:"1,keyasint"`
		Inventory compute.Inventory `cbor:"2,keyasint"`
	}

	// SetNodeState records that the leader hears, or no longer hears, a node.
	SetNodeState struct {
		Term  uint64            `cbor:"1,keyasint"`
		Node  compute.NodeID    `cbor:"2,keyasint"`
		State compute.NodeState `cbor:"3,keyasint"`
	}

	// DrainNode stops or resumes the placing of new work on a node.
	DrainNode struct {
		Op      Op             `cbor:"1,keyasint"`
		Actor   Actor          `cbor:"2,keyasint"`
		Node    compute.NodeID `cbor:"3,keyasint"`
		Drained bool           `cbor:"4,keyasint,omitempty"`
		Within  time.Duration  `cbor:"5,keyasint,omitempty"` // Time after which remaining attempts are ended; 0 for never.
	}

	// RemoveNode makes a node that holds no attempt leave for good, as long as
	// those that have its copies stay.
	RemoveNode struct {
		Op     Op               `cbor:"1,keyasint"`
		Actor  Actor            `cbor:"2,keyasint"`
		Node   compute.NodeID   `cbor:"3,keyasint"`
		Beside []compute.NodeID `cbor:"4,keyasint,omitempty"` // Servers that said they lack nothing without it.
	}

	// CreateJoinToken records a token with which nodes may join.
	CreateJoinToken struct {
		Op    Op                `cbor:"1,keyasint"`
		Actor Actor             `cbor:"2,keyasint"`
		Token compute.JoinToken `cbor:"3,keyasint"`
	}

	// CreateUser records a user with an organization of its own, which gets
	// the sign-up grant. The e-mail and the slug must be free. With Join the user
	// becomes a member of the organization that has the slug, if there is one.
	CreateUser struct {
		Op    Op              `cbor:"1,keyasint"`
		Actor Actor           `cbor:"2,keyasint"` // Root or an operator.
		User  compute.User    `cbor:"3,keyasint"`
		Org   compute.Org     `cbor:"4,keyasint"`
		Join  bool            `cbor:"5,keyasint,omitempty"`
		Role  compute.OrgRole `cbor:"6,keyasint,omitempty"` // In an organization that exists.
	}

	// SetUser gives a user a new password, which ends the user's logins, or
	// disables or enables the user. Users change their own password only.
	SetUser struct {
		Op        Op             `cbor:"1,keyasint"`
		Actor     Actor          `cbor:"2,keyasint"`
		User      compute.UserID `cbor:"3,keyasint"`
		Password  string         `cbor:"4,keyasint,omitempty"` // Its hash; "" leaves the password.
		Temporary bool           `cbor:"5,keyasint,omitempty"` // The password is to be changed by the user.
		Keep      compute.UUID   `cbor:"6,keyasint,omitzero"`  // The login that goes on, by its family.
		Disabled  *bool          `cbor:"7,keyasint,omitempty"` // Nil leaves it.
	}

	// SetMember changes the role of a member. An operator may also add a user.
	SetMember struct {
		Op    Op              `cbor:"1,keyasint"`
		Actor Actor           `cbor:"2,keyasint"`
		Org   compute.OrgID   `cbor:"3,keyasint"`
		User  compute.UserID  `cbor:"4,keyasint"`
		Role  compute.OrgRole `cbor:"5,keyasint,omitempty"`
	}

	// RemoveMember ends a membership, and deletes the keys that act as the member
	// in the organization.
	RemoveMember struct {
		Op    Op             `cbor:"1,keyasint"`
		Actor Actor          `cbor:"2,keyasint"`
		Org   compute.OrgID  `cbor:"3,keyasint"`
		User  compute.UserID `cbor:"4,keyasint"`
	}

	// CreateKey records an API key of an organization.
	CreateKey struct {
		Op    Op          `cbor:"1,keyasint"`
		Actor Actor       `cbor:"2,keyasint"`
		Key   compute.Key `cbor:"3,keyasint"`

		// MaxCredits is the ceiling of the key, which becomes its budget; 0 for none.
		MaxCredits compute.Credits `cbor:"80,keyasint,omitempty"`
	}

	// ToggleKey makes an active key inactive, or the other way round.
	ToggleKey struct {
		Op    Op            `cbor:"1,keyasint"`
		Actor Actor         `cbor:"2,keyasint"`
		Key   compute.KeyID `cbor:"3,keyasint"`
	}

	// DeleteKey removes an API key.
	DeleteKey struct {
		Op    Op            `cbor:"1,keyasint"`
		Actor Actor         `cbor:"2,keyasint"`
		Key   compute.KeyID `cbor:"3,keyasint"`
	}

	// RegenerateKey gives a key a new value; the old one is dead.
	RegenerateKey struct {
		Op     Op            `cbor:"1,keyasint"`
		Actor  Actor         `cbor:"2,keyasint"`
		Key    compute.KeyID `cbor:"3,keyasint"`
		Lookup string        `cbor:"4,keyasint"`
		Prefix string        `cbor:"5,keyasint"`
		Hash   compute.Hash  `cbor:"6,keyasint"`
	}

	// TouchKeys records when keys were last used, many at a time.
	TouchKeys struct {
		Used map[compute.KeyID]compute.Instant `cbor:"1,keyasint"`
	}

	// StoreRefresh records the first refresh token of a login. One with a password is
	// refused if the user has another password by then.
	StoreRefresh struct {
		Op    Op                   `cbor:"1,keyasint"`
		Token compute.RefreshToken `cbor:"2,keyasint"`
		Actor Actor                `cbor:"80,keyasint,omitzero"` // The user that signs in, for the audit record.
		// Password is the PasswordDigest of the user whose password was checked; zero for
		// other logins.
		Password compute.Hash `cbor:"81,keyasint,omitzero"`
	}

	// RotateRefresh spends one refresh token for its successor. A repeat with
	// the same successor within the grace succeeds; any other use of a spent
	// token revokes the family.
	RotateRefresh struct {
		Old  compute.Hash         `cbor:"1,keyasint"`
		Next compute.RefreshToken `cbor:"2,keyasint"` // Family, user and expiry come from the old one.
		Op   Op                   `cbor:"3,keyasint,omitempty"`
	}

	// RevokeRefresh ends the family of a refresh token.
	RevokeRefresh struct {
		Token compute.Hash `cbor:"1,keyasint"`
		Op    Op           `cbor:"2,keyasint,omitempty"`
	}

	// Submit records an execution as queued, or the parent of a GPU selection
	// with its queue message as pending, and sets its credits aside. Request,
	// Price, Status, the indexes and instants are filled by the state.
	Submit struct {
		Op        Op                `cbor:"1,keyasint"`
		Actor     Actor             `cbor:"2,keyasint"`
		Execution compute.Execution `cbor:"3,keyasint"`

		// Key is the organization's first data key, with credentials that it seals.
		Key *compute.DataKey `cbor:"4,keyasint,omitempty"`
	}

	// TakeSelection takes a parent's queue message, exactly once, and creates
	// one sub-execution per profile; with none the parent fails for Reason.
	TakeSelection struct {
		Term     uint64              `cbor:"1,keyasint"`
		Parent   compute.ExecutionID `cbor:"2,keyasint"`
		Children []Child             `cbor:"3,keyasint,omitempty"`
		Reason   compute.Reason      `cbor:"4,keyasint,omitempty"`
		Detail   string              `cbor:"5,keyasint,omitempty"`
	}

	// Child is one sub-execution to create.
	Child struct {
		ID      compute.ExecutionID `cbor:"1,keyasint"`
		Profile string              `cbor:"2,keyasint"`
		Repeat  int                 `cbor:"3,keyasint,omitempty"` // Which run of the profile, from 1; 0 is 1.
	}

	// StopCandidates ends runs of a GPU selection that need not go on. Those
	// that were not placed end at once, the others are stopped gracefully; one
	// that has ended or is being stopped is left alone.
	StopCandidates struct {
		Term   uint64                  `cbor:"1,keyasint"`
		Parent compute.ExecutionID     `cbor:"2,keyasint"`
		Stops  []compute.CandidateStop `cbor:"3,keyasint"`
	}

	// CommitPlan carries the scheduler's plan. Each assignment is checked
	// again. An execution that no longer fits stays queued.
	CommitPlan struct {
		Term      uint64       `cbor:"1,keyasint"`
		ViewIndex uint64       `cbor:"2,keyasint"`
		Plan      compute.Plan `cbor:"3,keyasint"`
	}

	// StartAttempt is the report of a node that the user's process started.
	StartAttempt struct {
		Node  compute.NodeID       `cbor:"1,keyasint"`
		Start compute.AttemptStart `cbor:"2,keyasint"`
	}

	// FinishAttempt is the report of a node on how an attempt ended: the terminal
	// status, the charge, the freed GPUs and the callbacks in one entry.
	FinishAttempt struct {
		Node    compute.NodeID  `cbor:"1,keyasint"`
		Outcome compute.Outcome `cbor:"2,keyasint"`
	}

	// LoseAttempts ends the attempts of a node that stayed away for longer
	// than their executions' grace, as system failures.
	LoseAttempts struct {
		Term     uint64         `cbor:"1,keyasint"`
		Node     compute.NodeID `cbor:"2,keyasint"`
		Attempts []AttemptRef   `cbor:"3,keyasint"`
	}

	// AttemptRef names one attempt.
	AttemptRef struct {
		Execution compute.ExecutionID `cbor:"1,keyasint"`
		Epoch     uint64              `cbor:"2,keyasint"`
	}

	// StopExecution asks for the end of an execution. One that is not on a
	// node yet ends at once; a parent passes it on to its children.
	StopExecution struct {
		Op        Op                  `cbor:"1,keyasint"`
		Actor     Actor               `cbor:"2,keyasint"`
		Execution compute.ExecutionID `cbor:"3,keyasint"`
		Stop      compute.Stop        `cbor:"4,keyasint"`
	}

	// DeleteExecution removes the code and the outputs of a terminal
	// execution; its billing row stays.
	DeleteExecution struct {
		Op        Op                  `cbor:"1,keyasint"`
		Actor     Actor               `cbor:"2,keyasint"`
		Execution compute.ExecutionID `cbor:"3,keyasint"`
	}

	// Grant gives credits to an organization.
	Grant struct {
		Op     Op              `cbor:"1,keyasint"`
		Actor  Actor           `cbor:"2,keyasint"` // Root or an operator.
		Org    compute.OrgID   `cbor:"3,keyasint"`
		Amount compute.Credits `cbor:"4,keyasint"`
		Note   string          `cbor:"5,keyasint,omitempty"`
	}

	// SetBudget gives an organization, one of its keys or one of its members a budget, or
	// changes it.
	SetBudget struct {
		Op     Op             `cbor:"1,keyasint"`
		Actor  Actor          `cbor:"2,keyasint"`
		Budget compute.Budget `cbor:"3,keyasint"`
	}

	// RemoveBudget removes a budget.
	RemoveBudget struct {
		Op    Op             `cbor:"1,keyasint"`
		Actor Actor          `cbor:"2,keyasint"`
		Org   compute.OrgID  `cbor:"3,keyasint"`
		Key   compute.KeyID  `cbor:"4,keyasint,omitempty"`
		User  compute.UserID `cbor:"5,keyasint,omitempty"`
	}

	// RecordPurchase adds credits that the payment provider says are paid for. A
	// checkout session counts once.
	RecordPurchase struct {
		Purchase compute.Purchase `cbor:"1,keyasint"`
	}

	// RecordDeed records in the cluster's audit trail an operator's action that changes
	// nothing, such as saving a backup.
	RecordDeed struct {
		Op     Op     `cbor:"1,keyasint"`
		Actor  Actor  `cbor:"2,keyasint"` // Root or an operator.
		Action string `cbor:"3,keyasint"`
		Target string `cbor:"4,keyasint,omitempty"`
	}

	// SignUp records a user that made its own account, with an organization that is made
	// too or, with Join, as a member of the one with the slug.
	SignUp struct {
		Op    Op           `cbor:"1,keyasint"`
		Actor Actor        `cbor:"2,keyasint,omitzero"` // The user, for the audit record.
		User  compute.User `cbor:"3,keyasint"`
		Org   compute.Org  `cbor:"4,keyasint"`
		Join  bool         `cbor:"5,keyasint,omitempty"`
	}

	// LinkUser records the subject of a user at the identity provider, once.
	LinkUser struct {
		Op      Op             `cbor:"1,keyasint"`
		Actor   Actor          `cbor:"2,keyasint,omitzero"` // The user, for the audit record.
		User    compute.UserID `cbor:"3,keyasint"`
		Subject string         `cbor:"4,keyasint"`
	}

	// SealWith names the keys of the master key with which values may be sealed from then
	// on, by how their ciphertexts begin. Values that arrive sealed otherwise are refused.
	SealWith struct {
		Op       Op       `cbor:"1,keyasint"`
		Actor    Actor    `cbor:"2,keyasint"` // Root or an operator.
		Prefixes [][]byte `cbor:"3,keyasint"`

		// Before is SealingHash of the keys that these replace. If it is others that seal,
		// another rotation has begun, and the command is refused. Zero replaces any.
		Before compute.Hash `cbor:"4,keyasint,omitzero"`
	}

	// Reseal replaces keys that an earlier key of the master key has sealed by the same
	// ones that another has.
	Reseal struct {
		Op    Op          `cbor:"1,keyasint"`
		Actor Actor       `cbor:"2,keyasint"` // Root or an operator.
		Keys  []SealedKey `cbor:"3,keyasint"`
	}

	// RotateKey changes the data key of an organization. It adds a key, which seals from
	// then on, or replaces values by the same ones that it sealed. With Retire it drops
	// the earlier keys, which must no longer seal anything.
	RotateKey struct {
		Op        Op                       `cbor:"1,keyasint"`
		Actor     Actor                    `cbor:"2,keyasint"` // Root or an operator.
		Org       compute.OrgID            `cbor:"3,keyasint"`
		Key       *compute.DataKey         `cbor:"4,keyasint,omitempty"`
		Retire    bool                     `cbor:"5,keyasint,omitempty"`
		Variables []compute.Variable       `cbor:"6,keyasint,omitempty"`
		Signing   []compute.CallbackSecret `cbor:"7,keyasint,omitempty"`
		Texts     []ResealedText           `cbor:"8,keyasint,omitempty"`
	}

	// SetPrices changes prices; those not named stay.
	SetPrices struct {
		Op     Op                       `cbor:"1,keyasint"`
		Actor  Actor                    `cbor:"2,keyasint"` // Root or an operator.
		Prices map[string]compute.Price `cbor:"3,keyasint"`

		// Costs are the operator's costs of a second of resources. Those that are not
		// named keep theirs; 0 removes it.
		Costs map[string]compute.Price `cbor:"4,keyasint,omitempty"`
	}

	// RemovePrice withdraws the operator's price of a resource: it gets the price of
	// the built-in list, or the default of its type.
	RemovePrice struct {
		Op      Op            `cbor:"1,keyasint"`
		Actor   Actor         `cbor:"2,keyasint"` // Root or an operator.
		Name    string        `cbor:"3,keyasint"`
		BuiltIn compute.Price `cbor:"4,keyasint,omitempty"` // 0 if the built-in list does not name it.
	}

	// SetBillingMode turns the enforcement of credits on or off.
	SetBillingMode struct {
		Op    Op    `cbor:"1,keyasint"`
		Actor Actor `cbor:"2,keyasint"` // Root or an operator.
		Meter bool  `cbor:"3,keyasint,omitempty"`
	}

	// AddSigningKey records a key that signs access tokens from now on; the
	// one before it retires.
	AddSigningKey struct {
		Term uint64             `cbor:"1,keyasint"`
		Key  compute.SigningKey `cbor:"2,keyasint"`
	}

	// RecordEstimates records when executions of the queue are expected to start.
	// Their real starts are compared with it later. An execution keeps its first estimate.
	RecordEstimates struct {
		Term      uint64                  `cbor:"1,keyasint"`
		At        compute.Instant         `cbor:"2,keyasint"` // Time of the view that they were made from.
		Estimates []compute.StartEstimate `cbor:"3,keyasint"`
	}

	// SetQuota replaces the quota of an organization, of one of its keys or of one of
	// its tags.
	SetQuota struct {
		Op    Op            `cbor:"1,keyasint"`
		Actor Actor         `cbor:"2,keyasint"` // Root or an operator.
		Quota compute.Quota `cbor:"3,keyasint"`
	}

	// SetFormat raises the format of the state: its commands and fields may be
	// proposed from then on. Every registered server must know it.
	SetFormat struct {
		Term   uint64 `cbor:"1,keyasint"`
		Format uint64 `cbor:"2,keyasint"`
	}

	// RaiseEpoch starts a new cluster epoch, after the state was restored from
	// a backup or recovered without a quorum of the old voters. It invalidates
	// everything that could still act for an older epoch: live attempts end
	// without charge; join tokens, logins and signing keys are removed; new
	// attempts get higher epochs than any before. Every ledger gets a fork line.
	// An epoch that was reached before changes nothing.
	RaiseEpoch struct {
		Term  uint64     `cbor:"1,keyasint"`
		Epoch uint64     `cbor:"2,keyasint"`
		Cause EpochCause `cbor:"3,keyasint"`
		// At is the start of the pause in scheduling; a restore raises the
		// state's clock to it.
		At compute.Instant `cbor:"4,keyasint,omitempty"`
	}

	// ArchiveExecutions drops terminal executions, with their attempts and
	// callbacks, that are in a blob on most servers, and stores which blob has them.
	// All have to be due, and unchanged since the blob was made.
	ArchiveExecutions struct {
		Term       uint64       `cbor:"1,keyasint"`
		Blob       compute.Hash `cbor:"2,keyasint"`
		Size       int64        `cbor:"3,keyasint"` // Bytes of the blob.
		Month      int          `cbor:"4,keyasint"` // Month in which all ended, UTC: year × 12 + month − 1.
		Sum        [4]uint64    `cbor:"5,keyasint"` // Sum of the hashes of the records.
		Executions []byte       `cbor:"6,keyasint"` // Their identifiers, concatenated.
	}

	// SetBrake sets how many of a hundred nodes that vanish at once are too many to be
	// given up, and whether the nodes that have vanished by now are gone indeed.
	SetBrake struct {
		Op      Op    `cbor:"1,keyasint"`
		Actor   Actor `cbor:"2,keyasint"`           // Root or an operator.
		Share   *int  `cbor:"3,keyasint,omitempty"` // In percent, 0 for a third; nil leaves it.
		Release bool  `cbor:"4,keyasint,omitempty"`
	}

	// RecordDeliveries records the outcomes of tries to send callbacks.
	RecordDeliveries struct {
		Term       uint64             `cbor:"1,keyasint"`
		Deliveries []compute.Delivery `cbor:"2,keyasint"`
	}

	// RedeliverCallbacks has the callbacks of an ended execution sent again.
	RedeliverCallbacks struct {
		Op        Op                  `cbor:"1,keyasint"`
		Actor     Actor               `cbor:"2,keyasint"`
		Execution compute.ExecutionID `cbor:"3,keyasint"`
		Number    *int                `cbor:"4,keyasint,omitempty"` // Only this one; nil for all.
	}

	// CreateOrg makes an organization whose owner is the actor. It gets no sign-up
	// grant.
	CreateOrg struct {
		Op    Op          `cbor:"1,keyasint"`
		Actor Actor       `cbor:"2,keyasint"`
		Org   compute.Org `cbor:"3,keyasint"`
	}

	// SetOrg changes an organization. Empty fields keep their value.
	SetOrg struct {
		Op           Op            `cbor:"1,keyasint"`
		Actor        Actor         `cbor:"2,keyasint"`
		Org          compute.OrgID `cbor:"3,keyasint"`
		Name         string        `cbor:"4,keyasint,omitempty"`
		Slug         string        `cbor:"5,keyasint,omitempty"`
		BillingEmail string        `cbor:"6,keyasint,omitempty"`
	}

	// CompleteExecution records a client's first report on the end of a Compose execution,
	// and asks a live one to end. It never changes one that has ended.
	CompleteExecution struct {
		Op        Op                  `cbor:"1,keyasint"`
		Actor     Actor               `cbor:"2,keyasint"`
		Execution compute.ExecutionID `cbor:"3,keyasint"`
		Reported  compute.Reported    `cbor:"4,keyasint"`
	}

	// TrustOrg says whether executions of an organization may be placed on nodes whose
	// isolation is below the minimum.
	TrustOrg struct {
		Op      Op            `cbor:"1,keyasint"`
		Actor   Actor         `cbor:"2,keyasint"`
		Org     compute.OrgID `cbor:"3,keyasint"`
		Trusted bool          `cbor:"4,keyasint,omitempty"`
	}

	// DeleteOrg ends an organization that has no live executions: its members, keys,
	// invites, variables and secrets are gone. Its ledger and history stay.
	DeleteOrg struct {
		Op    Op            `cbor:"1,keyasint"`
		Actor Actor         `cbor:"2,keyasint"`
		Org   compute.OrgID `cbor:"3,keyasint"`
	}

	// SetDefaultOrg makes an organization the default one of the actor.
	SetDefaultOrg struct {
		Op    Op            `cbor:"1,keyasint"`
		Actor Actor         `cbor:"2,keyasint"`
		Org   compute.OrgID `cbor:"3,keyasint"`
	}

	// PutInvite invites a person to an organization.
	PutInvite struct {
		Op     Op             `cbor:"1,keyasint"`
		Actor  Actor          `cbor:"2,keyasint"`
		Invite compute.Invite `cbor:"3,keyasint"`
	}

	// RevokeInvite removes an invite.
	RevokeInvite struct {
		Op     Op               `cbor:"1,keyasint"`
		Actor  Actor            `cbor:"2,keyasint"`
		Org    compute.OrgID    `cbor:"3,keyasint"`
		Invite compute.InviteID `cbor:"4,keyasint"`
	}

	// AnswerInvite accepts or declines an invite to the actor's e-mail address.
	AnswerInvite struct {
		Op     Op               `cbor:"1,keyasint"`
		Actor  Actor            `cbor:"2,keyasint"`
		Org    compute.OrgID    `cbor:"3,keyasint"`
		Invite compute.InviteID `cbor:"4,keyasint"`
		Hash   compute.Hash     `cbor:"5,keyasint"` // Hash of the token.
		Accept bool             `cbor:"6,keyasint,omitempty"`
	}

	// CreateEnvironment makes a named environment of its organization or, without one,
	// of the cluster.
	CreateEnvironment struct {
		Op          Op                  `cbor:"1,keyasint"`
		Actor       Actor               `cbor:"2,keyasint"`
		Environment compute.Environment `cbor:"3,keyasint"`
	}

	// DeleteEnvironment removes a named environment.
	DeleteEnvironment struct {
		Op    Op            `cbor:"1,keyasint"`
		Actor Actor         `cbor:"2,keyasint"`
		Org   compute.OrgID `cbor:"3,keyasint,omitempty"`
		Name  string        `cbor:"4,keyasint"`
	}

	// ReportEnvironment records how far a node is with an environment.
	ReportEnvironment struct {
		Node        compute.NodeID            `cbor:"1,keyasint"`
		Environment compute.EnvironmentID     `cbor:"2,keyasint"`
		Status      compute.EnvironmentStatus `cbor:"3,keyasint,omitempty"`
		SizeMiB     int64                     `cbor:"4,keyasint,omitempty"`
		Error       string                    `cbor:"5,keyasint,omitempty"`
	}

	// DeleteUser ends the account of the actor, with the organizations in which nobody
	// else is. The user's executions stay in the history, under the identifier.
	DeleteUser struct {
		Op    Op    `cbor:"1,keyasint"`
		Actor Actor `cbor:"2,keyasint"`
	}

	// PutVariables stores variables of the actor, in place of those with the same
	// names. Key is the organization's first data key, where it has none.
	PutVariables struct {
		Op        Op                 `cbor:"1,keyasint"`
		Actor     Actor              `cbor:"2,keyasint"`
		Key       *compute.DataKey   `cbor:"3,keyasint,omitempty"`
		Variables []compute.Variable `cbor:"4,keyasint"`
	}

	// RemoveVariables removes a variable of the actor.
	RemoveVariables struct {
		Op    Op                 `cbor:"1,keyasint"`
		Actor Actor              `cbor:"2,keyasint"`
		ID    compute.VariableID `cbor:"3,keyasint,omitempty"` // Zero for all.
	}

	// SetCallbackSecret gives an organization a new secret that signs its callbacks. Key
	// is the organization's first data key, where it has none.
	SetCallbackSecret struct {
		Op     Op                     `cbor:"1,keyasint"`
		Actor  Actor                  `cbor:"2,keyasint"`
		Org    compute.OrgID          `cbor:"3,keyasint"`
		Key    *compute.DataKey       `cbor:"4,keyasint,omitempty"`
		Secret compute.CallbackSecret `cbor:"5,keyasint"`
	}

	// RemoveCallbackSecret ends the signing of an organization's callbacks.
	RemoveCallbackSecret struct {
		Op    Op            `cbor:"1,keyasint"`
		Actor Actor         `cbor:"2,keyasint"`
		Org   compute.OrgID `cbor:"3,keyasint"`
	}

	// StartReplicas creates the next replicas of a service, in slots that need one.
	StartReplicas struct {
		Term     uint64              `cbor:"1,keyasint"`
		Service  compute.ExecutionID `cbor:"2,keyasint"`
		Replicas []NewReplica        `cbor:"3,keyasint"`
	}

	// ScaleService changes how many replicas of a service are wanted.
	ScaleService struct {
		Op       Op                  `cbor:"1,keyasint"`
		Actor    Actor               `cbor:"2,keyasint"`
		Service  compute.ExecutionID `cbor:"3,keyasint"`
		Replicas int                 `cbor:"4,keyasint"`
	}

	// ChangeDeployment stops a deployment, or starts one again that was stopped, paused
	// or has failed.
	ChangeDeployment struct {
		Op         Op                  `cbor:"1,keyasint"`
		Actor      Actor               `cbor:"2,keyasint"`
		Deployment compute.ExecutionID `cbor:"3,keyasint"`
		Start      bool                `cbor:"4,keyasint,omitempty"`
	}

	// ScaleDeployment changes how many replicas an active deployment has; 0 pauses it.
	// It is the leader's, and changes nothing if the deployment has changed since.
	ScaleDeployment struct {
		Term       uint64              `cbor:"1,keyasint"`
		Deployment compute.ExecutionID `cbor:"2,keyasint"`
		Replicas   int                 `cbor:"3,keyasint,omitempty"`
		Since      compute.Instant     `cbor:"4,keyasint,omitempty"` // Its ChangedAt when that was decided.
	}

	// ResumeDeployment starts a paused deployment, for a request that waits.
	ResumeDeployment struct {
		Deployment compute.ExecutionID `cbor:"1,keyasint"`
	}

	// UpdateDeployment changes the program of a deployment, and how it scales. Nil fields keep
	// their value. Replicas are replaced one after the other, each once another one is ready.
	UpdateDeployment struct {
		Op         Op                  `cbor:"1,keyasint"`
		Actor      Actor               `cbor:"2,keyasint"`
		Deployment compute.ExecutionID `cbor:"3,keyasint"`
		Model      *compute.Inference  `cbor:"4,keyasint,omitempty"`
		Scaling    *compute.Deployment `cbor:"5,keyasint,omitempty"` // Its limits and targets.
		Key        *compute.DataKey    `cbor:"6,keyasint,omitempty"` // The organization's first data key, where it has none.
		MinVRAMMiB int64               `cbor:"7,keyasint,omitempty"` // That each GPU must have at least for Model.
	}

	// SurgeService gives a service one replica more than are wanted, to take the place
	// of an outdated one once it is ready. It changes nothing if none is outdated.
	SurgeService struct {
		Term    uint64              `cbor:"1,keyasint"`
		Service compute.ExecutionID `cbor:"2,keyasint"`
	}

	// SetModel publishes a deployment under an id, or changes its prices or its
	// deployment.
	SetModel struct {
		Op         Op                  `cbor:"1,keyasint"`
		Actor      Actor               `cbor:"2,keyasint"`
		ID         string              `cbor:"3,keyasint"`
		Deployment compute.ExecutionID `cbor:"4,keyasint"`
		Prices     compute.TokenPrices `cbor:"5,keyasint"`
	}

	// RemoveModel withdraws a published model. Its deployment stays.
	RemoveModel struct {
		Op    Op     `cbor:"1,keyasint"`
		Actor Actor  `cbor:"2,keyasint"`
		ID    string `cbor:"3,keyasint"`
	}

	// SettleTokens records the use of models by requests through a node, and sets credits
	// aside for others. The batches of a node's session are numbered from 1, so that each
	// is counted once. A session is the Raft index at which the node began.
	SettleTokens struct {
		Node    compute.NodeID `cbor:"1,keyasint"`
		Session uint64         `cbor:"2,keyasint"`
		Number  uint64         `cbor:"3,keyasint"`
		Usage   []UsedTokens   `cbor:"4,keyasint,omitempty"`
		Holds   []WantedHold   `cbor:"5,keyasint,omitempty"`
	}

	// SetReady is the report of a node that a replica has become ready, or is no
	// longer.
	SetReady struct {
		Node      compute.NodeID      `cbor:"1,keyasint"`
		Execution compute.ExecutionID `cbor:"2,keyasint"`
		Epoch     uint64              `cbor:"3,keyasint"`
		Ready     bool                `cbor:"4,keyasint,omitempty"`
	}

	// CreateUpload records an uploaded bundle whose chunks follow, or continues
	// one of the same files.
	CreateUpload struct {
		Op      Op                 `cbor:"1,keyasint"`
		Actor   Actor              `cbor:"2,keyasint"`
		Upload  compute.Upload     `cbor:"3,keyasint"`           // Have: chunks that the organization has already.
		Sources []compute.BundleID `cbor:"4,keyasint,omitempty"` // The bundles that have it.
	}

	// ReceiveChunks records that chunks of a bundle, which the organization has
	// sent, are durable.
	ReceiveChunks struct {
		Actor  Actor            `cbor:"1,keyasint"`
		Bundle compute.BundleID `cbor:"2,keyasint"`
		Chunks []int            `cbor:"3,keyasint"` // In the order of Tree.Chunks.
	}

	// CommitUpload makes a bundle usable whose chunks are all there.
	CommitUpload struct {
		Op     Op               `cbor:"1,keyasint"`
		Actor  Actor            `cbor:"2,keyasint"`
		Bundle compute.BundleID `cbor:"3,keyasint"`
	}

	// CreateBucket makes the bucket of the actor's organization. The first one stays.
	CreateBucket struct {
		Actor  Actor          `cbor:"1,keyasint"`
		Bucket compute.Bucket `cbor:"2,keyasint"`
	}

	// PutObject publishes an object whose bytes are durable.
	PutObject struct {
		Op     Op             `cbor:"1,keyasint"`
		Actor  Actor          `cbor:"2,keyasint"`
		Object compute.Object `cbor:"3,keyasint"`

		// The upload that has its parts, and the revision that was read. It ends.
		Upload   compute.ObjectUploadID `cbor:"4,keyasint,omitempty"`
		Revision uint64                 `cbor:"5,keyasint,omitempty"`

		Absent bool   `cbor:"6,keyasint,omitempty"` // Only if no object has the key.
		Match  string `cbor:"7,keyasint,omitempty"` // Only if the object with the key has this tag; * for any.

		// The key of the object of which it is a copy, and that one's blob.
		From     string       `cbor:"8,keyasint,omitempty"`
		FromBlob compute.Hash `cbor:"9,keyasint,omitzero"`
	}

	// DeleteObjects removes objects by key, or up to MaxObjectDeletes whose keys have a
	// prefix.
	DeleteObjects struct {
		Op     Op       `cbor:"1,keyasint"`
		Actor  Actor    `cbor:"2,keyasint"`
		Keys   []string `cbor:"3,keyasint,omitempty"`
		Prefix string   `cbor:"4,keyasint,omitempty"`
		Match  string   `cbor:"5,keyasint,omitempty"` // Only those with this tag.
	}

	// StartObjectUpload begins an upload of an object in parts.
	StartObjectUpload struct {
		Op     Op                   `cbor:"1,keyasint"`
		Actor  Actor                `cbor:"2,keyasint"`
		Upload compute.ObjectUpload `cbor:"3,keyasint"`
	}

	// PutObjectPart records a part of an upload whose bytes are durable.
	PutObjectPart struct {
		Op    Op                 `cbor:"1,keyasint"`
		Actor Actor              `cbor:"2,keyasint"`
		Part  compute.ObjectPart `cbor:"3,keyasint"`
	}

	// AbortObjectUpload ends an upload. Its parts are lost.
	AbortObjectUpload struct {
		Op     Op                     `cbor:"1,keyasint"`
		Actor  Actor                  `cbor:"2,keyasint"`
		Upload compute.ObjectUploadID `cbor:"3,keyasint"`
	}

	// SetBucketLimits sets the limits of an organization's bucket; 0 for no limit.
	SetBucketLimits struct {
		Op           Op            `cbor:"1,keyasint"`
		Actor        Actor         `cbor:"2,keyasint"`
		Org          compute.OrgID `cbor:"3,keyasint"`
		MaxBytes     int64         `cbor:"4,keyasint,omitempty"`
		MaxObjects   int           `cbor:"5,keyasint,omitempty"`
		UserMaxBytes int64         `cbor:"6,keyasint,omitempty"`
	}

	// ArchiveOutputs records that what ended attempts printed is stored among the objects
	// of their organizations.
	ArchiveOutputs struct {
		Outputs []compute.OutputArchive `cbor:"1,keyasint"`
	}

	// TrimOutputs drops the oldest archived outputs until all of them have at most so
	// many bytes.
	TrimOutputs struct {
		Term  uint64 `cbor:"1,keyasint"`
		Bytes int64  `cbor:"2,keyasint,omitempty"`
	}

	// Tick lets time pass: expired records go, holds of long executions grow.
	Tick struct {
		Term uint64 `cbor:"1,keyasint"`
	}
)

// Result is the decision of Apply about one command. It travels as CBOR to the
// node that proposed it.
type Result struct {
	Refusal   *compute.Error      `cbor:"1,keyasint,omitempty"` // Why nothing changed.
	Repeat    bool                `cbor:"2,keyasint,omitempty"` // The op was known; this is its first answer.
	Execution compute.ExecutionID `cbor:"3,keyasint,omitempty"`
	Status    compute.Status      `cbor:"4,keyasint,omitempty"`
	ID        compute.UUID        `cbor:"5,keyasint,omitempty"` // Identifier of the created record, such as a key.
	Count     int                 `cbor:"6,keyasint,omitempty"` // Such as assignments placed.

	// The record that the request changed, as it was then, for the answer, also on a
	// repeat.
	Key  *compute.Key `cbor:"7,keyasint,omitempty"` // Without Lookup and Hash.
	Node *ShownNode   `cbor:"8,keyasint,omitempty"`
}

// ShownNode is a node as an answer shows it.
type ShownNode struct {
	Node    compute.Node `cbor:"1,keyasint"`
	Live    int          `cbor:"2,keyasint,omitempty"` // Attempts on it.
	Leaving int          `cbor:"3,keyasint,omitempty"` // Those of them that are asked to end.
}

// Show returns a node with its live work.
func (v *View) Show(n *compute.Node) ShownNode {
	shown := ShownNode{Node: *n}
	for _, w := range v.Work(n.ID) {
		shown.Live++
		if w.Stopping() {
			shown.Leaving++
		}
	}
	return shown
}
