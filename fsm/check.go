package fsm

import (
	"errors"
	"fmt"
	"slices"

	"berth/attempt"
	"berth/compute"
	"berth/fsm/archive"
	"berth/fsm/ledger"
	"berth/fsm/store"
)

// checker checks the invariants of a view.
type checker struct{ view *View }

// Check returns an error when an invariant does not hold. It reads everything, so it
// is for tests and for a state that was restored. The test runner never retries a
// test whose output has the error's first words.
func (v *View) Check() error {
	if err := errors.Join(checker{v}.checkDerived(), checker{v}.checkRecords()); err != nil {
		return fmt.Errorf("invariant violated: %w", err)
	}
	return nil
}

// checkRecords checks the invariants between records.
func (v checker) checkRecords() error {
	return errors.Join(v.checkMoney(), v.checkNodes(), v.checkExecutions(),
		v.checkAttempts(), v.checkPeople(), v.checkMix(), v.checkQuotas(), v.checkFormat(), v.checkBrake(),
		v.checkArchives(), v.checkUploads(), v.checkEnvironments(), v.checkObjects(), v.checkBudgets(), v.checkAudit(),
		v.checkModels())
}

// checkDerived builds a state from the records alone and compares: the
// sums of hashes, the indexes and the counts must match the records. A record that
// was written to after it was stored shows here too.
func (v checker) checkDerived() error {
	fresh := v.rebuilt()
	if fresh.view.Hash() != v.view.Hash() {
		return errors.New("the hash of the state is not that of its records")
	}
	if fresh.view.counts != v.view.counts {
		return fmt.Errorf("counts are %+v, the records say %+v", v.view.counts, fresh.view.counts)
	}
	return errors.Join(
		differ("slugs", v.view.slugs, fresh.view.slugs),
		differ("emails", v.view.emails, fresh.view.emails),
		differ("subjects", v.view.subjects, fresh.view.subjects),
		differ("lookups", v.view.lookups, fresh.view.lookups),
		differ("joined", v.view.joined.Table(), fresh.view.joined.Table()),
		differ("keys of organizations", v.view.orgKeys.Table(), fresh.view.orgKeys.Table()),
		differ("families", v.view.families.Table(), fresh.view.families.Table()),
		differ("logins", v.view.logins.Table(), fresh.view.logins.Table()),
		differ("expiring", v.view.expiring.Table(), fresh.view.expiring.Table()),
		v.view.history.Differ("history", fresh.view.history),
		differ("live", v.view.live.Table(), fresh.view.live.Table()),
		differ("queue", v.view.queue.Table(), fresh.view.queue.Table()),
		differ("services", v.view.services.Table(), fresh.view.services.Table()),
		differ("pending selections", v.view.pendingSelections.Table(), fresh.view.pendingSelections.Table()),
		differ("running selections", v.view.runningSelections.Table(), fresh.view.runningSelections.Table()),
		differ("undelivered callbacks", v.view.undelivered.Table(), fresh.view.undelivered.Table()),
		differ("growing", v.view.growing.Table(), fresh.view.growing.Table()),
		differ("draining", v.view.draining.Table(), fresh.view.draining.Table()),
		v.view.finished.Differ("finished", fresh.view.finished),
		v.view.outputs.Differ("outputs", fresh.view.outputs),
		differ("uploads of organizations", v.view.orgUploads.Table(), fresh.view.orgUploads.Table()),
		differ("expiring uploads", v.view.expiringUploads.Table(), fresh.view.expiringUploads.Table()),
		differ("estimated", v.view.estimated.Table(), fresh.view.estimated.Table()),
		differ("work", v.view.work.Table(), fresh.view.work.Table()),
		differ("victims", v.view.victims.Table(), fresh.view.victims.Table()),
		v.view.opAges.differ("ages of ops", &fresh.view.opAges),
		v.view.refusals.differ("ages of refusals", &fresh.view.refusals),
		differ("totals", v.view.totals, fresh.view.totals),
		differ("places of archives", v.view.archivePlaces, fresh.view.archivePlaces),
		differ("blobs of archives", v.view.archiveBlobs, fresh.view.archiveBlobs),
		differ("totals of archives", v.view.archivedTotals, fresh.view.archivedTotals),
		differ("loads", v.view.loads, fresh.view.loads),
		differ("quotas of gone keys", v.view.goneQuotas.Table(), fresh.view.goneQuotas.Table()),
		differ("held by keys and members", v.view.heldBy, fresh.view.heldBy),
		differ("budgets of gone keys and accounts", v.view.gone.Table(), fresh.view.gone.Table()),
		v.view.offered.differ(fresh.view.offered),
		differMix(v.view.mix, fresh.view.mix),
		v.checkObjectsDerived(fresh),
		differ("ages of archived output", v.view.outputAges.Table(), fresh.view.outputAges.Table()),
	)
}

// rebuilt returns a state of v's records with everything derived again.
func (v checker) rebuilt() *state {
	s := newState()
	s.view.meta = v.view.meta
	copyRecords(v.view.nodes.Records, func(n *compute.Node) { s.view.nodes.put(n) })
	copyRecords(v.view.removed, func(n *removedNode) { s.view.removed.Put(n) })
	copyRecords(v.view.prices, func(p *price) { s.view.prices.Put(p) })
	copyRecords(v.view.joins, func(t *compute.JoinToken) { s.view.joins.Put(t) })
	copyRecords(v.view.orgs, s.view.putOrg)
	copyRecords(v.view.users, s.view.putUser)
	copyRecords(v.view.members, s.view.putMembership)
	copyRecords(v.view.keys, s.view.putKey)
	copyRecords(v.view.refresh, s.view.putRefresh)
	copyRecords(v.view.signing, func(k *compute.SigningKey) { s.view.signing.Put(k) })
	copyRecords(v.view.accounts, s.putAccount)
	for e := range v.view.ledger.Values() {
		s.view.ledger.Put(e)
	}
	copyRecords(v.view.executions, s.putExecution)
	copyRecords(v.view.attempts, s.view.putAttempt)
	copyRecords(v.view.callbacks, s.view.putCallback)
	copyRecords(v.view.ops, s.view.putOp)
	copyRecords(v.view.admitted, func(a *admission) { s.view.admitted.Put(a) })
	copyRecords(v.view.arrived, func(a *arrival) { s.view.arrived.Put(a) })
	copyRecords(v.view.usage, func(u *usage) { s.view.usage.Put(u) })
	copyRecords(v.view.quotas, s.view.storeQuota)
	copyRecords(v.view.tallies, func(t *tally) { s.view.tallies.Put(t) })
	copyRecords(v.view.archives, s.putArchive)
	copyRecords(v.view.uploads, s.upload.put)
	copyRecords(v.view.variables, func(x *compute.Variable) { s.view.variables.Put(x) })
	copyRecords(v.view.dataKeys, func(k *compute.DataKey) { s.view.dataKeys.Put(k) })
	copyRecords(v.view.invites, func(i *compute.Invite) { s.view.invites.Put(i) })
	copyRecords(v.view.environments, func(e *compute.Environment) { s.view.environments.Put(e) })
	copyRecords(v.view.buckets, func(b *compute.Bucket) { s.view.buckets.Put(b) })
	copyRecords(v.view.objects, s.view.putObject)
	copyRecords(v.view.objectUploads, s.view.putObjectUpload)
	copyRecords(v.view.objectParts, s.view.putObjectPart)
	copyRecords(v.view.budgets, s.view.storeBudget)
	copyRecords(v.view.purchases, func(p *compute.Purchase) { s.view.purchases.Put(p) })
	copyRecords(v.view.audit, func(r *compute.AuditRecord) { s.view.audit.Put(r) })
	copyRecords(v.view.chains, func(c *auditChain) { s.view.chains.Put(c) })
	copyRecords(v.view.models, func(m *compute.Model) { s.view.models.Put(m) })
	copyRecords(v.view.tokenHolds, s.money.putTokenHold)
	copyRecords(v.view.tokenUsage, s.money.putTokenUsage)
	copyRecords(v.view.tokenTotals, func(t *compute.TokenTotal) { s.view.tokenTotals.Put(t) })
	copyRecords(v.view.tokenSessions, func(t *tokenSession) { s.view.tokenSessions.Put(t) })
	copyRecords(v.view.archivedOutputs, s.view.putOutput)
	s.reshape()
	s.remix()
	return s
}

func copyRecords[K, V any](r store.Records[K, V], put func(*V)) {
	for record := range r.Values() {
		put(record)
	}
}

// differ returns an error when two tables do not hold the same rows.
func differ[K, V comparable](name string, got, want store.Table[K, V]) error {
	if got.Len() != want.Len() {
		return fmt.Errorf("%s: %d rows, the records say %d", name, got.Len(), want.Len())
	}
	for k, value := range want.All() {
		if found, ok := got.Get(k); !ok || found != value {
			return fmt.Errorf("%s: at %v is %v, the records say %v", name, k, found, value)
		}
	}
	return nil
}

// checkMoney compares every account with its ledger and with the holds of the
// organization's executions.
func (v checker) checkMoney() error {
	for o := range v.view.orgs.Values() {
		if err := v.view.VerifyLedger(o.ID); err != nil {
			return err
		}
	}
	return v.checkHeld()
}

// checkHeld compares every account with the holds of the organization's executions and
// its holds for tokens. Executions that ended hold nothing.
func (v checker) checkHeld() error {
	held := make(map[compute.OrgID]compute.Credits)
	for e := range v.view.executions.Hot() {
		held[e.Org] += e.Held
	}
	v.view.heldForTokens(held)
	for o := range v.view.orgs.Values() {
		if a := v.view.Account(o.ID); a.Held != held[o.ID] {
			return fmt.Errorf("organization %s: %s held, its executions hold %s", o.ID, a.Held, held[o.ID])
		}
	}
	return nil
}

// checkNodes compares the capacity that each node has given away with its live attempts.
func (v checker) checkNodes() error {
	for n := range v.view.nodes.Values() {
		gpus := make(map[compute.GPUID]int)
		var vcpu, memory int64
		for _, w := range v.view.Work(n.ID) {
			vcpu += w.Execution.Request.VCPUMilli
			memory += w.Execution.Request.MemoryMiB
			for _, share := range w.Attempt.GPUs {
				gpus[share.GPU] += share.Milli
			}
		}
		if vcpu != n.UsedVCPUMilli || memory != n.UsedMemoryMiB {
			return fmt.Errorf("node %s: gave %d vCPU and %d MiB, its attempts hold %d and %d",
				n.ID, n.UsedVCPUMilli, n.UsedMemoryMiB, vcpu, memory)
		}
		if err := checkGPUs(n, gpus); err != nil {
			return err
		}
	}
	return nil
}

// checkGPUs compares the shares that the GPUs of n have given away with those that the
// live attempts hold. It empties held.
func checkGPUs(n *compute.Node, held map[compute.GPUID]int) error {
	for _, g := range n.GPUs {
		if g.UsedMilli != held[g.ID] || g.UsedMilli > compute.WholeGPU {
			return fmt.Errorf("GPU %s: gave %d of 1000, its attempts hold %d",
				g.ID, g.UsedMilli, held[g.ID])
		}
		if g.Health == compute.HealthMissing && g.UsedMilli == 0 {
			return fmt.Errorf("GPU %s is gone and held by nothing", g.ID)
		}
		delete(held, g.ID)
	}
	if len(held) > 0 {
		return fmt.Errorf("node %s: attempts hold %d GPUs that it has not", n.ID, len(held))
	}
	return nil
}

func (v checker) checkExecutions() error {
	for e := range v.view.executions.Values() {
		if err := errors.Join(v.checkExecution(e), v.checkOrg(e.Org)); err != nil {
			return err
		}
	}
	return nil
}

// checkOrg checks that the organization of an execution exists.
func (v checker) checkOrg(id compute.OrgID) error {
	if _, ok := v.view.orgs.Get(id); !ok {
		return fmt.Errorf("an execution belongs to no organization: there is no %s", id)
	}
	return nil
}

func (v checker) checkExecution(e *compute.Execution) error {
	err := checkAlone(e)
	parent := e.Kind.IsParent()
	placed := !parent && (e.Status == compute.StatusStarting || e.Status == compute.StatusRunning)
	newest, ok := v.view.attempts.Get(numberKey{e.ID.UUID, e.Epoch})
	if live := ok && !newest.Ended; placed != live {
		err = errors.Join(err, errors.New("placed without a live attempt, or the other way round"))
	}
	switch {
	case err != nil:
	case e.Kind == compute.KindSelection:
		err = v.checkParent(e)
	case e.Kind == compute.KindService:
		err = v.checkService(e)
	case e.Kind == compute.KindReplica:
		err = v.checkReplica(e)
	}
	if err != nil {
		return fmt.Errorf("execution %s (%s): %w", e.ID, e.Status, err)
	}
	return nil
}

// checkAlone checks the invariants of one execution.
func checkAlone(e *compute.Execution) error {
	switch {
	case e.Status.Terminal() != !e.FinishedAt.IsZero():
		return errors.New("a terminal status and a time of ending go together")
	case e.Status.Terminal() && e.Held != 0:
		return errors.New("ended, but credits are still set aside")
	case e.Held < 0 || e.Billed < 0:
		return errors.New("negative credits")
	case e.MaxCredits > 0 && (e.Billed > e.MaxCredits || e.Held > e.MaxCredits):
		return errors.New("over its ceiling of credits")
	case e.Status == compute.StatusQueued && (e.Billed != 0 || !e.PlacedAt.IsZero() || !e.StartedAt.IsZero()):
		return errors.New("waits for a place, but was billed or has times of an attempt")
	case e.Status == compute.StatusSystemFailure && !e.Kind.IsParent() && e.Billed != 0:
		return errors.New("a system failure was charged")
	case e.Retries < 0 || e.Retries > e.MaxRetries || len(e.Avoid) > attempt.MaxUnstarted:
		return errors.New("started again more often than it may be")
	case e.Owed < 0 || e.Owed > 0 && !e.Preemptible:
		return errors.New("owes the time of attempts that could not be preempted")
	case !rightType(e):
		return errors.New("its price or its request is not that of its GPU type")
	case len(e.Detail) > maxDetail:
		return errors.New("detail is too long")
	}
	return nil
}

// rightType reports whether the request of an execution that accepts several GPU types
// matches its status: any of them while it waits, one once it is placed.
func rightType(e *compute.Execution) bool {
	if !e.AnyOf() || e.Status.Terminal() {
		return true
	}
	want := *e
	if e.Status <= compute.StatusQueued || e.Kind.IsParent() {
		want.Accept()
	} else if !want.Take(e.Request.GPUType) {
		return false
	}
	return want.Price == e.Price && want.Profile == e.Profile && want.Request.Key() == e.Request.Key()
}

func (v checker) checkParent(parent *compute.Execution) error {
	live, billed, all := 0, compute.Credits(0), true
	var ceiling compute.Credits
	runs := map[string]int{} // Live runs of each profile that have had their turn.
	for _, c := range v.view.Children(parent.ID) {
		if !c.Status.Terminal() && c.Status != compute.StatusPending {
			runs[c.Profile]++
		}
	}
	for _, id := range parent.Selection.Children {
		c, ok := v.view.executions.Get(id)
		if !ok {
			all = false // Forgotten; only after the parent's end.
			continue
		}
		billed += c.Billed
		ceiling += c.MaxCredits
		if !c.Status.Terminal() {
			live++
		}
		if c.Status == compute.StatusPending && runs[c.Profile] != 1 {
			return fmt.Errorf("run %d of %s waits for %d others", c.Repeat, c.Profile, runs[c.Profile])
		}
	}
	if parent.MaxCredits > 0 && ceiling > parent.MaxCredits {
		return fmt.Errorf("its children may cost %s, it %s", ceiling, parent.MaxCredits)
	}
	switch {
	case live != parent.Selection.Live:
		return fmt.Errorf("%d live children, counted %d", live, parent.Selection.Live)
	case all && billed != parent.Billed:
		return fmt.Errorf("billed %s, its children %s", parent.Billed, billed)
	case !all && !parent.Status.Terminal():
		return errors.New("a child of a live parent was forgotten")
	case parent.Status == compute.StatusRunning && live == 0:
		return errors.New("running without live children")
	case (parent.Status == compute.StatusPending) == parent.Selection.Taken:
		if !parent.Status.Terminal() {
			return errors.New("pending and its queue message do not agree")
		}
	}
	return nil
}

// checkAttempts checks that attempts belong to executions and end with them.
func (v checker) checkAttempts() error {
	for a := range v.view.attempts.Values() {
		e, _ := v.view.executions.Get(a.Execution)
		if err := v.checkAttempt(a, e); err != nil {
			return err
		}
	}
	return nil
}

// checkAttempt checks an attempt of e, nil for none.
func (v checker) checkAttempt(a *compute.Attempt, e *compute.Execution) error {
	switch {
	case e == nil || a.Epoch == 0 || a.Epoch > e.Epoch:
		return fmt.Errorf("attempt %d of %s has no execution", a.Epoch, a.Execution)
	case !a.Ended && a.Epoch != e.Epoch:
		return fmt.Errorf("attempt %d of %s is live, but not the newest", a.Epoch, a.Execution)
	case !a.Ended && a.Epoch <= v.view.meta.Epoch<<epochShift:
		return fmt.Errorf("attempt %d of %s is live, but of a life of the cluster before", a.Epoch, a.Execution)
	case !a.PreemptAt.IsZero() && (!movable(e) || a.PreemptAt > v.view.meta.Now):
		return fmt.Errorf("attempt %d of %s was preempted, which it may not be", a.Epoch, a.Execution)
	case a.ForOwn && a.PreemptAt.IsZero():
		return fmt.Errorf("attempt %d of %s was not preempted for anyone's work", a.Epoch, a.Execution)
	case a.Ended != a.Status.Terminal():
		return fmt.Errorf("attempt %d of %s ended as %s", a.Epoch, a.Execution, a.Status)
	}
	return nil
}

// movable reports whether an attempt of e may be asked to make room.
func movable(e *compute.Execution) bool { return e.Preemptible || e.MaxRetries > 0 }

// checkQuotas checks that quotas have their organization and, until they are checked, their
// key, and that fair share knows the holdings of every organization.
func (v checker) checkQuotas() error {
	for q := range v.view.quotas.Values() {
		_, org := v.view.orgs.Get(q.Org)
		_, key := v.view.Key(q.Org, q.Key)
		if gone := !q.Key.IsZero() && !key; !org || gone == q.CheckAt.IsZero() {
			return fmt.Errorf("a quota of organization %s and key %s: the key is gone: %t, the quota is checked at %s",
				q.Org, q.Key, gone, q.CheckAt)
		}
	}
	rates := make(map[compute.OrgID]compute.Price)
	for e := range v.view.executions.Hot() {
		if holds(e) {
			rates[e.Org] += e.FairPrice()
		}
	}
	for o := range v.view.orgs.Values() {
		u, known := v.view.usage.Get(o.ID)
		if known && u.Rate != rates[o.ID] || !known && rates[o.ID] != 0 {
			return fmt.Errorf("organization %s: its attempts are worth %d a second, fair share counts otherwise",
				o.ID, rates[o.ID])
		}
		if known && (u.At > v.view.meta.Now || u.Used > maxUsed) {
			return fmt.Errorf("organization %s: fair share of %d at %s", o.ID, u.Used, u.At)
		}
	}
	return nil
}

// checkArchives checks that archives are numbered, have organizations, and describe
// themselves correctly.
func (v checker) checkArchives() error {
	for a := range v.view.archives.Values() {
		n := 0
		for _, o := range a.Orgs {
			n += o.Executions
			if _, ok := v.view.orgs.Get(o.Org); !ok {
				return fmt.Errorf("archive %d: there is no organization %s", a.Number, o.Org)
			}
			if counted := o.Count(nil, nil); counted != o.Executions || len(o.Counts) > kinds*compute.Statuses {
				return fmt.Errorf("archive %d: %d executions of %s, counted %d", a.Number, o.Executions, o.Org, counted)
			}
		}
		if n != a.Executions || n == 0 || a.Number == 0 || a.Size <= 0 {
			return fmt.Errorf("archive %d: %d executions, counted %d", a.Number, a.Executions, n)
		}
		if len(a.Tails)%archive.TailWidth != 0 || len(a.Tails) > a.Executions*archive.TailWidth {
			return fmt.Errorf("archive %d: %d bytes of identifiers of %d executions", a.Number, len(a.Tails), n)
		}
	}
	return nil
}

// checkOrgs checks that organizations have owners, and that nothing is left of those
// that were deleted but their ledgers and histories.
func (v checker) checkOrgs() error {
	for o := range v.view.orgs.Values() {
		if err := v.checkSigning(o); err != nil {
			return err
		}
		members := v.view.Members(o.ID)
		owner := slices.ContainsFunc(members, func(m *compute.Membership) bool { return m.Role == compute.OrgOwner })
		if o.DeletedAt.IsZero() {
			if !owner {
				return fmt.Errorf("organization %s has no owner", o.Slug)
			}
			continue
		}
		if len(members)+len(v.view.Keys(o.ID))+len(v.view.Invites(o.ID)) > 0 || v.view.DataKey(o.ID) != nil {
			return fmt.Errorf("organization %s was deleted and has members, keys, invites or secrets", o.Slug)
		}
		for range v.view.Live(o.ID) {
			return fmt.Errorf("organization %s was deleted and has live executions", o.Slug)
		}
	}
	for x := range v.view.variables.Values() {
		if _, ok := v.view.Membership(x.Org, x.User); !ok {
			return fmt.Errorf("variable %s belongs to nobody's member", x.ID)
		}
	}
	for i := range v.view.invites.Values() {
		if _, ok := v.view.orgs.Get(i.Org); !ok {
			return fmt.Errorf("invite %s is to no organization", i.ID)
		}
	}
	return nil
}

// checkPeople checks that the users and organizations of records exist.
func (v checker) checkPeople() error {
	for m := range v.view.members.Values() {
		_, org := v.view.orgs.Get(m.Org)
		_, user := v.view.users.Get(m.User)
		if !org || !user {
			return fmt.Errorf("membership of %s in %s: one does not exist", m.User, m.Org)
		}
	}
	if err := v.checkOrgs(); err != nil {
		return err
	}
	for u := range v.view.users.Values() {
		defaults := 0
		for _, m := range v.view.Memberships(u.ID) {
			if m.Default {
				defaults++
			}
		}
		if defaults > 1 || defaults == 0 && len(v.view.Memberships(u.ID)) > 0 {
			return fmt.Errorf("user %s has %d default organizations", u.ID, defaults)
		}
	}
	for k := range v.view.keys.Values() {
		if _, ok := v.view.Membership(k.Org, k.User); !ok {
			return fmt.Errorf("key %s acts as nobody's member", k.ID)
		}
	}
	return nil
}

// checkAccount compares the account of an organization with the grants and charges of
// its lines, and with the last line.
func (v checker) checkAccount(org compute.OrgID, granted, charged compute.Credits, last *ledger.Line) error {
	a := v.view.Account(org)
	if a.Seq != last.Seq || a.Head != last.Hash || a.Balance != last.Balance ||
		a.Held != last.Held || a.Granted != granted || a.Charged != charged {
		return fmt.Errorf("ledger of %s: the account does not match its lines", org)
	}
	return nil
}

// checkEnvironments checks that environments belong to organizations that exist, that
// nodes which exist report on them, and that live executions have theirs.
func (v checker) checkEnvironments() error {
	known := make(map[compute.EnvironmentID]bool)
	for e := range v.view.environments.Values() {
		known[e.ID] = true
		if o, ok := v.view.orgs.Get(e.Org); !e.Org.IsZero() && (!ok || !o.DeletedAt.IsZero()) {
			return fmt.Errorf("environment %s belongs to no organization", e.ID)
		}
		for _, n := range e.Nodes {
			if _, ok := v.view.nodes.Get(n.Node); !ok {
				return fmt.Errorf("environment %s has a report of node %s, which is not known", e.ID, n.Node)
			}
		}
	}
	for k := range v.view.live.Keys(archive.Place{}) {
		if e, ok := v.view.executions.Get(k.ID); ok && !e.Environment.ID.IsZero() && !known[e.Environment.ID] {
			return fmt.Errorf("execution %s needs an environment that does not exist", e.ID)
		}
	}
	return nil
}
