package fsm

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"berth/compute"
	"berth/fault"
	"berth/fsm/format"
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
	if err := readMeta(data, &s.view.meta); err != nil {
		return nil, err
	}
	tables, err := s.readTables(in)
	if err != nil {
		return nil, err
	}
	s.reshape()
	s.remix()
	if err := in.Close(s.view.Hash()); err != nil {
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
	if err := store.DecodeKnown(data, &of); err == nil && of.Format > format.Newest {
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
		load(func(n *compute.Node) { s.view.nodes.put(n) }),
		load(func(n *removedNode) { s.view.removed.Put(n) }),
		load(func(p *price) { s.view.prices.Put(p) }),
		load(func(t *compute.JoinToken) { s.view.joins.Put(t) }),
		load(s.view.putOrg), load(s.view.putUser), load(s.view.putMembership), load(s.view.putKey),
		load(s.view.putRefresh),
		load(func(k *compute.SigningKey) { s.view.signing.Put(k) }),
		load(s.putAccount),
		load(func(e *compute.LedgerEntry) { s.view.ledger.Put(e) }),
		s.loadExecution, load(s.view.putAttempt),
		load(s.view.putCallback),
		load(s.view.putOp),
		load(func(a *admission) { s.view.admitted.Put(a) }),
		load(func(a *arrival) { s.view.arrived.Put(a) }),
		load(func(u *usage) { s.view.usage.Put(u) }),
		load(s.view.storeQuota),
		load(func(t *tally) { s.view.tallies.Put(t) }),
		load(s.putArchive),
		load(s.upload.put),
		load(func(x *compute.Variable) { s.view.variables.Put(x) }),
		load(func(k *compute.DataKey) { s.view.dataKeys.Put(k) }),
		load(func(i *compute.Invite) { s.view.invites.Put(i) }),
		load(func(e *compute.Environment) { s.view.environments.Put(e) }),
		load(func(b *compute.Bucket) { s.view.buckets.Put(b) }),
		load(s.view.loadObject), load(s.view.putObjectUpload), load(s.view.putObjectPart),
		load(s.view.storeBudget),
		load(func(p *compute.Purchase) { s.view.purchases.Put(p) }),
		load(func(r *compute.AuditRecord) { s.view.audit.Put(r) }),
		load(func(c *auditChain) { s.view.chains.Put(c) }),
		load(func(m *compute.Model) { s.view.models.Put(m) }),
		load(s.money.putTokenHold), load(s.money.putTokenUsage),
		load(func(t *compute.TokenTotal) { s.view.tokenTotals.Put(t) }),
		load(func(t *tokenSession) { s.view.tokenSessions.Put(t) }),
		load(s.view.putOutput),
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
