package account

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"berth/api/edge"
	"berth/api/edge/answer"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// users serves the accounts of people, to operators, and the caller's own
// password.
type users struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *users) Routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodGet, Path: edge.Root + "/admin/users", Need: edge.NeedOperator,
			Summary: "The users, oldest first.",
			Query:   edge.Type[wire.UsersQuery](), Reply: edge.Type[[]wire.User](), Handle: g.listUsers,
		},
		{
			Method: http.MethodPost, Path: edge.Root + "/admin/users", Need: edge.NeedOperator,
			Summary: "Create a user in an organization, and the organization if it does not exist. " +
				"A password that is made for the user is shown this once.",
			Body: edge.Type[wire.NewUser](), Reply: edge.Type[wire.User](), Handle: g.createUser,
		},
		{
			Method: http.MethodPatch, Path: edge.Root + "/admin/users/{id}", Need: edge.NeedOperator,
			Summary: "Disable or enable a user, set a new password, or make the user a member of an organization.",
			Body:    edge.Type[wire.UserChange](), Reply: edge.Type[wire.User](), Handle: g.changeUser,
		},
		{
			Method: http.MethodPost, Path: edge.Root + "/user/password", Tag: "Account", Need: edge.NeedCaller,
			Summary: "Change the caller's password. All other sessions end.",
			Body:    edge.Type[wire.PasswordChange](), Reply: edge.Type[wire.Message](), Handle: g.changePassword,
		},
		{
			Method: http.MethodDelete, Path: edge.Root + "/user/delete", Tag: "Account", Need: edge.NeedUser,
			Summary: "Delete the caller's account, and the organizations in which nobody else is. " +
				"Executions stay in the history.",
			Body: edge.Type[wire.UserDeletion](), Reply: edge.Type[wire.Message](), Handle: g.deleteUser,
		},
	}
}

// userOf returns a user as an operator sees one.
func userOf(view *fsm.View, u *compute.User) wire.User {
	out := wire.User{
		UserID: u.ID, Email: u.Email, FullName: wire.OrNull(u.FullName), Operator: u.Operator, IsActive: u.Active,
		CreatedAt: u.CreatedAt, Temporary: u.Temporary, Orgs: []wire.UserOrg{},
	}
	for _, m := range view.Memberships(u.ID) {
		org, ok := view.Org(m.Org)
		if !ok {
			continue
		}
		if m.Default {
			out.OrgID, out.OrgSlug = &org.ID, &org.Slug
		}
		out.Orgs = append(out.Orgs, wire.UserOrg{OrgID: org.ID, OrgSlug: org.Slug, Role: m.Role, IsDefault: m.Default})
	}
	slices.SortFunc(out.Orgs, func(a, b wire.UserOrg) int { return cmp.Compare(a.OrgSlug, b.OrgSlug) })
	return out
}

// listUsers answers a page of the users. Identifiers begin with the time, so that
// their order is that of age.
func (g *users) listUsers(r *edge.Request) (any, error) {
	in, view := r.Query.(*wire.UsersQuery), r.View
	after := compute.UserID{}
	if in.Cursor != "" {
		var err error
		if after, err = compute.ParseUserID(in.Cursor); err != nil {
			f := new(wire.Faults)
			f.Value("not a cursor: begin again without one", "query", "cursor")
			return nil, f
		}
	}
	wanted := usersWanted(view, in)
	var page []*compute.User
	for u := range view.UsersAfter(after) {
		if !wanted(u) {
			continue
		}
		if len(page) == in.Limit {
			r.SetHeader("X-Next-Cursor", page[len(page)-1].ID.String())
			break
		}
		page = append(page, u)
	}
	return answer.List{Before: "[", After: "]", Rows: func(context.Context) iter.Seq2[any, error] {
		return func(yield func(any, error) bool) {
			for _, u := range page {
				if !yield(userOf(view, u), nil) {
					return
				}
			}
		}
	}}, nil
}

// usersWanted returns which users a query asks for.
func usersWanted(view *fsm.View, in *wire.UsersQuery) func(*compute.User) bool {
	org, known := view.OrgBySlug(in.Org)
	email := strings.ToLower(in.Email)
	return func(u *compute.User) bool {
		if email != "" && u.Email != email {
			return false
		}
		if in.Org == "" {
			return true
		}
		if !known {
			return false
		}
		_, member := view.Membership(org.ID, u.ID)
		return member
	}
}

// createUser makes a user in an organization, which is made too if there is none
// with the slug.
func (g *users) createUser(r *edge.Request) (any, error) {
	in := r.Body.(*wire.NewUser)
	_, exists := r.View.OrgBySlug(in.OrgSlug)
	role, err := roleIn(in, exists || r.Repeat)
	if err != nil {
		return nil, err
	}
	text, hash, err := g.password(r, in.Password)
	if err != nil {
		return nil, err
	}
	user := compute.User{
		ID: compute.UserID{UUID: g.NewID()}, Email: in.Email, FullName: in.FullName,
		PasswordHash: hash, Active: true, Operator: in.Operator, Temporary: text != "",
	}
	org := compute.Org{
		ID: compute.OrgID{UUID: g.NewID()}, Slug: in.OrgSlug, Name: in.OrgName, BillingEmail: in.Email,
	}
	if org.Name == "" {
		org.Name = org.Slug
	}
	result, err := g.ProposeAndSee(r, command.CreateUser{
		Op: g.Op(r), Actor: r.Caller.Actor, User: user, Org: org, Join: exists, Role: role,
	})
	if detailOf(err) == "email_taken" {
		return nil, compute.Errorf(compute.CodeConflict, "%s has an account already: berth admin user add %s --org %s "+
			"makes it a member.", in.Email, in.Email, in.OrgSlug).Named("email_taken")
	}
	if err != nil {
		return nil, err
	}
	// A repeat finds the user that the first request made.
	made, ok := r.View.UserByEmail(in.Email)
	if !ok {
		return nil, edge.NotFound()
	}
	return g.shown(r, made, result, text, hash)
}

// roleIn returns the role of a new user in an organization that exists or not.
func roleIn(in *wire.NewUser, exists bool) (compute.OrgRole, error) {
	role := compute.OrgMember
	if in.Role != "" {
		if err := role.UnmarshalText([]byte(in.Role)); err != nil {
			return role, err
		}
		if !exists && role != compute.OrgOwner {
			return role, compute.Errorf(compute.CodeInvalid, "There is no organization %q. Its first member is its owner: "+
				"leave out role to create it.", in.OrgSlug).Named("org_not_found")
		}
	}
	return role, nil
}

// password returns the hash of the given password, or of a new one and its text
// where none is given.
func (g *users) password(r *edge.Request, given string) (text, hash string, err error) {
	if given == "" {
		if text, err = g.Credentials.NewPassword(); err != nil {
			return "", "", err
		}
		given = text
	}
	hash, err = g.Credentials.HashPassword(r, given)
	return text, hash, err
}

// shown answers a user, with the password that was made in this request.
func (g *users) shown(r *edge.Request, u *compute.User, result command.Result, text, hash string) (any, error) {
	if text != "" && u.PasswordHash != hash {
		if result.Repeat {
			return nil, handler.ErrSecretGone("password", u.ID.String())
		}
		return nil, compute.Errorf(compute.CodeConflict, "The password was changed meanwhile.").Named("password_changed")
	}
	out := userOf(r.View, u)
	out.Password = text
	return out, nil
}

// changeUser changes a user and then the user's membership. Each change alone is
// safe to repeat.
func (g *users) changeUser(r *edge.Request) (any, error) {
	in := r.Body.(*wire.UserChange)
	id, err := compute.ParseUserID(r.Params["id"])
	if err != nil {
		return nil, edge.NotFound()
	}
	if _, ok := r.View.User(id); !ok {
		return nil, edge.NotFound()
	}
	if in.OrgSlug != "" && (in.Disabled != nil || in.Password != "" || in.ResetPassword) {
		f := new(wire.Faults)
		f.Value("org_slug is changed in a request of its own", "body", "org_slug")
		return nil, f
	}
	if in.OrgSlug != "" {
		return g.addMember(r, id, in)
	}
	change := command.SetUser{Op: g.Op(r), Actor: r.Caller.Actor, User: id, Disabled: in.Disabled}
	var text string
	if in.Password != "" || in.ResetPassword {
		if text, change.Password, err = g.password(r, in.Password); err != nil {
			return nil, err
		}
		change.Temporary = text != ""
	}
	result, err := g.ProposeAndSee(r, change)
	if err != nil {
		return nil, err
	}
	u, ok := r.View.User(id)
	if !ok {
		return nil, edge.NotFound()
	}
	return g.shown(r, u, result, text, change.Password)
}

// addMember makes a user a member of an organization, or changes the role there.
func (g *users) addMember(r *edge.Request, id compute.UserID, in *wire.UserChange) (any, error) {
	org, ok := r.View.OrgBySlug(in.OrgSlug)
	if !ok {
		f := new(wire.Faults)
		f.Value("there is no such organization", "body", "org_slug")
		return nil, f
	}
	role := compute.OrgMember
	if in.Role != "" {
		if err := role.UnmarshalText([]byte(in.Role)); err != nil {
			return nil, err
		}
	}
	_, err := g.ProposeAndSee(r, command.SetMember{
		Op: g.Op(r), Actor: r.Caller.Actor, Org: org.ID, User: id, Role: role,
	})
	if err != nil {
		return nil, err
	}
	u, ok := r.View.User(id)
	if !ok {
		return nil, edge.NotFound()
	}
	return userOf(r.View, u), nil
}

// changePassword replaces the caller's password. The old one is needed, so that
// a stolen token or key does not take the account over.
func (g *users) changePassword(r *edge.Request) (any, error) {
	in := r.Body.(*wire.PasswordChange)
	user := r.Caller.User
	done := wire.Message{Message: "The password is changed. All other sessions have ended."}
	if r.Repeat {
		return done, nil
	}
	if err := g.Credentials.AllowLogin(user.Email, r.IP); err != nil {
		return nil, err
	}
	good, err := g.Credentials.CheckPassword(r, user, in.Old)
	if err != nil {
		return nil, err
	}
	if !good {
		return nil, compute.Errorf(compute.CodeForbidden, "The old password is wrong.").Named("wrong_password")
	}
	if in.New == in.Old {
		return nil, compute.Errorf(compute.CodeInvalid, "The new password is the old one.").Named("same_password")
	}
	hash, err := g.Credentials.HashPassword(r, in.New)
	if err != nil {
		return nil, err
	}
	_, err = g.Propose(r, command.SetUser{
		Op: g.Op(r), Actor: r.Caller.Actor, User: user.ID, Password: hash, Keep: r.Caller.Session,
		Checked: checkedPassword(r, user),
	})
	if err != nil {
		return nil, err
	}
	return done, nil
}

// recentLogin is how old a login may be to end the account of a user without a password.
const recentLogin = 10 * time.Minute

// confirmDeletion checks a user's password or, for a user without one, that the login of
// the request is recent.
func (g *users) confirmDeletion(r *edge.Request, user *compute.User, password string) error {
	if user.PasswordHash == "" {
		begun, ok := r.View.LoginAt(r.Caller.Session)
		if !ok || compute.InstantOf(g.Now()).Sub(begun) > recentLogin {
			return compute.Errorf(compute.CodeForbidden, "This account has no password: sign in with the identity provider "+
				"again, and delete the account within ten minutes.").Named("login_too_old")
		}
		return nil
	}
	if password == "" {
		f := new(wire.Faults)
		f.Missing("body", "password")
		return f
	}
	good, err := g.Credentials.CheckPassword(r, user, password)
	if err == nil && !good {
		err = compute.Errorf(compute.CodeForbidden, "The password is wrong.").Named("wrong_password")
	}
	return err
}

// deleteUser ends the caller's account. The password or a recent login is needed, so that
// a stolen token or key does not end it.
func (g *users) deleteUser(r *edge.Request) (any, error) {
	if err := r.View.AllowsOrgs(); err != nil {
		return nil, err
	}
	user := r.Caller.User
	if err := g.Credentials.AllowLogin(user.Email, r.IP); err != nil {
		return nil, err
	}
	if err := g.confirmDeletion(r, user, r.Body.(*wire.UserDeletion).Password); err != nil {
		return nil, err
	}
	_, err := g.Propose(r, command.DeleteUser{Op: g.Op(r), Actor: r.Caller.Actor, Checked: checkedPassword(r, user)})
	if err != nil {
		return nil, err
	}
	return wire.Message{Message: "The account is deleted."}, nil
}

// detailOf returns the stable name of a refusal, "" for other errors.
func detailOf(err error) string {
	if e, ok := errors.AsType[*compute.Error](err); ok {
		return e.Detail
	}
	return ""
}
