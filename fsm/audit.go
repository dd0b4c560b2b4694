package fsm

import (
	"crypto/sha256"
	"fmt"
	"iter"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/fsm/store"
)

// Limits of audit trails.
const (
	maxAudit     = 10_000 // Lines of one trail; the oldest go first.
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
	replaces bool            // It replaces settings.
	settings settings
}

// before returns what the line of a command needs of the state before it.
func (s *trail) before(cmd command.Command) earlier {
	e := earlier{homes: s.homesOf(cmd)}
	e.settings, e.replaces = s.settingsOf(cmd)
	return e
}

// auditChain is the state of one trail. The lines up to Trimmed are gone; Anchor is the
// hash of the last of them, so that the chain of the others can still be verified.
type auditChain struct {
	Org     compute.OrgID `cbor:"1,keyasint"`
	Seq     uint64        `cbor:"2,keyasint"` // Number of the last line.
	Head    compute.Hash  `cbor:"3,keyasint"` // Hash of the last line.
	Trimmed uint64        `cbor:"4,keyasint,omitempty"`
	Anchor  compute.Hash  `cbor:"5,keyasint,omitzero"`
}

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
		s.append(d)
		return
	}
	if !s.changed(cmd, r, before, &d) {
		return
	}
	s.append(d)
	touched := before.homes
	switch c := cmd.(type) { // The new member's organizations are known only afterwards.
	case command.CreateUser:
		touched = s.orgsOf(c.User.ID)
	case command.SignUp:
		touched = s.orgsOf(c.User.ID)
	}
	for _, org := range touched {
		d.org = org
		s.append(d)
	}
}

// append appends a line to its trail.
func (s *trail) append(d auditEntry) {
	c := s.view.chain(d.org)
	c.Seq++
	line := compute.AuditRecord{
		Org: d.org, Seq: c.Seq, Index: s.view.meta.Index, At: s.view.meta.Now,
		User: d.actor.User, Key: d.actor.Key, Root: d.actor.Root,
		Action: d.action, Target: compute.Clip(d.target, maxAuditText), Detail: compute.Clip(d.detail, maxAuditText),
		From: compute.Clip(d.actor.From, maxAuditText), Request: compute.Clip(d.actor.Request, maxAuditText),
	}
	line.Hash = chainAudit(c.Head, line)
	c.Head = line.Hash
	s.view.audit.Put(&line)
	if c.Seq-c.Trimmed > maxAudit {
		c.Trimmed++
		if old := s.view.audit.Drop(numberKey{d.org.UUID, c.Trimmed}); old != nil {
			c.Anchor = old.Hash
		}
	}
	s.view.chains.Put(&c)
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
	line.Hash = compute.Hash{}
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
		for ; seq > c.Trimmed; seq-- {
			line, ok := v.audit.Get(numberKey{org.UUID, seq})
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
			if !yield(c.Org, AuditTrail{Lines: c.Seq, Trimmed: c.Trimmed, Head: c.Head}) {
				return
			}
		}
	}
}

// Trail returns how much there is of a trail.
func (v *auditTables) Trail(org compute.OrgID) AuditTrail {
	c := v.chain(org)
	return AuditTrail{Lines: c.Seq, Trimmed: c.Trimmed, Head: c.Head}
}

// VerifyAudit recomputes the chain of a trail from the oldest line that is kept.
func (v *auditTables) VerifyAudit(org compute.OrgID) error {
	c := v.chain(org)
	before := c.Anchor
	for seq := c.Trimmed + 1; seq <= c.Seq; seq++ {
		line, ok := v.audit.Get(numberKey{org.UUID, seq})
		switch {
		case !ok:
			return fmt.Errorf("audit trail of %s: line %d is missing", org, seq)
		case line.Hash != chainAudit(before, *line):
			return fmt.Errorf("audit trail of %s: the chain breaks at line %d", org, seq)
		}
		before = line.Hash
	}
	if before != c.Head {
		return fmt.Errorf("audit trail of %s: it does not end with its last line", org)
	}
	return nil
}

// checkAudit checks that every trail is whole and bounded.
func (v checker) checkAudit() error {
	lines := 0
	for c := range v.view.chains.Values() {
		if err := v.view.VerifyAudit(c.Org); err != nil {
			return err
		}
		if c.Seq-c.Trimmed > maxAudit {
			return fmt.Errorf("audit trail of %s: %d lines", c.Org, c.Seq-c.Trimmed)
		}
		lines += int(c.Seq - c.Trimmed)
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
