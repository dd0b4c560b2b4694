package node_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"berth/api/client"
	"berth/node/nodetest"
)

// tryRootToken replaces the root token through a follower while it is used on every node: no request
// that begins after the rotation is served for the one before.
func tryRootToken(t *testing.T, c *nodetest.Cluster) {
	const rounds = 3
	token := c.RootToken
	for round := range rounds {
		var rotated atomic.Bool
		ctx, stop := context.WithCancel(t.Context())
		used := make(chan struct{}, len(c.Nodes))
		var users sync.WaitGroup
		for _, n := range c.Nodes {
			api := nodetest.MustClient(t, token, n.URL())
			users.Go(func() {
				for first := true; ctx.Err() == nil; first = false {
					dead := rotated.Load()
					switch _, err := api.Brake(ctx); {
					case err == nil && dead:
						t.Errorf("%s serves the root token after its rotation", n.Config.Name)
						return
					case client.CodeOf(err) == "unauthenticated":
						return
					}
					if first {
						used <- struct{}{}
					}
				}
			})
		}
		for range c.Nodes {
			<-used
		}
		by := c.Follower()
		if round == rounds-1 {
			by = c.Leader()
		}
		made, err := nodetest.MustClient(t, token, by.URL()).RotateRootToken(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rotated.Store(true)
		c.Hide(made.RootToken)
		for _, n := range c.Nodes {
			if _, err := nodetest.MustClient(t, token, n.URL()).Brake(t.Context()); client.CodeOf(err) != "unauthenticated" {
				t.Errorf("%s after the rotation: %v", n.Config.Name, err)
			}
			if _, err := nodetest.MustClient(t, made.RootToken, n.URL()).Brake(t.Context()); err != nil {
				t.Errorf("%s with the new token: %v", n.Config.Name, err)
			}
		}
		users.Wait()
		stop()
		token = made.RootToken
	}
	mustHaveNone(t, c.Nodes, token)
}
