package simulate

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"berth/compute"
)

func mustFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	nodesHeader = "sn,cpu_milli,memory_mib,gpu,model\n"
	podsHeader  = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,org,priority\n"
)

// stopped is a clock that stands still, so that reports contain no wall times.
func stopped() time.Time { return time.Time{} }

func config(nodes string) Config {
	return Config{
		Nodes: nodes, Executions: 300, Load: 0.9, Organizations: 4, Seed: 7, Round: time.Second, Now: stopped,
	}
}

func mustRun(t *testing.T, c Config) *Report {
	t.Helper()
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestByHand follows two executions through a cluster with one GPU. The first
// is placed at the end of its round, the second when the first has ended.
func TestByHand(t *testing.T) {
	c := config(mustFile(t, "nodes.csv", nodesHeader+"a,8000,65536,1,T4\n"))
	c.Trace = mustFile(t, "pods.csv", podsHeader+"p,1,1,1,1000,,100,160,ada,3\nq,1,1,1,1000,t4,110,170,bob,\n")
	c.Load, c.Executions, c.Organizations = 0, 2, 1
	r := mustRun(t, c)
	if r.Completed != 2 || r.NeverPlaced != 0 || r.VirtualSeconds != 121 {
		t.Errorf("%d completed, %d never placed, %v s", r.Completed, r.NeverPlaced, r.VirtualSeconds)
	}
	want := Wait{Count: 2, Mean: 26, P50: 1, P90: 51, P99: 51}
	if got := r.Waits[0]; got != want {
		t.Errorf("waits %+v, want %+v", got, want)
	}
	first := Wait{Priority: new(3), Size: "1", Count: 1, Mean: 1, P50: 1, P90: 1, P99: 1}
	if got := r.Waits[len(r.Waits)-2]; !reflect.DeepEqual(got, first) {
		t.Errorf("waits of priority 3 %+v, want %+v", got, first)
	}
	// The window ends with the last arrival, after ten seconds; the GPU was
	// used in nine of them.
	if math.Abs(r.Utilisation-90) > 1e-9 {
		t.Errorf("utilisation %v, want 90", r.Utilisation)
	}
	orgs := r.Fairness.Organizations
	if len(orgs) != 2 || orgs[0].Asked != 60 || orgs[0].Given != 9 || orgs[1].Given != 0 ||
		orgs[1].MeanWait != 51 || math.Abs(orgs[1].Slowdown-111.0/60) > 1e-9 {
		t.Errorf("organizations %+v", orgs)
	}
	if math.Abs(r.Fairness.Service-0.5) > 1e-9 {
		t.Errorf("fairness of service %v, want 1/2: one of two had everything", r.Fairness.Service)
	}
}

// TestSameSeed checks that a simulation depends only on its Config and that
// everything ends. Run itself checks the state's invariants.
func TestSameSeed(t *testing.T) {
	run := func(seed uint64) *Report {
		c := config("23")
		c.Seed = seed
		r := mustRun(t, c)
		r.Memory = Memory{}
		for i := range r.Series {
			r.Series[i].Heap = 0
		}
		return r
	}
	one, again, other := run(7), run(7), run(8)
	if !reflect.DeepEqual(one, again) {
		t.Errorf("seed 7 gives\n%+v, then\n%+v", one, again)
	}
	if reflect.DeepEqual(one.Waits, other.Waits) {
		t.Error("seeds 7 and 8 give the same waits")
	}
	if one.Completed != 300 || len(one.Refused) > 0 || one.NeverPlaced != 0 {
		t.Errorf("%d of 300 completed, refused %v, never placed %d", one.Completed, one.Refused, one.NeverPlaced)
	}
	executions := 0
	for _, o := range one.Fairness.Organizations {
		executions += o.Executions
	}
	if executions != 300 || one.Waits[0].Count != 225 {
		t.Errorf("%d executions of organizations, %d waits; want 300 and three quarters", executions, one.Waits[0].Count)
	}
	last := one.Series[len(one.Series)-1]
	if len(one.Series) < 100 || last.Utilisation <= 0 || last.Fragment < 0 || last.Fragment > 100 {
		t.Errorf("%d samples, the last %+v", len(one.Series), last)
	}
}

// TestEstimates checks that start estimates are recorded and compared with the
// actual starts, and do not change them.
func TestEstimates(t *testing.T) {
	c := config("5")
	c.Load = 2
	without := mustRun(t, c)
	c.Estimates = 30 * time.Second
	with := mustRun(t, c)
	e := with.Estimates
	if without.Estimates != nil || e == nil || e.Total < 50 || e.CoveredP50 > e.CoveredP90 || e.CoveredP90 < 50 {
		t.Errorf("estimates %+v, without any %+v", e, without.Estimates)
	}
	if !reflect.DeepEqual(with.Waits, without.Waits) {
		t.Error("estimates changed who waits for how long")
	}
}

// TestMoreLoadWaitsLonger checks that a higher load means longer waits.
func TestMoreLoadWaitsLonger(t *testing.T) {
	var utilisation, wait []float64
	for _, load := range []float64{0.3, 2} {
		c := config("20")
		c.Executions, c.Load = 1000, load
		r := mustRun(t, c)
		utilisation, wait = append(utilisation, r.Utilisation), append(wait, r.Waits[0].Mean)
	}
	if utilisation[0] < 15 || utilisation[0] > 45 || utilisation[1] < 75 || wait[1] < 100*wait[0] {
		t.Errorf("utilisation %v, mean waits %v at loads of 0.3 and 2", utilisation, wait)
	}
}

// TestTrace replays a trace on nodes from a file. The trace is repeated and
// stretched to a load, and pods that fit nowhere are refused.
func TestTrace(t *testing.T) {
	c := config(mustFile(t, "nodes.csv", nodesHeader+"a,64000,65536,4,Tesla-V100\nb,64000,65536,2,T4\nc,8000,65536,0,\n"))
	c.Trace = mustFile(t, "pods.csv", podsHeader+
		"p,1000,1,3,1000,tesla-v100,0,600,,\n"+ // Rounded up to 4.
		"q,2500,1,0,0,,10,20,,\n"+
		"r,1,1,4,1000,T4,20,600,,\n"+ // No node has 4.
		"s,1,1,1,250,P100|T4,30,600,,9\n")
	c.Executions = 40
	r := mustRun(t, c)
	if r.Completed != 30 || r.Refused["never_fits"] != 10 {
		t.Errorf("%d completed, refused %v; want 30, and 10 that never fit", r.Completed, r.Refused)
	}
	counts := map[string]int{}
	for _, w := range r.Waits {
		if w.Priority == nil {
			counts[w.Size] = w.Count
		}
	}
	if counts["4"] != 7 || counts["cpu"] != 7 || counts["share"] != 8 || counts[""] != 22 {
		t.Errorf("waits by size: %v, want those of all but the first ten", counts)
	}
	// 0.9 of six GPUs. The three of the four pods that need GPUs request 4 GPUs
	// for 600 s, 4 for 580 s and a quarter for 570 s. A lap of 40 s becomes
	// (2400 + 2320 + 142.5) / 5.4 s.
	f, err := newFleet(c.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSource(&c, f)
	if err != nil {
		t.Fatal(err)
	}
	var last arrival
	for range 5 {
		last = s.take()
	}
	if want := 4862.5 / 5.4; math.Abs(last.after.Seconds()-want) > 0.01 {
		t.Errorf("the second lap begins after %v, want %.3f s", last.after, want)
	}
	if last.profile.String() != "gpu.tesla_v100.4x" || last.timeout <= last.lasts {
		t.Errorf("the first pod became %s with a time limit of %v", last.profile, last.timeout)
	}
}

func TestRefusesConfigs(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"executions", func(c *Config) { c.Executions = 0 }, "0 executions; 1 to"},
		{"organizations", func(c *Config) { c.Organizations = 1001 }, "1001 organizations; 1 to 1000"},
		{"nodes", func(c *Config) { c.Nodes = "-5" }, "-5 nodes; 1 to 20000"},
		{"no nodes", func(c *Config) { c.Nodes = "" }, "no nodes: a number of them, or a CSV file"},
		{"load", func(c *Config) { c.Load = math.NaN() }, "a load of NaN"},
		{"load of nothing", func(c *Config) { c.Load = 0 }, "the synthetic mix has none"},
		{"estimates", func(c *Config) { c.Estimates = -1 }, "estimates every -1ns"},
		{"preemptible", func(c *Config) { c.Preemptible = 2 }, "2 of the work is preemptible"},
		{"failures", func(c *Config) { c.Failures = time.Minute }, "a node fails every 1m0s"},
		{"repair", func(c *Config) { c.Drains = time.Hour }, "nodes are away for 0s; 1s to"},
		{"broken pod", func(c *Config) { c.Trace = mustFile(t, "p.csv", podsHeader+"p,1,1,1,1000,,1,0,,\n") }, "p.csv:2:"},
		{"short row", func(c *Config) { c.Trace = mustFile(t, "p.csv", podsHeader+"p,1,1,1,1000\n") }, "p.csv:2:1: wrong number of fields"},
		{"same node", func(c *Config) { c.Nodes = mustFile(t, "n.csv", nodesHeader+strings.Repeat("a,1,1,1,T4\n", 2)) }, "n.csv:3:1: column sn"},
		{"no column", func(c *Config) { c.Nodes = mustFile(t, "n.csv", "sn,gpu\na,1\n") }, "n.csv:1: no column cpu_milli"},
		{"round", func(c *Config) { c.Round = time.Hour }, "rounds of 1h0m0s; 1ms to 1m"},
		{"no GPU", func(c *Config) { c.Nodes = mustFile(t, "n.csv", nodesHeader+"a,1,1,0,\n") }, "no node has a GPU"},
		{"broken row", func(c *Config) { c.Nodes = mustFile(t, "n.csv", nodesHeader+"a,1,1,x,\n") }, "n.csv:2:7: column gpu"},
		{
			"no times", func(c *Config) {
				c.Trace = mustFile(t, "p.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,1,1000\n")
				c.Load = 0
			}, "no creation_time to keep; give a load",
		},
		{
			"no demand", func(c *Config) {
				c.Trace = mustFile(t, "p.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,0,0\n")
			}, "no execution requests a GPU",
		},
	}
	for _, tt := range tests {
		c := config("5")
		tt.change(&c)
		if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestJain(t *testing.T) {
	tests := []struct {
		of   []float64
		want float64
	}{
		{nil, 1},
		{[]float64{0, 0}, 1},
		{[]float64{3, 3, 3}, 1},
		{[]float64{1, 0, 0, 0}, 0.25},
		{[]float64{1, 2, 3}, 36.0 / 42},
	}
	for _, tt := range tests {
		if got := jain(tt.of); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("Jain's index of %v is %v, want %v", tt.of, got, tt.want)
		}
	}
}

// TestTheStateSeesTime checks that a long idle time passes in steps that the
// state accepts, so that its clock never lags. The second execution arrives at
// the very end of a round.
func TestTheStateSeesTime(t *testing.T) {
	c := config(mustFile(t, "nodes.csv", nodesHeader+"a,8000,65536,1,T4\n"))
	c.Trace = mustFile(t, "pods.csv", podsHeader+"p,1,1,1,1000,,0,100,,\nq,1,1,1,1000,,90000,90100,,\n")
	c.Load, c.Executions = 0, 2
	if r := mustRun(t, c); r.Waits[0].P99 != 1 || r.VirtualSeconds != 90100 {
		t.Errorf("waits %+v after %v s", r.Waits[0], r.VirtualSeconds)
	}
}

func TestWritePlots(t *testing.T) {
	r := mustRun(t, config("5"))
	empty := &Report{}
	for _, report := range []*Report{r, empty} {
		files, err := report.WritePlots(filepath.Join(t.TempDir(), "new", "plots"))
		if err != nil || len(files) != 10 {
			t.Fatalf("files %v, error %v", files, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(file, ".png") {
				_, err = png.Decode(bytes.NewReader(data))
			} else {
				err = parseXML(data)
			}
			if err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	if _, err := r.WritePlots(mustFile(t, "file", "")); err == nil {
		t.Error("charts were written into a file")
	}
}

// TestTicks checks that time axes have few ticks, at round values.
func TestTicks(t *testing.T) {
	tests := []struct {
		to   float64
		want string
	}{
		{0, "0"},
		{0.7, "0 0.1 0.2 0.3 0.4 0.5 0.6 0.7"},
		{13.7, "0 2 4 6 8 10 12"},
		{100, "0 12 24 36 48 60 72 84 96"},
		{5000, "0 672 1344 2016 2688 3360 4032 4704"},
	}
	for _, tt := range tests {
		var got []string
		for _, tick := range hourTicks(0, tt.to) {
			got = append(got, tick.Label)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%v hours: %v, want %s", tt.to, got, tt.want)
		}
	}
	if got := waitTicks(0.1, 700); len(got) != 5 || got[4].Label != "10 min" {
		t.Errorf("waits up to 700 s: %v", got)
	}
}

func parseXML(data []byte) error {
	for d := xml.NewDecoder(bytes.NewReader(data)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestModelNames(t *testing.T) {
	for model, want := range map[string]string{"V100M32": "v100m32", "Tesla-T4 16": "tesla_t4_16", "G2": "g2"} {
		if got := modelName(model); got != want {
			t.Errorf("%s is %s, want %s", model, got, want)
		}
		if _, err := compute.ParseProfile("gpu." + modelName(model)); err != nil {
			t.Error(err)
		}
	}
}
