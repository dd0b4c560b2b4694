package node_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"berth/api/client"
	"berth/node/nodetest"
)

// TestGracefulStop stops the leader: at first it says that it stops and answers
// all the same, and when it is gone another one leads.
func TestGracefulStop(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.NewWith(t, 3, func(_ int, cfg *nodetest.NodeConfig) { cfg.API.Drain = 2 * time.Second })
	leader := c.Leader()
	root := mustUsual(t, c.RootToken, leader.URL())
	mustVoters(t, root, 3)
	term := leader.Peer().View().Term()
	var stop sync.WaitGroup
	stop.Go(leader.Stop)
	api, err := client.New(client.Config{Addrs: []string{leader.URL()}, RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, time.Minute, "the node to say that it stops", func() bool {
		err := api.Ready(t.Context())
		return err != nil && strings.Contains(err.Error(), "stopping")
	})
	if _, err := root.Nodes(t.Context()); err != nil {
		t.Errorf("a node that drains does not answer: %v", err)
	}
	stop.Wait()
	nodetest.Eventually(t, time.Minute, "another one to lead", func() bool {
		for _, n := range c.Nodes {
			// The state knows the term from the leader's first command on.
			if n != leader && n.Peer().IsLeader() && n.Peer().View().Term() > term {
				return true
			}
		}
		return false
	})
	for _, n := range c.Nodes {
		if now := n.Peer().View().Term(); n.Peer().IsLeader() && now > term+2 { // A vote may be repeated.
			t.Errorf("the term went from %d to %d: leadership was not handed over", term, now)
		}
	}
	leader.Start() // The cluster ends as it began.
}

// mustUsual returns a client with the patience that users have.
func mustUsual(t *testing.T, token string, urls ...string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Addrs: urls, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
