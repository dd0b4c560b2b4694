package fsm

import (
	"encoding/binary"
	"fmt"
	"iter"
	"time"

	"berth/compute"
	"berth/fault"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/fsm/store"
)

// Limits on remembered requests.
const (
	opAge   = 24 * time.Hour // By the state's clock.
	maxOps  = 1_000_000
	opSweep = 10_000 // The most that one Tick removes.

	// refusalAge is how long a refusal is remembered: longer than an earlier copy
	// of the request can be in flight.
	refusalAge  = time.Minute
	maxRefusals = 20_000
)

// op is a processed request with its first answer.
type op struct {
	Org     compute.OrgID   `cbor:"1,keyasint"`
	ID      compute.OpID    `cbor:"2,keyasint"`
	Request compute.Hash    `cbor:"3,keyasint"`
	Result  command.Result  `cbor:"4,keyasint"`
	At      compute.Instant `cbor:"5,keyasint"`
	Seq     uint64          `cbor:"6,keyasint"` // Rises with each op; the lowest is the oldest.
}

// Recall returns the first answer to o, if o is remembered.
func (v *View) Recall(o command.Op) (command.Result, bool) {
	known, ok := v.ops.Get(pair{o.Org.UUID, o.ID.UUID})
	if !ok || known.refused() && known.At.Add(refusalAge) <= v.meta.Now {
		return command.Result{}, false
	}
	if known.Request != o.Request {
		return refuse(compute.CodeConflict, "idempotency_key_reused",
			"this idempotency key was used with another request"), true
	}
	r := known.Result
	r.Repeat = true
	return r, true
}

// remember stores the answer to o. A refusal is stored for a short time only,
// because its reason, such as missing credits, may pass. But an earlier copy of
// the request may still be in flight from a node that gave up waiting for it.
// Without the stored refusal, that copy would be applied after the client
// learned that the request was refused.
func (s *requests) remember(o command.Op, r command.Result) {
	if o.ID.IsZero() || fault.Planted(fault.ForgottenOps) {
		return
	}
	if r.Refusal != nil && (s.view.Format() < format.Trust || r.Refusal.Code == compute.CodeUnavailable) {
		return
	}
	for s.view.opAges.Len() >= maxOps {
		s.forgetOldest(&s.view.opAges)
	}
	for s.view.refusals.Len() >= maxRefusals {
		s.forgetOldest(&s.view.refusals)
	}
	s.view.meta.OpSequence++
	s.view.putOp(&op{o.Org, o.ID, o.Request, r, s.view.meta.Now, s.view.meta.OpSequence})
}

// refused reports whether the op changed nothing.
func (o *op) refused() bool { return o.Result.Refusal != nil }

// forgetOldest drops the op that was remembered first.
func (s *requests) forgetOldest(of *ages) {
	k, ok := of.first()
	if ok {
		s.view.dropOp(k)
	}
}

// expireOps drops ops past their age.
func (s *requests) expireOps() {
	s.expire(&s.view.opAges, opAge)
	s.expire(&s.view.refusals, refusalAge)
}

// expire drops the ops in of that are older than age.
func (s *requests) expire(of *ages, age time.Duration) {
	limit := s.view.meta.Now.Add(-age)
	for range opSweep {
		k, ok := of.first()
		if !ok {
			return
		}
		o, _ := s.view.ops.Get(k)
		if o.At > limit {
			return
		}
		s.view.dropOp(k)
	}
}

// ages is the order in which ops were remembered.
type ages struct {
	rows  store.PackedMap
	owner *store.Dictionary // Organizations.
}

func newAges() ages {
	return ages{rows: store.NewPackedMap(ageWidth, false), owner: store.NewDictionary()}
}

func (a *ages) Share()   { a.rows.Share() }
func (a *ages) Freeze()  { a.rows.Freeze() }
func (a *ages) Len() int { return a.rows.Len() }

func ageBytes(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

// set records that the op k has the sequence number seq.
func (a *ages) set(seq uint64, k pair) {
	a.rows.Set(ageBytes(seq), a.row(k))
}

// row returns the bytes of a row: the identifier and the number of the owner,
// or the pair when there are too many owners.
func (a *ages) row(k pair) []byte {
	owner, ok := a.owner.Number(k.owner[:])
	if !ok {
		return pairBytes(k)
	}
	return binary.AppendUvarint(k.id[:], owner)
}

func (a *ages) remove(seq uint64) { a.rows.Remove(ageBytes(seq)) }

// pair decodes a row. It is the inverse of row.
func (a *ages) pair(row []byte) (k pair) {
	if len(row) == pairWidth {
		return pairFrom(row)
	}
	n, _ := binary.Uvarint(row[copy(k.id[:], row):])
	copy(k.owner[:], a.owner.At(n))
	return k
}

// first returns the op that was remembered first.
func (a *ages) first() (k pair, ok bool) {
	for _, k := range a.all() {
		return k, true
	}
	return pair{}, false
}

// all yields the ops in their order.
func (a *ages) all() iter.Seq2[uint64, pair] {
	return func(yield func(uint64, pair) bool) {
		a.rows.Scan(make([]byte, ageWidth), func(key, row []byte) bool {
			return yield(binary.BigEndian.Uint64(key), a.pair(row))
		})
	}
}

// differ returns an error when the rows of two of them differ.
func (a *ages) differ(name string, want *ages) error {
	if a.Len() != want.Len() {
		return fmt.Errorf("%s: %d rows, the records say %d", name, a.Len(), want.Len())
	}
	for seq, k := range want.all() {
		if row, ok := a.rows.Get(ageBytes(seq)); !ok || a.pair(row) != k {
			return fmt.Errorf("%s: at %d the records say %v", name, seq, k)
		}
	}
	return nil
}

// opSchema is the schema of ops. It never changes.
var opSchema = store.SchemaOf[op]() //nolint:gochecknoglobals // Immutable.

// partialOp decodes the key and the sequence number of an op. It
// reports false for one that was refused, too.
func partialOp(data []byte) (seq uint64, k pair, ok bool) {
	f := opSchema.FieldsOf(data)
	for key, item, ok := f.Next(); ok; key, item, ok = f.Next() {
		switch key {
		case 1:
			k.owner = store.ID(item)
		case 2:
			k.id = store.ID(item)
		case 4:
			result, _ := store.FieldsOf(item)
			if first, _, ok := result.Next(); ok && first == 1 || result.Bad {
				return 0, k, false // Field 1 is the refusal.
			}
		case 6:
			n, _ := store.Number(item)
			seq = uint64(n)
		}
	}
	return seq, k, f.Complete()
}
