package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
	"berth/node/inference/engine"
	"berth/node/nodetest"
)

func TestMain(m *testing.M) { nodetest.Main(m) }

// helloEngine is a program that answers GET, once it has said which model it has loaded. It ends
// if the model is broken.
const helloEngine = `
import http.server, sys
text = open(sys.argv[2]).read()
print("loaded a model that is", text, flush=True)
if text == "broken": sys.exit(3)
class H(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self): self.send_response(200); self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
`

// deployWait is for a deployment to get where it should.
const deployWait = 3 * time.Minute

// TestDeployOnACluster has a follower deploy a model, list, show, update, stop, start and remove
// it by the commands for that.
func TestDeployOnACluster(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"engine.py": helloEngine, "tiny/good/model.gguf": "good", "tiny/other/model.gguf": "other", "tiny/broken/model.gguf": "broken",
	} {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := nodetest.NewWith(t, 3, func(_ int, cfg *nodetest.NodeConfig) {
		cfg.Inference.Models, cfg.Inference.Hub, cfg.Inference.Starts = dir, "off", 1
		cfg.Inference.Engines = []engine.Engine{{
			Name: "hello", Command: []string{"/usr/bin/python3", dir + "/engine.py", "{port}", "{model_path}"}, Dirs: []string{dir},
			Formats: []string{engine.GGUF}, HealthPath: "/health", Allow: []string{"--threads=int"},
		}}
	})
	t.Setenv("BERTH_ADDR", c.Follower().URL())
	t.Setenv("BERTH_TOKEN", c.MustAccount("acme").Key)
	do := func(args ...string) string {
		t.Helper()
		r := execute(t, "", append([]string{"deploy"}, args...)...)
		if r.Code != 0 {
			t.Fatalf("berth deploy %s: %d %s", strings.Join(args, " "), r.Code, r.Errors)
		}
		return r.Out
	}
	id := strings.TrimSpace(do("create", "tiny/good", "--engine", "hello", "--gpu", "cpu", "--arg=--threads=1", "--name", "chat"))
	if _, err := compute.ParseExecutionID(id); err != nil {
		t.Fatalf("create printed %q: %v", id, err)
	}
	show := func() (d wire.Deployment) {
		t.Helper()
		if err := json.Unmarshal([]byte(do("show", "--json", id)), &d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	becomes := func(status string) {
		t.Helper()
		nodetest.Eventually(t, deployWait, "the deployment to be "+status, func() bool { return show().Status == status })
	}
	becomes("ready")
	if d := show(); d.ID.String() != id || d.Model != "tiny/good" || d.Ready != 1 || strings.Join(d.Args, " ") != "--threads 1" {
		t.Errorf("show prints %+v", d)
	}
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"ls"}, []string{id, "tiny/good", "hello", "ready", "1/1"}},
		{[]string{"ls", "--json"}, []string{`"total": 1`, id}},
		{[]string{"show", id}, []string{"tiny/good is ready on hello: " + c.Follower().URL() + "/openai/v1", "running"}},
	} {
		out := do(test.args...)
		for _, want := range test.want {
			if !strings.Contains(out, want) {
				t.Errorf("%q prints %q without %q", test.args, out, want)
			}
		}
	}
	prints := func(line string) {
		t.Helper()
		nodetest.Eventually(t, deployWait, "the log to have: "+line, func() bool { return strings.Contains(do("logs", id), line+"\n") })
	}
	prints("loaded a model that is good")
	do("update", id, "--model", "tiny/other") // It waits.
	if d := show(); d.Model != "tiny/other" || d.Update != nil {
		t.Errorf("after an update show prints %+v", d)
	}
	prints("loaded a model that is other")
	if out := do("stop", id); !strings.Contains(out, "The deployment is stopped.") {
		t.Errorf("stop prints %q", out)
	}
	becomes("stopped")
	if out := do("start", id); !strings.Contains(out, "The deployment starts.") {
		t.Errorf("start prints %q", out)
	}
	becomes("ready")
	if r := execute(t, "", "deploy", "create", "tiny/broken", "--engine", "hello", "--gpu", "cpu"); r.Code != cli.ExitFailed ||
		!strings.Contains(r.Errors, "loaded a model that is broken") {
		t.Errorf("create of a broken model: %+v", r)
	}
	if out := do("rm", id); !strings.Contains(out, "The deployment ends.") {
		t.Errorf("rm prints %q", out)
	}
	if out := do("ls"); strings.Contains(out, id) || !strings.Contains(out, "tiny/broken") {
		t.Errorf("after rm ls prints %q", out)
	}
	if r := execute(t, "", "deploy", "show", id); r.Code == 0 {
		t.Errorf("after rm show prints %q", r.Out)
	}
}
