package engine_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/node/inference/engine"
)

func mustEngine(t *testing.T, name string) *engine.Engine {
	t.Helper()
	set, err := engine.NewSet(nil)
	if err != nil {
		t.Fatal(err)
	}
	e, ok := set.Get(name)
	if !ok {
		t.Fatalf("no engine %s", name)
	}
	return e
}

// TestArgv builds the command lines of the shipped engines.
func TestArgv(t *testing.T) {
	l := engine.Launch{
		ModelPath: "/model", Model: "a/{port}", Deployment: "d1", Port: 8000, GPUs: 2,
	}
	for _, c := range []struct {
		engine, args string
		want         []string // In this order, neighbours.
	}{
		{"vllm", "--max-model-len 4096 --enforce-eager --dtype=bfloat16 --cpu-offload-gb 0.5", []string{
			"vllm", "serve", "/model", "--host", "127.0.0.1", "--port", "8000", "--served-model-name", "d1", "a/{port}",
			"--tensor-parallel-size", "2", "--max-model-len", "4096", "--enforce-eager",
			"--dtype", "bfloat16", "--cpu-offload-gb", "0.5",
		}},
		{"llama.cpp", "--ctx-size=2048", []string{
			"llama-server", "--model", "/model", "--alias", "d1", "--host", "127.0.0.1", "--port", "8000", "--metrics",
			"--no-webui", "--ctx-size", "2048",
		}},
		{"llama.cpp", "--embeddings", []string{ // For a model of embeddings: with it, a server answers no chats.
			"llama-server", "--model", "/model", "--alias", "d1", "--host", "127.0.0.1", "--port", "8000", "--metrics",
			"--no-webui", "--embeddings",
		}},
		{"sglang", "--mem-fraction-static 0.8 --cpu-offload-gb=10", []string{
			"python3", "-m", "sglang.launch_server", "--model-path", "/model", "--host", "127.0.0.1", "--port", "8000",
			"--served-model-name", "d1", "--tp-size", "2", "--enable-metrics", "--mem-fraction-static", "0.8",
			"--cpu-offload-gb", "10",
		}},
	} {
		e := mustEngine(t, c.engine)
		args, err := e.Args(c.args)
		if err != nil {
			t.Fatalf("%s: %v", c.engine, err)
		}
		l.Args = args
		got, err := e.Argv(l)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, %v", c.engine, got, err)
		}
	}
	got, err := mustEngine(t, "ollama").Argv(engine.Launch{ModelPath: "/model/a.gguf", Deployment: "d1"})
	if n := len(got); err != nil || n < 3 || got[n-2] != "/model/a.gguf" || got[n-1] != "d1" {
		t.Errorf("ollama: %q, %v", got, err)
	}
}

// TestPlaces reads from the arguments of a deployment how many requests its replicas answer
// at once.
func TestPlaces(t *testing.T) {
	for _, test := range []struct {
		engine, args string
		want         int
	}{
		{"llama.cpp", "", 16},
		{"llama.cpp", "--threads 2 --parallel 4 --jinja", 4},
		{"llama.cpp", "--jinja --parallel=2", 2},
		{"llama.cpp", "--parallel -1", 16}, // The engine decides.
		{"llama.cpp", "--parallel 0", 16},
		{"llama.cpp", "--parallel 999999999999", 1 << 16},
		{"vllm", "--max-num-seqs 8", 8},
		{"vllm", "--max-model-len 8", 256},
		{"sglang", "--max-running-requests 12", 12},
	} {
		e := mustEngine(t, test.engine)
		args, err := e.Args(test.args)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Places(args); got != test.want {
			t.Errorf("%s %s: %d, want %d", test.engine, test.args, got, test.want)
		}
	}
	own := engine.Engine{Concurrency: 3} // Whose users may not set it.
	if got := own.Places([]string{"--parallel", "9"}); got != 3 {
		t.Errorf("an argument that is not allowed: %d", got)
	}
	e := mustEngine(t, "llama.cpp") // The node starts as many as it counts on.
	if got := e.Variables(engine.Launch{})["LLAMA_ARG_N_PARALLEL"]; got != strconv.Itoa(e.Concurrency) {
		t.Errorf("llama.cpp has %s slots, and answers %d requests at once", got, e.Concurrency)
	}
}

// TestNoPromptsInLogs holds that vLLM does not log requests, whose prompts its log would
// show, by a setting that all its versions know.
func TestNoPromptsInLogs(t *testing.T) {
	e := mustEngine(t, "vllm")
	if e.Env["VLLM_LOGGING_LEVEL"] != "WARNING" || slices.Contains(e.Command, "--disable-log-requests") {
		t.Errorf("it is started as %v with %v", e.Command, e.Env)
	}
}

// TestHostileArgs refuses arguments by which a user of any shipped engine would open ports,
// read files, replace the model or hide one argument in another.
func TestHostileArgs(t *testing.T) {
	everywhere := []string{
		"--host 0.0.0.0", "--port 22", "--port=22", "--model /etc/shadow", "/etc/shadow", "-h", "--", "\"--host\" x", "--config /etc/passwd",
		"--chat-template /etc/shadow", "--api-key x", "--seed 1 0.0.0.0", "--log-file /tmp/x", "-O3", "serve",
	}
	for name, own := range map[string][]string{
		"vllm": {
			"--served-model-name x", "--download-dir /", "--ssl-keyfile /etc/shadow", "--trust-remote-code",
			"--allowed-local-media-path /", "--tokenizer evil/x", "--lora-modules a=/etc",
			"--worker-cls os.system", "--kv-transfer-config {}", "--max-model-len", "--max-model-len x", "--max-model-len=1;ls",
			"--enforce-eager=1", "--enforce-eager --enforce-eager", "--dtype ../../etc", "--dtype=/etc/shadow", "--dtype @file",
			"--dtype --host", "--quantization $(id)", "--quantization http://x", "--max-model-len 1 0.0.0.0",
			"--max-model-le 3", "--Max-Model-Len 3", "--max_model_len 3", "--dtype a\n--host", "--dtype a\x00b",
			"--max-model-len " + strings.Repeat("9", 100), strings.Repeat("--enforce-eager ", 100),
		},
		"llama.cpp": {
			"-m /etc/shadow", "--alias x", "--path /", "--api-key-file /etc/shadow", "--ssl-key-file /etc/shadow",
			"--chat-template-file /etc/shadow", "--grammar-file /etc/shadow", "--lora /etc/shadow", "--mmproj http://x", "--hf-repo evil/x",
			"--model-url http://x", "--slot-save-path /", "--rpc 1.2.3.4:5", "--override-tensor x=/etc", "--tools all", "--ctx-size",
			"--ctx-size /etc/shadow", "--ctx-size=1 --host=0.0.0.0", "--split-mode ../x", "--cache-type-k=@file", "--jinja=x", "--pooling --host",
			"--ctx-siz 3", "--parallel 1\n--port 22",
		},
		"sglang": {
			"--model-path /etc/shadow", "--tokenizer-path evil/x", "--served-model-name x", "--download-dir /", "--trust-remote-code",
			"--dist-init-addr 1.2.3.4:5", "--nccl-port 5", "--file-storage-path /", "--lora-paths /etc", "--tool-server x:1", "--dtype",
			"--dtype /etc/shadow", "--schedule-policy ../x", "--attention-backend http://x", "--context-length 1 --host 0.0.0.0",
			"--disable-cuda-graph=/etc/shadow", "--quantization @file", "--context-lengt 3",
		},
		"ollama": {"--keepalive 5m", "OLLAMA_HOST=0.0.0.0", "create x -f /etc/shadow", "--num-parallel 3"},
	} {
		e := mustEngine(t, name)
		for _, args := range slices.Concat(everywhere, own) {
			if got, err := e.Args(args); err == nil {
				t.Errorf("%s: %q passed as %q", name, args, got)
			}
			if _, err := e.Argv(engine.Launch{Args: strings.Fields(args)}); err == nil && !strings.ContainsAny(args, "\n\x00") {
				t.Errorf("%s: %q in a record passes unchecked", name, args)
			}
		}
	}
	e := mustEngine(t, "vllm")
	if _, err := e.Argv(engine.Launch{Args: []string{"--host=0.0.0.0"}}); err == nil {
		t.Error("arguments in a record pass unchecked")
	}
	if got, err := e.Args("  "); err != nil || len(got) != 0 {
		t.Errorf("nothing is %q, %v", got, err)
	}
}

// TestValidate refuses entries that could not work.
func TestValidate(t *testing.T) {
	good := engine.Engine{Name: "own", Command: []string{"/usr/bin/x", "--port", "{port}"}, Formats: []string{"gguf"}}
	for name, change := range map[string]func(*engine.Engine){
		"name":    func(e *engine.Engine) { e.Name = "A b" },
		"command": func(e *engine.Engine) { e.Command = nil },
		"format":  func(e *engine.Engine) { e.Formats = []string{"onnx"} },
		"health":  func(e *engine.Engine) { e.HealthPath = "health" },
		"metrics": func(e *engine.Engine) { e.MetricsPath = "//host/metrics" },
		"dirs":    func(e *engine.Engine) { e.Dirs = []string{"/a/../b"} },
		"place":   func(e *engine.Engine) { e.Command = []string{"x", "{host}"} },
		"allow":   func(e *engine.Engine) { e.Allow = []string{"--x=path"} },
		"own":     func(e *engine.Engine) { e.Allow = []string{"--port=int"} },
		"start":   func(e *engine.Engine) { e.StartLimit = 25 * time.Hour },
	} {
		e := good
		change(&e)
		if _, err := engine.NewSet([]engine.Engine{e}); err == nil {
			t.Errorf("%s passes", name)
		}
	}
	replaced := good
	replaced.Name = "vllm"
	set, err := engine.NewSet([]engine.Engine{good, replaced})
	if err != nil || len(set.All()) != 5 {
		t.Fatalf("%d engines, %v", len(set.All()), err)
	}
	if e, _ := set.Get("vllm"); !e.Loads("gguf") || e.Concurrency == 0 || e.StartLimit == 0 {
		t.Errorf("the own entry is %+v", e)
	}
}
