package node_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/api/contracttest"
	"berth/api/wire"
	"berth/compute"
	"berth/node/inference/engine"
	"berth/node/nodetest"
	"berth/node/router"
)

// llamaDir is where scripts/engine.sh installs the engine.
const llamaDir = "../bin/engines/llama-node"

// mustLlama returns how a node serves models with llama.cpp, and makes a directory of
// models with a tiny one in it.
func mustLlama(t *testing.T) (models string, e engine.Engine) {
	t.Helper()
	if runtime.GOOS+"/"+runtime.GOARCH != "linux/amd64" {
		t.Skip("llama.cpp is installed on Linux x86_64 only")
	}
	dir, err := filepath.Abs(llamaDir)
	if err != nil {
		t.Fatal(err)
	}
	program := dir + "/bin/node"
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("the engine is not installed: run scripts/engine.sh: %v", err)
	}
	models = t.TempDir()
	file := filepath.Join(models, "tiny", "llama", "model.gguf")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), program, dir+"/tiny-model.js", file).CombinedOutput(); err != nil {
		t.Fatalf("make a model: %v: %s", err, out)
	}
	return models, engine.Engine{
		Name: "llama-node",
		Command: []string{
			program, dir + "/server.js", "--model", "{model_path}", "--alias", "{deployment}", "--port", "{port}",
			"--ctx-size", "16384", "--threads", "1", "{args}",
		},
		Dirs: []string{dir}, Formats: []string{engine.GGUF}, HealthPath: "/health", MetricsPath: "/metrics",
		Allow: []string{"--parallel=int", "--queue=int"},
	}
}

// withLlama has a node serve models with llama.cpp.
func withLlama(models string, e engine.Engine) func(cfg *nodetest.NodeConfig) {
	return func(cfg *nodetest.NodeConfig) {
		cfg.Services.BackoffFirst, cfg.Services.BackoffMost = 100*time.Millisecond, time.Second
		cfg.Inference.Models, cfg.Inference.Hub = models, "off"
		cfg.Inference.Engines = []engine.Engine{e}
	}
}

// asked is a deployment with an engine that computes, as one node answers for it.
type asked struct {
	*testing.T

	url, key string // URL and API key of the node's API.
	id       compute.ExecutionID
}

// askedAt returns what asks a node without a deployment in mind.
func askedAt(t *testing.T, url, key string) *asked { return &asked{T: t, url: url, key: key} }

// post asks the deployment with a body in which %s is its name.
func (a *asked) post(path, body string) (reply, string) {
	a.Helper()
	return mustAsk(a.T, http.DefaultClient, http.MethodPost, a.url+"/openai/v1/"+path, a.key,
		strings.NewReader(fmt.Sprintf(body, a.id)))
}

// quietAnswer is an answer to a request that was sent from any goroutine; its status is 0 if
// there was none.
type quietAnswer struct {
	status int
	body   string
}

// quietly asks the node from any goroutine.
func (a *asked) quietly(path, body string) quietAnswer {
	req, err := http.NewRequestWithContext(a.Context(), http.MethodPost, a.url+"/openai/v1/"+path, strings.NewReader(body))
	if err != nil {
		return quietAnswer{0, err.Error()}
	}
	req.Header.Set("Authorization", "Bearer "+a.key)
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return quietAnswer{0, err.Error()}
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		return quietAnswer{0, err.Error()}
	}
	return quietAnswer{answer.StatusCode, string(data)}
}

// endless begins a stream that lasts for many seconds, and returns it after its first
// event.
func (a *asked) endless() (*bufio.Reader, io.Closer) {
	a.Helper()
	return a.begin(fmt.Sprintf(
		`{"model":"%s","prompt":"Once upon a time","max_tokens":16000,"stream":true,"temperature":0}`, a.id))
}

// begin begins a stream, and returns it after its first event.
func (a *asked) begin(body string) (*bufio.Reader, io.Closer) {
	a.Helper()
	req, err := http.NewRequestWithContext(a.Context(), http.MethodPost, a.url+"/openai/v1/completions", strings.NewReader(body))
	if err != nil {
		a.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+a.key)
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		a.Fatal(err)
	}
	r := bufio.NewReader(answer.Body)
	line, err := r.ReadString('\n')
	if err != nil || answer.StatusCode != http.StatusOK || !strings.HasPrefix(line, "data: ") {
		answer.Body.Close()
		a.Fatalf("%d: %q, %v", answer.StatusCode, line, err)
	}
	return r, answer.Body
}

// completion is what of an answer of any kind is looked at.
type completion struct {
	Object, Model string
	Choices       []struct {
		Text         string
		Message      struct{ Role, Content string }
		Delta        struct{ Content string }
		FinishReason *string `json:"finish_reason"`
	}
	Usage *struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		TotalTokens      int `json:"total_tokens"`
	}
	Data  []struct{ Embedding []float64 }
	Error *struct{ Type, Code string }
}

func (a *asked) parse(body string) (c completion) {
	a.Helper()
	if err := json.Unmarshal([]byte(body), &c); err != nil {
		a.Errorf("%q: %v", body, err)
	}
	return c
}

// TestEngine serves a model by llama.cpp and asks a follower for everything that
// clients ask, while the engine and they come and go.
func TestEngine(t *testing.T) {
	t.Parallel() // It mostly waits.
	models, e := mustLlama(t)
	// The node does not know of these, so that requests fill the queue of the engine.
	e.Command, e.Allow = append(e.Command, "--parallel", "2", "--queue", "2"), nil
	c := nodetest.NewWith(t, 3, func(_ int, cfg *nodetest.NodeConfig) { withLlama(models, e)(cfg) })
	account := c.MustAccount("acme")
	follower := c.Follower().URL()
	api := nodetest.MustClient(t, account.Key, follower)
	want := deploymentOf("tiny/llama")
	want.Engine, want.MaxReplicas = "llama-node", 1
	created, err := api.Deploy(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	mustDeployment(t, api, created.ID, "ready")
	for _, test := range []struct {
		name string
		do   func(a *asked)
	}{
		{"answers", (*asked).answers},
		{"contract", (*asked).contract},
		{"stream", (*asked).stream},
		{"byte for byte", func(a *asked) { a.verbatim(engineOf(a.T, c, a.id)) }},
		{"10 MB", (*asked).tenMB},
		{"OpenAI client", (*asked).byOpenAI},
		{"overload", (*asked).overload},
		{"cancel", func(a *asked) {
			_, body := a.endless()
			body.Close()
			nodetest.Eventually(a, endWait, "the engine to stop", func() bool {
				logs, err := api.DeploymentLogs(a.Context(), a.id)
				return err == nil && strings.Contains(fmt.Sprint(logs), "request cancelled: the client left")
			})
		}},
		{"metrics", func(a *asked) {
			line := "\nberth_inference_engine_requests_running{deployment=\"" + a.id.String() + "\",engine=\"llama-node\"} 0\n"
			nodetest.Eventually(a, endWait, "the engine's figures on its node", func() bool {
				return slices.ContainsFunc(c.Nodes, func(n *nodetest.Node) bool {
					return strings.Contains(mustFetch(a.T, n.URL()+"/metrics"), line)
				})
			})
		}},
		{"crash", func(a *asked) {
			r, body := a.endless()
			defer body.Close()
			killEngine(a.T, a.id)
			rest, err := io.ReadAll(r)
			if err != nil || !strings.Contains(string(rest), `"code":"replica_failed"`) || strings.Contains(string(rest), "[DONE]") {
				a.Errorf("the stream ends with %q, %v", rest[max(len(rest)-300, 0):], err)
			}
			// A request that is written to a connection of the dead engine may be why it died, and does not wait.
			nodetest.Eventually(a, endWait, "the replica to be known as ended", func() bool {
				d, err := api.Deployment(a.Context(), a.id)
				return err == nil && !slices.ContainsFunc(d.Rows, func(r wire.ServiceReplica) bool { return r.Ready && r.Restarts == 0 })
			})
			a.answers() // They wait until the engine is back.
		}},
		{"nothing kept", func(a *asked) { a.nothingKept(c) }},
	} {
		t.Run(test.name, func(t *testing.T) { test.do(&asked{t, follower, account.Key, created.ID}) })
	}
}

// answers asks for whole answers of each kind, and for what cannot be answered.
func (a *asked) answers() {
	a.Helper()
	for _, test := range []struct{ path, body, object string }{
		{"chat/completions", `{"model":"%s","messages":[{"role":"user","content":"Hello"}],"max_tokens":6}`, "chat.completion"},
		{"completions", `{"model":"%s","prompt":"Hello","max_tokens":6}`, "text_completion"},
	} {
		reply, body := a.post(test.path, test.body)
		got := a.parse(body)
		if reply.StatusCode != http.StatusOK || got.Object != test.object || len(got.Choices) != 1 ||
			got.Choices[0].Text+got.Choices[0].Message.Content == "" || got.Model != a.id.String() || got.Usage == nil ||
			got.Usage.PromptTokens < 2 || got.Usage.CompletionTokens != 6 || got.Usage.TotalTokens != got.Usage.PromptTokens+6 {
			a.Errorf("%s: %d: %s", test.path, reply.StatusCode, body)
		}
	}
	reply, body := a.post("embeddings", `{"model":"%s","input":["a","b"]}`)
	got := a.parse(body)
	if reply.StatusCode != http.StatusOK || len(got.Data) != 2 || len(got.Data[0].Embedding) < 8 || got.Usage == nil ||
		got.Usage.PromptTokens < 2 {
		a.Errorf("embeddings: %d: %s", reply.StatusCode, body)
	}
	long := strings.Repeat("b ", 20_000)
	for _, test := range []struct{ path, body, code string }{
		{"completions", `{"model":"%s","prompt":"` + long + `"}`, "context_length_exceeded"},
		{"chat/completions", `{"model":"%s","messages":[]}`, "invalid_request_error"},
		{"embeddings", `{"model":"%s","input":5}`, "invalid_request_error"},
	} {
		reply, body := a.post(test.path, test.body)
		got := a.parse(body)
		if reply.StatusCode != http.StatusBadRequest || got.Error == nil || got.Error.Code != test.code {
			a.Errorf("%s: %d: %s", test.path, reply.StatusCode, body)
		}
	}
}

// tenMB asks with a prompt of 10 MB, which the engine gets and refuses.
func (a *asked) tenMB() {
	reply, body := a.post("completions", `{"model":"%s","prompt":"`+strings.Repeat("b ", 5_000_000)+`"}`)
	if reply.StatusCode != http.StatusBadRequest || codeOfModel(body) != "context_length_exceeded" {
		a.Errorf("%d: %.300s", reply.StatusCode, body)
	}
}

// contract asks as the OpenAPI document says.
func (a *asked) contract() {
	cfg := contracttest.Config{BaseURL: a.url, Client: http.DefaultClient}
	if err := contracttest.ValidateModels(a.Context(), cfg, a.key, a.id.String(), true); err != nil {
		a.Error(err)
	}
}

// stream reads a stream to its end: its text is that of a whole answer, and its usage
// is that of the engine.
func (a *asked) stream() {
	const body = `{"model":"%s","messages":[{"role":"user","content":"Hello"}],"max_tokens":7,"temperature":0`
	_, whole := a.post("chat/completions", body+"}")
	reply, text := a.post("chat/completions", body+`,"stream":true}`)
	var last completion
	streamed := ""
	for event := range strings.SplitSeq(strings.TrimSuffix(text, "data: [DONE]\n\n"), "\n\n") {
		if event == "" {
			continue
		}
		last = a.parse(strings.TrimPrefix(event, "data: "))
		for _, choice := range last.Choices {
			streamed += choice.Delta.Content
		}
	}
	want := a.parse(whole)
	if reply.StatusCode != http.StatusOK || !strings.HasSuffix(text, "data: [DONE]\n\n") || streamed == "" ||
		streamed != want.Choices[0].Message.Content || last.Usage == nil || *last.Usage != *want.Usage {
		a.Errorf("%d: %q, and whole %s", reply.StatusCode, text, whole)
	}
}

// engineOf returns a client of the engine of a deployment with one replica, which its own node
// connects to, past all that answers clients.
func engineOf(t *testing.T, c *nodetest.Cluster, id compute.ExecutionID) *http.Client {
	t.Helper()
	view := c.Follower().Peer().View()
	parent, ok := view.AnyExecution(id)
	if !ok || len(parent.Service.Slots) != 1 {
		t.Fatalf("the deployment is %+v", parent)
	}
	replica := parent.Service.Slots[0].Replica
	attempts := view.Attempts(replica)
	to := attempts[len(attempts)-1]
	at := slices.IndexFunc(c.Nodes, func(n *nodetest.Node) bool { return n.ID() == to.Node })
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return c.Nodes[at].Peer().DialReplica(ctx, router.Replica{Execution: replica, Epoch: to.Epoch, Node: to.Node})
		},
	}}
}

// variable is what differs between two answers of an engine to the same request: when and as
// which it was answered, and how much of the prompt was known already.
var variable = regexp.MustCompile(`"(id":"(chat)?cmpl-[0-9]+"|created":[0-9]+|usage":\{[^{}]*(\{[^{}]*\}[^{}]*)?\})`)

// verbatim compares answers of the node with those of the engine, which is asked directly.
func (a *asked) verbatim(engine *http.Client) {
	const more = `"max_tokens":40,"temperature":0,"seed":7`
	for _, test := range []struct {
		path, body string
		least      int // Things in the answer that differ.
	}{
		{"chat/completions", `{"model":"%s","messages":[{"role":"user","content":"Hello"}],` + more + `}`, 3},
		{"completions", `{"model":"%s","prompt":"Once upon a time",` + more + `}`, 3},
		{"embeddings", `{"model":"%s","input":["Once upon a time","Hello"]}`, 1},
		{"embeddings", `{"model":"%s","input":"Hello","encoding_format":"base64"}`, 1},
		{"chat/completions", `{"model":"%s","messages":[],` + more + `}`, 0},
		{"chat/completions", `{"model":"%s","stream":true,"stream_options":{"include_usage":true},
			"messages":[{"role":"user","content":"Hello"}],` + more + `}`, 2*3 + 1},
		{"completions", `{"model":"%s","stream":true,"stream_options":{"include_usage":true},"prompt":"Once upon a time",` + more + `}`, 2*2 + 1},
	} {
		direct, want := mustAsk(a.T, engine, http.MethodPost, "http://engine/v1/"+test.path, "", strings.NewReader(fmt.Sprintf(test.body, a.id)))
		reply, got := a.post(test.path, test.body)
		if n := len(variable.FindAllString(want, -1)); n < test.least {
			a.Errorf("%s: the engine's answer has %d things that differ, want %d: %s", test.path, n, test.least, want)
		}
		if reply.StatusCode != direct.StatusCode || reply.Header.Get("Content-Type") != direct.Header.Get("Content-Type") ||
			variable.ReplaceAllString(got, "") != variable.ReplaceAllString(want, "") {
			a.Errorf("%s: the node answers %d: %q, and the engine %d: %q", test.path, reply.StatusCode, got, direct.StatusCode, want)
		}
	}
}

// byOpenAI asks by OpenAI's own client for Node.js.
func (a *asked) byOpenAI() {
	cmd := exec.CommandContext(a.Context(), llamaDir+"/bin/node", llamaDir+"/ask.js", a.id.String())
	cmd.Env = append(os.Environ(), "OPENAI_BASE_URL="+a.url+"/openai/v1", "OPENAI_API_KEY="+a.key)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		a.Fatalf("%v: %s", err, complaint.String())
	}
	type failure struct {
		Class  string
		Status int
		Code   string
	}
	var got struct {
		Models               []string
		Chat, Text, Streamed string
		Usage                struct {
			CompletionTokens int `json:"completion_tokens"`
		}
		Embeddings [][]float64
		Errors     map[string]failure
	}
	if err := json.Unmarshal(out, &got); err != nil {
		a.Fatalf("%v: %s", err, out)
	}
	if fmt.Sprint(got.Models) != fmt.Sprint([]string{a.id.String()}) || got.Chat == "" || got.Text == "" || got.Chat != got.Streamed ||
		got.Usage.CompletionTokens != 8 || len(got.Embeddings) != 2 || len(got.Embeddings[0]) < 8 {
		a.Errorf("it got %s", out)
	}
	for name, want := range map[string]failure{
		"unknown":         {"NotFoundError", http.StatusNotFound, "model_not_found"},
		"bad":             {"BadRequestError", http.StatusBadRequest, "invalid_request_error"},
		"unauthenticated": {"AuthenticationError", http.StatusUnauthorized, "invalid_api_key"},
	} {
		if got.Errors[name] != want {
			a.Errorf("%s: %+v, want %+v", name, got.Errors[name], want)
		}
	}
}

// overload keeps the engine busy, fills its queue, and asks for more.
func (a *asked) overload() {
	leave := func() {}
	for range 2 {
		_, body := a.endless()
		before := leave
		leave = func() { before(); body.Close() }
	}
	defer leave()
	const asked, queued = 6, 2
	results := make(chan quietAnswer, asked) // One each.
	for range asked {
		go func() {
			results <- a.quietly("completions", fmt.Sprintf(`{"model":"%s","prompt":"Hello","max_tokens":1}`, a.id))
		}()
	}
	for range asked - queued {
		if got := <-results; got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, `"code":"overloaded"`) {
			a.Errorf("beyond the queue: %d: %s", got.status, got.body)
		}
	}
	leave()
	for range queued {
		if got := <-results; got.status != http.StatusOK {
			a.Errorf("in the queue: %d: %s", got.status, got.body)
		}
	}
}

// nothingKept asks by a text that is for nobody but who asks: for whole answers and a stream,
// for what is refused, and for a stream in the middle of which the engine is killed. Neither it
// nor an answer is in a file, a log, a backup or a metric.
func (a *asked) nothingKept(c *nodetest.Cluster) {
	c.Hide(promptCanary)
	const chat = `{"model":"%s","messages":[{"role":"user","content":"` + promptCanary + `"}],"max_tokens":60,"temperature":0`
	const text = `{"model":"%s","prompt":"` + promptCanary
	reply, body := a.post("chat/completions", chat+"}")
	got := a.parse(body)
	if reply.StatusCode != http.StatusOK || len(got.Choices) != 1 || len(got.Choices[0].Message.Content) < 60 {
		a.Fatalf("%d: %s", reply.StatusCode, body)
	}
	answered := got.Choices[0].Message.Content
	c.Hide(answered)
	for _, test := range []struct {
		path, body string
		status     int
	}{
		{"chat/completions", chat + `,"stream":true}`, http.StatusOK},
		{"completions", text + `"}`, http.StatusOK},
		{"embeddings", `{"model":"%s","input":"` + promptCanary + `"}`, http.StatusOK},
		{"completions", text + strings.Repeat(" b", 20_000) + `"}`, http.StatusBadRequest},
		{"completions", text + `","temperature":"` + promptCanary + `"}`, http.StatusBadRequest},
		{"completions", text, http.StatusBadRequest}, // It is no JSON.
	} {
		if reply, body := a.post(test.path, test.body); reply.StatusCode != test.status {
			a.Errorf("%s: %d: %.300s", test.path, reply.StatusCode, body)
		}
	}
	r, stream := a.begin(fmt.Sprintf(text+`","max_tokens":16000,"stream":true,"temperature":0}`, a.id))
	defer stream.Close()
	killEngine(a.T, a.id)
	if rest, err := io.ReadAll(r); err != nil || !strings.Contains(string(rest), `"code":"replica_failed"`) {
		a.Errorf("the stream ends with %q, %v", rest[max(len(rest)-300, 0):], err)
	}
	nodetest.Eventually(a, endWait, "the engine to be back", func() bool {
		d, err := nodetest.MustClient(a.T, a.key, a.url).Deployment(a.Context(), a.id)
		return err == nil && len(d.Rows) == 1 && d.Rows[0].Ready && d.Rows[0].Restarts == 2 // It was killed before, too.
	})
	mustKeepNone(a.T, c, a.url, "tiny/llama", promptCanary, answered)
}

// killEngine kills the engines of a deployment as the kernel does that is out of memory.
func killEngine(t *testing.T, id compute.ExecutionID) {
	t.Helper()
	killed := 0
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(text, []byte("/server.js\x00")) || !bytes.Contains(text, []byte("\x00"+id.String()+"\x00")) {
			continue // Others' processes come and go.
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		killed++
	}
	if killed == 0 {
		t.Fatal("the engine is not found")
	}
}
