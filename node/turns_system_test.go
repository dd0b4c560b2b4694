package node_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"berth/node/nodetest"
)

// modelPlaces is how many requests the replica of a published model answers at once.
const modelPlaces = 4

// mustEndless begins a stream that lasts until it is closed.
func mustEndless(t *testing.T, url, key string) io.Closer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, prompt("lab/echo", "endless", true))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(answer.Body).ReadString('\n')
	if err != nil || answer.StatusCode != http.StatusOK || !strings.HasPrefix(line, "data: ") {
		answer.Body.Close()
		t.Fatalf("%d: %q, %v", answer.StatusCode, line, err)
	}
	return answer.Body
}

// checkTurns has one organization take all places of a model through one node, and
// queue for more: another one is served in its turn, and a client that leaves the queue
// leaves no trace.
func checkTurns(t *testing.T, c *nodetest.Cluster, many, few nodetest.Account) {
	const queued = 30
	url := c.Follower().URL()
	chat := url + "/openai/v1/chat/completions"
	var taken []io.Closer
	for range modelPlaces { // More than this node's part: the others need none.
		taken = append(taken, mustEndless(t, chat, many.Key))
	}
	defer func() {
		for _, stream := range taken {
			stream.Close()
		}
	}()
	var mu sync.Mutex
	var order []string
	var group sync.WaitGroup
	ask := func(account nodetest.Account) {
		group.Go(func() {
			answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, chat, account.Key, prompt("lab/echo", "x", false))
			if answer.StatusCode != http.StatusOK {
				t.Errorf("%d: %s", answer.StatusCode, body)
			}
			mu.Lock()
			defer mu.Unlock()
			order = append(order, account.Slug)
		})
	}
	waiting := func(n string) {
		t.Helper()
		nodetest.Eventually(t, endWait, n+" requests to wait", func() bool {
			return strings.Contains(mustFetch(t, url+"/metrics"), "\nberth_inference_requests_waiting{model=\"lab/echo\"} "+n+"\n")
		})
	}
	for range queued {
		ask(many)
	}
	waiting("30")
	ask(few)
	waiting("31")
	leaves, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	left := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(leaves, http.MethodPost, chat, prompt("lab/echo", "x", false))
		if err == nil {
			req.Header.Set("Authorization", "Bearer "+few.Key)
			_, err = http.DefaultClient.Do(req) //nolint:bodyclose // It gets no answer.
		}
		left <- err
	}()
	waiting("32")
	hangUp()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	waiting("31")
	taken[0].Close()
	group.Wait()
	for i, slug := range order {
		if slug == few.Slug && i > queued/3 {
			t.Errorf("the other organization was number %d", i)
		}
	}
	waiting("0")
}
