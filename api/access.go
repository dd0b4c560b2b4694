package api

import (
	"crypto/sha256"
	"crypto/subtle"

	"berth/api/auth"
	"berth/compute"
	"berth/fsm"
)

// access decides who may make a request.
type access struct {
	*base
	pace    *pace
	touched *touched
}

// admit authenticates the caller and checks the rights that the route needs, in
// one view of the state.
func (a *access) admit(r *request) error {
	if err := r.checkIdempotency(); err != nil {
		return err
	}
	switch r.route.need {
	case needNothing:
		if r.route.body != nil {
			return a.pace.stranger(r)
		}
		return nil
	case needScraper:
		return a.admitScraper(r)
	case needStream:
		if ok, err := a.admitStream(r); ok || err != nil {
			return err
		}
	case needOperator:
		return a.admitOperator(r)
	case needCaller, needOrg:
	}
	if err := a.authenticate(r); err != nil {
		return err
	}
	if r.route.need == needOrg {
		return r.enterOrg()
	}
	return nil
}

// authenticate sets the view and the caller from the bearer token.
func (a *access) authenticate(r *request) error {
	if len(r.bearer) < minCredential {
		return a.stranger(r)
	}
	if err := a.readView(r); err != nil {
		return err
	}
	who, ok := a.identify(r)
	if !ok {
		return a.stranger(r)
	}
	r.caller = who
	if err := r.enterDefaultOrg(); err != nil {
		return err
	}
	return a.pace.caller(r)
}

// stranger refuses a request without a good credential.
func (a *access) stranger(r *request) error {
	if err := a.pace.stranger(r); err != nil {
		return err
	}
	return errUnauthenticated()
}

// identify returns the caller of the bearer token.
func (a *access) identify(r *request) (caller, bool) {
	if auth.LooksLikeAPIKey(r.bearer) {
		return a.identifyKey(r)
	}
	return a.identifyToken(r)
}

// identifyKey returns the caller of an API key. A key acts as its creator, in
// its organization, while the creator is a member.
func (a *access) identifyKey(r *request) (caller, bool) {
	given, err := auth.ParseAPIKey(r.bearer)
	if err != nil {
		return caller{}, false
	}
	key, ok := r.view.KeyByLookup(given.Lookup)
	if !ok || !given.Matches(key.Hash) {
		return caller{}, false
	}
	now := a.now()
	if !key.Active || (!key.ExpiresAt.IsZero() && key.ExpiresAt <= compute.InstantOf(now)) {
		return caller{}, false
	}
	user, ok := r.view.User(key.User)
	if !ok || !user.Active {
		return caller{}, false
	}
	who := caller{user: user, actor: fsm.Actor{User: user.ID, Key: key.ID, Org: key.Org}}
	if !who.join(r.view, key.Org) {
		return caller{}, false
	}
	a.touched.use(key, now)
	return who, true
}

// identifyToken returns the caller of an access token, without an organization.
// The token ends with its login. A replica that is behind may not know a new
// login yet.
func (a *access) identifyToken(r *request) (caller, bool) {
	claims, err := a.credentials.verify(r.view, r.bearer)
	if err != nil {
		return caller{}, false
	}
	if live, known := r.view.Session(claims.Session); !live && (known || !r.stale) {
		return caller{}, false
	}
	user, ok := r.view.User(claims.User)
	if !ok || !user.Active || user.TokenVersion != claims.TokenVersion {
		return caller{}, false
	}
	return caller{user: user, actor: fsm.Actor{User: user.ID, TokenVersion: claims.TokenVersion}}, true
}

// join sets the organization that c acts in, if c is a member.
func (c *caller) join(view *fsm.View, id compute.OrgID) bool {
	m, ok := view.Membership(id, c.user.ID)
	if !ok {
		return false
	}
	org, ok := view.Org(id)
	if !ok {
		return false
	}
	c.org, c.role, c.actor.Org = org, m.Role, id
	return true
}

// enterDefaultOrg sets the caller's organization: the key's, else that of
// X-Org-Slug, else the default one.
func (r *request) enterDefaultOrg() error {
	if r.orgSlug != "" {
		org, ok := r.view.OrgBySlug(r.orgSlug)
		keyed := !r.caller.actor.Key.IsZero()
		if !ok || (keyed && org.ID != r.caller.actor.Org) || !r.caller.join(r.view, org.ID) {
			return errOrgHeader()
		}
		return nil
	}
	if r.caller.org != nil {
		return nil
	}
	for _, m := range r.view.Memberships(r.caller.user.ID) {
		if m.Default && r.caller.join(r.view, m.Org) {
			return nil
		}
	}
	return compute.Errorf(compute.CodeForbidden, "You are a member of no organization.").Named("no_org")
}

// enterOrg sets the caller's organization to the one in the path. A key may act
// in its own only. An unknown and a foreign organization get the same answer.
func (r *request) enterOrg() error {
	org, ok := r.view.OrgBySlug(r.params["slug"])
	if !ok || (!r.caller.actor.Key.IsZero() && org.ID != r.caller.actor.Org) || !r.caller.join(r.view, org.ID) {
		return errNotFound()
	}
	if r.caller.role < r.route.role {
		return compute.Errorf(compute.CodeForbidden,
			"You are %s of this organization; this needs %s.", r.caller.role, r.route.role).Named("role_too_low")
	}
	return nil
}

// admitOperator admits the root token and operators.
func (a *access) admitOperator(r *request) error {
	if r.bearer == "" {
		return a.stranger(r)
	}
	if err := a.readView(r); err != nil {
		return err
	}
	sum, want := sha256.Sum256([]byte(r.bearer)), r.view.RootToken()
	if r.view.Bootstrapped() && subtle.ConstantTimeCompare(sum[:], want[:]) == 1 {
		r.caller.actor = fsm.Actor{Root: true}
		return a.pace.caller(r)
	}
	if err := a.authenticate(r); err != nil {
		return err
	}
	if !r.caller.user.Operator {
		return compute.Errorf(compute.CodeForbidden, "This is for operators of the cluster.").Named("not_operator")
	}
	return nil
}

// admitScraper checks the metrics token, if one is configured.
func (a *access) admitScraper(r *request) error {
	want := a.cfg.MetricsToken
	if want == "" || subtle.ConstantTimeCompare([]byte(want), []byte(r.bearer)) == 1 {
		return nil
	}
	return a.stranger(r)
}

// admitStream checks the token of a stream. Not ok means that it is missing or
// wrong; a credential may still admit the caller.
func (a *access) admitStream(r *request) (ok bool, err error) {
	id, ok := a.openStream(r)
	if !ok {
		return false, nil
	}
	// Output is readable without a quorum. A linearizable read is needed only
	// if neither the local view nor an archive has the execution.
	stale, _, _ := a.cfg.Reader.Stale()
	view, err := stale.LoadArchived(compute.OrgID{}, id, a.openArchive(r.ctx))
	if err != nil {
		return true, a.readView(r)
	}
	if _, known := view.AnyExecution(id); known {
		r.view = view
		return true, nil
	}
	return true, a.readView(r)
}

// openStream returns the execution of which the request has the stream token.
func (a *access) openStream(r *request) (compute.ExecutionID, bool) {
	token, given := r.args["token"]
	id, err := compute.ParseExecutionID(r.params["id"])
	return id, given && err == nil && a.credentials.opensStream(id, token)
}
