package node_test

import (
	"bufio"
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
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/inference/engine"
	"berth/node/nodetest"
)

// echoEngine is a scripted engine for edge cases of time: it answers what it was
// asked, and "die" in a prompt ends it in the middle of a stream. A late model is loaded
// once there is a file "go" beside the engine, and a sick one never. It answers "raw NAME"
// by the bytes of that file beside it, and "until NAME" once there is that file. A whole answer
// says how many requests the engine got before. "exit ID"
// ends the replica of that id, and "begin ID" does so after the header of a stream. "write"
// tries to change the model.
const echoEngine = `
import errno, http.server, itertools, json, os, select, socket, socketserver, sys, time
port, model, name = int(sys.argv[1]), sys.argv[2], sys.argv[3]
kind, serials = open(model).read(), itertools.count()
def print(*words, flush=True): # A line in one write: its threads print at the same time.
    os.write(1, (" ".join(map(str, words)) + "\n").encode())
if kind == "sick": print("a sick model", flush=True)
if kind == "broken":
    print("cannot load the model: bad magic", flush=True); sys.exit(3)
while kind == "late" and not os.path.exists(os.path.dirname(sys.argv[0]) + "/go"): time.sleep(0.02)
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def do_GET(self):
        if kind == "sick": self.wfile.write(b"HTTP/1.1 503 Sick\r\nContent-Length: 0\r\n\r\n"); return
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers(); self.wfile.write(b"ok")
    def do_POST(self):
        serial = next(serials)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/embeddings": return self.embed(body)
        text = body.get("prompt") or body.get("messages", [{}])[-1].get("content") or body.get("input", "")
        if text == "exit" or text.endswith("exit " + os.environ["BERTH_EXECUTION_ID"]): os._exit(4)
        if text == "think": time.sleep(0.05)
        if text == "flood": return self.flood()
        if text.startswith("raw "): return self.raw(text[4:])
        if text.startswith("reverse "): text = text[::-1]
        if text == "write": text = writes()
        if body["model"] != name: # As vLLM does.
            self.send_response(404); self.send_header("Content-Length", "0"); self.end_headers(); return
        if text.startswith("hold"):
            print(text, "waits", flush=True)
            if not self.connection.recv(1, socket.MSG_PEEK): # The client has left.
                print(text, "left", flush=True); self.close_connection = True; return
        if text == "belated": # It answers a client that has left.
            print(text, "waits", flush=True); self.connection.recv(1, socket.MSG_PEEK); print(text, "answers", flush=True)
        if not body.get("stream"):
            if text.startswith("until "): until(text, "whole")
            return self.answer({"path": self.path, "model": body["model"], "replica": os.environ["BERTH_EXECUTION_ID"],
                "loaded": kind[:64], "serial": serial,
                "auth": self.headers.get("Authorization"), "links": [name for _, name in socket.if_nameindex()], "choices": [{"message": {"role": "assistant", "content": text}}],
                "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}})
        self.send_response(200); self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked"); self.end_headers()
        if text.endswith("begin " + os.environ["BERTH_EXECUTION_ID"]): os._exit(6)
        def event(text):
            part = ("data: " + text + "\n\n").encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part)); self.wfile.flush()
        try:
            endless = text.endswith("endless")
            for i in range(10**9 if endless else 3):
                event(json.dumps({"choices": [{"delta": {"content": text if text.endswith(" esrever") else str(i)}}]}))
                if text == "die": os._exit(5)
                if text.startswith("until ") and i == 0: until(text, "stream")
                if text == "stuck": self.connection.recv(1, socket.MSG_PEEK); print("stuck left", flush=True)
                if endless or text == "slow": time.sleep(0.01)
        except OSError:
            print("the client is gone", flush=True); self.close_connection = True; return
        if (body.get("stream_options") or {}).get("include_usage"):
            event(json.dumps({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 3}}))
        event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")
    def answer(self, value):
        data = json.dumps(value).encode()
        self.send_response(200); self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data))); self.end_headers(); self.wfile.write(data)
    def embed(self, body): # A word is a token.
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        tokens = sum(len(t.split()) for t in texts)
        self.answer({"object": "list", "model": body["model"], "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            "data": [{"object": "embedding", "index": i, "embedding": [0.5, -0.5]} for i in range(len(texts))]})
    def raw(self, which):
        with open(os.path.dirname(sys.argv[0]) + "/" + which, "rb") as f: data = f.read()
        self.close_connection = True
        self.wfile.write(data.replace(b"DEPLOYMENT", name.encode()))
    def flood(self): # It writes 256 MiB as fast as they are read, and says how far it is when nobody has read for 2 seconds.
        self.send_response(200); self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked"); self.end_headers()
        part = b'data: {"choices": [{"delta": {"content": "' + b"x" * (16 << 10) + b'"}}]}\n\n'
        part = b"%x\r\n%s\r\n" % (len(part), part)
        self.close_connection, written, waited = True, 0, False
        self.connection.setblocking(False)
        try:
            while written < 256 << 20:
                if select.select([], [self.connection], [], 2)[1]:
                    written += self.connection.send(part[written % len(part):])
                elif not waited:
                    print("flood waits after", written, flush=True); waited = True
            print("flood written", flush=True)
        except OSError: print("flood left", flush=True)
def until(text, kind):
    print(text, "waits for a", kind, flush=True)
    while not os.path.exists(os.path.dirname(sys.argv[0]) + "/" + text): time.sleep(0.02)
def writes(): # It returns why each way to change the model failed.
    folder, failures = os.path.dirname(model), {}
    for name, change in {
        "append": lambda: open(model, "ab").write(b"x"), "overwrite": lambda: open(model, "r+b").write(b"x"),
        "replace": lambda: open(model, "wb"), "truncate": lambda: os.truncate(model, 0), "remove": lambda: os.remove(model),
        "rename": lambda: os.rename(model, model + ".old"), "touch": lambda: os.utime(model), "open up": lambda: os.chmod(model, 0o777),
        "add": lambda: open(folder + "/added", "wb"), "make": lambda: os.mkdir(folder + "/made"),
        "link": lambda: os.link(model, folder + "/linked"), "point": lambda: os.symlink(model, folder + "/pointer"),
        "beside": lambda: open(os.path.dirname(sys.argv[0]) + "/added", "wb"),
    }.items():
        try: change(); failures[name] = "done"
        except OSError as e: failures[name] = errno.errorcode[e.errno]
    return json.dumps(failures)
class S(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
print("serving", name, "on", os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
S(("127.0.0.1", port), H).serve_forever()
`

// withEcho has a node serve the models of a directory with the scripted engine.
func withEcho(t *testing.T) func(cfg *nodetest.NodeConfig) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"tiny/echo/model.gguf": "good", "tiny/broken/model.gguf": "broken", "tiny/late/model.gguf": "late",
		"tiny/sick/model.gguf": "sick", "engine.py": echoEngine,
	} {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return func(cfg *nodetest.NodeConfig) {
		cfg.Services.BackoffFirst, cfg.Services.BackoffMost = 100*time.Millisecond, time.Second
		cfg.Services.DrainWait = time.Hour
		cfg.Inference.Models, cfg.Inference.Hub, cfg.Inference.Starts = dir, "off", 2
		cfg.Inference.Engines = []engine.Engine{{
			Name: "echo", Command: []string{"/usr/bin/python3", dir + "/engine.py", "{port}", "{model_path}", "{deployment}", "{args}"},
			Dirs: []string{dir}, Formats: []string{"gguf"}, HealthPath: "/health", Allow: []string{"--threads=int"},
		}}
	}
}

// inferenceCluster is a cluster whose nodes have the scripted engine and a directory
// with models. Its client asks the last node, which does not lead.
func inferenceCluster(
	t *testing.T, nodes int, change ...func(*nodetest.NodeConfig),
) (*nodetest.Cluster, nodetest.Account, *client.Client) {
	t.Helper()
	echo := withEcho(t)
	c := nodetest.NewWith(t, nodes, func(_ int, cfg *nodetest.NodeConfig) {
		echo(cfg)
		for _, f := range change {
			f(cfg)
		}
	})
	account, asked := c.MustAccount("acme"), c.Nodes[len(c.Nodes)-1]
	mustNotLead(t, c, asked)
	return c, account, nodetest.MustClient(t, account.Key, asked.URL())
}

// mustNotLead has another server lead if a node does.
func mustNotLead(t *testing.T, c *nodetest.Cluster, n *nodetest.Node) {
	t.Helper()
	if !n.Peer().IsLeader() {
		return
	}
	operator := nodetest.MustClient(t, c.RootToken, n.URL())
	if _, err := operator.TransferLeadership(t.Context(), c.Follower().ID()); err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, endWait, "another leader", func() bool { return !n.Peer().IsLeader() && c.Leader() != n })
}

// deploymentOf returns a request for a deployment of a model.
func deploymentOf(model string) wire.DeploymentCreate {
	return wire.DeploymentCreate{
		Model: model, Engine: "echo", GPUType: "cpu", GPUCount: 1, TargetRPS: 10, TargetP95: 1000, Window: 60,
		MinReplicas: 1, MaxReplicas: 2,
	}
}

// mustDeployment returns a deployment once it has a status.
func mustDeployment(t *testing.T, api *client.Client, id compute.ExecutionID, status string) (d wire.Deployment) {
	t.Helper()
	nodetest.Eventually(t, endWait, "the deployment to be "+status, func() bool {
		var err error
		if d, err = api.Deployment(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return d.Status == status
	})
	return d
}

// prompt returns the body of a chat request.
func prompt(model, text string, stream bool) *strings.Reader {
	data, _ := json.Marshal(map[string]any{
		"model": model, "stream": stream, "messages": []any{map[string]any{"role": "user", "content": text}},
	})
	return strings.NewReader(string(data))
}

// endlessStream asks a model for a stream without an end. next reads one line of it that
// is not empty.
func endlessStream(t *testing.T, url, key string, id compute.ExecutionID) (next func() string, leave func()) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/openai/v1/chat/completions",
		prompt(id.String(), "endless", true))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	stream, err := http.DefaultClient.Do(req) //nolint:bodyclose // By leave.
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stream.Body)
	return func() string {
		t.Helper()
		for {
			line, err := lines.ReadString('\n')
			if err != nil || !strings.HasPrefix(line, "data: ") && line != "\n" {
				t.Fatalf("the stream has %q, %v", line, err)
			}
			if line != "\n" {
				return line
			}
		}
	}, func() { stream.Body.Close() }
}

// beginWhole asks a model for a whole answer, and does not read it.
func beginWhole(t *testing.T, url, key string, body *strings.Reader) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	request := fmt.Sprintf("POST /openai/v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", key, body.Len())
	if _, err := io.Copy(conn, io.MultiReader(strings.NewReader(request), body)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// checkUpdate updates a deployment: another replica takes the place of the one there was,
// which first finishes the stream that it has. An engine that does not start leaves it as
// it is.
func checkUpdate(t *testing.T, c *nodetest.Cluster, api *client.Client, key string, id compute.ExecutionID) {
	url := c.Follower().URL()
	_, body := mustAsk(t, http.DefaultClient, http.MethodPost, url+"/openai/v1/chat/completions", key, prompt(id.String(), "x", false))
	var answered struct{ Replica compute.ExecutionID }
	if err := json.Unmarshal([]byte(body), &answered); err != nil {
		t.Fatal(err)
	}
	before := answered.Replica
	next, leave := endlessStream(t, url, key, id)
	defer leave()
	next()
	answer := func() {
		t.Helper()
		for _, n := range c.Nodes {
			got, body := mustAsk(t, http.DefaultClient, http.MethodPost, n.URL()+"/openai/v1/chat/completions", key,
				prompt(id.String(), "x", false))
			if got.StatusCode != http.StatusOK {
				t.Errorf("%d: %s", got.StatusCode, body)
			}
		}
	}
	if _, err := api.UpdateDeployment(t.Context(), id, wire.DeploymentUpdate{Args: new("--threads 5")}); err != nil {
		t.Fatal(err)
	}
	var d wire.Deployment
	nodetest.Eventually(t, endWait, "the replica to be replaced", func() bool {
		d = mustDeployment(t, api, id, "ready")
		return d.Rows[0].ExecutionID != before
	})
	if got := strings.Join(d.Args, " "); got != "--threads 5" && got != "--threads=5" || d.Update != nil || d.Detail != nil {
		t.Errorf("it has %q and %+v", got, d)
	}
	answer()
	nodetest.Eventually(t, endWait, "the replica that was replaced to wait for the stream", func() bool {
		out, err := api.ExecutionLogs(t.Context(), before, client.LogQuery{})
		return err == nil && strings.Contains(fmt.Sprint(out), "it stops once its requests under way (1) have ended")
	})
	for range 10 {
		if line := next(); strings.Contains(line, "error") {
			t.Fatalf("the stream has %q", line)
		}
	}
	leave()
	nodetest.Eventually(t, endWait, "the replica that was replaced to end", func() bool {
		e, ok := c.Follower().Peer().View().AnyExecution(before)
		return ok && e.Status.Terminal()
	})
	serving := d.Rows[0].ExecutionID
	if _, err := api.UpdateDeployment(t.Context(), id, wire.DeploymentUpdate{Model: "tiny/broken"}); err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, endWait, "the update to be given up", func() bool {
		d = mustDeployment(t, api, id, "ready")
		return d.Detail != nil && strings.Contains(*d.Detail, "given up")
	})
	if len(d.Rows) == 0 || d.Rows[0].ExecutionID != serving || d.Model != "tiny/echo" {
		t.Errorf("after an update that was given up it is %+v", d)
	}
	answer()
}

// checkDrained drains the node of a replica with a deadline: the replica stops once another
// one is ready elsewhere, and finishes its stream until the deadline.
func checkDrained(t *testing.T, c *nodetest.Cluster, api *client.Client, key string, id compute.ExecutionID) {
	operator := nodetest.MustClient(t, c.RootToken, c.Follower().URL())
	before := mustDeployment(t, api, id, "ready").Rows[0].ExecutionID
	attempts := c.Follower().Peer().View().Attempts(before)
	from := attempts[len(attempts)-1].Node
	next, leave := endlessStream(t, c.Follower().URL(), key, id)
	defer leave()
	next()
	if _, err := operator.DrainNodeWithin(t.Context(), from, time.Hour); err != nil {
		t.Fatal(err)
	}
	output := func(text string) func() bool {
		return func() bool {
			out, err := api.ExecutionLogs(t.Context(), before, client.LogQuery{})
			return err == nil && strings.Contains(fmt.Sprint(out), text)
		}
	}
	nodetest.Eventually(t, endWait, "the replica to wait for the stream", output("it stops once its requests"))
	next()
	if _, err := operator.DrainNodeWithin(t.Context(), from, time.Second); err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, endWait, "the replica to be stopped at the deadline", output("at the deadline of the node's drain"))
	var d wire.Deployment
	nodetest.Eventually(t, endWait, "the replica to be replaced", func() bool {
		d = mustDeployment(t, api, id, "ready")
		return len(d.Rows) == 1 && d.Rows[0].ExecutionID != before
	})
	view := c.Follower().Peer().View()
	var old *compute.Execution
	nodetest.Eventually(t, endWait, "a follower to know that the replica has ended", func() bool {
		view = c.Follower().Peer().View()
		old, _ = view.AnyExecution(before)
		return old.Status.Terminal()
	})
	added, _ := view.AnyExecution(d.Rows[0].ExecutionID)
	if moved := view.Attempts(before); len(moved) != len(attempts) || old.EndedAt < added.ReadyAt {
		t.Errorf("the replica had %d attempts and ended at %v, the other one is ready since %v", len(moved), old.EndedAt, added.ReadyAt)
	}
	if now := view.Attempts(added.ID); now[len(now)-1].Node == from {
		t.Error("the other one is on the drained node")
	}
	if _, err := operator.DrainNode(t.Context(), from, false); err != nil {
		t.Fatal(err)
	}
}

// askQuietly asks a deployment from any goroutine.
func askQuietly(t *testing.T, url, key, model, text string, stream bool) (status int, body string) {
	data, err := io.ReadAll(prompt(model, text, stream))
	if err != nil {
		return 0, err.Error()
	}
	got := askedAt(t, url, key).quietly("chat/completions", string(data))
	return got.status, got.body
}

// linesWith returns how many lines of a replica's output have a text.
func linesWith(t *testing.T, api *client.Client, replica compute.ExecutionID, text string) (lines int) {
	t.Helper()
	out, err := api.ExecutionLogs(t.Context(), replica, client.LogQuery{})
	if err != nil {
		return 0
	}
	for _, line := range out.Logs {
		if strings.Contains(line.Message, text) {
			lines++
		}
	}
	return lines
}

// checkFinishes has each replica of a deployment answer a whole request and a stream of a
// follower while stop has some replicas stop. Those wait for the ends of their answers, which
// are whole, and end then. The name is of the file for which the engine waits meanwhile.
func checkFinishes(
	t *testing.T, c *nodetest.Cluster, api *client.Client, key, name string, id compute.ExecutionID, stopping int, stop func(),
) {
	t.Helper()
	const most = 20
	follower, text := c.Follower(), "until "+name
	type result struct {
		stream bool
		status int
		body   string
	}
	results, sent := make(chan result, most), 0
	begin := func() {
		stream := sent%2 == 1
		sent++
		go func() {
			status, body := askQuietly(t, follower.URL(), key, id.String(), text, stream)
			results <- result{stream, status, body}
		}()
	}
	begin() // It waits until a replica is ready.
	rows := mustDeployment(t, api, id, "ready").Rows
	for covered := false; !covered; {
		nodetest.Eventually(t, endWait, "the engine to have the requests", func() bool {
			all := 0
			for _, row := range rows {
				all += linesWith(t, api, row.ExecutionID, text)
			}
			return all == sent
		})
		covered = true
		for _, row := range rows {
			for _, kind := range []string{" waits for a whole", " waits for a stream"} {
				covered = covered && linesWith(t, api, row.ExecutionID, text+kind) > 0
			}
		}
		if !covered && sent == most {
			t.Fatalf("%d requests do not reach all replicas", sent)
		}
		if !covered {
			begin()
		}
	}
	stop()
	var drained []compute.ExecutionID
	nodetest.Eventually(t, endWait, "the replicas that stop to wait for their requests", func() bool {
		drained = nil
		for _, row := range rows {
			if linesWith(t, api, row.ExecutionID, "it stops once its requests under way") > 0 {
				drained = append(drained, row.ExecutionID)
			}
		}
		return len(drained) == stopping
	})
	for _, row := range rows {
		e, ok := follower.Peer().View().AnyExecution(row.ExecutionID)
		stops := slices.Contains(drained, row.ExecutionID)
		if !ok || e.Status.Terminal() || !stops && e.Stop != compute.StopNone {
			t.Errorf("%s, of which %t that it is to stop, is %v before its requests have ended", row.ExecutionID, stops, e.Status)
		}
	}
	mustMark(t, filepath.Join(follower.Config.Inference.Models, text))
	for range sent {
		got := <-results
		whole := !got.stream && strings.Contains(got.body, `"content": "`+text+`"`) ||
			got.stream && strings.Contains(got.body, `"content": "2"`) && strings.HasSuffix(got.body, "data: [DONE]\n\n")
		if got.status != http.StatusOK || !whole || strings.Contains(got.body, `"error"`) {
			t.Errorf("of a replica that stops, stream %t: %d: %q", got.stream, got.status, got.body)
		}
	}
	for _, replica := range drained {
		var e *compute.Execution
		nodetest.Eventually(t, endWait, "the replica to end", func() (ok bool) {
			e, ok = follower.Peer().View().AnyExecution(replica)
			return ok && e.Status.Terminal()
		})
		if e.Status != compute.StatusCancelled {
			t.Errorf("%s ends as %v", replica, e.Status)
		}
	}
}

// checkReadOnly has the engine of a deployment try to change its model, in a directory of the
// node that everybody may write to, and to write beside its own program.
func checkReadOnly(t *testing.T, url, key string, id compute.ExecutionID, dir, name string) {
	t.Helper()
	file := filepath.Join(dir, name)
	for _, open := range []string{dir, file} {
		if err := os.Chmod(open, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, url+"/openai/v1/chat/completions", key,
		prompt(id.String(), "write", false))
	var got struct {
		Choices []struct{ Message struct{ Content string } }
	}
	var tried map[string]string
	if err := json.Unmarshal([]byte(body), &got); err != nil || answer.StatusCode != http.StatusOK || len(got.Choices) != 1 ||
		json.Unmarshal([]byte(got.Choices[0].Message.Content), &tried) != nil || len(tried) != 13 {
		t.Fatalf("%d: %s", answer.StatusCode, body)
	}
	for how, failure := range tried {
		if failure != "EROFS" {
			t.Errorf("%s: the engine gets %s", how, failure)
		}
	}
	after, err := os.ReadFile(file)
	entries, bad := os.ReadDir(dir)
	if err != nil || bad != nil || !bytes.Equal(before, after) || len(entries) != 1 {
		t.Errorf("the model is %q, it was %q, in %v: %v, %v", after, before, entries, err, bad)
	}
}

// TestInference deploys a model and asks it through every node.
func TestInference(t *testing.T) {
	t.Parallel() // It mostly waits.
	hub := newModelHub(t)
	hidden := filepath.Join(t.TempDir(), "serve") // No sandbox has it.
	if err := os.WriteFile(hidden, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c, account, api := inferenceCluster(t, 3, func(cfg *nodetest.NodeConfig) {
		cfg.Inference.Engines = append(cfg.Inference.Engines, engine.Engine{
			Name: "hidden", Command: []string{hidden}, Formats: []string{"gguf"},
		})
		cfg.Inference.Hub, cfg.Inference.Starts = hub.url, 5 // Streams below end the engine three times.
		if cfg.Name == nodetest.Config(t, 0).Name {          // Only checkBackoff deploys through it.
			cfg.Services.BackoffFirst, cfg.Services.BackoffMost = time.Hour, time.Hour
		}
	})
	deployment := deploymentOf("tiny/echo")
	deployment.MaxReplicas = 1 // A slow machine adds none.
	created, err := api.Deploy(t.Context(), deployment)
	if err != nil {
		t.Fatal(err)
	}
	broken, err := api.Deploy(t.Context(), deploymentOf("tiny/broken"))
	if err != nil {
		t.Fatal(err)
	}
	id := created.ID.String()
	d := mustDeployment(t, api, created.ID, "ready")
	if d.Ready != 1 || d.Engine != "echo" || d.Model != "tiny/echo" || d.Profile != "cpu" {
		t.Errorf("it is %+v", d)
	}
	url := c.Nodes[len(c.Nodes)-1].URL() // It does not lead.
	t.Run("hop", func(t *testing.T) { checkHop(t, c, account.Key, d) })
	t.Run("listed", func(t *testing.T) { checkListed(t, api, url, account.Key, created.ID) })
	t.Run("flood", func(t *testing.T) { checkFlood(t, c, api, account.Key, d) })
	chat := "/openai/v1/chat/completions"
	t.Run("verbatim", func(t *testing.T) { checkVerbatim(t, c, account.Key, id, created.ID) })
	t.Run("every node", func(t *testing.T) {
		for _, n := range c.Nodes {
			answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, n.URL()+chat, account.Key, prompt(id, "hello", false))
			var got struct {
				Path, Model string
				Auth        *string
				Links       []string
			}
			if err := json.Unmarshal([]byte(body), &got); err != nil || answer.StatusCode != http.StatusOK ||
				got.Path != "/v1/chat/completions" || got.Model != id || got.Auth != nil ||
				!slices.Equal(got.Links, []string{"lo"}) || // It has no network but its own.
				answer.Header.Get("X-Ratelimit-Remaining-Requests") == "" || answer.Header.Get("X-Request-Id") == "" {
				t.Errorf("%d: %s, headers %v", answer.StatusCode, body, answer.Header)
			}
		}
	})
	t.Run("read-only", func(t *testing.T) {
		checkReadOnly(t, url, account.Key, created.ID, filepath.Join(c.Nodes[0].Config.Inference.Models, "tiny", "echo"), "model.gguf")
	})
	t.Run("offers", func(t *testing.T) {
		for n := range c.Follower().Peer().View().Nodes() {
			var got []compute.Offer
			for _, name := range []string{"echo", "hidden", "sglang"} { // The last one in an image, without Docker.
				if offer := compute.InferenceOffer(name); slices.Contains(n.Offers, offer) {
					got = append(got, offer)
				}
			}
			if !slices.Equal(got, []compute.Offer{compute.InferenceOffer("echo")}) {
				t.Errorf("%s offers %v", n.Name, got)
			}
		}
	})
	t.Run("errors", func(t *testing.T) { checkModelErrors(t, c, url, id) })
	t.Run("too large", func(t *testing.T) { checkTooLarge(t, c, api) })
	t.Run("affinity", func(t *testing.T) { checkAffinity(t, c, api, account.Key) })
	t.Run("sources", func(t *testing.T) {
		foreign, root := nodetest.MustClient(t, c.MustAccount("other").Key, url), nodetest.MustClient(t, c.RootToken, url)
		checkModelSources(t, api, foreign, root, account.Slug)
	})
	t.Run("progress", func(t *testing.T) { checkModelProgress(t, api, hub.release) })
	t.Run("streams", func(t *testing.T) { checkModelStreams(t, api, url, account.Key, created.ID) })
	t.Run("failed", func(t *testing.T) {
		d := mustDeployment(t, api, broken.ID, "failed")
		if d.Detail == nil || !strings.Contains(strings.Join(d.EngineOutput, "\n"), "bad magic") {
			t.Errorf("it has %v and %q", d.Detail, d.EngineOutput)
		}
		answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, url+chat, account.Key, prompt(broken.ID.String(), "x", false))
		if answer.StatusCode != http.StatusConflict || !strings.Contains(body, "deployment_failed") {
			t.Errorf("%d: %s", answer.StatusCode, body)
		}
	})
	t.Run("back-off", func(t *testing.T) { checkBackoff(t, c, api, account.Key) })
	t.Run("lost replica", func(t *testing.T) { checkLostReplica(t, c, account.Key, url) })
	t.Run("nothing kept", func(t *testing.T) { checkNothingKept(t, c, account.Key, url, id) })
	t.Run("update", func(t *testing.T) { checkUpdate(t, c, api, account.Key, created.ID) })
	t.Run("drain", func(t *testing.T) { checkDrained(t, c, api, account.Key, created.ID) })
	t.Run("stop and start", func(t *testing.T) {
		checkFinishes(t, c, api, account.Key, "stopped", created.ID, 1, func() {
			if _, err := api.StopDeployment(t.Context(), created.ID); err != nil {
				t.Fatal(err)
			}
		})
		mustDeployment(t, api, created.ID, "stopped")
		checkReplicasPaid(t, c, api, created.ID)
		nodetest.Eventually(t, endWait, "a follower to know it", func() bool {
			answer, _ := mustAsk(t, http.DefaultClient, http.MethodPost, url+chat, account.Key, prompt(id, "x", false))
			return answer.StatusCode == http.StatusConflict
		})
		if _, err := api.StartDeployment(t.Context(), created.ID); err != nil {
			t.Fatal(err)
		}
		// The request waits for the replica.
		if answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, url+chat, account.Key, prompt(id, "x", false)); answer.StatusCode !=
			http.StatusOK {
			t.Errorf("%d: %s", answer.StatusCode, body)
		}
	})
	t.Run("delete", func(t *testing.T) {
		checkFinishes(t, c, api, account.Key, "deleted", created.ID, 1, func() {
			if _, err := api.DeleteDeployment(t.Context(), created.ID); err != nil {
				t.Fatal(err)
			}
		})
		if _, err := api.Deployment(t.Context(), created.ID); err == nil {
			t.Error("it is still there")
		}
		nodetest.Eventually(t, endWait, "a follower to know it", func() bool {
			answer, _ := mustAsk(t, http.DefaultClient, http.MethodPost, url+chat, account.Key, prompt(id, "x", false))
			return answer.StatusCode == http.StatusNotFound
		})
	})
}

// checkModelErrors asks for what there is not.
func checkModelErrors(t *testing.T, c *nodetest.Cluster, url, id string) {
	mine, foreign := c.MustAccount("one").Key, c.MustAccount("two").Key
	for _, test := range []struct {
		name, path, key, body string
		status                int
		code                  string
	}{
		{"no key", "/openai/v1/chat/completions", "", `{"model":"` + id + `"}`, http.StatusUnauthorized, "invalid_api_key"},
		{"foreign", "/openai/v1/chat/completions", foreign, `{"model":"` + id + `"}`, http.StatusNotFound, "model_not_found"},
		{"unknown", "/openai/v1/chat/completions", mine, `{"model":"gpt-4"}`, http.StatusNotFound, "model_not_found"},
		{"no model", "/openai/v1/completions", mine, `{}`, http.StatusBadRequest, "missing_model"},
		{"garbage", "/openai/v1/embeddings", mine, `{"secret`, http.StatusBadRequest, "invalid_json"},
		{"path", "/openai/v1/other", mine, `{}`, http.StatusNotFound, "unknown_url"},
		{"serverless", "/api/v2/external/serverless/chat/completions", mine, `{"model":"x"}`, http.StatusNotFound, "model_not_found"},
	} {
		answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, url+test.path, test.key, strings.NewReader(test.body))
		var got struct {
			Error struct{ Message, Type, Code string }
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || answer.StatusCode != test.status || got.Error.Code != test.code ||
			got.Error.Message == "" || strings.Contains(body, "secret") {
			t.Errorf("%s: %d: %s", test.name, answer.StatusCode, body)
		}
	}
	api := nodetest.MustClient(t, mine, url)
	for field, test := range map[string]struct {
		change func(*wire.DeploymentCreate)
		status int
	}{
		"engine":      {func(d *wire.DeploymentCreate) { d.Engine = "none" }, http.StatusBadRequest},
		"vllm_args":   {func(d *wire.DeploymentCreate) { d.Args = "--host 0.0.0.0" }, http.StatusBadRequest},
		"hf_model_id": {func(d *wire.DeploymentCreate) { d.Model = "../etc" }, http.StatusBadRequest},
		"target_rps":  {func(d *wire.DeploymentCreate) { d.TargetRPS = 0 }, http.StatusUnprocessableEntity},
		"gpu_type":    {func(d *wire.DeploymentCreate) { d.GPUType = "b200" }, http.StatusBadRequest},
	} {
		d := deploymentOf("tiny/echo")
		test.change(&d)
		var refused *client.Error
		if _, err := api.Deploy(t.Context(), d); !errors.As(err, &refused) || refused.Status != test.status {
			t.Errorf("%s: %v", field, err)
		}
	}
	if answer, body := mustAsk(t, http.DefaultClient, http.MethodGet, url+"/openai/v1/models", mine, nil); answer.StatusCode !=
		http.StatusOK || !strings.Contains(body, `"data":[]`) {
		t.Errorf("%d: %s", answer.StatusCode, body)
	}
}

// checkModelStreams reads streams to their ends: the usual one, one whose engine dies,
// and one that the client leaves.
func checkModelStreams(t *testing.T, api *client.Client, url, key string, id compute.ExecutionID) {
	base, url := url, url+"/openai/v1/chat/completions"
	measured := func() float64 {
		return seriesOf(t, base, `berth_inference_time_per_output_token_seconds_count{model="dedicated"}`)
	}
	before := measured()
	answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, url, key, prompt(id.String(), "count", true))
	if answer.StatusCode != http.StatusOK || !strings.Contains(body, `"content": "2"`) || !strings.Contains(body, "prompt_tokens") ||
		!strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("%d: %q", answer.StatusCode, body)
	}
	nodetest.Eventually(t, endWait, "the time of its tokens to be measured", func() bool { return measured() > before })
	next, leave := endlessStream(t, base, key, id)
	next()
	leave()
	nodetest.Eventually(t, endWait, "the engine to learn that the client is gone", func() bool {
		logs, err := api.DeploymentLogs(t.Context(), id)
		return err == nil && strings.Contains(fmt.Sprint(logs), "the client is gone")
	})
	// A prompt on which the engine ends is sent once more, and not until the deployment has failed.
	answer, body = mustAsk(t, http.DefaultClient, http.MethodPost, url, key, prompt(id.String(), "exit", false))
	if answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, `"code":"replica_lost"`) {
		t.Errorf("%d: %q", answer.StatusCode, body)
	}
	mustDeployment(t, api, id, "ready") // Again.
	answer, body = mustAsk(t, http.DefaultClient, http.MethodPost, url, key, prompt(id.String(), "die", true))
	if answer.StatusCode != http.StatusOK || !strings.Contains(body, `"code":"replica_failed"`) {
		t.Errorf("%d: %q", answer.StatusCode, body)
	}
	mustDeployment(t, api, id, "ready") // Again.
}

// TestInferencePauses pauses a published model that nobody asks. The next request, of
// another organization at a follower, resumes it and waits. Its replica is on a worker,
// which is asked too.
func TestInferencePauses(t *testing.T) {
	t.Parallel() // It mostly waits.
	const limited, worker = 2, 3
	c, account, api := inferenceCluster(t, 4, func(cfg *nodetest.NodeConfig) {
		cfg.Inference.IdlePause = 2 * time.Second
		narrow := cfg.Inference.Engines[0]
		narrow.Name, narrow.Concurrency = narrowEngine, narrowPlaces
		cfg.Inference.Engines = append(cfg.Inference.Engines, narrow)
		switch cfg.Name {
		case nodetest.Config(t, limited).Name:
			strictly(cfg)
		case nodetest.Config(t, worker).Name:
			cfg.Role, cfg.GPUs.Simulated = nodetest.Worker, []string{"b200:1"}
		}
	})
	strict := c.Nodes[limited]
	mustNotLead(t, c, strict)
	mustMark(t, lateStart(strict))
	late := deploymentOf("tiny/late")
	late.TargetRPS, late.TargetP95 = 1000, 60_000
	patient, err := api.Deploy(t.Context(), late)
	if err != nil {
		t.Fatal(err)
	}
	want := deploymentOf("tiny/echo")
	want.GPUType = "b200"
	created, err := api.Deploy(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	operator := nodetest.MustClient(t, c.RootToken, c.Follower().URL())
	if _, err := operator.SetModel(t.Context(), "lab/echo", wire.NewModel{
		Deployment: created.ID.String(), Prompt: compute.Credit, Completion: compute.Credit,
	}); err != nil {
		t.Fatal(err)
	}
	d := mustDeployment(t, api, created.ID, "ready")
	if len(d.Rows) != 1 || d.Rows[0].Node == nil || *d.Rows[0].Node != c.Nodes[worker].Config.Name {
		t.Errorf("its replicas are %+v", d.Rows)
	}
	if d = mustDeployment(t, api, created.ID, "paused"); d.Replicas != 0 {
		t.Errorf("it wants %d replicas", d.Replicas)
	}
	other := c.MustAccount("other")
	for _, asked := range []struct{ url, key, model string }{
		{c.Follower().URL(), other.Key, "lab/echo"},
		{c.Nodes[worker].URL(), other.Key, "lab/echo"},
		{c.Leader().URL(), account.Key, created.ID.String()},
	} {
		answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, asked.url+"/openai/v1/chat/completions", asked.key,
			prompt(asked.model, "hello", true))
		if answer.StatusCode != http.StatusOK || !strings.HasSuffix(body, "data: [DONE]\n\n") {
			t.Errorf("%s: %d: %s", asked.model, answer.StatusCode, body)
		}
	}
	for i, url := range []string{c.Nodes[worker].URL(), c.Follower().URL(), c.Leader().URL()} {
		text := fmt.Sprint("hold ", i)
		await := func(line string) {
			t.Helper()
			nodetest.Eventually(t, endWait, "the engine to say: "+line, func() bool {
				logs, err := api.DeploymentLogs(t.Context(), created.ID)
				return err == nil && strings.Contains(fmt.Sprint(logs), line)
			})
		}
		conn := beginWhole(t, url, other.Key, prompt("lab/echo", text, false))
		await(text + " waits")
		conn.Close()
		await(text + " left")
	}
	metrics := mustFetch(t, c.Follower().URL()+"/metrics")
	if want := `berth_inference_replicas{model="lab/echo",status="ready"} 1`; !strings.Contains(metrics, "\n"+want+"\n") {
		t.Errorf("the metrics lack %s", want)
	}
	t.Run("limits", func(t *testing.T) { checkModelLimits(t, c, strict, account, other, created.ID) })
	t.Run("resume bound", func(t *testing.T) { checkResumeBound(t, c, strict, api, account.Key, patient.ID) })
	t.Run("scale down", func(t *testing.T) { checkScalesDown(t, c, api, account.Key) })
	t.Run("latency", func(t *testing.T) { checkLatencyScales(t, c, api, account.Key, patient.ID) })
	t.Run("waiting", func(t *testing.T) { checkWaitingScales(t, c, api, account.Key) })
}
