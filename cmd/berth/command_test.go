package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/cmd/berth/cli"
	"berth/cmd/berth/clitest"
	"berth/node/config"
)

// execute executes the command line.
func execute(t *testing.T, stdin string, args ...string) clitest.Result {
	t.Helper()
	return clitest.Execute(t.Context(), newRoot(), stdin, args...)
}

const (
	started = `{"execution_id":"` + clitest.SomeID + `","status":"queued","message":"ok"}`
	stream  = "id: 1\ndata: {\"output\":{\"content\":\"hello\\n\"}}\n\n" +
		"id: 2\ndata: {\"output\":{\"content\":\"oops\\n\"},\"stream\":\"stderr\"}\n\n" +
		"id: 3\ndata: {\"jobFinished\":{\"job\":{\"result\":{\"returnCode\":\"3\",\"error\":null}}}}\n\n"
	ended = `{"execution_id":"` + clitest.SomeID + `","status":"failed","status_details":"exit_code","return_code":3,` +
		`"errors":["the code exited with code 3"],"combined_output":"hello\noops\n"}`
)

func TestRunShowsOutputAndExits(t *testing.T) {
	var sent map[string]any
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"POST " + clitest.APIRoot + "/execution/streaming/start":  clitest.RecordSent(t, &sent, started),
		"GET /api/v1/stream/" + clitest.SomeID:                    clitest.Answer(stream),
		"GET " + clitest.APIRoot + "/execution/" + clitest.SomeID: clitest.Answer(ended),
	})
	t.Setenv("SECRET", "s")
	file := filepath.Join(t.TempDir(), "data.txt")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := execute(t, "print(1)", "run", "-", "--gpu", "a100:2", "--timeout", "2m", "--env", "A=b=c", "--env", "SECRET",
		"--file", "lib/data.txt="+file, "--tag", "x", "--priority", "0", "--max-credits", "0.5", "--network", "none")
	if r.Code != 3 || r.Out != "hello\n" || !strings.Contains(r.Errors, "oops\n") ||
		!strings.Contains(r.Errors, " failed: the code exited with code 3") {
		t.Errorf("got %+v", r)
	}
	text, err := json.Marshal(sent)
	want := `{"code":"print(1)","env":{"A":"b=c","SECRET":"s"},"execution_type":"gpu.a100.2x",` +
		`"import_files":"{\"lib/data.txt\":\"text\"}","max_credits":0.5,"network":"none","priority":0,"tags":["x"],"timeout":120}`
	if err != nil || string(text) != want {
		t.Errorf("sent %s (%v)\nwant %s", text, err, want)
	}
}

// TestRunSendsPrograms checks what each form of the command line sends.
func TestRunSendsPrograms(t *testing.T) {
	var sent map[string]any
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"POST " + clitest.APIRoot + "/execution/streaming/start": func(w http.ResponseWriter, r *http.Request) {
			clear(sent)
			clitest.RecordSent(t, &sent, started)(w, r)
		},
	})
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("train.py", []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ stdin, args, want string }{
		{"", "train.py -- --lr 0.1 data/", `{"args":["--lr","0.1","data/"],"code":"1","file_name":"train.py"`},
		{"", "train.py --name x --timeout 2m", `{"code":"1","file_name":"train.py","name":"x","timeout":120`},
		{"in", "-c 1 -- -x", `{"args":["-x"],"code":"1","stdin":"in"`},
		{"\xff", "-m a.b -- -c 1", `{"args":["-c","1"],"module":"a.b","stdin_base64":"/w=="`},
		{"", "--gpu a100 -- nvidia-smi -L", `{"command":["nvidia-smi","-L"],"execution_type":"gpu.a100"`},
		{"", "--gpu any:2 -c 1", `{"code":"1","execution_type":"gpu.any.2x"`},
		{
			"", "--gpu a100,h100:2 --min-compute-capability 8.0 -c 1",
			`{"code":"1","execution_type":"gpu.any.2x","gpu_types":["a100","h100"],"min_compute_capability":"8.0"`,
		},
		{"2", "- -- x", `{"args":["x"],"code":"2"`},
	} {
		r := execute(t, tt.stdin, append([]string{"run", "-d"}, strings.Fields(tt.args)...)...)
		text, err := json.Marshal(sent)
		if err != nil || r.Code != 0 || !strings.HasPrefix(string(text), tt.want) {
			t.Errorf("run %s sent %s (%v, %+v)\nwant %s", tt.args, text, err, r, tt.want)
		}
	}
	r := execute(t, strings.Repeat("x", 1<<20+1), "run", "-c", "1")
	if r.Code != cli.ExitUsage || !strings.Contains(r.Errors, "larger than 1 MiB (1048576 bytes): put it into a file") {
		t.Errorf("too much input: %+v", r)
	}
}

func TestRunDetached(t *testing.T) {
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"POST " + clitest.APIRoot + "/execution/streaming/start": clitest.Answer(started),
	})
	if r := execute(t, "", "run", "-d", "-c", "1"); r.Code != 0 || r.Out != clitest.SomeID+"\n" {
		t.Errorf("got %+v", r)
	}
	if r := execute(t, "", "run", "-d", "--json", "-c", "1"); r.Code != 0 || !strings.Contains(r.Out, `"status": "queued"`) {
		t.Errorf("got %+v", r)
	}
}

func TestRunJSON(t *testing.T) {
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"POST " + clitest.APIRoot + "/execution/streaming/start":  clitest.Answer(started),
		"GET " + clitest.APIRoot + "/execution/" + clitest.SomeID: clitest.Answer(ended),
	})
	r := execute(t, "", "run", "--json", "-c", "1")
	var e map[string]any
	if err := json.Unmarshal([]byte(r.Out), &e); err != nil || r.Code != 3 || e["return_code"] != 3.0 {
		t.Errorf("got %+v, %v", r, err)
	}
}

// TestRunWaitsAndIsRefused checks that the command prints why the execution
// waits for a node. A refusal has an exit code that no execution has.
func TestRunWaitsAndIsRefused(t *testing.T) {
	waits := []string{"scheduling", "gpus_busy", "gpus_busy", ""}
	asked := 0
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"POST " + clitest.APIRoot + "/execution/streaming/start": clitest.Answer(started),
		"GET /api/v1/stream/" + clitest.SomeID:                   clitest.Answer(stream),
		"GET " + clitest.APIRoot + "/execution/" + clitest.SomeID: func(w http.ResponseWriter, r *http.Request) {
			why := waits[min(asked, 3)]
			if asked++; why == "" {
				clitest.Answer(ended)(w, r)
				return
			}
			clitest.Answer(`{"execution_id":"`+clitest.SomeID+`","status":"queued","pending_reason":"`+why+`"}`)(w, r)
		},
	})
	r := execute(t, "", "run", "-c", "1")
	if r.Code != 3 || strings.Count(r.Errors, "it waits: ") != 1 || !strings.Contains(r.Errors, "it waits: gpus_busy\n") {
		t.Errorf("got %+v", r)
	}
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"POST " + clitest.APIRoot + "/execution/streaming/start": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"detail":"no credits left","code":"credits_exhausted"}`)
		},
	})
	if r := execute(t, "", "run", "-c", "1"); r.Code != cli.ExitSystem || !strings.Contains(r.Errors, "no credits left") {
		t.Errorf("got %+v", r)
	}
}

// TestRunInterrupted checks that Ctrl-C leaves the execution running and prints
// how to follow it again.
func TestRunInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"POST " + clitest.APIRoot + "/execution/streaming/start":  clitest.Answer(started),
		"GET " + clitest.APIRoot + "/execution/" + clitest.SomeID: clitest.Answer(`{"status":"running"}`),
		"GET /api/v1/stream/" + clitest.SomeID: func(_ http.ResponseWriter, r *http.Request) {
			cancel()
			<-r.Context().Done()
		},
	})
	r := clitest.Execute(ctx, newRoot(), "", "run", "-c", "1")
	if r.Code != cli.ExitInterrupted || !strings.Contains(r.Errors, "berth logs -f "+clitest.SomeID) ||
		!strings.Contains(r.Errors, "berth abort "+clitest.SomeID) {
		t.Errorf("got %+v", r)
	}
}

func TestLogs(t *testing.T) {
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET /api/v1/stream/" + clitest.SomeID:                    clitest.Answer(stream),
		"GET " + clitest.APIRoot + "/execution/" + clitest.SomeID: clitest.Answer(ended),
	})
	if r := execute(t, "", "logs", clitest.SomeID); r.Code != 0 || r.Out != "hello\n" || r.Errors != "oops\n" {
		t.Errorf("logs: got %+v", r)
	}
	if r := execute(t, "", "logs", "-f", clitest.SomeID); r.Code != 3 || r.Out != "hello\n" {
		t.Errorf("logs -f: got %+v", r)
	}
	want := `{"seq":1,"stream":"stdout","content":"hello\n"}
{"seq":2,"stream":"stderr","content":"oops\n"}
{"seq":3,"return_code":"3"}
`
	if r := execute(t, "", "logs", "--json", clitest.SomeID); r.Code != 0 || r.Out != want {
		t.Errorf("logs --json: got %+v", r)
	}
}

func TestLogsSoFar(t *testing.T) {
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET " + clitest.APIRoot + "/execution/" + clitest.SomeID: clitest.Answer(`{"status":"running","combined_output":"so far"}`),
	})
	if r := execute(t, "", "logs", clitest.SomeID); r.Code != 0 || r.Out != "so far" {
		t.Errorf("got %+v", r)
	}
}

func TestPs(t *testing.T) {
	row := `{"execution_id":"` + clitest.SomeID + `","execution_type":"python","status":"running","hardware_profile":"cpu",` +
		`"created_at":"2026-01-02T03:04:05Z","metadata":{"node":"n1"}}`
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET " + clitest.APIRoot + "/workloads/list":  clitest.Answer("[" + row + "]"),
		"GET " + clitest.APIRoot + "/billing/history": clitest.Answer(`{"executions":[` + row + "," + row + `]}`),
	})
	r := execute(t, "", "ps")
	if lines := strings.Split(strings.TrimSpace(r.Out), "\n"); r.Code != 0 || len(lines) != 2 ||
		!strings.HasPrefix(lines[0], "ID") || !strings.HasPrefix(lines[1], clitest.SomeID+"   python   cpu") {
		t.Errorf("got %+v", r)
	}
	if r := execute(t, "", "ps", "-a", "--json"); strings.Count(r.Out, clitest.SomeID) != 2 {
		t.Errorf("got %+v", r)
	}
}

func TestUsageErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("BERTH_ADDR", "")
	t.Setenv("BERTH_TOKEN", "")
	tests := []struct {
		args string
		want string // Part of the output.
	}{
		{"bogus", `unknown command "bogus"`},
		{"--bogus", "unknown flag: --bogus; see berth --help"},
		{"run", "want one of a file, -c CODE, -m MODULE and -- COMMAND"},
		{"run -c 1 --gpu t4 --profile cpu.4x", "--gpu and --profile mean the same"},
		{"run /bin/true", "is not UTF-8 text"},
		{"run /", "is a directory"},
		{"run a.py -c 1", "want one of a file"},
		{"run -c 1 -m x", "want one of a file"},
		{"run -- ", "want one of a file"},
		{"run a b", "those of the code follow --, as in berth run a -- b"},
		{"run /nowhere/x.py", "no such file"},
		{"run -c 1", "no cluster: sign in with berth login"},
		{"run -c 1 --addr http://127.0.0.1:1", "or set BERTH_TOKEN or --token-file"},
		{"run -c 1 --gpu h100:3", "GPUs come as 1x, 2x, 4x or 8x"},
		{"run -c 1 --timeout 1.5s", "whole seconds"},
		{"run -c 1 --timeout soon", "seconds or a duration"},
		{"run -c 1 --env NOT_SET_HERE", "NOT_SET_HERE is not set here"},
		{"run -c 1 --max-credits x", "--max-credits"},
		{"admin token create", "--out is needed"},
		{"admin user create --email a@b.c", "--org is needed"},
		{"node extra", "unknown command"},
		{"node --voters 2", "voters"},
		{"dev --nodes x", "invalid argument"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			r := execute(t, "", strings.Fields(tt.args)...)
			if r.Code != cli.ExitUsage || !strings.Contains(r.Errors, tt.want) {
				t.Errorf("got %+v, want exit code %d and %q", r, cli.ExitUsage, tt.want)
			}
		})
	}
}

// TestLocalCluster checks that a client without an address uses the cluster of
// berth dev.
func TestLocalCluster(t *testing.T) {
	var bearer string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bearer = r.Header.Get("Authorization")
		clitest.Answer("[]")(w, r)
	}))
	t.Cleanup(server.Close)
	t.Chdir(t.TempDir())
	t.Setenv("BERTH_ADDR", "")
	t.Setenv("BERTH_TOKEN", "")
	if err := os.MkdirAll(".berth/demo", 0o700); err != nil {
		t.Fatal(err)
	}
	state := `{"nodes":[{"api":"` + server.URL + `"}],"api_key":"lk_local","root_token":"brt_local"}`
	if err := os.WriteFile(".berth/demo/cluster.json", []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	r := execute(t, "", "ps")
	if r.Code != 0 || bearer != "Bearer lk_local" || !strings.Contains(r.Errors, "using the cluster in .berth/demo") {
		t.Errorf("got %+v with %q", r, bearer)
	}
	if execute(t, "", "admin", "grant", "--org", "a", "--credits", "1"); bearer != "Bearer brt_local" {
		t.Errorf("an operator's call carried %q", bearer)
	}
}

// TestNodeFlags checks that each setting of a node is a flag whose help names
// its variable and its default. A flag overrides a variable, which overrides
// the file.
func TestNodeFlags(t *testing.T) {
	cmd := newNode()
	for _, key := range config.Keys() {
		f := cmd.Flags().Lookup(key.Path)
		if f == nil {
			t.Errorf("there is no flag --%s", key.Path)
			continue
		}
		if !strings.Contains(f.Usage, "$"+key.Env()) || !strings.Contains(f.Usage, key.Default) {
			t.Errorf("--%s says %q, want its variable and its default", key.Path, f.Usage)
		}
	}
	file := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(file, []byte("name: file\napi:\n  addr: 127.0.0.1:1\nrpc:\n  addr: 127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BERTH_API_ADDR", "127.0.0.1:2")
	t.Setenv("BERTH_RPC_ADDR", "127.0.0.1:2")
	if err := cmd.Flags().Parse([]string{"--rpc.addr", "127.0.0.1:3"}); err != nil {
		t.Fatal(err)
	}
	cfg, err := loadConfig(file, cmd.Flags())
	if err != nil || cfg.Name != "file" || cfg.API.Addr != "127.0.0.1:2" || cfg.RPC.Addr != "127.0.0.1:3" || cfg.Storage.Replicas != 2 {
		t.Errorf("got %+v, %v", cfg, err)
	}
}

func TestConfigCheck(t *testing.T) {
	dir := t.TempDir()
	bad, good := filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "good.yaml")
	if err := os.WriteFile(bad, []byte("name: n1\nvoters: 2\napi:\n  addr: nonsense\nvotes: 3\nstorage:\n  replicas: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(good, []byte("name: n1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := execute(t, "", "config", "check", bad)
	for _, want := range []string{":2: voters: ", ":4: api.addr: ", ":5: votes: ", ":7: storage.replicas: "} {
		if !strings.Contains(r.Out, bad+want) {
			t.Errorf("got %+v, want %q in it", r, want)
		}
	}
	if r.Code != cli.ExitFailed || strings.Count(r.Out, "\n") != 4 {
		t.Errorf("got %+v, want four faults", r)
	}
	r = execute(t, "", "config", "check", "--json", bad)
	var report struct{ Faults []checkedFault }
	if err := json.Unmarshal([]byte(r.Out), &report); err != nil || r.Code != cli.ExitFailed || len(report.Faults) != 4 {
		t.Errorf("got %+v, %v", r, err)
	}
	if r := execute(t, "", "config", "check", good); r.Code != 0 {
		t.Errorf("got %+v", r)
	}
}

func TestVersion(t *testing.T) {
	if r := execute(t, "", "version"); r.Code != 0 || !strings.HasPrefix(r.Out, "berth "+version) {
		t.Errorf("got %+v", r)
	}
	if r := execute(t, "", "version", "--json"); !strings.Contains(r.Out, `"version": "`+version+`"`) {
		t.Errorf("got %+v", r)
	}
}

func TestTimeoutInSeconds(t *testing.T) {
	for text, want := range map[string]float64{"90": 90, "90s": 90, "1m30s": 90} {
		var sent map[string]any
		clitest.MustCluster(t, map[string]http.HandlerFunc{
			"POST " + clitest.APIRoot + "/execution/streaming/start": clitest.RecordSent(t, &sent, started),
		})
		if r := execute(t, "", "run", "-d", "-c", "1", "--timeout", text); r.Code != 0 || sent["timeout"] != want {
			t.Errorf("--timeout %s: sent %v, got %+v", text, sent["timeout"], r)
		}
	}
}
