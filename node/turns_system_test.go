package node_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"berth/compute"
	"berth/node/nodetest"
	"berth/testsize"
)

// Limits of the published model of TestServerless.
const (
	modelPlaces = 4 // Requests that its replica answers at once.

	wholeTokens  = 8 // Tokens of each whole answer of the scripted engine,
	streamTokens = 6 // and of each short stream.
)

// Requests that wait in checkTurns. An organization may have as many wait as are free.
var (
	queuedOfMany = testsize.Pick(32, 1000)
	queuedOfFew  = testsize.Pick(4, 20)
	modelQueue   = 2 * queuedOfMany // Requests that wait at each node.
)

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
// queue for more: another one is served in its turn each time, and a client that leaves the
// queue leaves no trace. In the long form 1,000 requests of the first one wait.
func checkTurns(t *testing.T, c *nodetest.Cluster, many, few nodetest.Account) {
	asked := c.Follower()
	chat := asked.URL() + "/openai/v1/chat/completions"
	// Each request that waits holds what it may cost: 0.2 credits.
	operator := nodetest.MustClient(t, c.RootToken, asked.URL())
	if err := operator.Grant(t.Context(), many.Slug, compute.Credits(queuedOfMany)*compute.Credit, "to wait"); err != nil {
		t.Fatal(err)
	}
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
	order := make(map[int]string) // The organizations, by when the engine got their requests.
	var group sync.WaitGroup
	ask := func(account nodetest.Account) {
		group.Go(func() {
			answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, chat, account.Key, prompt("lab/echo", "x", false))
			var got struct{ Serial int }
			if err := json.Unmarshal([]byte(body), &got); err != nil || answer.StatusCode != http.StatusOK {
				t.Errorf("%d: %s", answer.StatusCode, body)
			}
			mu.Lock()
			defer mu.Unlock()
			order[got.Serial] = account.Slug
		})
	}
	waiting := func(n int) {
		t.Helper()
		nodetest.Eventually(t, endWait, fmt.Sprint(n, " requests to wait"), func() bool { return waitingAt(t, asked) == n })
	}
	for range queuedOfMany {
		ask(many)
	}
	waiting(queuedOfMany)
	checkQueueFull(t, chat, many.Key)
	for range queuedOfFew {
		ask(few)
	}
	waiting(queuedOfMany + queuedOfFew)
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
	waiting(queuedOfMany + queuedOfFew + 1)
	hangUp()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	waiting(queuedOfMany + queuedOfFew)
	taken[0].Close() // One place is free, so that the engine gets one request after the other.
	group.Wait()
	served, others := 0, 0
	for _, serial := range slices.Sorted(maps.Keys(order)) {
		if order[serial] != few.Slug {
			others++
			continue
		}
		served++
		// While both wait, they get equal tokens: those of the first one count for the fewest that its answers had.
		if most := (served*wholeTokens + streamTokens - 1) / streamTokens; others > most {
			t.Errorf("before request %d of the other organization %d of the first one were served, at most %d", served, others, most)
		}
	}
	if served != queuedOfFew || others != queuedOfMany {
		t.Errorf("%d and %d requests were served", served, others)
	}
	waiting(0)
}

// checkQueueFull asks as an organization that has as many requests wait as it may, for a whole
// answer and for a stream: both are refused at once, and the answer says when to retry.
func checkQueueFull(t *testing.T, chat, key string) {
	t.Helper()
	for _, stream := range []bool{false, true} {
		answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, chat, key, prompt("lab/echo", "x", stream))
		var got struct {
			Error map[string]any `json:"error"`
		}
		err := json.Unmarshal([]byte(body), &got)
		message, _ := got.Error["message"].(string)
		param, has := got.Error["param"]
		after, noNumber := strconv.Atoi(answer.Header.Get("Retry-After"))
		if err != nil || answer.StatusCode != http.StatusServiceUnavailable || noNumber != nil || after < 1 || message == "" ||
			got.Error["type"] != "server_error" || got.Error["code"] != "overloaded" || !has || param != nil ||
			answer.Header.Get("Content-Type") != "application/json" || answer.Header.Get("X-Request-Id") == "" {
			t.Errorf("beyond the queue, stream %t: %d: %s, with %v", stream, answer.StatusCode, body, answer.Header)
		}
	}
}

// saturate takes all places of a model that a node may use: it begins streams there until one
// waits, which it gives up.
func saturate(t *testing.T, n *nodetest.Node, key string) (free func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	for {
		last, leave := context.WithCancel(ctx)
		began := make(chan error, 1)
		go func() {
			req, err := http.NewRequestWithContext(last, http.MethodPost, n.URL()+"/openai/v1/chat/completions",
				prompt("lab/echo", "endless", true))
			if err == nil {
				req.Header.Set("Authorization", "Bearer "+key)
				var answer *http.Response
				if answer, err = http.DefaultClient.Do(req); err == nil {
					context.AfterFunc(last, func() { answer.Body.Close() })
					if answer.StatusCode != http.StatusOK {
						err = fmt.Errorf("a stream got %d", answer.StatusCode)
					}
				}
			}
			began <- err
		}()
		taken := false
		nodetest.Eventually(t, endWait, "a stream to begin or to wait", func() bool {
			select {
			case err := <-began:
				if err != nil {
					t.Fatal(err)
				}
				taken = true
			default:
			}
			return taken || waitingAt(t, n) > 0
		})
		if taken {
			continue
		}
		leave()
		if err := <-began; err == nil { // It began in this moment.
			continue
		}
		nodetest.Eventually(t, endWait, "the stream that waited to leave", func() bool { return waitingAt(t, n) == 0 })
		return cancel
	}
}

// waitingAt returns how many requests to the published model wait at a node.
func waitingAt(t *testing.T, n *nodetest.Node) int {
	t.Helper()
	return int(seriesOf(t, n.URL(), `berth_inference_requests_waiting{model="lab/echo"}`))
}

// checkTurnsEverywhere has one organization take all places of a model through all nodes, and
// queue for more at each: another one is served in its turn at each.
func checkTurnsEverywhere(t *testing.T, c *nodetest.Cluster, many, few nodetest.Account) {
	const queued = 30
	var mu sync.Mutex
	var group sync.WaitGroup
	answered := make([][]string, len(c.Nodes)) // The organizations whose requests each node has answered.
	count := func(node int) int {
		mu.Lock()
		defer mu.Unlock()
		return len(answered[node])
	}
	ask := func(node int, account nodetest.Account) {
		group.Go(func() {
			answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, c.Nodes[node].URL()+"/openai/v1/chat/completions", account.Key,
				prompt("lab/echo", "x", false))
			if answer.StatusCode != http.StatusOK {
				t.Errorf("%d: %s", answer.StatusCode, body)
			}
			mu.Lock()
			defer mu.Unlock()
			answered[node] = append(answered[node], account.Slug)
		})
	}
	// A node that has just learned of others' streams may let some in still.
	waits := func(node, all int) {
		t.Helper()
		nodetest.Eventually(t, endWait, "requests to wait", func() bool {
			before := count(node)
			return before+waitingAt(t, c.Nodes[node]) >= all
		})
	}
	var free []func()
	for _, n := range c.Nodes {
		free = append(free, saturate(t, n, many.Key))
	}
	before := make([]int, len(c.Nodes))
	for node := range c.Nodes {
		for range queued {
			ask(node, many)
		}
	}
	for node := range c.Nodes {
		waits(node, queued)
		ask(node, few)
		waits(node, queued+1)
		before[node] = count(node)
	}
	for _, f := range free {
		f()
	}
	group.Wait()
	waited := false
	for node, slugs := range answered {
		turn := slices.Index(slugs, few.Slug) - before[node]
		waited = waited || turn >= 0
		if len(slugs) != queued+1 || turn > queued/3 {
			t.Errorf("at %s, which had answered %d of %d before, the other organization was number %d",
				c.Nodes[node].Config.Name, before[node], len(slugs), turn)
		}
		if n := waitingAt(t, c.Nodes[node]); n != 0 {
			t.Errorf("at %s %d wait at the end", c.Nodes[node].Config.Name, n)
		}
	}
	if !waited {
		t.Error("the other organization waited at no node")
	}
}
