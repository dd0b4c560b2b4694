package fsm

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"berth/compute"
	"berth/fault"
	"berth/fsm/snapshot"
	"berth/fsm/store"
)

// persister is a published view on its way to disk.
type persister struct{ view *View }

// Persist writes the view. Apply goes on meanwhile: a view never changes.
func (s *persister) Persist(sink raft.SnapshotSink) error {
	err := fault.Error("fsm.snapshot.begin")
	if err == nil {
		err = s.view.WriteSnapshot(sink)
	}
	if err == nil {
		err = fault.Error("fsm.snapshot.written")
	}
	if err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return err
	}
	fault.Point("fsm.snapshot.closed")
	return nil
}

// Release does nothing: a view is garbage like any other.
func (s *persister) Release() {}

// WriteSnapshot writes v in the form that Restore reads.
func (v *View) WriteSnapshot(w io.Writer) error {
	out := snapshot.NewWriter(w, store.MustEncode(&v.meta))
	for i, t := range v.kept() {
		n, _ := t.Digest()
		out.Table(i, n)
		t.Each(out.Record)
	}
	if err := out.Close(v.Hash()); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// readSnapshot returns the state that WriteSnapshot wrote, checked.
func readSnapshot(r io.Reader) (*state, error) {
	in, data, err := snapshot.NewReader(r)
	if err != nil {
		return nil, err
	}
	s := newState()
	if err := readMeta(data, &s.meta); err != nil {
		return nil, err
	}
	tables, err := s.readTables(in)
	if err != nil {
		return nil, err
	}
	s.reshape()
	s.remix()
	if err := in.Close(s.Hash()); err != nil {
		return nil, err
	}
	// Derived data was just computed; the rest is checked.
	if err := tables.check(); err != nil {
		return nil, err
	}
	return s, nil
}

// readMeta reads the meta record. It checks the format first: fields of a newer
// format are unknown here, but they are not damage.
func readMeta(data []byte, m *meta) error {
	var of struct {
		Format uint64 `cbor:"10,keyasint"`
	}
	if err := store.DecodeKnown(data, &of); err == nil && of.Format > Format {
		return errFormat(of.Format)
	}
	if err := store.Decode(data, m); err != nil {
		return fmt.Errorf("decode meta: %w", err)
	}
	return nil
}

// loaders has, in the order of stored, the functions that add an encoded record to
// each table and to the data derived from it.
func (s *state) loaders() []func([]byte) error {
	return []func([]byte) error{
		load(func(n *compute.Node) { s.nodes.put(n) }),
		load(func(n *removedNode) { s.removed.Put(n) }),
		load(func(p *price) { s.prices.Put(p) }),
		load(func(t *compute.JoinToken) { s.joins.Put(t) }),
		load(s.putOrg), load(s.putUser), load(s.putMembership), load(s.putKey),
		load(s.putRefresh),
		load(func(k *compute.SigningKey) { s.signing.Put(k) }),
		load(s.putAccount),
		load(func(e *compute.LedgerEntry) { s.ledger.Put(e) }),
		s.loadExecution, load(s.putAttempt),
		load(s.putCallback),
		load(s.putOp),
		load(func(a *admission) { s.admitted.Put(a) }),
		load(func(a *arrival) { s.arrived.Put(a) }),
		load(func(u *usage) { s.usage.Put(u) }),
		load(func(q *compute.Quota) { s.quotas.Put(q) }),
		load(func(t *tally) { s.tallies.Put(t) }),
		load(s.putArchive),
		load(s.upload.put),
		load(func(x *compute.Variable) { s.variables.Put(x) }),
		load(func(k *compute.DataKey) { s.dataKeys.Put(k) }),
		load(func(i *compute.Invite) { s.invites.Put(i) }),
		load(func(e *compute.Environment) { s.environments.Put(e) }),
		load(func(b *compute.Bucket) { s.buckets.Put(b) }),
		load(s.loadObject), load(s.putObjectUpload), load(s.putObjectPart),
		load(func(b *compute.Budget) { s.budgets.Put(b) }),
		load(func(p *compute.Purchase) { s.purchases.Put(p) }),
		load(func(r *compute.AuditRecord) { s.audit.Put(r) }),
		load(func(c *auditChain) { s.chains.Put(c) }),
		load(func(m *compute.Model) { s.models.Put(m) }),
		load(s.money.putTokenHold), load(s.money.putTokenUsage),
		load(func(t *compute.TokenTotal) { s.tokenTotals.Put(t) }),
		load(func(t *tokenSession) { s.tokenSessions.Put(t) }),
		load(s.putOutput),
	}
}

// loadExecution adds an execution. Its status and kind are counted, so they
// must exist even in a damaged record, which is only found out at the end.
func (s *state) loadExecution(data []byte) error {
	unknown := false
	err := load(func(e *compute.Execution) {
		unknown = int(e.Status) >= compute.Statuses || int(e.Kind) >= kinds
		if !unknown {
			s.putExecution(e)
		}
	})(data)
	if unknown {
		return fmt.Errorf("%w: an execution with an unknown status or kind", snapshot.ErrDamaged)
	}
	return err
}

func load[V any](put func(*V)) func([]byte) error {
	return func(data []byte) error {
		v := new(V)
		if err := store.DecodeRecord(data, v); err != nil {
			return err
		}
		put(v)
		return nil
	}
}
