package node_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
	"berth/node/router"
)

// Limits of the node that refuses what the others would answer.
const (
	strictPerMinute = 20
	strictInFlight  = 3
)

// awayFrom returns a follower that does not have the replica of a deployment, the node
// that has it, and a third one.
func awayFrom(t *testing.T, c *nodetest.Cluster, d wire.Deployment) (asked, host, third *nodetest.Node) {
	t.Helper()
	if len(d.Rows) != 1 || d.Rows[0].Node == nil {
		t.Fatalf("its replicas are %+v", d.Rows)
	}
	for _, n := range c.Servers() {
		switch {
		case n.Config.Name == *d.Rows[0].Node:
			host = n
		case asked == nil && !n.Peer().IsLeader():
			asked = n
		default:
			third = n
		}
	}
	if asked == nil || host == nil || third == nil {
		t.Fatalf("no follower is without the replica on %s", *d.Rows[0].Node)
	}
	return asked, host, third
}

// checkHop asks a follower for a stream of a replica on another node. There is one
// connection between nodes, to that of the replica. A node without the replica accepts no
// connection for it, so that none is passed on.
func checkHop(t *testing.T, c *nodetest.Cluster, key string, d wire.Deployment) {
	asked, host, third := awayFrom(t, c, d)
	next, leave := endlessStream(t, asked.URL(), key, d.ID)
	defer leave()
	next()
	if hops := asked.Peer().Hops(); len(hops) != 1 || hops[host.ID()] != 1 {
		t.Errorf("the node that is asked has the connections %v, want one to %v", hops, host.ID())
	}
	for _, n := range []*nodetest.Node{host, third} {
		if hops := n.Peer().Hops(); len(hops) > 0 {
			t.Errorf("%s, which is not asked, has the connections %v", n.Config.Name, hops)
		}
	}
	leave()
	nodetest.Eventually(t, endWait, "the connection to end with its stream", func() bool { return len(asked.Peer().Hops()) == 0 })
	attempts := asked.Peer().View().Attempts(d.Rows[0].ExecutionID)
	to := router.Replica{Execution: d.Rows[0].ExecutionID, Epoch: attempts[len(attempts)-1].Epoch}
	for _, n := range []*nodetest.Node{host, third} {
		to.Node = n.ID()
		conn, err := asked.Peer().DialReplica(t.Context(), to)
		if err == nil {
			conn.Close()
		}
		if (err == nil) != (n == host) {
			t.Errorf("a connection for the replica of %s to %s: %v", host.Config.Name, n.Config.Name, err)
		}
	}
	if hops := third.Peer().Hops(); len(hops) > 0 {
		t.Errorf("the node without the replica has passed it on: %v", hops)
	}
}

// mostUnread bounds the bytes between an engine and a client that reads nothing: those of
// two nodes, and of the kernel for three connections.
const mostUnread = 64 << 20

// checkFlood asks a follower for a stream of a replica on another node, and reads nothing.
// The engine has to stop after what the buffers on the way hold. It goes on once they are
// read, and ends when the client leaves.
func checkFlood(t *testing.T, c *nodetest.Cluster, api *client.Client, key string, d wire.Deployment) {
	asked, _, _ := awayFrom(t, c, d)
	line := func(beginning string) (rest string) {
		t.Helper()
		nodetest.Eventually(t, endWait, "the engine to say: "+beginning, func() bool {
			logs, err := api.DeploymentLogs(t.Context(), d.ID)
			if err != nil {
				return false
			}
			for _, line := range logs.Logs {
				if strings.HasPrefix(line.Message, "flood written") {
					t.Fatal("the engine could write all of its stream, and nobody reads")
				}
				if after, ok := strings.CutPrefix(line.Message, beginning); ok {
					rest = strings.TrimSpace(after)
					return true
				}
			}
			return false
		})
		return rest
	}
	conn := beginWhole(t, asked.URL(), key, prompt(d.ID.String(), "flood", true))
	if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	written, err := strconv.ParseInt(line("flood waits after "), 10, 64)
	if err != nil || written > mostUnread {
		t.Errorf("while nobody reads the engine has written %d bytes, at most %d: %v", written, mostUnread, err)
	}
	t.Logf("the engine waits after %d bytes", written)
	if n, err := io.CopyN(io.Discard, conn, written+1<<20); err != nil {
		t.Errorf("after %d bytes of more than %d the stream has ended: %v", n, written, err)
	}
	conn.Close()
	line("flood left")
}

// mustDeployTwo deploys two replicas of the echo engine, and waits until both are ready.
func mustDeployTwo(t *testing.T, api *client.Client) wire.DeploymentCreated {
	t.Helper()
	want := deploymentOf("tiny/echo")
	want.MinReplicas = 2
	created, err := api.Deploy(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, endWait, "both replicas to be ready", func() bool {
		return mustDeployment(t, api, created.ID, "ready").Ready == 2
	})
	return created
}

// checkLostReplica asks one of two replicas, which ends before it has answered anything, or
// after the header of a stream: the answer comes from the other one, and nothing of it shows
// that.
func checkLostReplica(t *testing.T, c *nodetest.Cluster, key, url string) {
	api := nodetest.MustClient(t, key, url) // The node that is asked knows that both are ready.
	created := mustDeployTwo(t, api)
	begins := promptCanary + strings.Repeat(" the same conversation", 100) // So that the same replica is preferred.
	ask := func(text string, stream bool) (replica compute.ExecutionID, body string) {
		t.Helper()
		answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, url+"/openai/v1/chat/completions", key,
			prompt(created.ID.String(), text, stream))
		var got struct{ Replica compute.ExecutionID }
		if answer.StatusCode != http.StatusOK || !stream && json.Unmarshal([]byte(body), &got) != nil {
			t.Fatalf("%d: %s", answer.StatusCode, body)
		}
		return got.Replica, body
	}
	for _, test := range []struct {
		how    string
		stream bool
	}{{"exit", false}, {"exit", true}, {"begin", true}} {
		nodetest.Eventually(t, endWait, "both replicas to be ready", func() bool {
			return mustDeployment(t, api, created.ID, "ready").Ready == 2
		})
		first, _ := ask(begins, false)
		second, body := ask(begins+" "+test.how+" "+first.String(), test.stream)
		if second == first {
			t.Errorf("%s has answered the request that ends it", first)
		}
		if test.stream && (strings.Contains(body, `"error"`) || strings.Count(body, `"content": "0"`) != 1 ||
			!strings.Contains(body, `"content": "2"`) || !strings.HasSuffix(body, "data: [DONE]\n\n")) {
			t.Errorf("%s: the stream is %q", test.how, body)
		}
		nodetest.Eventually(t, endWait, "the first replica to have ended by the request", func() bool {
			e, ok := c.Follower().Peer().View().AnyExecution(first)
			return ok && e.Status == compute.StatusFailed
		})
	}
	if _, err := api.DeleteDeployment(t.Context(), created.ID); err != nil {
		t.Fatal(err)
	}
}

// checkBackoff deploys an engine that ends at once through a node with a long back-off. A
// follower says why it waits, and until when.
func checkBackoff(t *testing.T, c *nodetest.Cluster, api *client.Client, key string) {
	created, err := nodetest.MustClient(t, key, c.Nodes[0].URL()).Deploy(t.Context(), deploymentOf("tiny/broken"))
	if err != nil {
		t.Fatal(err)
	}
	var row wire.ServiceReplica
	nodetest.Eventually(t, endWait, "the replica to wait for its next start", func() bool {
		d, err := api.Deployment(t.Context(), created.ID)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Rows) == 1 {
			row = d.Rows[0]
		}
		return row.NextStart != nil
	})
	explained, err := api.Explain(t.Context(), created.ID, false)
	if err != nil {
		t.Fatal(err)
	}
	for where, rows := range map[string][]wire.ServiceReplica{"the record": {row}, "its explanation": explained.Replicas} {
		if len(rows) != 1 || rows[0].ExecutionID != row.ExecutionID || rows[0].Status != compute.StatusFailed || rows[0].Crashes != 1 ||
			orNone(rows[0].StatusDetails) != "exit_code" || orNone(rows[0].Detail) != "exit code 3" ||
			rows[0].NextStart == nil || *rows[0].NextStart != *row.NextStart {
			t.Errorf("%s has %+v", where, rows)
		}
	}
	replica, err := api.Explain(t.Context(), row.ExecutionID, false)
	if err != nil || replica.Status != compute.StatusFailed || orNone(replica.Reason) != orNone(row.StatusDetails) {
		t.Errorf("the replica is explained by %+v, %v", replica, err)
	}
	if _, err := api.DeleteDeployment(t.Context(), created.ID); err != nil {
		t.Fatal(err)
	}
}

// checkListed finds a deployment in the lists of a follower.
func checkListed(t *testing.T, api *client.Client, url, key string, id compute.ExecutionID) {
	list, err := api.Deployments(t.Context())
	if err != nil || list.Total != len(list.Deployments) ||
		!slices.ContainsFunc(list.Deployments, func(d wire.Deployment) bool { return d.ID == id && d.Status == "ready" }) {
		t.Errorf("the list of deployments is %+v, %v", list, err)
	}
	var models struct {
		Object string
		Data   []struct{ ID, Object string }
	}
	answer, body := mustAsk(t, http.DefaultClient, http.MethodGet, url+"/openai/v1/models", key, nil)
	if err := json.Unmarshal([]byte(body), &models); err != nil || answer.StatusCode != http.StatusOK || models.Object != "list" {
		t.Fatalf("%d: %s", answer.StatusCode, body)
	}
	found := 0
	for _, m := range models.Data {
		if m.ID == id.String() && m.Object == "model" {
			found++
		}
	}
	if found != 1 {
		t.Errorf("the list of models is %s", body)
	}
}

// promptCanary and its reverse, which answers have, are for nobody but who asks.
const promptCanary = "pr0mpt-5d83e1c7"

// checkNothingKept searches the files of all nodes, a backup and their metrics for tokens
// of the hub, a prompt and its answer.
func checkNothingKept(t *testing.T, c *nodetest.Cluster, key, url, id string) {
	answered := []byte(promptCanary)
	slices.Reverse(answered)
	secrets := []string{hubToken, wrongHubToken, promptCanary, string(answered)}
	for _, text := range secrets {
		c.Hide(text)
	}
	for _, stream := range []bool{false, true} {
		answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, url+"/openai/v1/chat/completions", key,
			prompt(id, "reverse "+promptCanary, stream))
		if answer.StatusCode != http.StatusOK || !strings.Contains(body, string(answered)) {
			t.Errorf("%d: %s", answer.StatusCode, body)
		}
	}
	mustKeepNone(t, c, url, "tiny/echo", secrets...)
}

// mustKeepNone searches the files of all nodes, a backup and their metrics for texts. It finds
// the name of a model there.
func mustKeepNone(t *testing.T, c *nodetest.Cluster, url, model string, secrets ...string) {
	t.Helper()
	var backup bytes.Buffer
	if err := nodetest.MustClient(t, c.RootToken, url).SaveSnapshot(t.Context(), &backup); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		metrics := mustFetch(t, n.URL()+"/metrics")
		for _, text := range secrets {
			if contains(t, n.Config.DataDir, text) || strings.Contains(metrics, text) || bytes.Contains(backup.Bytes(), []byte(text)) {
				t.Errorf("%s, or a backup, has %q", n.Config.Name, text)
			}
		}
		if n.Config.Role != nodetest.Worker && !contains(t, n.Config.DataDir, model) {
			t.Errorf("the search finds nothing in the files of %s", n.Config.Name)
		}
	}
	if !bytes.Contains(backup.Bytes(), []byte(model)) {
		t.Error("the search finds nothing in a backup")
	}
}

// strictly makes a node refuse requests to models that the others would answer.
func strictly(cfg *nodetest.NodeConfig) {
	cfg.Inference.PerMinute, cfg.Inference.OrgInFlight, cfg.Inference.ResumeWait = strictPerMinute, strictInFlight, time.Second
}

// checkModelLimits exceeds the limits of an organization and of a key on a follower.
func checkModelLimits(t *testing.T, c *nodetest.Cluster, strict *nodetest.Node, account, other nodetest.Account, id compute.ExecutionID) {
	url := strict.URL() + "/openai/v1/chat/completions"
	session, err := nodetest.MustClient(t, "", strict.URL()).Login(t.Context(), account.Email, account.Password)
	if err != nil {
		t.Fatal(err)
	}
	made, err := nodetest.MustClient(t, session.AccessToken, strict.URL()).CreateKey(t.Context(), account.Slug, "second")
	if err != nil {
		t.Fatal(err)
	}
	second := made.PlaintextKey
	ask := func(key, model string) (reply, string) {
		t.Helper()
		return mustAsk(t, http.DefaultClient, http.MethodPost, url, key, prompt(model, "x", false))
	}
	refused := func(answer reply, body, kind string, limit int) {
		t.Helper()
		var got struct {
			Error struct {
				Message, Type, Code string
				Param               *string
			}
		}
		err := json.Unmarshal([]byte(body), &got)
		after, noNumber := strconv.Atoi(answer.Header.Get("Retry-After"))
		if err != nil || answer.StatusCode != http.StatusTooManyRequests || noNumber != nil || after < 1 ||
			got.Error.Type != "rate_limit_error" || got.Error.Code != "rate_limit_exceeded" || got.Error.Message == "" ||
			answer.Header.Get("X-Ratelimit-Limit-"+kind) != strconv.Itoa(limit) ||
			answer.Header.Get("X-Ratelimit-Remaining-"+kind) != "0" || answer.Header.Get("X-Request-Id") == "" {
			t.Errorf("%s: %d: %s, with %v", kind, answer.StatusCode, body, answer.Header)
		}
	}
	awake, sleep := endlessStream(t, c.Follower().URL(), account.Key, id) // A limited node does not wait until it is resumed.
	defer sleep()
	awake()
	var streams []func()
	for range strictInFlight {
		next, leave := endlessStream(t, strict.URL(), account.Key, id)
		defer leave()
		next()
		streams = append(streams, leave)
	}
	for _, key := range []string{account.Key, second} { // The limit is that of the organization.
		answer, body := ask(key, id.String())
		refused(answer, body, "In-Flight", strictInFlight)
	}
	if answer, body := ask(other.Key, "lab/echo"); answer.StatusCode != http.StatusOK {
		t.Errorf("another organization: %d: %s", answer.StatusCode, body)
	}
	for _, leave := range streams {
		leave()
	}
	nodetest.Eventually(t, endWait, "the streams to end", func() bool {
		return strings.Contains(mustFetch(t, strict.URL()+"/metrics"), "\nberth_inference_requests_running{model=\"dedicated\"} 0\n")
	})
	answer, body := ask(account.Key, id.String())
	if answer.StatusCode != http.StatusOK || answer.Header.Get("X-Ratelimit-Remaining-In-Flight") != strconv.Itoa(strictInFlight-1) {
		t.Errorf("after them: %d: %s, with %v", answer.StatusCode, body, answer.Header)
	}
	for range 100 * strictPerMinute { // A slow machine gives some back meanwhile.
		if answer, body = ask(second, "none"); answer.StatusCode != http.StatusNotFound {
			break
		}
	}
	refused(answer, body, "Requests", strictPerMinute)
	if full, err := time.ParseDuration(answer.Header.Get("X-Ratelimit-Reset-Requests")); err != nil || full <= 0 {
		t.Errorf("it says to be reset in %v, %v", full, err)
	}
	if answer, body = ask(account.Key, "none"); answer.StatusCode != http.StatusNotFound {
		t.Errorf("another key: %d: %s", answer.StatusCode, body)
	}
}

// checkResumeBound resumes a paused deployment whose engine does not start in the time that
// a node waits: the request is refused until the engine has.
func checkResumeBound(t *testing.T, c *nodetest.Cluster, strict *nodetest.Node, api *client.Client, key string, id compute.ExecutionID) {
	mustDeployment(t, api, id, "paused")
	started := lateStart(strict)
	if err := os.Remove(started); err != nil {
		t.Fatal(err)
	}
	const chat = "/openai/v1/chat/completions"
	answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, strict.URL()+chat, key, prompt(id.String(), "x", false))
	after, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	if answer.StatusCode != http.StatusServiceUnavailable || err != nil || after < 1 || !strings.Contains(body, `"code":"model_starting"`) ||
		!strings.Contains(body, `"type":"server_error"`) {
		t.Errorf("%d: %s, with %v", answer.StatusCode, body, answer.Header)
	}
	if d, err := api.Deployment(t.Context(), id); err != nil || d.Status != "starting" || d.Replicas != 1 {
		t.Errorf("after that it is %+v, %v", d, err)
	}
	mustMark(t, started)
	answer, body = mustAsk(t, http.DefaultClient, http.MethodPost, c.Follower().URL()+chat, key, prompt(id.String(), "x", false))
	if answer.StatusCode != http.StatusOK {
		t.Errorf("once its engine starts: %d: %s", answer.StatusCode, body)
	}
}

// lateStart returns the file for which late models wait.
func lateStart(n *nodetest.Node) string { return filepath.Join(n.Config.Inference.Models, "go") }

// mustMark makes an empty file.
func mustMark(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// checkLatencyScales asks two deployments equally, whose answers take longer than the
// target of one of them: only that one gets a second replica.
func checkLatencyScales(t *testing.T, c *nodetest.Cluster, api *client.Client, key string, patient compute.ExecutionID) {
	want := deploymentOf("tiny/echo")
	want.TargetRPS, want.TargetP95 = 1000, 10
	created, err := api.Deploy(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	var d wire.Deployment
	nodetest.Eventually(t, endWait, "a second replica", func() bool {
		for _, id := range []compute.ExecutionID{created.ID, patient} {
			answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, c.Follower().URL()+"/openai/v1/chat/completions", key,
				prompt(id.String(), "think", false))
			if answer.StatusCode != http.StatusOK {
				t.Fatalf("%d: %s", answer.StatusCode, body)
			}
		}
		if d, err = api.Deployment(t.Context(), created.ID); err != nil {
			t.Fatal(err)
		}
		return d.Ready == 2
	})
	if d, err := api.Deployment(t.Context(), patient); err != nil || d.Replicas > 1 { // Without requests it pauses soon.
		t.Errorf("the other one has %d replicas, %v", d.Replicas, err)
	}
}

// The scripted engine with few places.
const (
	narrowEngine = "narrow"
	narrowPlaces = 3 // Requests that a replica answers at once.
)

// checkWaitingScales has requests wait at two servers for a replica whose places are taken. No
// request is answered and few have begun, so that neither delays nor rates ask for another
// replica: the leader adds one because of those that wait, whose number is that of all servers.
// With it, all of them are answered.
func checkWaitingScales(t *testing.T, c *nodetest.Cluster, api *client.Client, key string) {
	const each, text = 10, "until more"
	want := deploymentOf("tiny/echo")
	want.Engine, want.TargetRPS, want.TargetP95 = narrowEngine, 1000, 60_000
	created, err := api.Deploy(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	mustDeployment(t, api, created.ID, "ready")
	asked := slices.DeleteFunc(c.Servers(), func(n *nodetest.Node) bool { return n.Config.Inference.OrgInFlight == strictInFlight })
	sent := each * len(asked)
	results := make(chan quietAnswer, sent) // One each.
	for n := range sent {
		// Each is of another conversation, so that both replicas get some.
		body := fmt.Sprintf(`{"model":"%s","messages":[{"role":"system","content":"%d"},{"role":"user","content":"%s"}]}`,
			created.ID, n, text)
		url := asked[n%len(asked)].URL()
		go func() { results <- askedAt(t, url, key).quietly("chat/completions", body) }()
	}
	nodetest.Eventually(t, endWait, "a second replica for those that wait", func() bool {
		d, err := api.Deployment(t.Context(), created.ID)
		if err != nil {
			t.Fatal(err)
		}
		return d.Ready == 2
	})
	nodetest.Eventually(t, endWait, "the counts of the servers to be the leader's", func() bool {
		counts, ok := c.Leader().Peer().CountsOf(t.Context(), created.ID)
		running, waiting := 0.0, 0.0
		for _, n := range c.Servers() {
			running += seriesOf(t, n.URL(), `berth_inference_requests_running{model="dedicated"}`)
			waiting += seriesOf(t, n.URL(), `berth_inference_requests_waiting{model="dedicated"}`)
		}
		return ok && counts.Started == uint64(sent) && counts.UnderWay == sent && running == float64(sent) &&
			counts.Waiting > 0 && waiting == float64(counts.Waiting)
	})
	if n := len(results); n > 0 {
		t.Errorf("%d requests were answered before there was a second replica", n)
	}
	mustMark(t, filepath.Join(asked[0].Config.Inference.Models, text))
	answered := make(map[compute.ExecutionID]int)
	for range sent {
		got := <-results
		var by struct{ Replica compute.ExecutionID }
		if err := json.Unmarshal([]byte(got.body), &by); err != nil || got.status != http.StatusOK {
			t.Errorf("%d: %s", got.status, got.body)
		}
		answered[by.Replica]++
	}
	if len(answered) != 2 {
		t.Errorf("the replicas have answered %v", answered)
	}
	if _, err := api.DeleteDeployment(t.Context(), created.ID); err != nil {
		t.Fatal(err)
	}
}

// checkScalesDown has a follower ask both replicas of a deployment of which one is enough. It is
// stopped once the window has passed, and first finishes its requests.
func checkScalesDown(t *testing.T, c *nodetest.Cluster, api *client.Client, key string) {
	const window = 3 * time.Second
	want := deploymentOf("tiny/echo")
	want.TargetRPS, want.TargetP95, want.Window, want.MinReplicas = 1000, 60_000, int(window.Seconds()), 2
	created, err := api.Deploy(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	checkFinishes(t, c, api, key, "fewer", created.ID, 1, func() {
		asked := time.Now()
		if _, err := api.UpdateDeployment(t.Context(), created.ID, wire.DeploymentUpdate{MinReplicas: new(1)}); err != nil {
			t.Fatal(err)
		}
		nodetest.Eventually(t, endWait, "one replica to be wanted", func() bool {
			d, err := api.Deployment(t.Context(), created.ID)
			if err != nil {
				t.Fatal(err)
			}
			return d.Replicas == 1
		})
		if after := time.Since(asked); after < window {
			t.Errorf("one replica is wanted after %s, and the window is %s", after, window)
		}
	})
	if _, err := api.DeleteDeployment(t.Context(), created.ID); err != nil {
		t.Fatal(err)
	}
}

// checkTooLarge deploys a model that is too large for the GPUs that it asks for, and one that is
// too large for all: a follower refuses both, and names the GPUs that would do.
func checkTooLarge(t *testing.T, c *nodetest.Cluster, api *client.Client) {
	for model, gib := range map[string]int64{"huge": 200, "immense": 2000} {
		name := filepath.Join(c.Nodes[0].Config.Inference.Models, "tiny", model, "model.gguf")
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		mustMark(t, name)
		if err := os.Truncate(name, gib<<30); err != nil { // It is all hole.
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ model, gpu, want string }{
		{"tiny/huge", "h100", "tiny/huge needs about 221 GiB of GPU memory, and gpu.h100 has less: gpu.a100.4x would fit"},
		{"tiny/huge", "h100.2x", "and gpu.h100.2x has less: gpu.a100.4x would fit"},
		{"tiny/immense", "a100.4x", "and gpu.a100.4x has less: no GPUs of one node have that much memory"},
	} {
		want := deploymentOf(test.model)
		want.GPUType = test.gpu
		var refused *client.Error
		if _, err := api.Deploy(t.Context(), want); !errors.As(err, &refused) || refused.Status != http.StatusBadRequest ||
			refused.Code != "never_fits" || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s on %s: %v", test.model, test.gpu, err)
		}
	}
}

// checkAffinity asks a follower for answers of two replicas. A conversation stays at one
// replica. When that has most of the streams, the conversation and another one go to the other
// replica, and then it goes back.
func checkAffinity(t *testing.T, c *nodetest.Cluster, api *client.Client, key string) {
	url := c.Follower().URL()
	created := mustDeployTwo(t, nodetest.MustClient(t, key, url)) // That node knows that both are ready.
	post := func(text string, stream bool) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/openai/v1/chat/completions",
			prompt(created.ID.String(), text, stream))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		answer, err := http.DefaultClient.Do(req)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%+v, %v", answer, err)
		}
		return answer
	}
	ask := func(text string) compute.ExecutionID {
		t.Helper()
		answer := post(text, false)
		defer answer.Body.Close()
		var got struct{ Replica compute.ExecutionID }
		if err := json.NewDecoder(answer.Body).Decode(&got); err != nil {
			t.Fatal(err)
		}
		return got.Replica
	}
	begins := strings.Repeat("the beginning of a conversation, ", 100)
	first := ask(begins)
	for i := range 10 {
		if replica := ask(begins + strconv.Itoa(i)); replica != first {
			t.Errorf("request %d of the conversation went to %s, and not to %s", i, replica, first)
		}
	}
	var streams []*http.Response
	for range 2 { // With both, the replica has more than 5/4 of its share of three requests.
		streams = append(streams, post(begins+" endless", true)) //nolint:bodyclose // Closed below.
	}
	second := ask(begins + "meanwhile")
	if second == first {
		t.Error("the conversation stays at the busy replica")
	}
	for i := range 10 {
		if replica := ask(strconv.Itoa(i) + " another conversation"); replica != second {
			t.Errorf("conversation %d goes to the busy replica", i)
		}
	}
	for _, stream := range streams {
		stream.Body.Close()
	}
	nodetest.Eventually(t, endWait, "the conversation to go back", func() bool { return ask(begins) == first })
	if _, err := api.DeleteDeployment(t.Context(), created.ID); err != nil {
		t.Fatal(err)
	}
}

// checkReplicasPaid checks that the owner of a stopped deployment has paid for each replica what
// the time of its attempt costs, once, and nothing else.
func checkReplicasPaid(t *testing.T, c *nodetest.Cluster, api *client.Client, id compute.ExecutionID) {
	var rows []wire.ExecutionSummary
	nodetest.Eventually(t, endWait, "each replica to be billed", func() bool {
		history, err := api.History(t.Context(), client.HistoryQuery{Parent: id, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		rows = history.Executions
		return !slices.ContainsFunc(rows, func(e wire.ExecutionSummary) bool { return e.Billed == nil })
	})
	charged := map[compute.ExecutionID]compute.Credits{}
	for cursor := new(uint64); cursor != nil; {
		page, err := api.Ledger(t.Context(), *cursor, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range page.Entries {
			if line.Kind == compute.LedgerCharge && line.ExecutionID != nil {
				charged[*line.ExecutionID] += line.Amount
			}
		}
		cursor = page.NextCursor
	}
	view, sum, paid := c.Leader().Peer().View(), compute.Credits(0), 0
	for _, row := range rows {
		e, ok := view.AnyExecution(row.ExecutionID)
		if !ok || e.Price <= 0 {
			t.Fatalf("the replica %s has no price", row.ExecutionID)
		}
		want := compute.Credits(0) // For one that never ran, or that the system failed.
		if e.Ran && e.Status != compute.StatusSystemFailure {
			want = e.Price.Charge(e.Duration)
			paid++
		}
		if *row.Billed != want || charged[row.ExecutionID] != want {
			t.Errorf("the replica %s, of %s, is billed %s and charged %s, want %s",
				row.ExecutionID, e.Duration, *row.Billed, charged[row.ExecutionID], want)
		}
		sum += want
	}
	if d, err := api.Deployment(t.Context(), id); err != nil || d.Billed != sum || paid < 2 { // It was updated.
		t.Errorf("the deployment is billed %s, and %d replicas %s: %v", d.Billed, paid, sum, err)
	}
}
