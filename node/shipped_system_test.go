package node_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/executor/docker/dockertest"
	"berth/node/inference/engine"
	"berth/node/nodetest"
)

// stubProgram stands for vLLM, llama.cpp's server and Ollama, by the name under which it is
// started. It takes arguments, variables and files as they do, and ends if it does not know
// one. It answers a chat by its arguments.
const stubProgram = `#!/usr/bin/python3
import argparse, glob, http.server, json, os, socketserver, sys, urllib.request
program, starting, store = os.path.basename(sys.argv[0]), 1, None

def gguf(path):
    with open(path, "rb") as f:
        if f.read(4) != b"GGUF": sys.exit("invalid magic characters in " + path)

def llama_server():
    p = argparse.ArgumentParser(allow_abbrev=False)
    p.add_argument("-m", "--model", required=True)
    p.add_argument("-a", "--alias", required=True)
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=8080)
    p.add_argument("-c", "--ctx-size", type=int)
    p.add_argument("-np", "--parallel", type=int, default=os.environ["LLAMA_ARG_N_PARALLEL"])
    p.add_argument("-kvu", "--kv-unified", action="store_true", default=os.environ["LLAMA_ARG_KV_UNIFIED"] == "true")
    for flag in "--metrics", "--no-webui", "--jinja", "--embeddings": p.add_argument(flag, action="store_true")
    a = p.parse_args()
    gguf(a.model)
    serve(a.host, a.port, lambda name: name == a.alias, {"/health": True, "/metrics": a.metrics})

def vllm():
    p = argparse.ArgumentParser(allow_abbrev=False)
    s = p.add_subparsers(required=True).add_parser("serve", allow_abbrev=False)
    s.add_argument("model_tag")
    s.add_argument("--host")
    s.add_argument("--port", type=int, default=8000)
    s.add_argument("--served-model-name", nargs="+")
    s.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
    s.add_argument("--max-model-len", type=int)
    s.add_argument("--dtype", choices=["auto", "bfloat16", "float", "float16", "float32", "half"])
    s.add_argument("--enforce-eager", action="store_true")
    a = p.parse_args()
    json.load(open(a.model_tag + "/config.json"))
    if not glob.glob(a.model_tag + "/*.safetensors"): sys.exit("no safetensors in " + a.model_tag)
    gpus = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    if a.tensor_parallel_size != len(gpus): sys.exit("there are the GPUs %s" % gpus)
    if os.environ["HF_HUB_OFFLINE"] != "1": sys.exit("it would ask the hub")
    serve(a.host, a.port, lambda name: name in a.served_model_name, {"/health": True, "/metrics": True})

def ollama():
    global store
    host, port = os.environ["OLLAMA_HOST"].split(":")
    at = "http://%s:%s" % (host, port)
    if sys.argv[1:] == ["list"]:
        try: urllib.request.urlopen(at + "/api/tags").read()
        except OSError as e: sys.exit("could not connect: %s" % e)
    elif sys.argv[1] == "create" and sys.argv[3] == "-f" and len(sys.argv) == 5:
        said, path = open(sys.argv[4]).read().split()
        if said != "FROM": sys.exit("unknown instruction " + said)
        gguf(path)
        urllib.request.urlopen(at + "/api/create", json.dumps({"model": sys.argv[2]}).encode()).read()
    elif sys.argv[1:] == ["serve"]:
        store = os.environ["OLLAMA_MODELS"]
        os.makedirs(store, exist_ok=True)
        serve(host, int(port), lambda name: os.path.exists(store + "/" + name), {"/api/version": True, "/api/tags": True})
    else: sys.exit("unknown command %s" % sys.argv[1:])

def serve(host, port, knows, paths):
    class H(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        def log_message(self, *a): pass
        def reply(self, status, value):
            data = json.dumps(value).encode()
            self.send_response(status); self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data))); self.end_headers(); self.wfile.write(data)
        def do_GET(self):
            global starting
            if self.path == "/health" and starting: # It is still loading the model.
                starting -= 1
                return self.reply(503, {})
            self.reply(200 if paths.get(self.path) else 404, {})
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/api/create" and store:
                open(store + "/" + body["model"], "x").close()
                return self.reply(200, {"status": "success"})
            if self.path != "/v1/chat/completions" or not knows(body["model"]): return self.reply(404, {})
            self.reply(200, {"object": "chat.completion", "model": body["model"], "argv": sys.argv[1:], "choices": []})
    class S(socketserver.ThreadingMixIn, http.server.HTTPServer):
        daemon_threads = True
        allow_reuse_address = True
    S((host, port), H).serve_forever()

{"llama-server": llama_server, "vllm": vllm, "ollama": ollama}[program]()
`

// shippedEngines returns those shipped engines that are programs of a node, as they are but
// for the PATH and the directory by which a node finds the stub of each.
func shippedEngines(t *testing.T) (engines []engine.Engine) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"llama-server", "vllm", "ollama"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(stubProgram), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range engine.Shipped() {
		if e.Image == "" {
			e.Env["PATH"], e.Dirs = dir+":/usr/bin:/bin", []string{dir}
			engines = append(engines, e)
		}
	}
	return engines
}

// mustWriteModel writes a file of a model of the owner tiny.
func mustWriteModel(t *testing.T, models, name, text string) {
	t.Helper()
	name = filepath.Join(models, "tiny", filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// mustMakeTensors writes the model tiny/tensors.
func mustMakeTensors(t *testing.T, models string) {
	t.Helper()
	mustWriteModel(t, models, "tensors/model.safetensors", "weights")
	mustWriteModel(t, models, "tensors/config.json", "{}")
}

// shippedImage returns the shipped engine that is an image, as it is but for the name of the
// image, which has a stub.
func shippedImage(t *testing.T) engine.Engine {
	t.Helper()
	all := engine.Shipped()
	e := all[slices.IndexFunc(all, func(e engine.Engine) bool { return e.Image != "" })]
	e.Image = dockertest.SGLang(t)
	return e
}

// checkShippedImage takes the shipped engine of an image to ready with two GPUs, and asks it.
func checkShippedImage(t *testing.T, c *nodetest.Cluster, account nodetest.Account, api *client.Client) {
	want := deploymentOf("tiny/tensors")
	want.Engine, want.GPUType, want.MaxReplicas = "sglang", "l40s.2x", 1
	want.Args = "--context-length=4096 --mem-fraction-static 0.8"
	created, err := api.Deploy(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	mustDeployment(t, api, created.ID, "ready")
	answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, c.Follower().URL()+"/openai/v1/chat/completions", account.Key,
		prompt(created.ID.String(), "x", false))
	var got struct {
		Argv    []string
		Offline string
	}
	argv := []string{
		"-m", "sglang.launch_server", "--model-path", "/model", "--host", "127.0.0.1", "--port", "8000",
		"--served-model-name", created.ID.String(), "--tp-size", "2", "--enable-metrics", "--context-length", "4096",
		"--mem-fraction-static", "0.8",
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || answer.StatusCode != http.StatusOK || !slices.Equal(got.Argv, argv) ||
		got.Offline != "1" {
		t.Errorf("%d: %s", answer.StatusCode, body)
	}
	if _, err := api.DeleteDeployment(t.Context(), created.ID); err != nil {
		t.Fatal(err)
	}
}

// shippedEngines takes the shipped engines to ready with programs that know no other arguments
// than those that they document, and asks each. Their users may neither open ports nor read
// files nor replace the model.
func (m *modelSources) shippedEngines() {
	models := m.small.Config.Inference.Models
	mustMakeTensors(m.T, models)
	mustWriteModel(m.T, models, "gguf/model.gguf", "GGUF weights")
	tests := []struct {
		asked, engine, model, gpu, args string
		id                              compute.ExecutionID
		argv                            func(id string) []string
	}{
		{
			asked: "llama.cpp", engine: "llama.cpp", model: "tiny/gguf", gpu: "cpu", args: "--ctx-size 2048 --parallel=4 --jinja",
			argv: func(id string) []string {
				return []string{
					"--model", "/model/model.gguf", "--alias", id, "--host", "127.0.0.1", "--port", "8000", "--metrics", "--no-webui",
					"--ctx-size", "2048", "--parallel", "4", "--jinja",
				}
			},
		},
		{
			asked: "", engine: "vllm", model: "tiny/tensors", gpu: "t4.2x", args: "--max-model-len=4096 --dtype half --enforce-eager",
			argv: func(id string) []string {
				return []string{
					"serve", "/model", "--host", "127.0.0.1", "--port", "8000", "--served-model-name", id, "tiny/tensors",
					"--tensor-parallel-size", "2", "--max-model-len", "4096", "--dtype", "half", "--enforce-eager",
				}
			},
		},
		{
			asked: "ollama", engine: "ollama", model: "tiny/gguf", gpu: "cpu",
			argv: func(string) []string { return []string{"serve"} },
		},
	}
	for i := range tests {
		test, want := &tests[i], deploymentOf(tests[i].model)
		want.Engine, want.GPUType, want.Args, want.MaxReplicas = test.asked, test.gpu, test.args, 1
		created, err := m.api.Deploy(m.Context(), want)
		if err != nil {
			m.Fatal(err)
		}
		test.id = created.ID
	}
	for _, test := range tests {
		d := mustDeployment(m.T, m.api, test.id, "ready")
		if d.Engine != test.engine || len(d.Rows) != 1 || d.Rows[0].Restarts != 0 {
			m.Errorf("%s: it is %+v", test.engine, d)
		}
		answer, body := mustAsk(m.T, http.DefaultClient, http.MethodPost, m.url+"/openai/v1/chat/completions", m.account.Key,
			prompt(test.id.String(), "x", false))
		var got struct{ Argv []string }
		if err := json.Unmarshal([]byte(body), &got); err != nil || answer.StatusCode != http.StatusOK ||
			!slices.Equal(got.Argv, test.argv(test.id.String())) {
			m.Errorf("%s: %d: %s", test.engine, answer.StatusCode, body)
		}
		m.hostileUpdates(d)
	}
	m.hostileCreates()
	for _, test := range tests {
		m.remove(m.api, test.id)
	}
}

// hostileArgs returns arguments by which users of an engine would open ports, read files,
// replace the model, and hide one of these in an argument that they may give.
func hostileArgs(by string) []string {
	return map[string][]string{
		"llama.cpp": {"--host 0.0.0.0", "--chat-template-file /etc/shadow", "--model=/etc/shadow", "--ctx-size 1 --port 22"},
		"vllm":      {"--host=0.0.0.0", "--chat-template /etc/shadow", "--model /etc/shadow", "--dtype=/etc/shadow"},
		"ollama":    {"--host 0.0.0.0", "/etc/shadow", "--model x"},
		"sglang":    {"--port 22", "--chat-template /etc/shadow", "--model-path=/etc/shadow", "--schedule-policy ../x"},
		"echo":      {"--host 0.0.0.0", "--file=/etc/shadow", "--model x", "--threads 1;x"},
	}[by]
}

// hostile checks that arguments of an engine were refused, and that the answer names their field.
func (m *modelSources) hostile(err error, args string) {
	m.Helper()
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Status != http.StatusBadRequest || refused.Code != "vllm_args" {
		m.Errorf("%q: %v", args, err)
	}
}

// hostileCreates deploys with hostile arguments for each engine: nothing is deployed.
func (m *modelSources) hostileCreates() {
	before, err := m.api.Deployments(m.Context())
	if err != nil {
		m.Fatal(err)
	}
	for _, by := range []string{"llama.cpp", "vllm", "ollama", "sglang", "echo"} {
		for _, args := range hostileArgs(by) {
			want := deploymentOf("tiny/gguf")
			want.Engine, want.GPUType, want.Args = by, "t4", args
			_, err := m.api.Deploy(m.Context(), want)
			m.hostile(err, by+" "+args)
		}
	}
	if after, err := m.api.Deployments(m.Context()); err != nil || after.Total != before.Total {
		m.Errorf("there are %d deployments, and were %d: %v", after.Total, before.Total, err)
	}
}

// hostileUpdates changes a deployment to hostile arguments: it goes on as it is.
func (m *modelSources) hostileUpdates(d wire.Deployment) {
	for _, args := range hostileArgs(d.Engine) {
		for _, model := range []string{"", "tiny/echo"} {
			_, err := m.api.UpdateDeployment(m.Context(), d.ID, wire.DeploymentUpdate{Model: model, Args: new(args)})
			m.hostile(err, d.Engine+" "+args)
		}
	}
	after := mustDeployment(m.T, m.api, d.ID, "ready")
	if after.Update != nil || after.Model != d.Model || !slices.Equal(after.Args, d.Args) ||
		after.Rows[0].ExecutionID != d.Rows[0].ExecutionID {
		m.Errorf("after refused updates it is %+v, and was %+v", after, d)
	}
}
