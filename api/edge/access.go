package edge

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"

	"github.com/valyala/fasthttp"

	"berth/api/auth"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// access decides who may make a request.
type access struct {
	*Core
	rates   *rateLimits
	touched *touched
}

// admit authenticates the caller and checks the rights that the route needs, in
// one view of the state.
func (a *access) admit(r *Request) error {
	if err := r.checkIdempotency(); err != nil {
		return err
	}
	switch r.route.Need {
	case NeedNothing:
		if isProbe(r.route.Path) || r.route.Path == Root+"/health/ping" {
			return nil
		}
		return a.rates.stranger(r)
	case NeedScraper:
		return a.admitScraper(r)
	case NeedStream:
		if ok, err := a.admitStream(r); ok || err != nil {
			return err
		}
	case NeedOperator:
		return a.admitOperator(r)
	case NeedCaller, NeedUser, NeedOrg:
	}
	if err := a.authenticate(r); err != nil {
		return err
	}
	if r.route.Need != NeedOrg {
		return nil
	}
	err := r.enterOrg()
	if err != nil && a.recallDeletion(r) {
		return nil
	}
	return err
}

// authenticate sets the view and the caller from the bearer token.
func (a *access) authenticate(r *Request) error {
	if len(r.bearer) < minCredential {
		return a.stranger(r)
	}
	if err := a.ReadView(r); err != nil {
		return err
	}
	who, ok := a.identify(r)
	if !ok {
		return a.stranger(r)
	}
	r.Caller = who
	noOrg := r.enterDefaultOrg()
	if err := a.rates.caller(r); err != nil { // First: what is refused counts too.
		return err
	}
	if err := who.checkScope(r.route.Scope()); err != nil {
		return err
	}
	optional := r.route.Need == NeedUser || r.deletesOrg()
	if noOrg != nil && (!optional || !errors.Is(noOrg, errNoOrg)) {
		return noOrg
	}
	return nil
}

// stranger refuses a request without a good credential.
func (a *access) stranger(r *Request) error {
	if err := a.rates.stranger(r); err != nil {
		return err
	}
	return errUnauthenticated()
}

// identify returns the caller of the bearer token.
func (a *access) identify(r *Request) (Caller, bool) {
	if auth.LooksLikeAPIKey(r.bearer) {
		return a.identifyKey(r.View, r.bearer)
	}
	return a.identifyToken(r)
}

// identifyKey returns the caller of an API key. A key acts as its creator, in
// its organization, while the creator is a member.
func (a *access) identifyKey(view *fsm.View, text string) (Caller, bool) {
	given, err := auth.ParseAPIKey(text)
	if err != nil {
		return Caller{}, false
	}
	key, ok := view.KeyByLookup(given.Lookup)
	if !ok || !given.Matches(key.Hash) {
		return Caller{}, false
	}
	now := a.Now()
	if !key.Active || (!key.ExpiresAt.IsZero() && key.ExpiresAt <= compute.InstantOf(now)) {
		return Caller{}, false
	}
	user, ok := view.User(key.User)
	if !ok || !user.Active {
		return Caller{}, false
	}
	who := Caller{
		User: user, Actor: command.Actor{User: user.ID, Key: key.ID, Org: key.Org},
		scopes: key.Scopes, shared: !key.Personal,
	}
	if !who.join(view, key.Org) {
		return Caller{}, false
	}
	a.touched.use(key, now)
	return who, true
}

// identifyToken returns the caller of an access token, without an organization.
// The token ends with its login. A replica that is behind may not know a new
// login yet.
func (a *access) identifyToken(r *Request) (Caller, bool) {
	claims, err := a.Credentials.verify(r.View, r.bearer)
	if err != nil {
		return Caller{}, false
	}
	if live, known := r.View.Session(claims.Session); !live && (known || !r.stale) {
		return Caller{}, false
	}
	user, ok := r.View.User(claims.User)
	if !ok || !user.Active || user.TokenVersion != claims.TokenVersion {
		return Caller{}, false
	}
	return Caller{
		User: user, Session: claims.Session, Actor: command.Actor{User: user.ID, TokenVersion: claims.TokenVersion},
	}, true
}

// join sets the organization that c acts in, if c is a member.
func (c *Caller) join(view *fsm.View, id compute.OrgID) bool {
	m, ok := view.Membership(id, c.User.ID)
	if !ok {
		return false
	}
	org, ok := view.Org(id)
	if !ok {
		return false
	}
	c.Org, c.role, c.Actor.Org = org, m.Role, id
	return true
}

// errNoOrg refuses who is a member of no organization where one is needed.
var errNoOrg = compute.Errorf(compute.CodeForbidden,
	"You are a member of no organization: make one, or accept an invite to one.").Named("no_org")

// enterDefaultOrg sets the caller's organization: the key's, else that of
// X-Org-Slug, else the default one.
func (r *Request) enterDefaultOrg() error {
	if r.orgSlug != "" {
		org, ok := r.View.OrgBySlug(r.orgSlug)
		keyed := !r.Caller.Actor.Key.IsZero()
		if !ok || (keyed && org.ID != r.Caller.Actor.Org) || !r.Caller.join(r.View, org.ID) {
			return errOrgHeader()
		}
		return nil
	}
	if r.Caller.Org != nil {
		return nil
	}
	for _, m := range r.View.Memberships(r.Caller.User.ID) {
		if m.Default && r.Caller.join(r.View, m.Org) {
			return nil
		}
	}
	return errNoOrg
}

// enterOrg sets the caller's organization to the one in the path. A key may act
// in its own only. An unknown and a foreign organization get the same answer.
func (r *Request) enterOrg() error {
	org, ok := r.View.OrgBySlug(r.Params["slug"])
	if !ok || (!r.Caller.Actor.Key.IsZero() && org.ID != r.Caller.Actor.Org) || !r.Caller.join(r.View, org.ID) {
		return NotFound()
	}
	if r.Caller.role < r.route.Role {
		return compute.Errorf(compute.CodeForbidden,
			"You have the role %s in this organization; this needs %s.", r.Caller.role, r.route.Role).Named("role_too_low")
	}
	return nil
}

// deletesOrg reports whether the request deletes an organization, which may have been
// the caller's only one.
func (r *Request) deletesOrg() bool {
	repeatable := r.idempotency != "" || !r.seed.IsZero()
	return repeatable && r.route.Method == fasthttp.MethodDelete && r.route.Path == Root+"/orgs/{slug}"
}

// recallDeletion reports whether the request is a repeat of the one that deleted the
// organization in the path, whose answer was lost. It enters that organization: nothing
// more can be done there.
func (a *access) recallDeletion(r *Request) bool {
	if !r.deletesOrg() {
		return false
	}
	caller := r.Caller
	for org := range r.View.Orgs() {
		if org.DeletedAt.IsZero() || org.Slug != r.Params["slug"] {
			continue
		}
		r.Caller.Actor.Org, r.Caller.Org, r.op = org.ID, org, command.Op{}
		if first, known := r.View.Recall(a.Op(r)); known && first.Refusal == nil {
			return true
		}
	}
	r.Caller, r.op = caller, command.Op{}
	return false
}

// admitOperator admits the root token and operators.
func (a *access) admitOperator(r *Request) error {
	if r.bearer == "" {
		return a.stranger(r)
	}
	if err := a.ReadView(r); err != nil {
		return err
	}
	sum, want := sha256.Sum256([]byte(r.bearer)), r.View.RootToken()
	if r.View.Bootstrapped() && subtle.ConstantTimeCompare(sum[:], want[:]) == 1 {
		r.Caller.Actor = command.Actor{Root: true, TokenVersion: r.View.RootVersion()}
		return a.rates.caller(r)
	}
	if err := a.authenticate(r); err != nil {
		return err
	}
	if !r.Caller.User.Operator {
		return compute.Errorf(compute.CodeForbidden, "This is for operators of the cluster.").Named("not_operator")
	}
	return nil
}

// admitScraper checks the metrics token, if one is configured.
func (a *access) admitScraper(r *Request) error {
	want := a.cfg.MetricsToken
	if want == "" {
		if err := a.rates.stranger(r); err != nil || !a.cfg.MetricsLocal || r.near {
			return err
		}
		return compute.Errorf(compute.CodeForbidden,
			"Without metrics.token_file, metrics are for clients on this node's machine.").Named("metrics_local")
	}
	if subtle.ConstantTimeCompare([]byte(want), []byte(r.bearer)) == 1 {
		return nil
	}
	return a.stranger(r)
}

// admitStream checks the token of a stream. Not ok means that it is missing or
// wrong; a credential may still admit the caller.
func (a *access) admitStream(r *Request) (ok bool, err error) {
	id, ok := a.openStream(r)
	if !ok {
		return false, nil
	}
	// Output is readable without a quorum. A linearizable read is needed only
	// if neither the local view nor an archive has the execution.
	stale, _, _ := a.cfg.Reader.Stale()
	view, err := stale.LoadArchived(compute.OrgID{}, id, a.OpenArchive(r.Ctx))
	if err != nil {
		return true, a.ReadView(r)
	}
	if _, known := view.AnyExecution(id); known {
		r.View = view
		return true, nil
	}
	return true, a.ReadView(r)
}

// openStream returns the execution of which the request has the stream token.
func (a *access) openStream(r *Request) (compute.ExecutionID, bool) {
	token, given := r.args["token"]
	id, err := compute.ParseExecutionID(r.Params["id"])
	return id, given && err == nil && a.Credentials.opensStream(id, token)
}
