package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"hash"
	"net/http"

	"berth/api/wire"
	"berth/compute"
	"berth/fault"
	"berth/fsm"
)

// maxIdempotencyKey is the length up to which an Idempotency-Key is taken.
const maxIdempotencyKey = 255

// op returns the operation that the request stands for. With an
// Idempotency-Key it is the same on every repeat and every node; without one
// it is new, so that only repeats inside the cluster are recognised, and there
// is no other request to tell it from.
func (c *core) op(r *request) fsm.Op {
	if !r.op.ID.IsZero() {
		return r.op
	}
	op := fsm.Op{ID: compute.OpID{UUID: c.newUUID()}, Org: r.caller.actor.Org}
	if !r.seed.IsZero() {
		op.ID.UUID = r.seed // The node that handed it on may have asked another server before.
	}
	if r.idempotency != "" {
		op.Request = r.digest(hmac.New(sha256.New, c.requestKey))
		scope := op.Org.String()
		if op.Org.IsZero() && r.caller.user != nil {
			scope = r.caller.user.ID.String() // A login acts in no organization yet.
		}
		sum := sha256.Sum256([]byte("op\x00" + scope + "\x00" + r.idempotency))
		copy(op.ID.UUID[:], sum[:])
		op.ID.UUID[6] = op.ID.UUID[6]&0x0f | 0x80
		op.ID.UUID[8] = op.ID.UUID[8]&0x3f | 0x80
	}
	r.op = op
	return op
}

// requestKey returns the key of the hashes by which requests are told apart.
// A hash without a key would give passwords away: they are in bodies, and the
// hash is in the replicated log.
func requestKey(master []byte) []byte {
	h := hmac.New(sha256.New, master)
	h.Write([]byte("request hash v1"))
	return h.Sum(nil)
}

// digest returns what tells this request from another one with the same
// Idempotency-Key.
func (r *request) digest(h hash.Hash) compute.Hash {
	fmt.Fprintf(h, "%s %s", r.route.method, r.route.path)
	for _, name := range r.route.params {
		fmt.Fprintf(h, "\x00%s", r.params[name])
	}
	fmt.Fprintf(h, "\x00%d\x00", len(r.raw))
	h.Write(r.raw)
	return compute.Hash(h.Sum(nil))
}

// checkIdempotency refuses a key that would not be kept as it came.
func (r *request) checkIdempotency() error {
	if len(r.idempotency) <= maxIdempotencyKey {
		return nil
	}
	f := new(wire.Faults)
	f.Add(wire.Fault{
		Type: "string_too_long", Loc: []any{"header", "idempotency-key"},
		Msg: fmt.Sprintf("String should have at most %d characters", maxIdempotencyKey),
		Ctx: map[string]any{"max_length": maxIdempotencyKey},
	})
	return f
}

// recall finds out whether the request was decided before. A repeat is answered
// from that decision alone: what it names may be gone by now, by its own doing.
// Who signs in is known only to the handler; what that proposes is recalled when
// it is applied, and so are refusals, which are kept by the clock of then. An
// error means that the key was used with another request.
func (c *core) recall(r *request) error {
	switch r.route.need {
	case needCaller, needOrg, needOperator:
	default:
		return nil
	}
	if r.route.method == http.MethodGet || r.idempotency == "" && r.seed.IsZero() {
		return nil
	}
	first, known := r.view.Recall(c.op(r))
	switch refusal := first.Refusal; {
	case refusal == nil:
		r.first, r.repeat = first, known
	case refusal.Detail == "idempotency_key_reused":
		return refusal
	}
	return nil
}

// propose has the state decide about cmd, once at a time for a request with an
// Idempotency-Key. A repeat gets the first decision.
func (c *core) propose(r *request, cmd fsm.Command) (fsm.Result, error) {
	if r.repeat {
		return r.first, nil
	}
	if r.idempotency != "" {
		end, err := c.inflight.begin(r.op)
		if err != nil {
			return fsm.Result{}, err
		}
		defer end()
	}
	fault.Point("api.propose.before")
	result, index, err := c.cfg.Proposer.Propose(r.ctx, cmd)
	fault.Point("api.propose.after")
	if err != nil {
		return fsm.Result{}, err
	}
	r.index = max(r.index, index)
	return result, nil
}

// proposeAndSee does what propose does, and moves the request's view to where
// the result can be seen.
func (c *core) proposeAndSee(r *request, cmd fsm.Command) (fsm.Result, error) {
	result, err := c.propose(r, cmd)
	if err != nil || r.index == 0 {
		return result, err
	}
	view, err := c.cfg.Reader.Wait(r.ctx, r.index-1)
	if err != nil {
		return result, fmt.Errorf("wait for the change: %w", err)
	}
	r.view = view
	return result, nil
}

// errSecretGone is the answer to the repeat of a request whose first answer
// held a secret that nobody kept.
func errSecretGone(what, id string) error {
	if id != "" {
		id = " It is " + id + "."
	}
	return compute.Errorf(compute.CodeConflict,
		"An earlier request with this Idempotency-Key has made the %s; its secret is shown once.%s", what, id).
		Named("secret_not_kept")
}
