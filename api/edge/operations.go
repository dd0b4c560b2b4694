package edge

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"hash"
	"net/http"
	"reflect"
	"sync"

	"berth/api/wire"
	"berth/compute"
	"berth/fault"
	"berth/fsm/command"
)

// MaxIdempotencyKey is the maximum length of an Idempotency-Key.
const MaxIdempotencyKey = 255

// Op returns the operation of the request. With an Idempotency-Key its id is
// the same on every repeat and every node. Without one the id is new, so that
// only repeats inside the cluster are recognised.
func (c *Core) Op(r *Request) command.Op {
	if !r.op.ID.IsZero() {
		return r.op
	}
	op := command.Op{ID: compute.OpID{UUID: c.NewUUID()}, Org: r.Caller.Actor.Org}
	if !r.seed.IsZero() {
		op.ID.UUID = r.seed // The node that handed it on may have asked another server before.
	}
	if r.idempotency != "" {
		op.Request = r.digest(hmac.New(sha256.New, c.requestKey))
		sum := sha256.Sum256([]byte("op\x00" + r.opScope() + "\x00" + r.idempotency))
		copy(op.ID.UUID[:], sum[:])
		op.ID.UUID[6] = op.ID.UUID[6]&0x0f | 0x80
		op.ID.UUID[8] = op.ID.UUID[8]&0x3f | 0x80
	}
	r.op = op
	return op
}

// opScope names those whose Idempotency-Keys are the same ones: a user in an organization, or a
// shared API key, because its holder is another caller than the user who made it. A user who
// repeats a request with another key or login is recognised. Until every server does so,
// those in an organization share its keys.
func (r *Request) opScope() string {
	org, user := r.Caller.Actor.Org, r.Caller.Actor.User
	if r.Caller.User != nil {
		user = r.Caller.User.ID // A login has no actor yet.
	}
	switch apart := r.View != nil && r.View.AllowsCallersOps() == nil; {
	case !apart && org.IsZero() && !user.IsZero():
		return user.String()
	case !apart:
		return org.String()
	case r.Caller.shared:
		return org.String() + "\x00key " + r.Caller.Actor.Key.String()
	}
	return org.String() + "\x00user " + user.String() // Zero for the root token.
}

// requestKey returns the key of the hashes that identify requests. A hash
// without a key would reveal passwords: they are in bodies, and the hash is in
// the replicated log.
func requestKey(master []byte) []byte {
	h := hmac.New(sha256.New, master)
	h.Write([]byte("request hash v1"))
	return h.Sum(nil)
}

// digest returns a hash that differs between requests with the same
// Idempotency-Key.
func (r *Request) digest(h hash.Hash) compute.Hash {
	fmt.Fprintf(h, "%s %s", r.route.Method, r.route.Path)
	for _, name := range r.route.params {
		fmt.Fprintf(h, "\x00%s", r.Params[name])
	}
	fmt.Fprintf(h, "\x00%d\x00", len(r.raw))
	h.Write(r.raw)
	return compute.Hash(h.Sum(nil))
}

// checkIdempotency refuses a key that is too long.
func (r *Request) checkIdempotency() error {
	if len(r.idempotency) <= MaxIdempotencyKey {
		return nil
	}
	f := new(wire.Faults)
	f.Add(wire.Fault{
		Type: "string_too_long", Loc: []any{"header", "idempotency-key"},
		Msg: fmt.Sprintf("String should have at most %d characters", MaxIdempotencyKey),
		Ctx: map[string]any{"max_length": MaxIdempotencyKey},
	})
	return f
}

// recall checks whether the request was decided before. A repeat is answered
// from that decision alone, because its object may be gone since. Sign-ins and
// refusals are recalled by Apply instead. An error means that the key was used
// with a different request.
func (c *Core) recall(r *Request) error {
	switch r.route.Need {
	case NeedCaller, NeedUser, NeedOrg, NeedOperator:
	default:
		return nil
	}
	if r.route.Method == http.MethodGet || r.route.Streamed || r.idempotency == "" && r.seed.IsZero() {
		return nil
	}
	first, known := r.View.Recall(c.Op(r))
	switch refusal := first.Refusal; {
	case refusal == nil:
		r.First, r.Repeat = first, known
	case refusal.Detail == "idempotency_key_reused":
		return refusal
	}
	return nil
}

// Propose proposes cmd, one at a time for each Idempotency-Key. A repeat gets
// the first result.
func (c *Core) Propose(r *Request, cmd command.Command) (command.Result, error) {
	if r.Repeat {
		return r.First, nil
	}
	if r.idempotency != "" {
		end, err := c.inflight.Begin(r.op)
		if err != nil {
			return command.Result{}, err
		}
		defer end()
	}
	if r.View != nil && r.View.Audits(cmd) {
		cmd = traced(cmd, r.IP, r.id)
	}
	fault.Point("api.propose.before")
	result, index, err := c.cfg.Proposer.Propose(r.Ctx, cmd)
	fault.Point("api.propose.after")
	if err != nil {
		return command.Result{}, err
	}
	r.index = max(r.index, index)
	return result, nil
}

// Record writes to the cluster's audit trail that the caller, an operator, did something
// that changes no state. Without a leader it is only logged: a backup of a cluster
// that has lost its quorum is wanted more than its record.
func (c *Core) Record(r *Request, action, target string) error {
	cmd := command.RecordDeed{
		Op: command.Op{ID: compute.OpID{UUID: c.NewUUID()}}, Actor: r.Caller.Actor, Action: action, Target: target,
	}
	if !r.View.Audits(cmd) {
		return nil
	}
	result, index, err := c.cfg.Proposer.Propose(r.Ctx, traced(cmd, r.IP, r.id))
	switch {
	case err == nil && result.Refusal != nil:
		return result.Refusal
	case compute.CodeOf(err) == compute.CodeUnavailable:
		r.Log(c.log).Warn("audit record not written", "code", action, "err", err)
		return nil
	}
	r.index = max(r.index, index)
	return err
}

// traced returns cmd with the address of the client and the identifier of its request in
// its actor, for the audit trail.
func traced(cmd command.Command, from, request string) command.Command {
	out := reflect.New(reflect.TypeOf(cmd)).Elem()
	out.Set(reflect.ValueOf(cmd))
	if f := out.FieldByName("Actor"); f.IsValid() {
		if a, ok := f.Addr().Interface().(*command.Actor); ok {
			a.From, a.Request = from, request
		}
	}
	return out.Interface()
}

// proposeAtOnce is how many commands ProposeEach proposes at a time.
const proposeAtOnce = 8

// ProposeEach proposes several commands that do not depend on each other, and returns
// the error of each.
func (c *Core) ProposeEach(r *Request, cmds []command.Command) []error {
	errs, indexes := make([]error, len(cmds)), make([]uint64, len(cmds))
	places := make(chan struct{}, proposeAtOnce)
	var group sync.WaitGroup
	for i, cmd := range cmds {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			_, indexes[i], errs[i] = c.cfg.Proposer.Propose(r.Ctx, cmd)
		})
	}
	group.Wait()
	for _, index := range indexes {
		r.index = max(r.index, index)
	}
	return errs
}

// ProposeAndSee proposes cmd and moves the request's view to one that includes
// the result.
func (c *Core) ProposeAndSee(r *Request, cmd command.Command) (command.Result, error) {
	result, err := c.Propose(r, cmd)
	if err != nil || r.index == 0 {
		return result, err
	}
	view, err := c.cfg.Reader.Wait(r.Ctx, r.index-1)
	if err != nil {
		return result, fmt.Errorf("wait for the change: %w", err)
	}
	r.View = view
	return result, nil
}
