//go:build long

package node_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// TestTokensOutliveNodes kills, again and again, the node that is asked for a published
// model while many answers are being charged. Each answer is charged once: no charge
// is lost, and beside them only answers under way may be charged.
func TestTokensOutliveNodes(t *testing.T) {
	t.Parallel() // It mostly waits.
	const clients, rounds, each = 8, 4, 60
	c := nodetest.StartWith(t, 3, withEcho(t))
	account := c.MustAccount("acme")
	var urls []string
	for _, p := range c.Nodes {
		urls = append(urls, p.URL)
	}
	root, api := nodetest.MustClient(t, c.RootToken, urls...), nodetest.MustClient(t, account.Key, urls...)
	mustVoters(t, root, 3)
	created, err := api.Deploy(t.Context(), deploymentOf("tiny/echo"))
	if err != nil {
		t.Fatal(err)
	}
	d := mustDeployment(t, api, created.ID, "ready")
	if _, err := root.SetModel(t.Context(), "lab/echo", wire.NewModel{
		Deployment: created.ID.String(), Prompt: 100 * compute.Credit, Completion: 100 * compute.Credit,
	}); err != nil {
		t.Fatal(err)
	}
	router := c.Nodes[0]
	if d.Rows[0].Node != nil && *d.Rows[0].Node == router.Config.Name {
		router = c.Nodes[1]
	}
	var answered atomic.Int64
	for range rounds {
		enough := make(chan struct{})
		before := answered.Load()
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for range clients {
			group.Go(func() {
				for ctx.Err() == nil {
					if asksOnce(ctx, router.URL, account.Key) && answered.Add(1) == before+each {
						close(enough)
					}
				}
			})
		}
		select {
		case <-enough:
		case <-time.After(endWait):
			t.Fatalf("the node gave %d answers", answered.Load()-before)
		}
		router.Kill()
		stop()
		group.Wait()
		router.Start()
		mustVoters(t, root, 3)
	}
	// Another answer, so that the node's new session has released what the last one held.
	nodetest.Eventually(t, endWait, "the restarted node to answer", func() bool {
		return asksOnce(t.Context(), router.URL, account.Key)
	})
	least := answered.Load() + 1
	report, err := api.Usage(t.Context(), client.UsageQuery{GroupBy: "model"})
	if err != nil {
		t.Fatal(err)
	}
	const prompt, completion = 3, 5
	got := report.Total.PromptTokens / prompt
	if report.Total.PromptTokens%prompt != 0 || report.Total.CompletionTokens != got*completion || got < least || got > least+rounds*clients {
		t.Errorf("%d answers came, and %d prompt and %d completion tokens are charged", least, report.Total.PromptTokens, report.Total.CompletionTokens)
	}
	t.Logf("measured: %d answers, %d charged", least, got)
}

// asksOnce asks the published model, and reports whether a whole answer came.
func asksOnce(ctx context.Context, url, key string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/openai/v1/chat/completions", prompt("lab/echo", "x", false))
	if err != nil {
		return false
	}
	req.Header.Set("Authorization", "Bearer "+key)
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	_, err = io.ReadAll(answer.Body)
	return err == nil && answer.StatusCode == http.StatusOK
}
