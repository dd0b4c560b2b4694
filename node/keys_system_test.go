package node_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/api/client"
	"berth/compute"
	"berth/node/nodetest"
)

// mustKeyed returns a client whose one request has the key that text makes.
func mustKeyed(t *testing.T, token, url, text string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{
		Addrs: []string{url}, Token: token, RetryFor: time.Minute, Rand: strings.NewReader(fmt.Sprintf("%16.16s", text)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestKeysUnderFire has many clients submit with keys of their own while leader
// after leader is killed. Each repeats its request on every other node: every
// answer names the first one's execution, and there are as many executions, and
// charges, as there were keys.
func TestKeysUnderFire(t *testing.T) {
	const clients, each, kills = 6, 6, 2
	c := nodetest.Start(t, 3)
	account := c.MustAccount("acme")
	urls := []string{c.Nodes[0].URL, c.Nodes[1].URL, c.Nodes[2].URL}
	root := nodetest.MustClient(t, c.RootToken, urls...)
	mustVoters(t, root, 3)

	answered := make(chan struct{}, clients*each)
	var mu sync.Mutex
	seen := map[compute.ExecutionID]string{}
	submit := func(url, key string) (compute.ExecutionID, error) {
		code := fmt.Sprintf("print(%q)", key)
		started, err := mustKeyed(t, account.Key, url, key).Submit(t.Context(), client.Start{Code: code, Timeout: 60})
		return started.ExecutionID, err
	}
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for j := range each {
				key := fmt.Sprintf("fire %d.%d", i, j)
				first, err := submit(urls[(i+j)%3], key)
				if err != nil {
					t.Errorf("%s: %v", key, err)
					return
				}
				answered <- struct{}{}
				for again := 1; again < 3; again++ {
					if id, err := submit(urls[(i+j+again)%3], key); err != nil || id != first {
						t.Errorf("%s was %s at first, then %s (%v)", key, first, id, err)
					}
				}
				mu.Lock()
				if other, twice := seen[first]; twice {
					t.Errorf("%s and %s are both %s", key, other, first)
				}
				seen[first] = key
				mu.Unlock()
			}
		})
	}
	for range kills {
		for range clients * each / (kills + 1) {
			<-answered
		}
		leader, _ := split(t, c, root)
		leader.Kill()
		leader.Start()
	}
	all.Wait()
	if t.Failed() {
		return
	}
	api := nodetest.MustClient(t, account.Key, urls...)
	for id := range seen {
		if e := mustFinish(t, api, id); e.Status != compute.StatusCompleted || e.Billed == nil || *e.Billed <= 0 {
			t.Errorf("execution %s: got %v, billed %v; want completed and a charge", id, e.Status, e.Billed)
		}
	}
	history, err := api.History(t.Context(), client.HistoryQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if history.TotalExecutions != clients*each {
		t.Errorf("%d executions for %d keys", history.TotalExecutions, clients*each)
	}
	mustBalance(t, api)
}
