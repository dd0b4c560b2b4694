package node_test

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // Git names files by it.
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/inference/engine"
	"berth/node/nodetest"
)

// Tokens for the hub: the one that it knows, and another one.
const (
	hubToken      = "hf_the_right_one"
	wrongHubToken = "hf_a_wrong_one"
)

// hubText is the file of every model of a modelHub but the large ones, where more follows.
const hubText = "from the hub"

// hubPart is how many bytes a beginning of it has.
const hubPart = len("from ")

// hubFile returns the file of a model of a modelHub. Three large ones fit into a MiB.
func hubFile(model string) string {
	if strings.HasPrefix(model, "large/") {
		return hubText + strings.Repeat(" ", 300<<10)
	}
	return hubText
}

// modelHub is a hub of models of one file, which it gives to clients with the token. Before
// release it sends only the beginning of slow/echo and shared/echo. It breaks the connection in
// the middle of broken/echo, and the file of damaged/echo has another hash. That of moved/echo,
// a large file for the hub, is at another server: who asks that one first gets the beginning.
type modelHub struct {
	url   string
	other string // URL of the other server.
	rest  chan struct{}

	mu sync.Mutex

	ranges map[string][]string // Ranges of the requests for the file of each model.
	tokens []string            // Credentials that the other server got.
}

func newModelHub(t *testing.T) *modelHub {
	h := &modelHub{rest: make(chan struct{}), ranges: make(map[string][]string)}
	hub, other := httptest.NewServer(h), httptest.NewServer(http.HandlerFunc(h.serveMoved))
	t.Cleanup(hub.Close)
	t.Cleanup(other.Close)
	h.url, h.other = hub.URL, other.URL
	return h
}

// serveMoved answers as the other server.
func (h *modelHub) serveMoved(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.tokens = append(h.tokens, r.Header.Get("Authorization"))
	h.mu.Unlock()
	h.send(w, r, "moved/echo")
}

// release has the hub send the rest of the files.
func (h *modelHub) release() { close(h.rest) }

// asked returns the ranges of the requests for the file of a model.
func (h *modelHub) asked(model string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ranges[model])
}

// ServeHTTP answers as a hub.
func (h *modelHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	listed, isList := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/api/models/"), "/revision/main")
	model, isFile := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/"), "/resolve/v1/model.gguf")
	hashes := map[string]string{"damaged/echo": strings.Repeat("0", 40)}
	for _, name := range []string{
		"gated/echo", "slow/echo", "shared/echo", "broken/echo", "order/echo", "large/kept", "large/again", "large/oldest", "large/last",
	} {
		text := hubFile(name)
		sum := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(text), text)) //nolint:gosec // As Git names files.
		hashes[name] = hex.EncodeToString(sum[:])
	}
	switch {
	case r.Header.Get("Authorization") != "Bearer "+hubToken:
		w.WriteHeader(http.StatusUnauthorized)
	case isList && hashes[listed] != "":
		_ = json.NewEncoder(w).Encode(map[string]any{
			"sha": "v1", "gated": "auto", "siblings": []any{map[string]any{
				"rfilename": "model.gguf", "size": len(hubFile(listed)), "blobId": hashes[listed],
			}},
		})
	case listed == "moved/echo" && isList:
		sum := sha256.Sum256([]byte(hubText))
		_ = json.NewEncoder(w).Encode(map[string]any{"sha": "v1", "gated": "auto", "siblings": []any{map[string]any{
			"rfilename": "model.gguf", "lfs": map[string]any{"size": len(hubText), "sha256": hex.EncodeToString(sum[:])},
		}}})
	case model == "moved/echo" && isFile:
		http.Redirect(w, r, h.other+"/blob", http.StatusFound)
	case isFile && hashes[model] != "":
		h.send(w, r, model)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// send sends the file of a model from the offset of the request's range on.
func (h *modelHub) send(w http.ResponseWriter, r *http.Request, model string) {
	text := hubFile(model)
	h.mu.Lock()
	h.ranges[model] = append(h.ranges[model], r.Header.Get("Range"))
	first := len(h.ranges[model]) == 1
	h.mu.Unlock()
	from := 0
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(text)-1, len(text)))
		w.WriteHeader(http.StatusPartialContent)
	}
	slow, stalls := model == "slow/echo" || model == "shared/echo", model == "moved/echo" && first
	if model == "broken/echo" && first || slow || stalls {
		_, _ = io.WriteString(w, text[from:hubPart])
		_ = http.NewResponseController(w).Flush()
		from = hubPart
	}
	switch {
	case model == "broken/echo" && first:
		panic(http.ErrAbortHandler)
	case stalls:
		<-r.Context().Done()
		return
	case slow:
		select {
		case <-h.rest:
		case <-r.Context().Done():
		}
	}
	_, _ = io.WriteString(w, text[from:])
}

func orNone(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// checkModelProgress deploys a model of which the hub has sent the beginning: the record
// says how far it is.
func checkModelProgress(t *testing.T, api *client.Client, release func()) {
	slow := deploymentOf("slow/echo")
	slow.Token = hubToken
	created, err := api.Deploy(t.Context(), slow)
	if err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, endWait, "the record to say how far the model is", func() bool {
		d, err := api.Deployment(t.Context(), created.ID)
		if err != nil {
			t.Fatal(err)
		}
		return len(d.Rows) == 1 && strings.Contains(orNone(d.Rows[0].Detail), "MiB of slow/echo") && d.Status == "starting"
	})
	release()
	if d := mustDeployment(t, api, created.ID, "ready"); d.Rows[0].Detail != nil {
		t.Errorf("when it is ready it says %q", *d.Rows[0].Detail)
	}
	if _, err := api.DeleteDeployment(t.Context(), created.ID); err != nil {
		t.Error(err)
	}
}

// checkModelSources deploys models from the hub, with a token and without, and from the
// storage of the organization, which others cannot have.
//
// The data key of the organization is rotated meanwhile: replicas that start later have the
// token still.
func checkModelSources(t *testing.T, api, foreign, root *client.Client, org string) {
	gated := deploymentOf("gated/echo")
	gated.Token = hubToken
	with, err := api.Deploy(t.Context(), gated)
	if err != nil {
		t.Fatal(err)
	}
	gated.Token = wrongHubToken
	without, err := api.Deploy(t.Context(), gated)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.Upload(t.Context(), bytesOf("models/own/echo/model.gguf", []byte("from the storage"))); err != nil {
		t.Fatal(err)
	}
	stored, err := api.Deploy(t.Context(), deploymentOf("own/echo"))
	if err != nil {
		t.Fatal(err)
	}
	none, err := foreign.Deploy(t.Context(), deploymentOf("own/echo"))
	if err != nil {
		t.Fatal(err)
	}
	mustDeployment(t, api, with.ID, "ready")
	mustDeployment(t, api, stored.ID, "ready")
	rotated, err := root.RotateSecrets(t.Context(), org)
	if err != nil || rotated.Resealed < 2 || rotated.Left != 0 { // It has two deployments with a token, at least.
		t.Errorf("the rotation answers %+v, %v", rotated, err)
	}
	if _, err := api.StopDeployment(t.Context(), with.ID); err != nil {
		t.Fatal(err)
	}
	mustDeployment(t, api, with.ID, "stopped")
	if _, err := api.StartDeployment(t.Context(), with.ID); err != nil {
		t.Fatal(err)
	}
	mustDeployment(t, api, with.ID, "ready")
	for _, refused := range []struct {
		api *client.Client
		id  compute.ExecutionID
	}{{api, without.ID}, {foreign, none.ID}} {
		d := mustDeployment(t, refused.api, refused.id, "failed")
		if d.Detail == nil || !strings.Contains(*d.Detail, "hf_token may not read it") || strings.Contains(*d.Detail, gated.Token) {
			t.Errorf("it says %q", orNone(d.Detail))
		}
	}
	for _, id := range []compute.ExecutionID{with.ID, without.ID, stored.ID} {
		if _, err := api.DeleteDeployment(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if _, err := foreign.DeleteDeployment(t.Context(), none.ID); err != nil {
		t.Error(err)
	}
}

// TestModelSources serves models from every place that has some, on servers and on a worker,
// and asks a follower for them.
func TestModelSources(t *testing.T) {
	t.Parallel() // It mostly waits.
	const worker, cacheServer = 3, 2
	hub := newModelHub(t)
	shipped := shippedEngines(t)
	c, account, _ := inferenceCluster(t, worker+1, func(cfg *nodetest.NodeConfig) {
		if cfg.Name == nodetest.Config(t, worker).Name {
			cfg.Role, cfg.GPUs.Simulated = nodetest.Worker, []string{"b200:2"}
		}
		if cfg.Name == nodetest.Config(t, cacheServer).Name {
			cfg.Inference.CacheMiB = 1
		}
		cfg.Inference.Hub = hub.url
		unhealthy := cfg.Inference.Engines[0]
		unhealthy.Name, unhealthy.StartLimit = "unhealthy", 8*time.Second
		cfg.Inference.Engines = append(cfg.Inference.Engines, shipped...)
		cfg.Inference.Engines = append(cfg.Inference.Engines, unhealthy, engine.Engine{
			Name: "stuck", Command: []string{"/bin/sh", "-c", "echo loads for ever; exec sleep 3600"}, Formats: []string{"gguf"},
			HealthPath: "/health", StartLimit: 2 * time.Second,
		})
	})
	for _, text := range []string{hubToken, wrongHubToken} {
		c.Hide(text)
	}
	m := &modelSources{
		T: t, c: c, hub: hub, url: c.Follower().URL(), account: account, worker: c.Nodes[worker], small: c.Nodes[cacheServer],
	}
	m.api, m.foreign = nodetest.MustClient(t, account.Key, m.url), c.MustAccount("other")
	if err := os.MkdirAll(filepath.Join(c.Nodes[0].Config.Inference.Models, "order", "echo"), 0o755); err != nil {
		t.Fatal(err)
	}
	mustWriteRaw(t, c, "order/echo/model.gguf", "from the operator")
	// These fail several times before they have failed.
	unhealthy, stuck, damaged := m.deploy("tiny/sick", "unhealthy", "cpu", 1), m.deploy("tiny/echo", "stuck", "cpu", 1),
		m.deploy("damaged/echo", "echo", "cpu", 1)
	for _, test := range []struct {
		name string
		do   func(m *modelSources)
	}{
		{"stored, on a worker", (*modelSources).storedOnWorker},
		{"hub, on a worker", (*modelSources).hubOnWorker},
		{"GPUs of servers", (*modelSources).serversGPUs},
		{"eviction", (*modelSources).eviction},
		{"order", (*modelSources).order},
		{"broken connection", (*modelSources).brokenConnection},
		{"moved, and a restart", (*modelSources).movedAndRestarted},
		{"unhealthy", func(m *modelSources) {
			m.fails(unhealthy, "port 8000 was not ready within 8 s: ", "a sick model")
		}},
		{"stuck", func(m *modelSources) { m.fails(stuck, "port 8000 was not ready within 2 s: ", "loads for ever") }},
		{"damaged", func(m *modelSources) { m.damaged(damaged) }},
		{"shipped engines", (*modelSources).shippedEngines},
		{"token", (*modelSources).tokenNowhere},
	} {
		t.Run(test.name, func(t *testing.T) {
			one := *m
			one.T = t
			test.do(&one)
		})
	}
}

// modelSources is a cluster with models in all places.
type modelSources struct {
	*testing.T

	c       *nodetest.Cluster
	hub     *modelHub
	url     string // URL of a follower.
	account nodetest.Account
	api     *client.Client
	foreign nodetest.Account
	worker  *nodetest.Node
	small   *nodetest.Node // Its cache has 1 MiB, and it alone has GPUs of the type t4.
}

// deploy deploys so many replicas of a model, with the token for the hub.
func (m *modelSources) deploy(model, by, gpu string, replicas int) compute.ExecutionID {
	m.Helper()
	return m.deployAs(m.api, model, by, gpu, replicas)
}

func (m *modelSources) deployAs(api *client.Client, model, by, gpu string, replicas int) compute.ExecutionID {
	m.Helper()
	want := deploymentOf(model)
	want.Engine, want.GPUType, want.MinReplicas, want.MaxReplicas, want.Token = by, gpu, replicas, replicas, hubToken
	created, err := api.Deploy(m.Context(), want)
	if err != nil {
		m.Fatal(err)
	}
	return created.ID
}

// loaded asks a deployment, and returns what its engine has loaded.
func (m *modelSources) loaded(account nodetest.Account, id compute.ExecutionID) string {
	m.Helper()
	var got struct{ Loaded string }
	answer, body := mustAsk(m.T, http.DefaultClient, http.MethodPost, m.url+"/openai/v1/chat/completions", account.Key,
		prompt(id.String(), "x", false))
	if err := json.Unmarshal([]byte(body), &got); err != nil || answer.StatusCode != http.StatusOK {
		m.Errorf("%d: %s", answer.StatusCode, body)
	}
	return got.Loaded
}

func (m *modelSources) remove(api *client.Client, id compute.ExecutionID) {
	m.Helper()
	if _, err := api.DeleteDeployment(m.Context(), id); err != nil {
		m.Error(err)
	}
}

// ownGPUs checks that the engines of a deployment, which are on a node, have printed the GPUs
// of their own records, so many each, and that no two have the same.
func (m *modelSources) ownGPUs(id compute.ExecutionID, replicas, gpus int, node *nodetest.Node) {
	m.Helper()
	rows := mustDeployment(m.T, m.api, id, "ready").Rows
	if len(rows) != replicas {
		m.Errorf("its replicas are %+v", rows)
	}
	var all []compute.GPUID
	for _, row := range rows {
		e, err := m.api.Execution(m.Context(), row.ExecutionID, 0)
		if err != nil {
			m.Fatal(err)
		}
		var own []string
		for _, gpu := range e.Metadata.GPUs {
			all, own = append(all, gpu), append(own, string(gpu))
		}
		line := "serving " + id.String() + " on " + strings.Join(own, ",")
		nodetest.Eventually(m.T, endWait, "the engine to say: "+line, func() bool {
			out, err := m.api.ExecutionLogs(m.Context(), row.ExecutionID, client.LogQuery{})
			return err == nil && slices.ContainsFunc(out.Logs, func(l wire.LogLine) bool { return l.Message == line })
		})
		if len(own) != gpus || row.Node == nil || *row.Node != node.Config.Name {
			m.Errorf("a replica has the GPUs %v of %v", own, orNone(row.Node))
		}
	}
	slices.Sort(all)
	if len(slices.Compact(all)) != replicas*gpus {
		m.Errorf("the replicas share the GPUs %v", all)
	}
}

// storedOnWorker has a worker serve a model that only the storage of the organization has.
// Another organization does not get it.
func (m *modelSources) storedOnWorker() {
	weights := []byte(strings.Repeat("the weights of a model in several chunks\n", 9<<20/40))
	if _, err := m.api.Upload(m.Context(), bytesOf("models/own/echo/model.gguf", weights)); err != nil {
		m.Fatal(err)
	}
	id := m.deploy("own/echo", "echo", "b200", 1)
	m.ownGPUs(id, 1, 1, m.worker)
	if got := m.loaded(m.account, id); got != string(weights[:64]) {
		m.Errorf("it has loaded %q", got)
	}
	found, err := filepath.Glob(filepath.Join(m.worker.Config.DataDir, "models", "*", "files", "model.gguf"))
	if err != nil || len(found) != 1 {
		m.Fatalf("the worker has the files %q, %v", found, err)
	}
	if data, err := os.ReadFile(found[0]); err != nil || !bytes.Equal(data, weights) {
		m.Errorf("the worker has %d bytes of %d, %v", len(data), len(weights), err)
	}
	checkReadOnly(m.T, m.url, m.account.Key, id, filepath.Dir(found[0]), "model.gguf")
	m.remove(m.api, id)
	foreign := nodetest.MustClient(m.T, m.foreign.Key, m.url)
	none := m.deployAs(foreign, "own/echo", "echo", "b200", 1)
	if d := mustDeployment(m.T, foreign, none, "failed"); !strings.Contains(orNone(d.Detail), "own/echo") {
		m.Errorf("for another organization it says %q", orNone(d.Detail))
	}
	m.remove(foreign, none)
}

// hubOnWorker has two replicas on a worker load a model of the hub at once: they share one
// download. The record and the log of the deployment say how far it is.
func (m *modelSources) hubOnWorker() {
	id := m.deploy("shared/echo", "echo", "b200", 2)
	const fetched = "fetched 0 of 0 MiB of shared/echo"
	nodetest.Eventually(m.T, endWait, "the record to say of both replicas how far the model is", func() bool {
		d, err := m.api.Deployment(m.Context(), id)
		if err != nil {
			m.Fatal(err)
		}
		return len(d.Rows) == 2 && orNone(d.Rows[0].Detail) == fetched && orNone(d.Rows[1].Detail) == fetched
	})
	logs, err := m.api.DeploymentLogs(m.Context(), id)
	if err != nil || !slices.ContainsFunc(logs.Logs, func(l wire.LogLine) bool { return l.Message == "model: "+fetched }) {
		m.Errorf("its log is %+v, %v", logs, err)
	}
	m.hub.release()
	m.ownGPUs(id, 2, 1, m.worker)
	if asked := m.hub.asked("shared/echo"); !slices.Equal(asked, []string{""}) {
		m.Errorf("the hub was asked for the ranges %q", asked)
	}
	if got := m.loaded(m.account, id); got != hubText {
		m.Errorf("it has loaded %q", got)
	}
	m.remove(m.api, id)
}

// serversGPUs has two replicas on a server that each need two of its four GPUs.
func (m *modelSources) serversGPUs() {
	id := m.deploy("tiny/echo", "echo", "t4.2x", 2)
	m.ownGPUs(id, 2, 2, m.small)
	m.remove(m.api, id)
}

// eviction fills the cache of a node with three models, and serves a fourth one there: the
// longest unused model makes room for it. One that was fetched before and has been used since
// stays, and so does the oldest, which is in use.
func (m *modelSources) eviction() {
	serve := func(model string) compute.ExecutionID {
		id := m.deploy(model, "echo", "t4", 1)
		mustDeployment(m.T, m.api, id, "ready")
		if got := m.loaded(m.account, id); !strings.HasPrefix(got, hubText) {
			m.Errorf("it has loaded %q", got)
		}
		return id
	}
	use := func(model string) {
		id := serve(model)
		m.remove(m.api, id)
		nodetest.Eventually(m.T, endWait, "the node to know that nothing uses "+model, func() bool {
			e, ok := m.small.Peer().View().AnyExecution(id)
			return ok && e.Status.Terminal()
		})
	}
	kept := serve("large/kept")
	use("large/again")
	use("large/oldest")
	use("large/again")
	last := serve("large/last")
	var cached []string
	names, err := filepath.Glob(filepath.Join(m.small.Config.DataDir, "models", "*", "manifest.json"))
	for _, name := range names {
		data, bad := os.ReadFile(name)
		var manifest struct{ Name string }
		if err = errors.Join(err, bad, json.Unmarshal(data, &manifest)); strings.HasPrefix(manifest.Name, "large/") {
			cached = append(cached, manifest.Name)
		}
	}
	slices.Sort(cached)
	if err != nil || !slices.Equal(cached, []string{"large/again", "large/kept", "large/last"}) {
		m.Errorf("the cache has %q, %v", cached, err)
	}
	if !m.c.Logged("model evicted", "model=large/oldest") || m.c.Logged("model evicted", "model=large/kept") {
		m.Error("the log does not say that only the longest unused model is evicted")
	}
	if asked := m.hub.asked("large/again"); len(asked) != 1 {
		m.Errorf("the hub was asked for a model of the cache: %q", asked)
	}
	if got := m.loaded(m.account, kept); !strings.HasPrefix(got, hubText) {
		m.Errorf("the model that is in use is %q", got)
	}
	m.remove(m.api, kept)
	m.remove(m.api, last)
}

// order deploys a model that is in the storage of one organization, in the operator's directory
// and on the hub.
func (m *modelSources) order() {
	if _, err := m.api.Upload(m.Context(), bytesOf("models/order/echo/model.gguf", []byte("from the storage"))); err != nil {
		m.Fatal(err)
	}
	foreign := nodetest.MustClient(m.T, m.foreign.Key, m.url)
	stored, operators, hubs := m.deploy("order/echo", "echo", "cpu", 1), m.deployAs(foreign, "order/echo", "echo", "cpu", 1),
		m.deployAs(foreign, "gated/echo", "echo", "cpu", 1)
	for _, test := range []struct {
		account nodetest.Account
		id      compute.ExecutionID
		want    string
	}{{m.account, stored, "from the storage"}, {m.foreign, operators, "from the operator"}, {m.foreign, hubs, hubText}} {
		api := nodetest.MustClient(m.T, test.account.Key, m.url)
		mustDeployment(m.T, api, test.id, "ready")
		if got := m.loaded(test.account, test.id); got != test.want {
			m.Errorf("it has loaded the model %q, want that %s", got, test.want)
		}
		m.remove(api, test.id)
	}
	if asked := m.hub.asked("order/echo"); len(asked) > 0 {
		m.Errorf("the hub was asked for the ranges %q", asked)
	}
}

// brokenConnection loads a model whose download broke off: it continues where it stopped.
func (m *modelSources) brokenConnection() {
	id := m.deploy("broken/echo", "echo", "cpu", 1)
	mustDeployment(m.T, m.api, id, "ready")
	if asked := m.hub.asked("broken/echo"); !slices.Equal(asked, []string{"", "bytes=5-"}) {
		m.Errorf("the hub was asked for the ranges %q", asked)
	}
	if got := m.loaded(m.account, id); got != hubText {
		m.Errorf("it has loaded %q", got)
	}
	m.remove(m.api, id)
}

// movedAndRestarted restarts a node in the middle of the download of a model whose file the hub
// has elsewhere: it continues where it stopped. The other server never gets the token.
func (m *modelSources) movedAndRestarted() {
	id := m.deploy("moved/echo", "echo", "t4", 1)
	nodetest.Eventually(m.T, endWait, "the node to have the beginning of the file", func() bool {
		names, err := filepath.Glob(filepath.Join(m.small.Config.DataDir, "models", "*", "files", "model.gguf.part"))
		if err != nil {
			m.Fatal(err)
		}
		return len(m.hub.asked("moved/echo")) == 1 && slices.ContainsFunc(names, func(name string) bool {
			data, err := os.ReadFile(name)
			return err == nil && string(data) == hubText[:hubPart]
		})
	})
	m.small.Stop()
	m.small.Start()
	mustDeployment(m.T, m.api, id, "ready")
	if asked := m.hub.asked("moved/echo"); !slices.Equal(asked, []string{"", fmt.Sprintf("bytes=%d-", hubPart)}) {
		m.Errorf("the other server was asked for the ranges %q", asked)
	}
	m.hub.mu.Lock()
	tokens := slices.Clone(m.hub.tokens)
	m.hub.mu.Unlock()
	if !slices.Equal(tokens, []string{"", ""}) {
		m.Errorf("the other server got the credentials %q", tokens)
	}
	if got := m.loaded(m.account, id); got != hubText {
		m.Errorf("it has loaded %q", got)
	}
	m.remove(m.api, id)
}

// fails waits for a deployment to have failed after two starts. The record and its explanation
// say why, and the record has the last line of the engine.
func (m *modelSources) fails(id compute.ExecutionID, why, line string) {
	d := mustDeployment(m.T, m.api, id, "failed")
	if !strings.Contains(orNone(d.Detail), why) || !slices.Contains(d.EngineOutput, line) {
		m.Errorf("it says %q, and its engine %q", orNone(d.Detail), d.EngineOutput)
	}
	if starts := m.replicasOf(id); len(starts) != 2 {
		m.Errorf("its starts are %+v", starts)
	}
	x, err := m.api.Explain(m.Context(), id, false)
	if err != nil || !strings.Contains(orNone(x.Detail), why) || !slices.Contains(x.EngineOutput, line) {
		m.Errorf("it is explained by %+v, %v", x, err)
	}
	m.remove(m.api, id)
}

// replicasOf returns the executions of a deployment in the history of its organization.
func (m *modelSources) replicasOf(id compute.ExecutionID) []wire.ExecutionSummary {
	m.Helper()
	history, err := m.api.History(m.Context(), client.HistoryQuery{Parent: id, Limit: 100})
	if err != nil {
		m.Fatal(err)
	}
	return slices.DeleteFunc(history.Executions, func(e wire.ExecutionSummary) bool {
		return e.ParentExecutionID == nil || *e.ParentExecutionID != id
	})
}

// damaged checks that a model is fetched again, and not loaded, whose file has another hash
// than its source says.
func (m *modelSources) damaged(id compute.ExecutionID) {
	nodetest.Eventually(m.T, endWait, "the log to say that the file is damaged", func() bool {
		logs, err := m.api.DeploymentLogs(m.Context(), id)
		return err == nil && slices.ContainsFunc(logs.Logs, func(l wire.LogLine) bool {
			return l.Message == "model: model.gguf is fetched again: the hash of the file is another one"
		})
	})
	nodetest.Eventually(m.T, endWait, "the hub to be asked again", func() bool { return len(m.hub.asked("damaged/echo")) > 1 })
	d, err := m.api.Deployment(m.Context(), id)
	if err != nil || d.Ready > 0 || slices.ContainsFunc(d.Rows, func(r wire.ServiceReplica) bool { return r.StartTime != nil }) {
		m.Errorf("it is %+v, %v", d, err)
	}
	m.remove(m.api, id)
}

// tokenNowhere searches the files of all nodes for the token. The logs are searched at the end.
func (m *modelSources) tokenNowhere() {
	for _, n := range m.c.Nodes {
		if contains(m.T, n.Config.DataDir, hubToken) {
			m.Errorf("%s has the token for the hub", n.Config.Name)
		}
	}
	if !contains(m.T, m.worker.Config.DataDir, hubText) {
		m.Error("the search finds nothing in the files of the worker")
	}
}
