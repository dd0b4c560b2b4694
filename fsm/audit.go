package fsm

import (
	"crypto/sha256"
	"fmt"
	"iter"
	"slices"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/fsm/store"
)

// Limits of audit trails.
const (
	maxAudit     = 10_000 // Lines of one trail, without routine ones; the oldest go first.
	maxRoutine   = 5_000  // Routine lines of one trail; the oldest go first.
	maxAuditText = 128    // Bytes of a target or a detail.
)

// auditEntry is a change that an audit trail lists.
type auditEntry struct {
	actor  command.Actor
	org    compute.OrgID // The trail's organization; zero for the cluster's trail.
	action string
	target string
	detail string
}

// earlier is what the line of a command needs of the state before it.
type earlier struct {
	homes    []compute.OrgID // The organizations of the user that it changes or deletes.
	managed  []compute.OrgID // Those that its actor administered and may not any longer; zero for the cluster.
	replaces bool            // It replaces settings.
	settings settings
}

// before returns what the line of a command needs of the state before it.
func (s *trail) before(cmd command.Command) earlier {
	e := earlier{homes: s.homesOf(cmd)}
	e.managed = s.managedBefore(cmd, e.homes)
	e.settings, e.replaces = s.settingsOf(cmd)
	return e
}

// auditChain is the state of one trail. The oldest lines of each share are gone. A line whose
// predecessor is gone has its hash in Before, so that the chain can still be verified.
type auditChain struct {
	Org     compute.OrgID `cbor:"1,keyasint"`
	Seq     uint64        `cbor:"2,keyasint"`           // Number of the last line.
	Head    compute.Hash  `cbor:"3,keyasint"`           // Hash of the last line.
	Trimmed uint64        `cbor:"4,keyasint,omitempty"` // Lines that are gone and not routine.

	// Anchor stands in for Before of the oldest line of a trail whose last line went
	// before format 18, when no line was routine.
	Anchor compute.Hash `cbor:"5,keyasint,omitzero"`

	Routine     uint64 `cbor:"6,keyasint,omitempty"` // Routine lines, with those that are gone.
	Gone        uint64 `cbor:"7,keyasint,omitempty"` // Routine lines that are gone.
	LastTrimmed uint64 `cbor:"8,keyasint,omitempty"` // Number of the last line that Trimmed counts, from format 18 on.
	LastGone    uint64 `cbor:"9,keyasint,omitempty"` // Number of the last line that Gone counts.
}

// lines returns how many lines of the trail there are still.
func (c *auditChain) lines() uint64 { return c.Seq - c.Trimmed - c.Gone }

// auditTables has the audit trails: one for each organization and one for the cluster.
type auditTables struct {
	audit  store.Records[numberKey, compute.AuditRecord]
	chains store.Records[compute.OrgID, auditChain]
}

func newAuditTables() auditTables {
	const org, user = 1, 5
	return auditTables{
		audit: store.NewColdRecords(byNumberKey, auditKey, numberKeyWidth,
			store.Cold[numberKey, compute.AuditRecord]{
				Is:    always[compute.AuditRecord],
				Bytes: numberKeyBytes, Key: numberKeyFrom, Packer: store.NewPacker(org, user),
			}),
		chains: store.NewRecords(byOrg, func(c *auditChain) compute.OrgID { return c.Org }),
	}
}

func auditKey(r *compute.AuditRecord) numberKey { return numberKey{r.Org.UUID, r.Seq} }

// record appends the command that was applied to its audit trail, in the log entry
// of the change, and to those of the organizations that it touched. A command that
// changed nothing has no line.
func (s *trail) record(cmd command.Command, r command.Result, before earlier) {
	if s.view.Format() < format.Accounts || r.Repeat {
		return
	}
	d, ok := s.entryOf(cmd, r)
	if !ok {
		return
	}
	if r.Refusal != nil || s.view.Format() < format.Rotation {
		s.append(d, before)
		return
	}
	if !s.changed(cmd, r, before, &d) {
		return
	}
	s.append(d, before)
	touched := before.homes
	switch c := cmd.(type) { // The new member's organizations are known only afterwards.
	case command.CreateUser:
		touched = s.orgsOf(c.User.ID)
	case command.SignUp:
		touched = s.orgsOf(c.User.ID)
	}
	for _, org := range touched {
		d.org = org
		s.append(d, before)
	}
}

// append appends a line to its trail.
func (s *trail) append(d auditEntry, before earlier) {
	c := s.view.chain(d.org)
	c.Seq++
	line := compute.AuditRecord{
		Org: d.org, Seq: c.Seq, Index: s.view.meta.Index, At: s.view.meta.Now,
		User: d.actor.User, Key: d.actor.Key, Root: d.actor.Root,
		Action: d.action, Target: compute.Clip(d.target, maxAuditText), Detail: compute.Clip(d.detail, maxAuditText),
		From: compute.Clip(d.actor.From, maxAuditText), Request: compute.Clip(d.actor.Request, maxAuditText),
	}
	shared := s.view.Format() >= format.Rotation
	if shared && s.isRoutine(d, before) {
		c.Routine++
		line.Routine, line.Place = true, c.Routine
	} else if shared {
		line.Place = c.Seq - c.Routine
	}
	line.Hash = chainAudit(c.Head, line)
	c.Head = line.Hash
	s.view.audit.Put(&line)
	switch {
	case shared:
		s.trim(&c)
	case c.Seq-c.Trimmed > maxAudit:
		c.Trimmed++
		if old := s.view.audit.Drop(numberKey{d.org.UUID, c.Trimmed}); old != nil {
			c.Anchor = old.Hash
		}
	}
	s.view.chains.Put(&c)
}

// isRoutine reports whether any member can repeat the action of a line, such as a login or
// a change of variables. Without a share of their own, such lines would push out those of
// administrators.
func (s *trail) isRoutine(d auditEntry, before earlier) bool {
	return d.action == actionLogin || d.action == actionLogout || d.action == actionReuse ||
		!s.manages(d.actor, d.org) && !slices.Contains(before.managed, d.org)
}

// manages reports whether an actor administers an organization, or the cluster for zero.
func (s *trail) manages(a command.Actor, org compute.OrgID) bool {
	if a.Root || a.User.IsZero() {
		return true
	}
	if u, ok := s.view.users.Get(a.User); ok && u.Operator {
		return true
	}
	m, ok := s.view.Membership(org, a.User)
	return ok && m.Role >= compute.OrgAdmin
}

// managedBefore returns the organizations in which a command may end the rights of its actor,
// as far as it has some; zero for the cluster.
func (s *trail) managedBefore(cmd command.Command, homes []compute.OrgID) (managed []compute.OrgID) {
	if s.view.Format() < format.Rotation {
		return nil
	}
	var actor command.Actor
	var orgs []compute.OrgID
	switch c := cmd.(type) {
	case command.DeleteUser:
		actor, orgs = c.Actor, append(homes[:len(homes):len(homes)], compute.OrgID{})
	case command.SetMember:
		actor, orgs = c.Actor, []compute.OrgID{c.Org}
	case command.RemoveMember:
		actor, orgs = c.Actor, []compute.OrgID{c.Org}
	case command.DeleteOrg:
		actor, orgs = c.Actor, []compute.OrgID{c.Org}
	}
	for _, org := range orgs {
		if s.manages(actor, org) {
			managed = append(managed, org)
		}
	}
	return managed
}

// trim removes the oldest line of a share that has too many.
func (s *trail) trim(c *auditChain) {
	if c.Seq-c.Routine-c.Trimmed > maxAudit {
		c.Trimmed++
		c.LastTrimmed = s.dropOldest(c.Org, c.LastTrimmed, false)
		c.Anchor = compute.Hash{} // The line that followed it is gone.
	}
	if c.Routine-c.Gone > maxRoutine {
		c.Gone++
		c.LastGone = s.dropOldest(c.Org, c.LastGone, true)
	}
}

// dropOldest removes the oldest line of a share after a number, and returns its number.
func (s *trail) dropOldest(org compute.OrgID, after uint64, routine bool) uint64 {
	var oldest *compute.AuditRecord
	for _, line := range s.view.audit.From(numberKey{org.UUID, after + 1}) {
		if oldest = line; line.Routine == routine {
			break
		}
	}
	if next, ok := s.view.audit.Get(numberKey{org.UUID, oldest.Seq + 1}); ok {
		behind := *next
		behind.Before = oldest.Hash
		s.view.audit.Put(&behind)
	}
	s.view.audit.Drop(numberKey{org.UUID, oldest.Seq})
	return oldest.Seq
}

// chain returns the state of a trail.
func (v *auditTables) chain(org compute.OrgID) auditChain {
	if c, ok := v.chains.Get(org); ok {
		return *c
	}
	return auditChain{Org: org}
}

// chainAudit returns the hash of a line that follows the line with the hash before.
func chainAudit(before compute.Hash, line compute.AuditRecord) compute.Hash {
	line.Hash, line.Before = compute.Hash{}, compute.Hash{}
	return sha256.Sum256(append(before[:], store.MustEncode(&line)...))
}

// Audit yields the lines of a trail below a sequence number, 0 for all, the newest
// first. The zero organization is the cluster.
func (v *auditTables) Audit(org compute.OrgID, below uint64) iter.Seq[*compute.AuditRecord] {
	return func(yield func(*compute.AuditRecord) bool) {
		c := v.chain(org)
		seq := c.Seq
		if below > 0 {
			seq = min(seq, below-1)
		}
		for k := range v.audit.DescendCold(numberKey{org.UUID, seq}, numberKey{org.UUID, 0}) {
			line, ok := v.audit.Get(k)
			if !ok || !yield(line) {
				return
			}
		}
	}
}

// AuditTrail is how much there is of a trail.
type AuditTrail struct {
	Lines   uint64 // All, with those that are gone.
	Trimmed uint64 // Those that are gone.
	Head    compute.Hash
}

// Trails yields all trails, the cluster's too.
func (v *auditTables) Trails() iter.Seq2[compute.OrgID, AuditTrail] {
	return func(yield func(compute.OrgID, AuditTrail) bool) {
		for c := range v.chains.Values() {
			if !yield(c.Org, AuditTrail{Lines: c.Seq, Trimmed: c.Trimmed + c.Gone, Head: c.Head}) {
				return
			}
		}
	}
}

// Trail returns how much there is of a trail.
func (v *auditTables) Trail(org compute.OrgID) AuditTrail {
	c := v.chain(org)
	return AuditTrail{Lines: c.Seq, Trimmed: c.Trimmed + c.Gone, Head: c.Head}
}

// VerifyAudit recomputes the chain of a trail from the oldest line that is kept. No line is
// missing between the oldest and the newest one of each share, whose numbers are part of what
// is hashed.
func (v *auditTables) VerifyAudit(org compute.OrgID) error {
	c := v.chain(org)
	at := auditPosition{places: map[bool]uint64{false: c.Trimmed, true: c.Gone}}
	if c.Anchor != (compute.Hash{}) {
		at.seq, at.hash = c.Trimmed, c.Anchor
	}
	for k, line := range v.audit.From(numberKey{org.UUID, 0}) {
		if k.owner != org.UUID {
			break
		}
		if err := at.pass(line); err != nil {
			return fmt.Errorf("audit trail of %s: %w", org, err)
		}
	}
	whole := at.places[false] == c.Seq-c.Routine && at.places[true] == c.Routine
	if at.seq != c.Seq || at.hash != c.Head || !whole {
		return fmt.Errorf("audit trail of %s: it does not end with its last line", org)
	}
	return nil
}

// auditPosition is how far a trail is verified.
type auditPosition struct {
	seq      uint64 // The last line.
	hash     compute.Hash
	places   map[bool]uint64 // Lines of each share until then; true for routine ones.
	numbered bool            // The lines have their places.
}

// pass verifies the next line.
func (p *auditPosition) pass(line *compute.AuditRecord) error {
	before := p.hash
	gap := line.Seq != p.seq+1
	if gap {
		before = line.Before
	}
	p.places[line.Routine]++
	p.numbered = p.numbered || line.Place > 0
	switch {
	case gap != (line.Before != compute.Hash{}),
		p.numbered && line.Place != p.places[line.Routine]:
		return fmt.Errorf("lines before line %d are missing", line.Seq)
	case line.Hash != chainAudit(before, *line):
		return fmt.Errorf("the chain breaks at line %d", line.Seq)
	}
	p.seq, p.hash = line.Seq, line.Hash
	return nil
}

// checkAudit checks that every trail is whole and bounded.
func (v checker) checkAudit() error {
	lines := 0
	for c := range v.view.chains.Values() {
		if err := v.view.VerifyAudit(c.Org); err != nil {
			return err
		}
		if c.Seq-c.Routine-c.Trimmed > maxAudit || c.Routine-c.Gone > maxRoutine {
			return fmt.Errorf("audit trail of %s: %d lines", c.Org, c.lines())
		}
		lines += int(c.lines())
	}
	if lines != v.view.audit.Len() {
		return fmt.Errorf("%d lines of audit trails, their chains have %d", v.view.audit.Len(), lines)
	}
	return nil
}

// Audits reports whether a command gets a record in an audit trail when it is applied.
// It needs the address of the client and the identifier of its request in its Actor.
func (v *View) Audits(cmd command.Command) bool {
	if v.Format() < format.Accounts {
		return false
	}
	if _, rotates := cmd.(command.RotateRefresh); rotates {
		return v.Format() >= format.Rotation // It is, if its token was spent.
	}
	_, audited := (&trail{v}).entryOf(cmd, command.Result{})
	return audited
}

// recordDeed accepts an operator's action. Its audit record is the only change.
func (s *access) recordDeed(c command.RecordDeed) command.Result {
	if refusal := s.admitOperator(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if c.Action == "" || len(c.Action) > maxAuditText {
		return refuse(compute.CodeInvalid, "action", "an action has a name of at most %d bytes", maxAuditText)
	}
	return command.Result{}
}
