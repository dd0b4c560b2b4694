package fsm

import (
	"time"

	"berth/compute"
)

// Limits of the memory of requests.
const (
	opAge   = 24 * time.Hour // Of the state's clock.
	maxOps  = 1_000_000
	opSweep = 10_000 // Forgotten by one Tick at most.
)

// op is a request that changed something, with its first answer.
type op struct {
	Org     compute.OrgID   `cbor:"1,keyasint"`
	ID      compute.OpID    `cbor:"2,keyasint"`
	Request compute.Hash    `cbor:"3,keyasint"`
	Result  Result          `cbor:"4,keyasint"`
	At      compute.Instant `cbor:"5,keyasint"`
	Seq     uint64          `cbor:"6,keyasint"` // Rises with each op: which is the oldest.
}

// request is a command that a user's request stands behind.
type request interface{ request() Op }

func (c DrainNode) request() Op       { return c.Op }
func (c RemoveNode) request() Op      { return c.Op }
func (c CreateJoinToken) request() Op { return c.Op }
func (c CreateUser) request() Op      { return c.Op }
func (c CreateKey) request() Op       { return c.Op }
func (c ToggleKey) request() Op       { return c.Op }
func (c DeleteKey) request() Op       { return c.Op }
func (c RegenerateKey) request() Op   { return c.Op }
func (c StoreRefresh) request() Op    { return c.Op }
func (c RotateRefresh) request() Op   { return c.Op }
func (c RevokeRefresh) request() Op   { return c.Op }
func (c Submit) request() Op          { return c.Op }
func (c StopExecution) request() Op   { return c.Op }
func (c DeleteExecution) request() Op { return c.Op }
func (c Grant) request() Op           { return c.Op }
func (c SetPrices) request() Op       { return c.Op }
func (c SetQuota) request() Op        { return c.Op }

// recall returns the first answer to o, if o is remembered.
func (s *state) recall(o Op) (Result, bool) {
	known, ok := s.ops.get(pair{o.Org.UUID, o.ID.UUID})
	if !ok {
		return Result{}, false
	}
	if known.Request != o.Request {
		return refuse(compute.CodeConflict, "idempotency_key_reused",
			"this idempotency key was used with another request"), true
	}
	r := known.Result
	r.Repeat = true
	return r, true
}

// remember keeps the answer to o. Refusals are not kept: they changed nothing,
// and what forbade the request, such as missing credits, may pass within the
// hours for which an answer is kept.
func (s *state) remember(o Op, r Result) {
	if o.ID.IsZero() || r.Refusal != nil {
		return
	}
	for s.ops.len() >= maxOps {
		s.forgetOldest()
	}
	s.meta.OpSequence++
	s.putOp(&op{o.Org, o.ID, o.Request, r, s.meta.Now, s.meta.OpSequence})
}

// forgetOldest drops the op that was remembered first.
func (s *state) forgetOldest() {
	_, k, ok := s.opAges.first()
	if ok {
		s.dropOp(k)
	}
}

// expireOps forgets ops past their age.
func (s *state) expireOps() {
	limit := s.meta.Now.Add(-opAge)
	for range opSweep {
		_, k, ok := s.opAges.first()
		if !ok {
			return
		}
		o, _ := s.ops.get(k)
		if o.At > limit {
			return
		}
		s.dropOp(k)
	}
}
