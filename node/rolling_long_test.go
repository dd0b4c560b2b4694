//go:build long

package node_test

import (
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// rollingRequests is how many requests a rolling restart is to be survived by.
var rollingRequests = flag.Int("rolling.requests", 1_500, "requests of TestRollingRestart, at least")

// load is requests that must happen once each, from many clients.
type load struct {
	clients []*sender
	org     string

	done, failed, granted atomic.Int64

	mu    sync.Mutex
	took  []time.Duration
	first error
}

// sender is a client with what it alone changes.
type sender struct {
	root, owner *client.Client
	key         compute.KeyID   // Switched off and on.
	spare       []compute.KeyID // To be deleted.
	sent        int
	off         bool
}

// run has every client send one request after the other until enough were sent
// and stop is closed.
func (l *load) run(t *testing.T, enough int64, stop <-chan struct{}) {
	var wg sync.WaitGroup
	for _, c := range l.clients {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					if l.done.Load() >= enough {
						return
					}
				default:
				}
				l.request(t, c)
			}
		})
	}
	wg.Wait()
}

func (l *load) request(t *testing.T, c *sender) {
	began := time.Now()
	c.sent++
	var err error
	switch {
	case c.sent%50 == 0 && len(c.spare) > 0:
		err = c.owner.DeleteKey(t.Context(), l.org, c.spare[0])
		c.spare = c.spare[1:]
	case c.sent%5 == 0:
		var key wire.Key
		key, err = c.owner.ToggleKey(t.Context(), l.org, c.key)
		if c.off = !c.off; err == nil && key.IsActive == c.off {
			err = fmt.Errorf("the key is active: %t, after it was switched: %t", key.IsActive, !c.off)
		}
	default:
		err = c.root.Grant(t.Context(), l.org, 1, "load")
		l.granted.Add(1)
	}
	l.done.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, time.Since(began))
	if err != nil {
		l.failed.Add(1)
		if l.first == nil {
			l.first = err
		}
	}
}

// TestRollingRestart restarts all nodes by SIGTERM, one after the other.
// Meanwhile clients that know all nodes, and clients that know one each, send
// requests that must happen once. No request fails, and each has happened once.
func TestRollingRestart(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.StartWith(t, 3, func(cfg *nodetest.NodeConfig) { cfg.API.Drain = 500 * time.Millisecond })
	account := c.MustAccount("acme")
	var urls []string
	for _, n := range c.Nodes {
		urls = append(urls, n.URL)
	}
	root := nodetest.MustClient(t, c.RootToken, urls...)
	mustVoters(t, root, 3)
	l := &load{org: account.Slug}
	for _, n := range c.Nodes {
		l.clients = append(l.clients, mustSender(t, c, account, n.URL), mustSender(t, c, account, urls...))
	}
	before := mustCredits(t, nodetest.MustClient(t, account.Key, urls...))
	restarted := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { l.run(t, int64(*rollingRequests), restarted) })
	began := time.Now()
	for _, n := range c.Nodes {
		stopping := time.Now()
		n.Stop()
		stopped := time.Now()
		n.Start()
		nodetest.Eventually(t, time.Minute, n.Config.Name+" to be ready", func() bool {
			return nodetest.MustClient(t, "", n.URL).Ready(t.Context()) == nil
		})
		t.Logf("%s ended within %v and was ready after %v", n.Config.Name, stopped.Sub(stopping), time.Since(stopping))
	}
	took := time.Since(began)
	close(restarted)
	wg.Wait()
	slices.Sort(l.took)
	total := len(l.took)
	t.Logf("three restarts took %v; %d requests, %d failed; p50 %v, p99 %v, longest %v",
		took, total, l.failed.Load(), l.took[total/2], l.took[total*99/100], l.took[total-1])
	if l.failed.Load() > 0 {
		t.Errorf("%d of %d requests failed, the first one with: %v", l.failed.Load(), total, l.first)
	}
	after := mustCredits(t, nodetest.MustClient(t, account.Key, urls...))
	if got := after - before; got != compute.Credits(l.granted.Load()) {
		t.Errorf("%d requests gave %d millionths of a credit, want one each", l.granted.Load(), got)
	}
}

// mustSender returns a client with keys of its own.
func mustSender(t *testing.T, c *nodetest.Processes, account nodetest.Account, urls ...string) *sender {
	t.Helper()
	s := &sender{root: mustUsual(t, c.RootToken, urls...), owner: mustUsual(t, account.Key, urls...)}
	for range 4 {
		made, err := s.owner.CreateKey(t.Context(), account.Slug, "spare")
		if err != nil {
			t.Fatal(err)
		}
		s.spare = append(s.spare, made.ID)
	}
	s.key, s.spare = s.spare[0], s.spare[1:]
	return s
}

// mustCredits returns the balance of the account, read after everything that
// was acknowledged.
func mustCredits(t *testing.T, api *client.Client) compute.Credits {
	t.Helper()
	credits, err := api.Credits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return credits.Remaining
}
