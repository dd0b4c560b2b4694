//go:build long

package node_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// engineDrill is a cluster of processes with one replica of a model that computes.
type engineDrill struct {
	*testing.T

	c       *nodetest.Processes
	account nodetest.Account
	root    *client.Client
	api     *client.Client
	id      compute.ExecutionID
}

// newEngineDrill returns a cluster of three processes that vote.
func newEngineDrill(t *testing.T, change func(*nodetest.NodeConfig)) *engineDrill {
	t.Helper()
	c := nodetest.StartWith(t, 3, change)
	d := &engineDrill{T: t, c: c, account: c.MustAccount("acme")}
	var urls []string
	for _, p := range c.Nodes {
		urls = append(urls, p.URL)
	}
	d.root, d.api = nodetest.MustClient(t, c.RootToken, urls...), nodetest.MustClient(t, d.account.Key, urls...)
	mustVoters(t, d.root, 3)
	return d
}

// newLlamaDrill returns such a cluster with one replica of a model that llama.cpp serves.
func newLlamaDrill(t *testing.T) *engineDrill {
	t.Helper()
	models, e := mustLlama(t)
	d := newEngineDrill(t, withLlama(models, e))
	want := deploymentOf("tiny/llama")
	want.Engine, want.MaxReplicas = "llama-node", 1
	created, err := d.api.Deploy(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	d.id = created.ID
	mustDeployment(t, d.api, d.id, "ready")
	return d
}

// TestEngineOutlivesNodes kills, in the middle of streams, the node of the replica, the
// leader, the node that was asked, and the node of one of two replicas.
func TestEngineOutlivesNodes(t *testing.T) {
	t.Parallel() // It mostly waits.
	d := newLlamaDrill(t)
	d.killReplicaNode()
	d.killLeader()
	d.killRouter()
	d.killOneOfTwo()
}

// back starts a node again, and returns once it votes and knows the leader.
func (d *engineDrill) back(p *nodetest.Process) {
	d.Helper()
	p.Start()
	mustVoters(d.T, d.root, 3)
	nodetest.Eventually(d, endWait, "the node to be ready", func() bool {
		answer, err := http.Get(p.URL + "/readyz")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
}

// by returns the deployment as a node answers for it.
func (d *engineDrill) by(p *nodetest.Process) *asked { return &asked{d.T, p.URL, d.account.Key, d.id} }

// host returns the node of the replica.
func (d *engineDrill) host() *nodetest.Process {
	d.Helper()
	return d.hostOf(mustDeployment(d.T, d.api, d.id, "ready").Rows[0])
}

// hostOf returns the node of a replica.
func (d *engineDrill) hostOf(row wire.ServiceReplica) *nodetest.Process {
	d.Helper()
	for _, p := range d.c.Nodes {
		if p.Config.Name == orNone(row.Node) {
			return p
		}
	}
	d.Fatalf("no node has the replica: %+v", row)
	return nil
}

// leader returns the node that leads.
func (d *engineDrill) leader() (leader *nodetest.Process) {
	d.Helper()
	nodetest.Eventually(d, endWait, "a leader", func() bool {
		peers, err := d.root.Peers(d.Context())
		if err != nil {
			return false
		}
		for _, peer := range peers {
			for _, p := range d.c.Nodes {
				if peer.Leader && p.ID == peer.ID.String() {
					leader = p
				}
			}
		}
		return leader != nil
	})
	return leader
}

// leaderBut returns the node that leads, which is not the given one: another one takes
// over from it.
func (d *engineDrill) leaderBut(not *nodetest.Process) *nodetest.Process {
	d.Helper()
	leader := d.leader()
	if leader != not {
		return leader
	}
	to, err := compute.ParseNodeID(d.other(not).ID)
	if err != nil {
		d.Fatal(err)
	}
	if _, err := d.root.TransferLeadership(d.Context(), to); err != nil {
		// A process does so once, and an election may have made this one the leader again.
		d.Logf("leadership is not transferred: %v", err)
		not.Kill()
		defer d.back(not) // Once another one leads: it would stand for election itself.
	}
	nodetest.Eventually(d, endWait, "another leader", func() bool { leader = d.leader(); return leader != not })
	return leader
}

// other returns a node that is none of these.
func (d *engineDrill) other(not ...*nodetest.Process) *nodetest.Process {
	for _, p := range d.c.Nodes {
		taken := false
		for _, n := range not {
			taken = taken || n == p
		}
		if !taken {
			return p
		}
	}
	d.Fatal("there is no other node")
	return nil
}

// killReplicaNode ends a stream with an error, and the deployment comes back elsewhere.
func (d *engineDrill) killReplicaNode() {
	host := d.host()
	by := d.by(d.other(host))
	r, body := by.endless()
	defer body.Close()
	host.Kill()
	rest, err := io.ReadAll(r)
	if err != nil || !strings.Contains(string(rest), `"code":"replica_failed"`) {
		d.Errorf("the stream of a killed node ends with %q, %v", rest[max(len(rest)-300, 0):], err)
	}
	nodetest.Eventually(d, endWait, "the deployment to answer from another node", func() bool {
		reply, _ := by.post("completions", `{"model":"%s","prompt":"Hello","max_tokens":1}`)
		return reply.StatusCode == http.StatusOK
	})
	by.answers()
	d.back(host)
}

// killLeader changes nothing for a stream between two other nodes.
func (d *engineDrill) killLeader() {
	host := d.host()
	leader := d.leaderBut(host)
	by := d.by(d.other(host, leader))
	r, body := by.endless()
	defer body.Close()
	leader.Kill()
	for range 100 {
		if line, err := r.ReadString('\n'); err != nil || strings.Contains(line, `"error"`) {
			d.Fatalf("while the leader ends the stream has %q, %v", line, err)
		}
	}
	body.Close()
	by.answers() // With a new leader or none: nothing of it is written.
	d.back(leader)
}

// killRouter breaks the stream of its client. The engine stops, and other nodes answer.
func (d *engineDrill) killRouter() {
	host := d.host()
	router := d.other(host)
	r, body := d.by(router).endless()
	defer body.Close()
	before := d.left(host)
	router.Kill()
	rest, err := io.ReadAll(r)
	if err == nil || strings.Contains(string(rest), "[DONE]") {
		d.Errorf("the stream of a killed router ends with %q, %v", rest[max(len(rest)-300, 0):], err)
	}
	nodetest.Eventually(d, endWait, "the engine to stop", func() bool { return d.left(host) > before })
	d.by(host).answers()
	d.by(d.other(host, router)).answers()
	d.back(router)
}

// killOneOfTwo kills the node of one of two replicas, which both have streams and whole
// answers under way for the third node: none has more than 5/4 of its share of them. The
// lost whole answers come from the other replica, the lost streams end with an error, and
// nothing else shows it. The lost replica starts again on another node. No node, and not the
// one that was killed, keeps anything of a prompt.
func (d *engineDrill) killOneOfTwo() {
	const streams, streamTokens, wholes, wholeTokens, later = 4, 8000, 8, 4000, 4
	want := deploymentOf("tiny/llama")
	want.Engine, want.MinReplicas = "llama-node", 2
	created, err := d.api.Deploy(d.Context(), want)
	if err != nil {
		d.Fatal(err)
	}
	var rows []wire.ServiceReplica
	nodetest.Eventually(d, endWait, "both replicas to be ready", func() bool {
		now := mustDeployment(d.T, d.api, created.ID, "ready")
		rows = now.Rows
		return now.Ready == 2
	})
	doomed := d.hostOf(rows[0])
	router := d.other(doomed, d.hostOf(rows[1]))
	by := &asked{d.T, router.URL, d.account.Key, created.ID}
	asks := func(text string, n, tokens int, stream bool) string {
		return fmt.Sprintf(`{"model":"%s","prompt":"%s %s %d","max_tokens":%d,"stream":%t,"temperature":0}`, by.id, promptCanary, text, n,
			tokens, stream)
	}
	d.c.Hide(promptCanary)
	var begun []*bufio.Reader
	for n := range streams {
		r, body := by.begin(asks("Stream", n, streamTokens, true))
		defer body.Close()
		begun = append(begun, r)
	}
	answers := make(chan quietAnswer, wholes) // One each.
	for n := range wholes {
		go func() { answers <- by.quietly("completions", asks("Whole", n, wholeTokens, false)) }()
	}
	underWay := fmt.Sprintf("\nberth_inference_requests_running{model=\"dedicated\"} %d\n", streams+wholes)
	nodetest.Eventually(d, endWait, "all requests to be under way", func() bool {
		return strings.Contains(mustFetch(d.T, router.URL+"/metrics"), underWay)
	})
	doomed.Kill()
	if early := len(answers); early > 0 {
		d.Errorf("%d answers were there before the node was killed", early)
	}
	for n := range later {
		if got := by.quietly("completions", asks("Later", n, 1, false)); got.status != http.StatusOK {
			d.Errorf("after the end of the node: %d: %s", got.status, got.body)
		}
	}
	for range wholes {
		got := <-answers
		if c := by.parse(got.body); got.status != http.StatusOK || c.Usage == nil || c.Usage.CompletionTokens != wholeTokens {
			d.Errorf("a whole answer: %d: %.300s", got.status, got.body)
		}
	}
	by.endOf(begun)
	nodetest.Eventually(d, endWait, "the lost replica to be replaced", func() bool {
		now, err := d.api.Deployment(d.Context(), created.ID)
		return err == nil && now.Status == "ready" && now.Ready == 2 && !slices.ContainsFunc(now.Rows, func(r wire.ServiceReplica) bool {
			return orNone(r.Node) == doomed.Config.Name // Its next attempt is elsewhere.
		})
	})
	for _, p := range d.c.Nodes {
		if contains(d.T, p.Config.DataDir, promptCanary) {
			d.Errorf("%s has a prompt", p.Config.Name)
		}
	}
	d.back(doomed)
}

// endOf reads streams of two replicas, of which one was lost, to their ends: those of the
// lost one end with an error, and the others are whole.
func (a *asked) endOf(streams []*bufio.Reader) {
	a.Helper()
	broken, whole := 0, 0
	for _, r := range streams {
		rest, err := io.ReadAll(r)
		text := strings.TrimSpace(string(rest))
		last := text[strings.LastIndex(text, "\n")+1:]
		switch {
		case err == nil && strings.HasPrefix(last, `data: {"error"`) && strings.Contains(last, `"code":"replica_failed"`) &&
			!strings.Contains(text, "[DONE]"):
			broken++
		case err == nil && last == "data: [DONE]" && !strings.Contains(text, `"error"`):
			whole++
		default:
			a.Errorf("a stream ends with %q, %v", text[max(len(text)-300, 0):], err)
		}
	}
	if broken == 0 || whole == 0 {
		a.Errorf("%d streams end with an error and %d are whole, of two replicas", broken, whole)
	}
}

// left returns how many clients have left the engine on a node. Lines of others come and
// go with their nodes.
func (d *engineDrill) left(host *nodetest.Process) (n int) {
	logs, err := d.api.DeploymentLogs(d.Context(), d.id)
	if err != nil {
		return 0 // The node that has them is starting.
	}
	for _, line := range logs.Logs {
		if line.Hostname == host.Config.Name && line.Message == "request cancelled: the client left" {
			n++
		}
	}
	return n
}

// TestInferenceScales asks a deployment four times as much as one replica is meant to
// answer. It has four then, and no request has failed.
func TestInferenceScales(t *testing.T) {
	t.Parallel() // It mostly waits.
	c, account, api := inferenceCluster(t, 3)
	want := deploymentOf("tiny/echo")
	want.TargetRPS, want.TargetP95, want.MaxReplicas = 5, 60_000, 4
	created, err := api.Deploy(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	mustDeployment(t, api, created.ID, "ready")
	var sent, failed atomic.Int64
	var group sync.WaitGroup
	tick := time.NewTicker(time.Second / 24)
	defer tick.Stop()
	replicas := sync.Map{}
	ask := func(url string, n int64) {
		status, body := askQuietly(t, url, account.Key, created.ID.String(), fmt.Sprintf("question %d", n), false)
		if status != http.StatusOK {
			failed.Add(1)
			t.Errorf("%d: %s", status, body)
		}
		if _, after, ok := strings.Cut(body, `"replica": "`); ok {
			id, _, _ := strings.Cut(after, `"`)
			replicas.Store(id, true)
		}
	}
	load := func() {
		<-tick.C
		n := sent.Add(1)
		group.Go(func() { ask(c.Nodes[int(n)%len(c.Nodes)].URL(), n) })
	}
	var d wire.Deployment
	limit := time.After(2 * time.Minute)
	for d.Ready != 4 {
		for range 24 {
			load()
		}
		if d, err = api.Deployment(t.Context(), created.ID); err != nil {
			t.Fatal(err)
		}
		select {
		case <-limit:
			t.Fatalf("it has %d of %d replicas", d.Ready, d.Replicas)
		default:
		}
	}
	for range 24 * 3 {
		load()
	}
	group.Wait()
	answered := 0
	replicas.Range(func(any, any) bool { answered++; return true })
	if failed.Load() > 0 || answered != 4 {
		t.Errorf("%d of %d requests failed, and %d replicas answered", failed.Load(), sent.Load(), answered)
	}
	t.Logf("%d requests", sent.Load())
}
