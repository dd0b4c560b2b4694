package node_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// TestInvitesOnAnyNode makes an organization, invites a person to it and ends the
// membership, each on another node. An end holds from the next request on any node.
func TestInvitesOnAnyNode(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.New(t, 3)
	acme, guest := c.MustAccount("acme"), c.MustAccount("guest")
	on := func(account nodetest.Account, n int) *client.Client {
		return nodetest.MustClient(t, account.Key, c.Nodes[n].URL())
	}
	slug := mustOrgs(t, on(acme, 0))[0].Slug
	status, err := on(guest, 1).UserStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	invite, err := on(acme, 0).Invite(t.Context(), slug, status.Email, compute.OrgMember)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := on(guest, 2).MyInvites(t.Context()); err != nil || len(list) != 1 || list[0].ID != invite.ID {
		t.Errorf("the guest sees %+v, %v", list, err)
	}

	// Accepted on all nodes at once: one membership, and the same answer on each.
	session := mustLogin(t, c.Nodes[0].URL(), guest)
	var both sync.WaitGroup
	for n := range c.Nodes {
		both.Go(func() {
			person := nodetest.MustClient(t, session, c.Nodes[n].URL())
			if got, err := person.AnswerInvite(t.Context(), invite.Token, true); err != nil || got.Status != "accepted" {
				t.Errorf("on node %d: %+v, %v", n, got, err)
			}
		})
	}
	both.Wait()
	members, err := on(acme, 2).Members(t.Context(), slug)
	if err != nil || len(members) != 2 {
		t.Fatalf("members are %+v, %v", members, err)
	}

	// An organization of the guest's own, made, renamed and deleted elsewhere.
	login := nodetest.MustClient(t, mustLogin(t, c.Nodes[1].URL(), guest), c.Nodes[1].URL())
	made, err := login.CreateOrg(t.Context(), wire.NewOrg{Name: "Guest house"})
	if err != nil || made.Slug != "guest-house" {
		t.Fatalf("made %+v, %v", made, err)
	}
	token := mustLogin(t, c.Nodes[0].URL(), guest)
	other := nodetest.MustClient(t, token, c.Nodes[2].URL())
	if _, err := other.ChangeOrg(t.Context(), made.Slug, wire.OrgChange{Slug: "inn"}); err != nil {
		t.Fatal(err)
	}
	if n := len(mustOrgs(t, nodetest.MustClient(t, token, c.Nodes[0].URL()))); n != 3 {
		t.Errorf("the guest is in %d organizations", n)
	}
	if err := nodetest.MustClient(t, token, c.Nodes[1].URL()).DeleteOrg(t.Context(), "inn"); err != nil {
		t.Fatal(err)
	}

	if err := on(acme, 1).RemoveMember(t.Context(), slug, status.UserID); err != nil {
		t.Fatal(err)
	}
	for n := range c.Nodes {
		member := nodetest.MustClient(t, token, c.Nodes[n].URL())
		_, err := member.Members(t.Context(), slug)
		if refusal, ok := errors.AsType[*client.Error](err); !ok || refusal.Status != http.StatusNotFound {
			t.Errorf("on node %d, after the end: %v", n, err)
		}
		if left := mustOrgs(t, member); len(left) != 1 || left[0].Role != compute.OrgOwner {
			t.Errorf("on node %d the guest is in %+v", n, left)
		}
	}
}

// mustOrgs returns the organizations of a caller.
func mustOrgs(t *testing.T, c *client.Client) []wire.Org {
	t.Helper()
	orgs, err := c.Orgs(t.Context())
	if err != nil || len(orgs) == 0 {
		t.Fatalf("organizations %+v, %v", orgs, err)
	}
	return orgs
}

// mustLogin returns an access token of an account.
func mustLogin(t *testing.T, url string, account nodetest.Account) string {
	t.Helper()
	session, err := nodetest.MustClient(t, "", url).Login(t.Context(), account.Email, account.Password)
	if err != nil {
		t.Fatal(err)
	}
	return session.AccessToken
}
