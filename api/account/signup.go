package account

import (
	"cmp"
	"encoding/hex"
	"net/http"
	"strings"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// signups serves accounts that people make themselves, and sign-ins with an identity
// provider.
type signups struct {
	*handler.Core
	sessions *sessions
}

// Routes returns the routes of the group.
func (g *signups) Routes() []edge.Route {
	const oidc = edge.Root + "/auth/oidc"
	return []edge.Route{
		{
			Method: http.MethodPost, Path: edge.Root + "/auth/signup", Tag: "Authentication", Once: true,
			Summary: "Make an account with an organization, and sign in. 403 unless the operator allows it.",
			Body:    edge.Type[wire.SignUp](), Reply: edge.Type[wire.Session](), Handle: g.signUp,
		},
		{
			Method: http.MethodGet, Path: oidc, Tag: "Authentication", Need: edge.NeedNothing,
			Summary: "The identity provider with which people sign in. 404 where there is none.",
			Reply:   edge.Type[wire.IdentityProvider](), Handle: g.provider,
		},
		{
			Method: http.MethodPost, Path: oidc + "/device", Tag: "Authentication", Bare: true,
			Summary: "Start the sign-in of a program without a browser (RFC 8628).",
			Body:    edge.Type[wire.Nothing](), Reply: edge.Type[wire.DeviceCode](), Handle: g.device,
		},
		{
			Method: http.MethodPost, Path: oidc + "/token", Tag: "Authentication", Once: true,
			Summary: "Sign in with a device code that was approved, or with the code that the provider gave a browser. " +
				"400 authorization_pending until then.",
			Body: edge.Type[wire.OIDCToken](), Reply: edge.Type[wire.Session](), Handle: g.token,
		},
	}
}

// errNoSignUp refuses people without an account where only the operator makes accounts.
func errNoSignUp() error {
	return compute.Errorf(compute.CodeForbidden,
		"The operator of this cluster makes the accounts: ask for one.").Named("signup_disabled")
}

// errNoIdentities refuses what needs an identity provider.
func errNoIdentities() error {
	return compute.Errorf(compute.CodeNotFound,
		"This cluster has no identity provider: the operator sets oidc.issuer.").Named("no_identity_provider")
}

// signUp makes an account with a password and signs it in.
func (g *signups) signUp(r *edge.Request) (any, error) {
	in := r.Body.(*wire.SignUp)
	if !g.Config.Accounts.SignUp {
		return nil, errNoSignUp()
	}
	if err := g.Credentials.AllowLogin(in.Email, r.IP); err != nil {
		return nil, err
	}
	if err := g.ReadView(r); err != nil {
		return nil, err
	}
	if err := r.View.AllowsAccounts(); err != nil {
		return nil, err
	}
	hash, err := g.Credentials.HashPassword(r, in.Password)
	if err != nil {
		return nil, err
	}
	user := compute.User{Email: in.Email, FullName: in.FullName, PasswordHash: hash}
	made, err := g.create(r, user, in.OrgName, "")
	if err != nil {
		return nil, err
	}
	return g.sessions.openSession(r, made, checkedPassword(r, made))
}

// create makes an account, in the organization with a slug or, for "", in one of its own.
func (g *signups) create(r *edge.Request, user compute.User, orgName, join string) (*compute.User, error) {
	user.ID, user.Active = compute.UserID{UUID: g.NewID()}, true
	local, _, _ := strings.Cut(user.Email, "@")
	org := compute.Org{
		ID: compute.OrgID{UUID: g.NewID()}, Name: cmp.Or(orgName, user.FullName, local), BillingEmail: user.Email,
	}
	base := madeSlug(org.Name)
	org.Slug = cmp.Or(join, g.freeSlug(r.View, base))
	sign := func() error {
		// A separate op, because the sign-in uses the request's.
		op := command.Op{ID: compute.OpID{UUID: g.NewUUID()}}
		_, err := g.ProposeAndSee(r, command.SignUp{Op: op, User: user, Org: org, Join: join != ""})
		return err
	}
	err := sign()
	for try := 0; try < slugTries && join == "" && detailOf(err) == "slug_taken"; try++ {
		org.Slug = g.anotherSlug(base) // Somebody else got it meanwhile; nobody asked for that one.
		err = sign()
	}
	if detailOf(err) == "email_taken" {
		return nil, compute.Errorf(compute.CodeConflict,
			"This address has an account: sign in, or ask the operator for a new password.").Named("email_taken")
	}
	if err != nil {
		return nil, err
	}
	made, ok := r.View.User(user.ID)
	if !ok {
		return nil, edge.NotFound()
	}
	return made, nil
}

// Lengths of slugs that are made from names.
const (
	maxMadeSlug = 30
	slugSuffix  = 2 // Random bytes behind one that is taken.
	slugTries   = 5 // Others after one that somebody else got first.
)

// madeSlug returns a slug for a name.
func madeSlug(name string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(name) {
		switch {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			b.WriteRune(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() == maxMadeSlug {
			break
		}
	}
	slug := strings.Trim(b.String(), "-")
	if len(slug) < 2 { // The shortest slug.
		return "org"
	}
	return slug
}

// freeSlug returns base, or a slug made from it, that no organization has.
func (g *signups) freeSlug(view *fsm.View, base string) string {
	for slug := base; ; slug = g.anotherSlug(base) {
		if _, taken := view.OrgBySlug(slug); !taken {
			return slug
		}
	}
}

// anotherSlug returns base with a random end.
func (g *signups) anotherSlug(base string) string {
	id := g.NewUUID()
	return base + "-" + hex.EncodeToString(id[:slugSuffix])
}

// provider answers the identity provider.
func (g *signups) provider(r *edge.Request) (any, error) {
	if g.Config.Accounts.Identities == nil {
		return nil, errNoIdentities()
	}
	p, err := g.Config.Accounts.Identities.Endpoints(r.Ctx)
	if err != nil {
		return nil, err
	}
	return wire.IdentityProvider{
		Issuer: p.Issuer, ClientID: p.ClientID, AuthorizationURL: p.AuthorizationURL, Device: p.Device,
	}, nil
}

// device starts the sign-in of a program.
func (g *signups) device(r *edge.Request) (any, error) {
	if g.Config.Accounts.Identities == nil {
		return nil, errNoIdentities()
	}
	if err := g.Credentials.AllowLogin("", r.IP); err != nil {
		return nil, err
	}
	d, err := g.Config.Accounts.Identities.Device(r.Ctx)
	if err != nil {
		return nil, err
	}
	return wire.DeviceCode{
		Device: d.Device, User: d.User, URL: d.URL, FullURL: d.FullURL, Interval: d.Interval,
		ExpiresIn: max(0, int(d.Expires.Sub(compute.InstantOf(g.Now())).Seconds())),
	}, nil
}

// token signs in whom the identity provider names.
func (g *signups) token(r *edge.Request) (any, error) {
	if g.Config.Accounts.Identities == nil {
		return nil, errNoIdentities()
	}
	if err := g.ReadView(r); err != nil {
		return nil, err
	}
	if err := r.View.AllowsAccounts(); err != nil {
		return nil, err
	}
	in := r.Body.(*wire.OIDCToken)
	var who compute.Identity
	var err error
	if in.Device != "" {
		who, err = g.Config.Accounts.Identities.Poll(r.Ctx, in.Device)
	} else {
		who, err = g.Config.Accounts.Identities.Exchange(r.Ctx, in.Code, in.Verifier, in.RedirectURL, in.Nonce)
	}
	if err != nil {
		return nil, err
	}
	user, err := g.userOf(r, who)
	if err != nil {
		return nil, err
	}
	if !user.Active {
		return nil, compute.Errorf(compute.CodeUnauthenticated, "The account is disabled.").Named("bad_login")
	}
	return g.sessions.openSession(r, user, compute.Hash{})
}

// renamed returns a user with the address and the name that the identity provider has. An
// address that is not verified, or is another user's here, does not count.
func (g *signups) renamed(r *edge.Request, known *compute.User, who compute.Identity) (*compute.User, error) {
	link := command.LinkUser{Op: command.Op{ID: compute.OpID{UUID: g.NewUUID()}}, User: known.ID, Subject: who.Subject}
	_, taken := r.View.UserByEmail(who.Email)
	if who.EmailVerified && !taken && compute.BadName(who.Email) == "" {
		link.Email = who.Email
	}
	if who.Name != known.FullName && compute.BadName(who.Name) == "" {
		link.FullName = who.Name
	}
	allowed := r.View.AllowsRenames() == nil && known.Active && !known.Operator
	if link.Email == "" && link.FullName == "" || !allowed {
		return known, nil
	}
	_, err := g.ProposeAndSee(r, link)
	if err != nil && detailOf(err) != "email_taken" { // Somebody else got it meanwhile.
		return nil, err
	}
	user, ok := r.View.User(known.ID)
	if !ok {
		return nil, edge.NotFound()
	}
	return user, nil
}

// userOf returns the user for a person of the identity provider. It is the one who signed
// in as this person before, else the one with the verified address, else a new one.
func (g *signups) userOf(r *edge.Request, who compute.Identity) (*compute.User, error) {
	if known, ok := r.View.UserBySubject(who.Subject); ok {
		return g.renamed(r, known, who)
	}
	if !who.EmailVerified || compute.BadName(who.Email) != "" {
		return nil, compute.Errorf(compute.CodeForbidden,
			"The identity provider does not vouch for an email address of yours.").Named("email_not_verified")
	}
	known, ok := r.View.UserByEmail(who.Email)
	switch {
	case ok && known.Operator:
		return nil, compute.Errorf(compute.CodeForbidden,
			"Operators sign in with their password: an identity provider makes nobody an operator.").Named("operator_password")
	case ok:
		op := command.Op{ID: compute.OpID{UUID: g.NewUUID()}}
		if _, err := g.ProposeAndSee(r, command.LinkUser{Op: op, User: known.ID, Subject: who.Subject}); err != nil {
			return nil, err
		}
		linked, ok := r.View.User(known.ID)
		if !ok {
			return nil, edge.NotFound()
		}
		return linked, nil
	case !g.Config.Accounts.IdentitySignUp:
		return nil, errNoSignUp()
	}
	join := g.Config.Accounts.IdentityOrg
	if _, exists := r.View.OrgBySlug(join); join != "" && !exists {
		return nil, compute.Errorf(compute.CodeUnavailable,
			"The organization %q that new people join does not exist: the operator makes it.", join).Named("org_unknown")
	}
	if compute.BadName(who.Name) != "" {
		who.Name = ""
	}
	return g.create(r, compute.User{Email: who.Email, FullName: who.Name, Subject: who.Subject}, "", join)
}
