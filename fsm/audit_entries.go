package fsm

import (
	"fmt"
	"strings"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// entryOf returns the line of an audit trail for a command with its result. It reports
// false for commands that are not audited: those about work, which the history has, and
// those of nodes.
func (s *trail) entryOf(cmd command.Command, r command.Result) (auditEntry, bool) {
	for _, of := range []func(command.Command, command.Result) (auditEntry, bool){
		s.entryOfUser, s.entryOfKey, s.entryOfOrg, s.entryOfMoney, entryOfCluster,
	} {
		if d, ok := of(cmd, r); ok {
			return d, r.Refusal == nil || d.action == actionReuse
		}
	}
	return auditEntry{}, false
}

// actionLogin is a new login, and actionLogout its end by its user.
const (
	actionLogin  = "login"
	actionLogout = "logout"
)

// actionReuse is the use of a spent refresh token, which is refused and ends the login.
const actionReuse = "login.token_reused"

// actionSignUp is an account that its user made.
const actionSignUp = "user.signup"

// entryOfUser is entryOf for accounts and logins.
func (s *trail) entryOfUser(cmd command.Command, r command.Result) (auditEntry, bool) {
	switch c := cmd.(type) {
	case command.CreateUser:
		at := c.User.Email + " in " + c.Org.Slug
		return auditEntry{c.Actor, compute.OrgID{}, "user.create", c.User.ID.String(), at}, true
	case command.SignUp:
		a := c.Actor
		a.User = c.User.ID
		return auditEntry{a, compute.OrgID{}, actionSignUp, c.User.ID.String(), c.User.Email + " in " + c.Org.Slug}, true
	case command.LinkUser:
		a := c.Actor
		a.User = c.User
		if c.Email != "" || c.FullName != "" {
			return auditEntry{a, s.home(c.User), "user.rename", c.User.String(), ""}, true
		}
		return auditEntry{a, s.home(c.User), "user.link", c.User.String(), c.Subject}, true
	case command.SetUser:
		return auditEntry{c.Actor, compute.OrgID{}, "user.change", c.User.String(), userChange(&c)}, true
	case command.DeleteUser:
		return auditEntry{c.Actor, compute.OrgID{}, "user.delete", c.Actor.User.String(), ""}, true
	case command.StoreRefresh:
		a := c.Actor
		a.User = c.Token.User
		return auditEntry{a, s.home(a.User), actionLogin, a.User.String(), ""}, true
	case command.RotateRefresh:
		if r.Refusal == nil || r.Refusal.Detail != "token_reused" {
			return auditEntry{}, false
		}
		t, _ := s.view.Refresh(c.Old)
		a := c.Actor
		a.User = t.User
		return auditEntry{a, s.home(t.User), actionReuse, t.User.String(), ""}, true
	case command.RevokeRefresh:
		a := c.Actor
		if t, ok := s.view.Refresh(c.Token); ok {
			a.User = t.User
		}
		return auditEntry{a, s.home(a.User), actionLogout, a.User.String(), ""}, s.view.Format() >= format.Rotation
	}
	return auditEntry{}, false
}

// userChange lists the changes of command.SetUser, without any secret.
func userChange(c *command.SetUser) string {
	var said []string
	if c.Password != "" {
		said = append(said, "password")
	}
	if c.Disabled != nil {
		said = append(said, fmt.Sprintf("disabled %t", *c.Disabled))
	}
	return strings.Join(said, ", ")
}

// homesOf returns the organizations of the user that a command changes or deletes, as
// long as the user is a member.
func (s *trail) homesOf(cmd command.Command) []compute.OrgID {
	switch c := cmd.(type) {
	case command.SetUser:
		return s.orgsOf(c.User)
	case command.DeleteUser:
		return s.orgsOf(c.Actor.User)
	}
	return nil
}

// orgsOf returns the organizations of a user.
func (s *trail) orgsOf(user compute.UserID) []compute.OrgID {
	var orgs []compute.OrgID
	for _, m := range s.view.Memberships(user) {
		orgs = append(orgs, m.Org)
	}
	return orgs
}

// home returns the default organization of a user, zero for none.
func (s *trail) home(user compute.UserID) compute.OrgID {
	for _, m := range s.view.Memberships(user) {
		if m.Default {
			return m.Org
		}
	}
	return compute.OrgID{}
}

// entryOfKey is entryOf for API keys and secrets.
func (s *trail) entryOfKey(cmd command.Command, _ command.Result) (auditEntry, bool) {
	switch c := cmd.(type) {
	case command.CreateKey:
		return auditEntry{c.Actor, c.Actor.Org, "key.create", c.Key.ID.String(), c.Key.Name}, true
	case command.ToggleKey:
		detail := ""
		if k, ok := s.view.Key(c.Actor.Org, c.Key); ok {
			detail = fmt.Sprintf("active %t", k.Active)
		}
		return auditEntry{c.Actor, c.Actor.Org, "key.toggle", c.Key.String(), detail}, true
	case command.DeleteKey:
		return auditEntry{c.Actor, c.Actor.Org, "key.delete", c.Key.String(), ""}, true
	case command.RegenerateKey:
		return auditEntry{c.Actor, c.Actor.Org, "key.regenerate", c.Key.String(), ""}, true
	case command.PutVariables:
		names := make([]string, 0, len(c.Variables))
		for i := range c.Variables {
			names = append(names, c.Variables[i].Name)
		}
		return auditEntry{c.Actor, c.Actor.Org, "variables.set", strings.Join(names, " "), ""}, true
	case command.RemoveVariables:
		target := "all"
		if !c.ID.IsZero() {
			target = c.ID.String()
		}
		return auditEntry{c.Actor, c.Actor.Org, "variables.remove", target, ""}, true
	case command.SetCallbackSecret:
		return auditEntry{c.Actor, c.Org, "callback_secret.set", fmt.Sprint(c.Secret.Number), ""}, true
	case command.RotateKey:
		if c.Key == nil {
			return auditEntry{}, false // Its values follow the key, which has its line.
		}
		detail := fmt.Sprintf("retired %t", c.Retire)
		return auditEntry{c.Actor, c.Org, "data_key.rotate", fmt.Sprint(c.Key.Number), detail}, true
	case command.RemoveCallbackSecret:
		return auditEntry{c.Actor, c.Org, "callback_secret.remove", "", ""}, true
	}
	return auditEntry{}, false
}

// entryOfOrg is entryOf for organizations, members and invites.
func (s *trail) entryOfOrg(cmd command.Command, _ command.Result) (auditEntry, bool) {
	switch c := cmd.(type) {
	case command.CreateOrg:
		return auditEntry{c.Actor, c.Org.ID, "org.create", c.Org.ID.String(), c.Org.Slug}, true
	case command.SetOrg:
		return auditEntry{c.Actor, c.Org, "org.change", c.Org.String(), strings.TrimSpace(c.Slug + " " + c.Name)}, true
	case command.DeleteOrg:
		return auditEntry{c.Actor, c.Org, "org.delete", c.Org.String(), ""}, true
	case command.TrustOrg:
		return auditEntry{c.Actor, c.Org, "org.trust", c.Org.String(), fmt.Sprint(c.Trusted)}, true
	case command.SetMember:
		return auditEntry{c.Actor, c.Org, "member.set", c.User.String(), c.Role.String()}, true
	case command.RemoveMember:
		return auditEntry{c.Actor, c.Org, "member.remove", c.User.String(), ""}, true
	case command.PutInvite:
		who := c.Invite.Email + " as " + c.Invite.Role.String()
		return auditEntry{c.Actor, c.Invite.Org, "invite.create", c.Invite.ID.String(), who}, true
	case command.RevokeInvite:
		return auditEntry{c.Actor, c.Org, "invite.revoke", c.Invite.String(), ""}, true
	case command.AnswerInvite:
		return auditEntry{c.Actor, c.Org, "invite.answer", c.Invite.String(), fmt.Sprintf("accepted %t", c.Accept)}, true
	case command.CreateEnvironment:
		return auditEntry{c.Actor, c.Environment.Org, "environment.create", c.Environment.Name, ""}, true
	case command.DeleteEnvironment:
		return auditEntry{c.Actor, c.Org, "environment.delete", c.Name, ""}, true
	case command.SetBucketLimits:
		limits := fmt.Sprintf("%d bytes, %d objects", c.MaxBytes, c.MaxObjects)
		return auditEntry{c.Actor, c.Org, "storage.limit", c.Org.String(), limits}, true
	}
	return auditEntry{}, false
}

// entryOfMoney is entryOf for credits, budgets, prices and quotas.
func (s *trail) entryOfMoney(cmd command.Command, _ command.Result) (auditEntry, bool) {
	switch c := cmd.(type) {
	case command.Grant:
		return auditEntry{c.Actor, c.Org, "credits.grant", c.Amount.String(), c.Note}, true
	case command.RecordPurchase:
		p := &c.Purchase
		return auditEntry{command.Actor{}, p.Org, "credits.purchase", p.Amount.String(), p.ID}, true
	case command.SetBudget:
		target := budgetTarget(c.Budget.Key, c.Budget.User)
		return auditEntry{c.Actor, c.Budget.Org, "budget.set", target, c.Budget.MaxCredits.String()}, true
	case command.RemoveBudget:
		return auditEntry{c.Actor, c.Org, "budget.remove", budgetTarget(c.Key, c.User), ""}, true
	case command.SetQuota:
		return auditEntry{c.Actor, c.Quota.Org, "quota.set", quotaTarget(&c.Quota), ""}, true
	case command.SetPrices:
		target := strings.Join(pricedBy(&c), " ")
		if s.view.Format() < format.Rotation {
			target = fmt.Sprintf("%d prices, %d costs", len(c.Prices), len(c.Costs))
		}
		return auditEntry{c.Actor, compute.OrgID{}, "prices.set", target, ""}, true
	case command.RemovePrice:
		return auditEntry{c.Actor, compute.OrgID{}, "price.remove", c.Name, ""}, true
	case command.SetModel:
		return auditEntry{c.Actor, compute.OrgID{}, "model.set", c.ID, modelOf(c.Deployment, c.Prices)}, true
	case command.RemoveModel:
		return auditEntry{c.Actor, compute.OrgID{}, "model.remove", c.ID, ""}, true
	case command.SetBillingMode:
		return auditEntry{c.Actor, compute.OrgID{}, "billing.mode", fmt.Sprintf("meter %t", c.Meter), ""}, true
	}
	return auditEntry{}, false
}

func budgetTarget(key compute.KeyID, user compute.UserID) string {
	switch {
	case !key.IsZero():
		return "key " + key.String()
	case !user.IsZero():
		return "member " + user.String()
	}
	return "organization"
}

func quotaTarget(q *compute.Quota) string {
	if q.Tag != "" {
		return "tag " + q.Tag
	}
	if q.Profile != "" {
		return "hardware profile " + q.Profile
	}
	return budgetTarget(q.Key, compute.UserID{})
}

// entryOfCluster is entryOf for commands about nodes and the cluster.
func entryOfCluster(cmd command.Command, _ command.Result) (auditEntry, bool) {
	switch c := cmd.(type) {
	case command.DrainNode:
		return auditEntry{c.Actor, compute.OrgID{}, "node.drain", c.Node.String(), fmt.Sprintf("drained %t", c.Drained)}, true
	case command.RemoveNode:
		return auditEntry{c.Actor, compute.OrgID{}, "node.remove", c.Node.String(), ""}, true
	case command.CreateJoinToken:
		return auditEntry{c.Actor, compute.OrgID{}, "join_token.create", c.Token.ID, c.Token.Role.String()}, true
	case command.SetBrake:
		return auditEntry{c.Actor, compute.OrgID{}, "brake.set", "", fmt.Sprintf("release %t", c.Release)}, true
	case command.SealWith:
		return auditEntry{c.Actor, compute.OrgID{}, "master_key.rotate", fmt.Sprintf("%x", c.Prefixes), ""}, true
	case command.RotateRootToken:
		return auditEntry{c.Actor, compute.OrgID{}, "root_token.rotate", "", ""}, true
	case command.RecordDeed:
		return auditEntry{c.Actor, compute.OrgID{}, c.Action, c.Target, ""}, true
	}
	return auditEntry{}, false
}
