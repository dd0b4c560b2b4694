package node_test

import (
	"context"
	"net/http"
	"testing"

	"berth/api/contracttest"
	"berth/node/nodetest"
)

// TestContractOfFollower has a client that knows only the specification
// validate every answer of a follower.
func TestContractOfFollower(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.New(t, 3)
	follower := c.Follower()
	account := c.MustAccount("acme")
	ctx, cancel := context.WithTimeout(t.Context(), endWait)
	defer cancel()
	err := contracttest.Validate(ctx, contracttest.Config{
		BaseURL: follower.URL(), Email: account.Email, Password: account.Password,
		OrgSlug: account.Slug, Client: http.DefaultClient,
	})
	if err != nil {
		t.Error(err)
	}
	t.Run("Go client", func(t *testing.T) { tryGoClient(t, follower, account.Key) })
	t.Run("team", func(t *testing.T) { tryTeam(t, c, account) })
}
