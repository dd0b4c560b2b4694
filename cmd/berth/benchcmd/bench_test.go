package benchcmd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/cmd/berth/cli"
	"berth/cmd/berth/clitest"
)

// execute executes a command line of berth.
func execute(t *testing.T, stdin string, args ...string) clitest.Result {
	t.Helper()
	return clitest.Execute(t.Context(), clitest.Root(New("test", "")), stdin, args...)
}

func TestParseSeeds(t *testing.T) {
	tests := []struct {
		text string
		want []uint64
		err  string
	}{
		{text: "42", want: []uint64{42}},
		{text: "42-44", want: []uint64{42, 43, 44}},
		{text: "42-43, 7", want: []uint64{42, 43, 7}},
		{text: "18446744073709551615-18446744073709551615", want: []uint64{1<<64 - 1}},
		{text: "51-42", err: `--seeds: "51-42" ends before it begins; the lower seed comes first, as in 42-51`},
		{text: "", err: `--seeds: "" is not a seed`},
		{text: "a-b", err: `--seeds: "a-b" is not a seed`},
		{text: "-1", err: `--seeds: "-1" is not a seed`},
		{text: "1-3,2", err: "--seeds: 2 is there twice"},
		{text: "0-99999999", err: "at most 10000 seeds"},
	}
	for _, tt := range tests {
		got, err := parseSeeds(tt.text)
		if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || cli.ExitCode(err) != cli.ExitUsage) {
			t.Errorf("%q: error %v, want %q", tt.text, err, tt.err)
		}
		if tt.err == "" && (err != nil || !slices.Equal(got, tt.want)) {
			t.Errorf("%q: %v, error %v, want %v", tt.text, got, err, tt.want)
		}
	}
}

// mustTrace writes a small cluster and pods for it.
func mustTrace(t *testing.T) (nodes, pods string) {
	t.Helper()
	dir := t.TempDir()
	nodes, pods = filepath.Join(dir, "nodes.csv"), filepath.Join(dir, "pods.csv")
	for path, text := range map[string]string{
		nodes: "sn,cpu_milli,memory_mib,gpu,model\na,8000,8192,2,T4\nb,8000,8192,2,G2\nc,8000,8192,0,\n",
		pods:  "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1000,1024,1,700\nq,1000,1024,1,300\nr,1000,1024,8,1000\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return nodes, pods
}

func TestBenchPacking(t *testing.T) {
	nodes, pods := mustTrace(t)
	args := []string{"bench", "packing", "--nodes", nodes, "--pods", pods, "--seeds", "1-2"}
	r := execute(t, "", append(args, "--json", "--policy", "fgd", "--churn", "0.5", "--arrivals", "50")...)
	var got map[string]any
	if err := json.Unmarshal([]byte(r.Out), &got); err != nil || r.Code != 0 {
		t.Fatalf("exit code %d, %s%s: %v", r.Code, r.Out, r.Errors, err)
	}
	for _, key := range []string{"policy", "seeds", "mean", "published", "churn", "pods_no_node_could_host"} {
		if _, ok := got[key]; !ok {
			t.Errorf("no %q in %s", key, r.Out)
		}
	}
	if !strings.Contains(r.Errors, "berth: 4 of 4: fgd, ") {
		t.Errorf("no progress: %s", r.Errors)
	}
	r = execute(t, "", append(args, "--policy", "all")...)
	for _, want := range []string{
		"PUBLISHED", "BOUND", "\nrandom ", "\nfgd ", "3 nodes, 4 GPUs, 3 pods",
		"No node could host 1 of the pods",
	} {
		if !strings.Contains(r.Out, want) {
			t.Errorf("no %q in\n%s%s", want, r.Out, r.Errors)
		}
	}
	r = execute(t, "", append(args, "--variants")...)
	for _, want := range []string{"BERTH LESS FGD", "\nnone ", "\nmemory=1.5,cpu-only=2 ", "means of 2 seeds"} {
		if !strings.Contains(r.Out, want) {
			t.Errorf("no %q in\n%s%s", want, r.Out, r.Errors)
		}
	}
}

func TestBenchPackingRefuses(t *testing.T) {
	nodes, pods := mustTrace(t)
	broken := filepath.Join(t.TempDir(), "broken.csv")
	if err := os.WriteFile(broken, []byte("sn,cpu_milli,memory_mib,gpu,model\na,8000,8192,two,T4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no files", nil, cli.ExitUsage, "--nodes is needed"},
		{"no such file", []string{"--nodes", nodes + ".gz", "--pods", pods}, cli.ExitUsage, "nodes.csv.gz: no such file"},
		{"policy", []string{"--nodes", nodes, "--pods", pods, "--policy", "luck"}, cli.ExitUsage, `no policy "luck"; there are`},
		{"seeds", []string{"--nodes", nodes, "--pods", pods, "--seeds", "51-42"}, cli.ExitUsage, "ends before it begins"},
		{"row", []string{"--nodes", broken, "--pods", pods}, cli.ExitFailed, "broken.csv:2:13: column gpu: \"two\" is not a whole"},
		{"change", []string{"--nodes", nodes, "--pods", pods, "--vary", "cpus=3"}, cli.ExitFailed, "nothing is called \"cpus\"; there are cpu-only,"},
		{"both", []string{"--nodes", nodes, "--pods", pods, "--vary", "vcpu=3", "--variants"}, cli.ExitUsage, "not both"},
		{"load", []string{"--nodes", nodes, "--pods", pods, "--churn", "-3"}, cli.ExitFailed, "an offered load of -3"},
	}
	for _, tt := range tests {
		r := execute(t, "", append([]string{"bench", "packing"}, tt.args...)...)
		if r.Code != tt.code || !strings.Contains(r.Errors, tt.want) {
			t.Errorf("%s: exit code %d, %s; want %d, %q", tt.name, r.Code, r.Errors, tt.code, tt.want)
		}
	}
}

func TestBenchSimulate(t *testing.T) {
	plots := filepath.Join(t.TempDir(), "plots")
	r := execute(t, "", "bench", "simulate", "--nodes", "5", "--executions", "200", "--organizations", "2",
		"--plots", plots, "--json")
	var got map[string]any
	if err := json.Unmarshal([]byte(r.Out), &got); err != nil || r.Code != 0 {
		t.Fatalf("exit code %d, %s%s: %v", r.Code, r.Out, r.Errors, err)
	}
	for _, key := range []string{"gpu_utilisation_pct", "waits", "fairness", "fragment_pct", "memory", "cost", "series"} {
		if _, ok := got[key]; !ok {
			t.Errorf("no %q in %s", key, r.Out)
		}
	}
	if files, err := os.ReadDir(plots); err != nil || len(files) != 10 || !strings.Contains(r.Errors, "10 charts are in") {
		t.Errorf("%d charts, %v, %s", len(files), err, r.Errors)
	}
	nodes, pods := mustTrace(t)
	r = execute(t, "", "bench", "simulate", "--nodes", nodes, "--pods", pods, "--executions", "30")
	for _, want := range []string{
		"30 executions on 3 nodes with 4 GPUs", "20 completed, 10 refused as never_fits",
		"PRIORITY", "Jain's index", "bytes a queued execution",
	} {
		if !strings.Contains(r.Out, want) {
			t.Errorf("no %q in\n%s%s", want, r.Out, r.Errors)
		}
	}
}

func TestBenchSimulateRefuses(t *testing.T) {
	tests := []struct {
		name string
		args []string
		code int
		want string
	}{
		{"mix", []string{"--mix", "luck"}, cli.ExitUsage, `no mix "luck"; there is default`},
		{"both", []string{"--mix", "default", "--trace", "x"}, cli.ExitUsage, "[mix trace]"},
		{"no such trace", []string{"--trace", "none.csv"}, cli.ExitUsage, "none.csv: no such file"},
		{"no such nodes", []string{"--nodes", "none.csv"}, cli.ExitUsage, "none.csv: no such file"},
		{"executions", []string{"--executions", "0"}, cli.ExitFailed, "0 executions"},
	}
	for _, tt := range tests {
		r := execute(t, "", append([]string{"bench", "simulate"}, tt.args...)...)
		if r.Code != tt.code || !strings.Contains(r.Errors, tt.want) {
			t.Errorf("%s: exit code %d, %s; want %d, %q", tt.name, r.Code, r.Errors, tt.code, tt.want)
		}
	}
}

func TestBenchDST(t *testing.T) {
	r := execute(t, "", "bench", "dst", "--seed", "7", "--duration", "20m", "--json")
	var got struct {
		Histories int            `json:"histories"`
		Violation string         `json:"violation"`
		Sums      map[string]any `json:"sums"`
	}
	if err := json.Unmarshal([]byte(r.Out), &got); err != nil || r.Code != 0 || got.Histories != 1 || got.Violation != "" {
		t.Fatalf("exit code %d, %s%s: %v", r.Code, r.Out, r.Errors, err)
	}
	r = execute(t, "", "bench", "dst", "--seed", "7", "--duration", "20m")
	if !strings.Contains(r.Out, "1 histories with 0.3 hours of faults") || !strings.Contains(r.Errors, "seed 7") {
		t.Errorf("%s%s", r.Out, r.Errors)
	}
	tests := []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--bug", "beetle"}, cli.ExitUsage, `no bug "beetle"; there are none, forgotten-op`},
		{[]string{"--nodes", "2"}, cli.ExitFailed, "2 nodes: a simulation has 3 to 64"},
		{[]string{"--seed", "1", "--bug", "hasty-loss"}, cli.ExitFailed, "berth bench dst --seed 1 --duration 1h0m0s --nodes 5 --bug hasty-loss"},
	}
	for _, tt := range tests {
		r := execute(t, "", append([]string{"bench", "dst"}, tt.args...)...)
		if r.Code != tt.code || !strings.Contains(r.Errors, tt.want) {
			t.Errorf("%v: exit code %d, %s; want %d, %q", tt.args, r.Code, r.Errors, tt.code, tt.want)
		}
	}
}
