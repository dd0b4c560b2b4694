package fsm

import (
	"cmp"
	"strings"

	"berth/compute"
	"berth/fsm/archive"
	"berth/fsm/charge"
	"berth/fsm/command"
	"berth/fsm/ledger"
	"berth/fsm/store"
)

// View is the whole state at one Raft index. It is immutable and safe for
// concurrent use. The records that its methods return are shared and must not
// be written to.
type View struct {
	clusterState
	nodeTables
	identityTables
	moneyTables
	executionTables
	quotaTables
	requestTables
	archiveTables
	learnedTables
	uploadTables
	variableTables
	inviteTables
	environmentTables
	objectTables
	budgetTables
	auditTables
	modelTables
	outputTables

	counts counts
}

// The tables of the state, by topic. Methods that read the tables of one topic
// belong to it. Methods that read more belong to View.
type (
	// clusterState has the singletons of the state.
	clusterState struct {
		meta meta
	}

	// nodeTables has nodes and how they join.
	nodeTables struct {
		nodes    nodeRecords
		removed  store.Records[compute.NodeID, removedNode]
		joins    store.Records[string, compute.JoinToken]
		admitted store.Records[compute.NodeID, admission]
		offered  offer
	}

	// identityTables has organizations, users, keys and tokens.
	identityTables struct {
		orgs     store.Records[compute.OrgID, compute.Org]
		users    store.Records[compute.UserID, compute.User]
		members  store.Records[pair, compute.Membership] // By organization, user.
		keys     store.Records[compute.KeyID, compute.Key]
		refresh  store.Records[compute.Hash, refreshToken]
		signing  store.Records[string, compute.SigningKey]
		slugs    store.Table[string, compute.OrgID]
		emails   store.Table[string, compute.UserID]
		subjects store.Table[string, compute.UserID] // At the identity provider.
		lookups  store.Table[string, compute.KeyID]
		joined   store.Index[pair, compute.Membership] // By user, organization.
		orgKeys  store.Index[pair, compute.Key]        // By organization, key.
		families store.Index[family, refreshToken]
		logins   store.Index[family, refreshToken] // Tokens that are neither spent nor revoked, by user.
		expiring store.Index[timeKey, refreshToken]
	}

	// moneyTables has accounts, ledgers and prices.
	moneyTables struct {
		prices   store.Records[string, price]
		accounts store.Records[compute.OrgID, compute.Account]
		ledger   ledger.Store // By organization, sequence.
	}

	// executionTables has executions, attempts and callbacks.
	executionTables struct {
		executions        store.Records[compute.ExecutionID, compute.Execution]
		attempts          store.Records[numberKey, compute.Attempt]  // By execution, epoch.
		callbacks         store.Records[numberKey, compute.Callback] // By owner, number.
		undelivered       store.Index[dueKey, compute.Callback]      // That still have to be sent.
		history           store.PackedIndex[archive.Place, compute.Execution]
		live              store.Index[archive.Place, compute.Execution]
		queue             store.Index[queueKey, compute.Execution]
		queueChanges      changeLog[compute.ExecutionID]
		pendingSelections store.Index[priorityKey, compute.Execution]   // Parents with a queue message.
		services          store.Index[priorityKey, compute.Execution]   // Parents of services that have not ended.
		runningSelections store.Index[priorityKey, compute.Execution]   // Parents whose children run.
		growing           store.Index[timeKey, compute.Execution]       // Placed, by when the hold has to grow.
		draining          store.Index[timeKey, compute.Execution]       // The same of replicas that drain.
		finished          store.PackedIndex[timeKey, compute.Execution] // By the end; the next to be removed first.
		estimated         store.Index[timeKey, compute.Execution]       // Waiting ones, by when their estimates end.
		work              store.Index[pair, compute.Attempt]            // Live attempts by node, execution.
		victims           store.Index[priorityKey, compute.Execution]   // Preemptible executions that are placed.
		totals            store.Table[compute.OrgID, totals]
	}

	// quotaTables has quotas and the loads that count toward them.
	quotaTables struct {
		usage  store.Records[compute.OrgID, usage]
		quotas store.Records[scope, compute.Quota]
		loads  store.Table[scope, compute.Load] // Loads of live attempts.

		goneQuotas store.Index[goneQuota, compute.Quota] // Quotas of keys that are gone.
	}

	// requestTables has the answers to processed requests.
	requestTables struct {
		ops      store.Records[pair, op] // By organization, identifier.
		opAges   ages                    // Accepted ops by sequence: the oldest first.
		refusals ages                    // Refused ops by sequence: the oldest first.
	}

	// archiveTables has the places of archived executions.
	archiveTables struct {
		archives       store.Records[uint64, archive.Record] // By number.
		archivePlaces  store.Table[archivePlace, struct{}]   // Parts of archives, by organization.
		archiveBlobs   store.Table[compute.Hash, struct{}]   // Blobs of archives.
		archivedTotals store.Table[compute.OrgID, totals]    // Totals of executions in archives.
		extra          map[compute.ExecutionID]*archive.Case // Archived executions; only in views made by With.
	}

	// learnedTables has statistics on executions and attempts.
	learnedTables struct {
		arrived store.Records[string, arrival] // By the request's key.
		tallies store.Records[tallyKey, tally]
		mix     *compute.Mix // The current mix; derived from arrived.
	}
)

// meta is the record of the singletons.
type meta struct {
	Index      uint64           `cbor:"1,keyasint"` // Raft index of the last entry applied.
	Now        compute.Instant  `cbor:"2,keyasint"` // The state's clock.
	Term       uint64           `cbor:"3,keyasint"` // The newest leader's term.
	Cluster    compute.UUID     `cbor:"4,keyasint"` // Zero before Bootstrap.
	RootToken  compute.Hash     `cbor:"5,keyasint"`
	Settings   command.Settings `cbor:"6,keyasint"`
	OpSequence uint64           `cbor:"7,keyasint"` // Number of the newest remembered op.

	Learning compute.Learning `cbor:"8,keyasint,omitzero"` // The progress of the mix.

	Calibration compute.Calibration `cbor:"9,keyasint,omitzero"` // Quality of start estimates.

	Format uint64 `cbor:"10,keyasint,omitempty"` // The newest allowed format; 0 for the first.

	Epoch uint64        `cbor:"11,keyasint,omitempty"` // The epoch of the cluster; 0 is the first.
	Brake compute.Brake `cbor:"12,keyasint,omitzero"`

	PausedUntil compute.Instant `cbor:"13,keyasint,omitempty"` // Placement is paused until then in a new epoch.

	// Sealing has the beginnings of keys that the master key seals; empty before its first
	// rotation.
	Sealing [][]byte `cbor:"80,keyasint,omitempty"`

	RootVersion uint64 `cbor:"81,keyasint,omitempty"` // How often the root token was rotated.
}

// Records that only this package uses.
type (
	// removedNode prevents a removed node from returning.
	removedNode struct {
		ID compute.NodeID  `cbor:"1,keyasint"`
		At compute.Instant `cbor:"2,keyasint"`
	}

	// admission records the join token that admitted a node, and the key of the
	// node's certificate.
	admission struct {
		Node    compute.NodeID `cbor:"1,keyasint"`
		TokenID string         `cbor:"2,keyasint"`
		Key     compute.Hash   `cbor:"3,keyasint,omitzero"` // Zero if admitted by a version that did not record it.
	}

	// price is one line of the price list.
	price struct {
		Name     string        `cbor:"1,keyasint"` // A GPU type, or "cpu".
		Price    compute.Price `cbor:"2,keyasint"`
		Operator bool          `cbor:"3,keyasint,omitempty"` // The operator chose it.
		Cost     compute.Price `cbor:"4,keyasint,omitempty"` // To the operator; 0 for not known.
	}

	// refreshToken is a refresh token with its successor.
	refreshToken struct {
		Token   compute.RefreshToken `cbor:"1,keyasint"`
		Next    compute.Hash         `cbor:"2,keyasint"` // Its successor, once spent.
		SpentAt compute.Instant      `cbor:"3,keyasint,omitempty"`
	}
)

// kinds is the number of kinds of executions.
const kinds = int(compute.KindReplica) + 1

// counts are the values of metrics, maintained on write.
type counts struct {
	executions [compute.Statuses][kinds]int
	waiting    [compute.Reasons]int
	held       compute.Credits
	archived   int   // Executions in archives.
	output     int64 // Bytes of archived output.
}

// totals are the numbers of an organization's lists and limits, maintained on
// write.
type totals struct {
	executions int
	spent      compute.Credits
	byStatus   [compute.Statuses]int
}

// state is the view that the apply goroutine works on, with the parts that
// apply commands to it.
type state struct {
	view *View

	applied *applierTable

	*access
	*lifecycle
	*membership
	*identity
	*money
	*placement
	*execution
	*selection
	*service
	*deployment
	*quota
	*requests
	*retention
	*statistics
	*upload
	*object
	*trail
}

// newView returns a view of an empty state.
func newView() *View {
	v := new(View)
	v.makeRecords()
	v.makeIndexes()
	v.uploadTables = newUploadTables()
	v.variableTables = newVariableTables()
	v.inviteTables = newInviteTables()
	v.environmentTables = newEnvironmentTables()
	v.objectTables = newObjectTables()
	v.budgetTables = newBudgetTables()
	v.auditTables = newAuditTables()
	v.modelTables = newModelTables()
	v.outputTables = newOutputTables()
	v.mix = new(compute.Mix)
	v.offered = newOffer()
	return v
}

func (v *View) makeRecords() {
	v.nodes = newNodeRecords()
	v.removed = store.NewRecords(byNode, func(n *removedNode) compute.NodeID { return n.ID })
	v.prices = store.NewRecords(strings.Compare, func(p *price) string { return p.Name })
	v.joins = store.NewRecords(strings.Compare, func(t *compute.JoinToken) string { return t.ID })
	v.orgs = store.NewRecords(byOrg, func(o *compute.Org) compute.OrgID { return o.ID })
	v.users = store.NewRecords(byUser, func(u *compute.User) compute.UserID { return u.ID })
	v.members = store.NewRecords(byPair, func(m *compute.Membership) pair {
		return pair{m.Org.UUID, m.User.UUID}
	})
	v.keys = store.NewRecords(byKey, func(k *compute.Key) compute.KeyID { return k.ID })
	v.refresh = store.NewRecords(byHash, func(t *refreshToken) compute.Hash { return t.Token.Hash })
	v.signing = store.NewRecords(strings.Compare, func(k *compute.SigningKey) string { return k.ID })
	v.accounts = store.NewRecords(byOrg, func(a *compute.Account) compute.OrgID { return a.Org })
	v.ledger = ledger.New()
	v.makeFinalRecords()
	v.admitted = store.NewRecords(byNode, func(a *admission) compute.NodeID { return a.Node })
	v.arrived = store.NewRecords(strings.Compare, func(a *arrival) string { return a.Key })
	v.usage = store.NewRecords(byOrg, func(u *usage) compute.OrgID { return u.Org })
	v.quotas = store.NewRecords(byScope, scopeOf)
	v.tallies = store.NewRecords(byTally, keyOfTally)
	v.archives = store.NewRecords(cmp.Compare[uint64], func(a *archive.Record) uint64 { return a.Number })
	v.archivePlaces = store.NewTable[archivePlace, struct{}](byArchivePlace)
	v.archiveBlobs = store.NewTable[compute.Hash, struct{}](byHash)
	v.archivedTotals = store.NewTable[compute.OrgID, totals](byOrg)
	v.slugs = store.NewTable[string, compute.OrgID](strings.Compare)
	v.emails = store.NewTable[string, compute.UserID](strings.Compare)
	v.subjects = store.NewTable[string, compute.UserID](strings.Compare)
	v.lookups = store.NewTable[string, compute.KeyID](strings.Compare)
	v.totals = store.NewTable[compute.OrgID, totals](byOrg)
	v.loads = store.NewTable[scope, compute.Load](byScope)
	v.goneQuotas = store.NewIndex(byGoneQuota, goneQuotaOf, func(q *compute.Quota) bool { return !q.CheckAt.IsZero() })
}

// makeFinalRecords makes the tables whose records mostly become final. The
// numbers are the fields whose items many records share.
func (v *View) makeFinalRecords() {
	const org, user, key, profile, request = 2, 3, 4, 10, 11
	v.executions = store.NewColdRecords(byExecution,
		func(e *compute.Execution) compute.ExecutionID { return e.ID }, executionWidth,
		store.Cold[compute.ExecutionID, compute.Execution]{
			Is:    func(e *compute.Execution) bool { return e.Status.Terminal() },
			Bytes: executionBytes, Key: executionFrom, Packer: store.NewPacker(org, user, key, profile, request), Lean: lean,
		})
	const node, gpus, placement = 3, 4, 12
	v.attempts = store.NewColdRecords(byNumberKey,
		func(a *compute.Attempt) numberKey { return numberKey{a.Execution.UUID, a.Epoch} }, numberKeyWidth,
		store.Cold[numberKey, compute.Attempt]{
			Is:    func(a *compute.Attempt) bool { return a.Ended },
			Bytes: numberKeyBytes, Key: numberKeyFrom, Packer: store.NewPacker(node, gpus, placement),
		})
	v.callbacks = store.NewColdRecords(byNumberKey, callbackKey, numberKeyWidth,
		store.Cold[numberKey, compute.Callback]{
			Is:    always[compute.Callback],
			Bytes: numberKeyBytes, Key: numberKeyFrom, Packer: store.NewPacker(),
		})
	const owner = 1
	v.ops = store.NewColdRecords(byPair, func(o *op) pair { return pair{o.Org.UUID, o.ID.UUID} }, pairWidth,
		store.Cold[pair, op]{Is: always[op], Bytes: pairBytes, Key: pairFrom, Packer: store.NewPacker(owner)})
}

func (v *View) makeIndexes() {
	v.undelivered = newUndelivered()
	v.joined = store.NewIndex(byPair,
		func(m *compute.Membership) pair { return pair{m.User.UUID, m.Org.UUID} },
		always[compute.Membership])
	v.orgKeys = store.NewIndex(byPair,
		func(k *compute.Key) pair { return pair{k.Org.UUID, k.ID.UUID} },
		always[compute.Key])
	v.families = store.NewIndex(byFamily, func(t *refreshToken) family {
		return family{t.Token.Family, t.Token.Hash}
	}, always[refreshToken])
	v.logins = store.NewIndex(byFamily, func(t *refreshToken) family {
		return family{t.Token.User.UUID, t.Token.Hash}
	}, func(t *refreshToken) bool { return !t.Token.Spent && !t.Token.Revoked })
	v.expiring = store.NewIndex(byTimeKey,
		func(t *refreshToken) timeKey { return timeKey{t.Token.ExpiresAt, t.Token.Hash} },
		always[refreshToken])
	v.history = store.NewPackedIndex(historyKeyWidth, historyKeyBytes, historyKeyFrom,
		archive.PlaceOf, always[compute.Execution])
	v.live = store.NewIndex(archive.ByPlace, archive.PlaceOf,
		func(e *compute.Execution) bool { return !e.Status.Terminal() })
	v.queue = store.NewIndex(byQueueKey, queueKeyOf, queued)
	v.queueChanges = newChangeLog[compute.ExecutionID](queueChangesKept)
	v.pendingSelections = store.NewIndex(byPriorityKey, priorityKeyOf,
		func(e *compute.Execution) bool {
			return e.Kind == compute.KindSelection && e.Status == compute.StatusPending
		})
	v.runningSelections = store.NewIndex(byPriorityKey, priorityKeyOf,
		func(e *compute.Execution) bool {
			return e.Kind == compute.KindSelection && e.Status == compute.StatusRunning
		})
	v.services = store.NewIndex(byPriorityKey, priorityKeyOf,
		func(e *compute.Execution) bool { return e.Kind == compute.KindService && !e.Status.Terminal() })
	v.growing = store.NewIndex(byTimeKey,
		func(e *compute.Execution) timeKey { return timeKeyOf(charge.GrowsAt(e), e.ID.UUID) }, charge.Grows)
	v.draining = store.NewIndex(byTimeKey,
		func(e *compute.Execution) timeKey { return timeKeyOf(charge.GrowsAt(e), e.ID.UUID) }, charge.GrowsWhileDraining)
	v.finished = store.NewPackedIndex(endKeyWidth, endKeyBytes, endKeyFrom,
		func(e *compute.Execution) timeKey { return timeKeyOf(e.FinishedAt, e.ID.UUID) },
		func(e *compute.Execution) bool { return e.Status.Terminal() })
	v.estimated = store.NewIndex(byTimeKey, lateFrom, mayBeLate)
	v.work = store.NewIndex(byPair,
		func(a *compute.Attempt) pair { return pair{a.Node.UUID, a.Execution.UUID} },
		func(a *compute.Attempt) bool { return !a.Ended })
	v.victims = store.NewIndex(byPriorityKey, priorityKeyOf,
		func(e *compute.Execution) bool { return e.Preemptible && holds(e) })
	v.opAges, v.refusals = newAges(), newAges()
}

func always[V any](*V) bool { return true }

func queued(e *compute.Execution) bool { return e.Status == compute.StatusQueued }

func queueKeyOf(e *compute.Execution) queueKey {
	return queueKey{e.Priority, e.Org, e.SubmitIndex, e.ID}
}

func priorityKeyOf(e *compute.Execution) priorityKey {
	return priorityKey{e.Priority, e.SubmitIndex, e.ID}
}

// stored lists the tables in snapshots, in their order there: append only.
func (v *View) stored() []store.Stored {
	return []store.Stored{
		v.nodes, v.removed, v.prices, v.joins, v.orgs, v.users, v.members,
		v.keys, v.refresh, v.signing, v.accounts, &v.ledger, v.executions,
		v.attempts, v.callbacks, v.ops, v.admitted, v.arrived, v.usage, v.quotas,
		v.tallies, v.archives, v.uploads, v.variables, v.dataKeys, v.invites,
		v.environments,
		v.buckets, v.objects, v.objectUploads, v.objectParts,
		v.budgets, v.purchases, v.audit, v.chains,
		v.models, v.tokenHolds, v.tokenUsage, v.tokenTotals, v.tokenSessions,
		v.archivedOutputs,
	}
}

// kept lists the tables of stored that snapshots and hashes include. The last
// ones are left out while they are empty, because older formats of the state do
// not know them.
func (v *View) kept() []store.Stored {
	all := v.stored()
	for len(all) > tableArchives {
		if n, _ := all[len(all)-1].Digest(); n > 0 {
			break
		}
		all = all[:len(all)-1]
	}
	return all
}

// storedNames returns the names of the tables of stored, in the same order.
func storedNames() []string {
	return []string{
		"nodes", "removed", "prices", "joins", "orgs", "users", "members",
		"keys", "refresh", "signing", "accounts", "ledger", "executions",
		"attempts", "callbacks", "ops", "admitted", "arrived", "usage", "quotas",
		"tallies", "archives", "uploads", "variables", "data keys", "invites",
		"environments",
		"buckets", "objects", "uploads of objects", "parts of objects",
		"budgets", "purchases", "audit", "audit trails",
		"models", "holds of tokens", "usage of tokens", "totals of tokens", "sessions of nodes",
		"archived output",
	}
}

// publish returns the current state for readers.
func (s *state) publish() *View {
	s.view.ledger.Share()
	s.view.opAges.Share()
	s.view.refusals.Share()
	v := new(View)
	*v = *s.view
	v.freeze()
	return v
}

// freeze replaces every table and index of a copied view by its current content.
func (v *View) freeze() {
	v.freezeRecords()
	v.freezeDerived()
}

// freezeRecords replaces the tables of stored.
func (v *View) freezeRecords() {
	v.ledger.Freeze()
	store.Freeze(&v.nodes.Records)
	store.Freeze(&v.removed)
	store.Freeze(&v.prices)
	store.Freeze(&v.joins)
	store.Freeze(&v.orgs)
	store.Freeze(&v.users)
	store.Freeze(&v.members)
	store.Freeze(&v.keys)
	store.Freeze(&v.refresh)
	store.Freeze(&v.signing)
	store.Freeze(&v.accounts)
	store.Freeze(&v.executions)
	store.Freeze(&v.attempts)
	store.Freeze(&v.callbacks)
	store.Freeze(&v.ops)
	store.Freeze(&v.admitted)
	store.Freeze(&v.arrived)
	store.Freeze(&v.usage)
	store.Freeze(&v.quotas)
	store.Freeze(&v.tallies)
	store.Freeze(&v.archives)
	store.Freeze(&v.uploads)
	store.Freeze(&v.variables)
	store.Freeze(&v.dataKeys)
	store.Freeze(&v.invites)
	store.Freeze(&v.environments)
	store.Freeze(&v.buckets)
	store.Freeze(&v.objects)
	store.Freeze(&v.objectUploads)
	store.Freeze(&v.objectParts)
	store.Freeze(&v.budgets)
	store.Freeze(&v.purchases)
	store.Freeze(&v.audit)
	store.Freeze(&v.chains)
	store.Freeze(&v.models)
	store.Freeze(&v.tokenHolds)
	store.Freeze(&v.tokenUsage)
	store.Freeze(&v.tokenTotals)
	store.Freeze(&v.tokenSessions)
	store.Freeze(&v.archivedOutputs)
}

// freezeDerived replaces the derived data.
func (v *View) freezeDerived() {
	v.opAges.Freeze()
	v.refusals.Freeze()
	store.Freeze(&v.archivePlaces)
	store.Freeze(&v.archiveBlobs)
	store.Freeze(&v.archivedTotals)
	store.Freeze(&v.slugs)
	store.Freeze(&v.emails)
	store.Freeze(&v.subjects)
	store.Freeze(&v.lookups)
	store.Freeze(&v.joined)
	store.Freeze(&v.orgKeys)
	store.Freeze(&v.families)
	store.Freeze(&v.logins)
	store.Freeze(&v.expiring)
	store.Freeze(&v.history)
	store.Freeze(&v.live)
	store.Freeze(&v.queue)
	store.Freeze(&v.pendingSelections)
	store.Freeze(&v.runningSelections)
	store.Freeze(&v.services)
	store.Freeze(&v.growing)
	store.Freeze(&v.draining)
	store.Freeze(&v.finished)
	store.Freeze(&v.estimated)
	store.Freeze(&v.work)
	store.Freeze(&v.victims)
	store.Freeze(&v.totals)
	store.Freeze(&v.loads)
	store.Freeze(&v.goneQuotas)
	store.Freeze(&v.orgUploads)
	store.Freeze(&v.expiringUploads)
	store.Freeze(&v.outputs)
	store.Freeze(&v.undelivered)
	store.Freeze(&v.uploadsOf)
	store.Freeze(&v.endingUploads)
	store.Freeze(&v.objectUse)
	store.Freeze(&v.heldBy)
	store.Freeze(&v.gone)
	store.Freeze(&v.outputAges)
}

// putExecution stores e and all data derived from it.
func (s *execution) putExecution(e *compute.Execution) {
	s.follow(s.view.executions.Put(e), e)
}

// dropExecution removes the execution id and all data derived from it.
func (s *execution) dropExecution(id compute.ExecutionID) {
	if old := s.view.executions.Drop(id); old != nil {
		s.follow(old, nil)
	}
}

// follow updates the indexes and counts of executions from before to after.
func (s *execution) follow(before, after *compute.Execution) {
	s.view.history.Update(before, after)
	s.view.live.Update(before, after)
	s.view.queue.Update(before, after)
	if before != nil && queued(before) || after != nil && queued(after) {
		s.view.queueChanges.note(cmp.Or(after, before).ID)
	}
	s.view.pendingSelections.Update(before, after)
	s.view.runningSelections.Update(before, after)
	s.view.services.Update(before, after)
	s.view.growing.Update(before, after)
	s.view.draining.Update(before, after)
	s.view.victims.Update(before, after)
	s.view.finished.Update(before, after)
	s.view.outputs.Update(before, after)
	s.view.countHeld(before, after)
	s.view.estimated.Update(before, after)
	if before != nil {
		s.count(before, -1)
	}
	if after != nil {
		s.count(after, 1)
	}
}

func (s *execution) count(e *compute.Execution, n int) {
	s.view.counts.executions[e.Status][e.Kind] += n
	if waits(e) {
		s.view.counts.waiting[e.Reason] += n
	}
	t, _ := s.view.totals.Get(e.Org)
	t.add(e, n)
	if holds(e) {
		s.quota.load(e, n)
	}
	if t == (totals{}) {
		s.view.totals.Remove(e.Org)
		return
	}
	s.view.totals.Set(e.Org, t)
}

// add counts e, n times.
func (t *totals) add(e *compute.Execution, n int) {
	t.executions += n
	t.byStatus[e.Status] += n
	if !e.Kind.IsParent() {
		t.spent += compute.Credits(n) * e.Billed
	}
}

// merge adds the totals of other executions.
func (t *totals) merge(other *totals) {
	t.executions += other.executions
	t.spent += other.spent
	for i, n := range other.byStatus {
		t.byStatus[i] += n
	}
}

// merge adds the counts of other executions.
func (c *counts) merge(other *counts) {
	for status, byKind := range other.executions {
		for kind, n := range byKind {
			c.executions[status][kind] += n
		}
	}
}

// waits reports whether e waits for a reason that metrics count.
func waits(e *compute.Execution) bool {
	return e.Status <= compute.StatusQueued && e.Reason.Waits()
}

func (v *executionTables) putAttempt(a *compute.Attempt) { v.work.Update(v.attempts.Put(a), a) }

func (s *money) putAccount(a *compute.Account) {
	old := s.view.accounts.Put(a)
	if old != nil {
		s.view.counts.held -= old.Held
	}
	s.view.counts.held += a.Held
}

func (v *identityTables) putOrg(o *compute.Org) {
	if old := v.orgs.Put(o); old != nil && old.DeletedAt.IsZero() {
		v.slugs.Remove(old.Slug)
	}
	if o.DeletedAt.IsZero() {
		v.slugs.Set(o.Slug, o.ID)
	}
}

func (v *identityTables) putUser(u *compute.User) {
	if old := v.users.Put(u); old != nil {
		v.emails.Remove(old.Email)
		v.subjects.Remove(old.Subject)
	}
	v.emails.Set(u.Email, u.ID)
	if u.Subject != "" {
		v.subjects.Set(u.Subject, u.ID)
	}
}

func (v *identityTables) putMembership(m *compute.Membership) { v.joined.Update(v.members.Put(m), m) }

func (v *identityTables) dropMembership(org compute.OrgID, user compute.UserID) {
	if old := v.members.Drop(pair{org.UUID, user.UUID}); old != nil {
		v.joined.Update(old, nil)
	}
}

func (v *identityTables) putKey(k *compute.Key) {
	old := v.keys.Put(k)
	if old != nil {
		v.lookups.Remove(old.Lookup)
	}
	v.lookups.Set(k.Lookup, k.ID)
	v.orgKeys.Update(old, k)
}

func (s *identity) dropKey(id compute.KeyID) {
	old := s.view.keys.Drop(id)
	s.quota.endQuota(scope{org: old.Org, key: id})
	s.money.endBudget(spender{org: old.Org, key: id})
	s.view.lookups.Remove(old.Lookup)
	s.view.orgKeys.Update(old, nil)
}

func (v *identityTables) putRefresh(t *refreshToken) {
	old := v.refresh.Put(t)
	v.families.Update(old, t)
	v.logins.Update(old, t)
	v.expiring.Update(old, t)
}

func (v *identityTables) dropRefresh(h compute.Hash) {
	if old := v.refresh.Drop(h); old != nil {
		v.families.Update(old, nil)
		v.logins.Update(old, nil)
		v.expiring.Update(old, nil)
	}
}

func (v *requestTables) putOp(o *op) {
	if old := v.ops.Put(o); old != nil {
		v.agesOf(old).remove(old.Seq)
	}
	v.agesOf(o).set(o.Seq, pair{o.Org.UUID, o.ID.UUID})
}

func (v *requestTables) dropOp(k pair) {
	if old := v.ops.Drop(k); old != nil {
		v.agesOf(old).remove(old.Seq)
	}
}

// agesOf returns the table that has the age of o.
func (v *requestTables) agesOf(o *op) *ages {
	if o.refused() {
		return &v.refusals
	}
	return &v.opAges
}
