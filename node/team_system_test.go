package node_test

import (
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// tryTeam takes a member of an organization through its life. Each request goes to
// another node: a decision on one node holds on the next one at once.
func tryTeam(t *testing.T, c *nodetest.Cluster, owner nodetest.Account) {
	t.Helper()
	next := 0
	as := func(token string) *client.Client {
		next++
		return nodetest.MustClient(t, token, c.Nodes[next%len(c.Nodes)].URL())
	}
	bea, err := as(c.RootToken).CreateUser(t.Context(), wire.NewUser{Email: "bea@example.com", OrgSlug: owner.Slug})
	if err != nil || bea.Password == "" {
		t.Fatalf("create: %+v, %v", bea, err)
	}
	first, err := as("").Login(t.Context(), bea.Email, bea.Password)
	if err != nil || !first.Temporary {
		t.Fatalf("sign in: %v", err)
	}
	second, err := as("").Login(t.Context(), bea.Email, bea.Password)
	if err != nil {
		t.Fatal(err)
	}
	if err := as(first.AccessToken).ChangePassword(t.Context(), bea.Password, "a better password"); err != nil {
		t.Fatal(err)
	}
	if _, err := as(second.AccessToken).UserStatus(t.Context()); client.CodeOf(err) != "unauthenticated" {
		t.Errorf("another session after the password was changed: %v", err)
	}
	if _, err := as(first.AccessToken).UserStatus(t.Context()); err != nil {
		t.Errorf("the session that changed it: %v", err)
	}
	key, err := as(first.AccessToken).CreateUserKey(t.Context(), "laptop", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := as(key.Value).Submit(t.Context(), client.Start{Code: "1"}); err != nil {
		t.Errorf("submit as a member: %v", err)
	}
	if _, err := as(owner.Key).SetRole(t.Context(), owner.Slug, bea.UserID, compute.OrgAdmin); err != nil {
		t.Error(err)
	}
	members, err := as(key.Value).Members(t.Context(), owner.Slug)
	if err != nil || len(members) != 2 || members[1].Role != compute.OrgAdmin {
		t.Errorf("members are %+v, %v", members, err)
	}
	err = as(key.Value).RemoveMember(t.Context(), owner.Slug, members[0].UserID)
	if client.CodeOf(err) != "role_too_low" {
		t.Errorf("an admin removes an owner: %v", err)
	}
	if _, err := as(c.RootToken).DisableUser(t.Context(), bea.UserID, true); err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{first.AccessToken, key.Value} {
		for range c.Nodes {
			if _, err := as(token).UserStatus(t.Context()); client.CodeOf(err) != "unauthenticated" {
				t.Errorf("after the user was disabled: %v", err)
			}
		}
	}
	if _, err := as(c.RootToken).DisableUser(t.Context(), bea.UserID, false); err != nil {
		t.Fatal(err)
	}
	if err := as(key.Value).RemoveMember(t.Context(), owner.Slug, bea.UserID); err != nil {
		t.Errorf("leave: %v", err)
	}
	if _, err := as(key.Value).UserStatus(t.Context()); client.CodeOf(err) != "unauthenticated" {
		t.Errorf("a key of who has left: %v", err)
	}
}
