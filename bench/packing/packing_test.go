package packing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"berth/bench/trace"
)

// clock returns a clock that advances by a microsecond with each reading, so
// that every decision takes one.
func clock() func() time.Time {
	at := time.Unix(0, 0)
	return func() time.Time {
		at = at.Add(time.Microsecond)
		return at
	}
}

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
	podsHeader  = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
)

// mixed returns a random cluster and a random trace with all kinds of nodes and
// pods.
func mixed(t *testing.T, seed uint64) Config {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	nodes, pods := nodesHeader, podsHeader
	for i := range 40 {
		gpus := []int{0, 1, 2, 4, 8}[random.IntN(5)]
		nodes += fmt.Sprintf("n%d,%d,%d,%d,%s\n", i, 1000*(8+random.IntN(90)), 1024*(32+random.IntN(300)), gpus,
			[]string{"T4", "G2", "V100"}[random.IntN(3)])
	}
	for i := range 60 {
		gpus, milli := random.IntN(5), 1000
		switch gpus {
		case 0:
			milli = 0
		case 1:
			milli = []int{1000, 50, 333, 500, 810}[random.IntN(5)]
		case 3:
			gpus = 8
		}
		pods += fmt.Sprintf("p%d,%d,%d,%d,%d,%s\n", i, 500*(1+random.IntN(20)), 512*(1+random.IntN(60)), gpus, milli,
			[]string{"", "", "T4", "T4|V100", "G2"}[random.IntN(5)])
	}
	return Config{
		NodesFile: mustFile(t, "nodes.csv", nodes), PodsFile: mustFile(t, "pods.csv", pods),
		Seeds: []uint64{1, 2, 3}, Parallel: 1, Now: clock(),
	}
}

// TestProtocolByHand checks the protocol on examples computed by hand.
func TestProtocolByHand(t *testing.T) {
	tests := []struct {
		name, nodes, pods string
		want              Seed
	}{
		{
			// 1,000 thousandths; two pods of 700 are needed to pass 1,300. The
			// first is placed and leaves 300 that no pod can use. The second is
			// lost; with it 1,400 have arrived.
			name:  "a share that fits once",
			nodes: "a,8000,8192,1,T4\n", pods: "p,1000,1024,1,700,\n",
			want: Seed{Alloc100: 70, Alloc130: 70, FirstRefusal: new(140.0), Frag100: 30, Lost: 1},
		},
		{
			// Three GPUs; the pods request four whole ones, and the fourth is
			// lost.
			name:  "whole devices",
			nodes: "a,8000,8192,1,T4\nb,8000,8192,2,T4\n", pods: "p,1000,1024,1,1000,\n",
			want: Seed{Alloc100: 100, Alloc130: 100, FirstRefusal: new(400.0 / 3), Lost: 1},
		},
		{
			// Four GPUs on two nodes, pods of one GPU and half the vCPUs of
			// a node: none is lost before the fifth. Six pods pass 130 %.
			name:  "vCPUs just enough",
			nodes: "a,8000,8192,2,T4\nb,8000,8192,2,T4\n", pods: "p,4000,1024,1,1000,\n",
			want: Seed{Alloc100: 100, Alloc130: 100, FirstRefusal: new(125.0), Lost: 2},
		},
		{
			// As before with more vCPUs each: a node hosts one, and its other
			// GPU is lost for the only class.
			name:  "vCPUs run short",
			nodes: "a,8000,8192,2,T4\nb,8000,8192,2,T4\n", pods: "p,5000,1024,1,1000,\n",
			want: Seed{Alloc100: 50, Alloc130: 50, FirstRefusal: new(75.0), Frag100: 50, Lost: 4},
		},
		{
			// The only acceptable model is half of the cluster; the free
			// devices are all fragment.
			name:  "models",
			nodes: "a,8000,8192,1,T4\nb,8000,8192,1,G2\n", pods: "p,1000,1024,1,1000,G2\n",
			want: Seed{Alloc100: 50, Alloc130: 50, FirstRefusal: new(100.0), Frag100: 50, Lost: 2},
		},
		{
			// A node without GPUs takes no pod that requests one, and does not
			// count.
			name:  "a node without GPU",
			nodes: "a,8000,8192,1,T4\nb,64000,65536,0,\n", pods: "p,1000,1024,1,500,\n",
			want: Seed{Alloc100: 100, Alloc130: 100, FirstRefusal: new(150.0), Lost: 1},
		},
	}
	for _, tt := range tests {
		for _, policy := range Policies() {
			t.Run(tt.name+"/"+policy, func(t *testing.T) {
				tt.want.Seed = 7
				tt.want.DecisionUS = Decision{P50: 1, P99: 1, Mean: 1}
				got, err := Run(t.Context(), Config{
					NodesFile: mustFile(t, "nodes.csv", nodesHeader+tt.nodes),
					PodsFile:  mustFile(t, "pods.csv", podsHeader+tt.pods),
					Policy:    policy, Seeds: []uint64{7}, Parallel: 1, Now: clock(),
				})
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(got.Seeds[0], tt.want) {
					t.Errorf("got %+v, want %+v", got.Seeds[0], tt.want)
				}
				if got.Published != nil {
					t.Errorf("published figures for a trace of ours: %+v", got.Published)
				}
			})
		}
	}
}

// TestNoPolicyBreaksTheCluster lets all policies place, refuse and release on
// random clusters. The accounting returns an error on a double allocation. The
// same seeds give the same figures at any concurrency.
func TestNoPolicyBreaksTheCluster(t *testing.T) {
	for seed := range uint64(2) {
		c := mixed(t, seed)
		c.Churn, c.Arrivals = []float64{0.8, 1.2}, 1000
		for _, c.Policy = range Policies() {
			c.Parallel, c.Now = 1, clock()
			one, err := Run(t.Context(), c)
			if err != nil {
				t.Fatalf("cluster %d, %s: %v", seed, c.Policy, err)
			}
			c.Parallel, c.Now = 4, func() time.Time { return time.Time{} }
			again, err := Run(t.Context(), c)
			if err != nil {
				t.Fatalf("cluster %d, %s: %v", seed, c.Policy, err)
			}
			for i := range one.Seeds {
				one.Seeds[i].DecisionUS, again.Seeds[i].DecisionUS = Decision{}, Decision{}
			}
			one.Mean.DecisionUS, again.Mean.DecisionUS = Decision{}, Decision{}
			if !reflect.DeepEqual(one, again) {
				t.Errorf("cluster %d, %s: %+v, then %+v", seed, c.Policy, one, again)
			}
			if one.Churn[0].RefusedPct > one.Churn[1].RefusedPct {
				t.Errorf("cluster %d, %s refuses %v %% at a load of 0.8 and %v %% at 1.2",
					seed, c.Policy, one.Churn[0].RefusedPct, one.Churn[1].RefusedPct)
			}
		}
	}
}

// careless places everything on the first GPUs of the first node.
type careless struct{ shapes []shape }

func (c *careless) place(shape int) (place, bool) {
	return place{devices: 1<<c.shapes[shape].gpus - 1}, true
}

func (*careless) release(int, place) {}

func TestTheAccountRefuses(t *testing.T) {
	w := mustWorkload(t, "a,8000,8192,2,T4\n", "p,1000,1024,1,600,\n")
	r := &run{workload: w, policy: &careless{w.shapes}, board: newBoard(w, w.order(nil)), now: clock(), arrivals: []int{0, 0}}
	_, err := r.fill(t.Context(), 1, target(w))
	if err == nil || !strings.Contains(err.Error(), "GPU 0 of node 0 does not have 600 thousandths free") {
		t.Errorf("a GPU allocated twice: %v", err)
	}
	s := w.shapes[0]
	tests := []struct {
		name string
		make func(s *shape) place
		want string
	}{
		{"no such node", func(*shape) place { return place{node: 1, devices: 1} }, "node 1 of 1"},
		{"too few GPUs", func(*shape) place { return place{} }, "0 GPUs allocated for 1"},
		{"no such GPU", func(*shape) place { return place{devices: 4} }, "GPU 2 of node 0"},
		{"vCPU", func(s *shape) place { s.cpu = 8001; return place{devices: 1} }, "8000 milli-vCPU"},
		{"memory", func(s *shape) place { s.memory = 8193; return place{devices: 1} }, "8192 MiB free"},
		{"model", func(s *shape) place { s.models = 0; return place{devices: 1} }, "no acceptable model"},
	}
	for _, tt := range tests {
		this := s
		if err := newBoard(w, w.order(nil)).check(&this, tt.make(&this)); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestRunEnds(t *testing.T) {
	c := mixed(t, 1)
	c.Policy = FGD
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("a run that was to end: %v", err)
	}
}

func TestBadConfigs(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"policy", func(c *Config) { c.Policy = "luck" }, `no policy "luck"; there are`},
		{"seeds", func(c *Config) { c.Seeds = nil }, "no seeds"},
		{"parallel", func(c *Config) { c.Parallel = 0 }, "0 runs at once"},
		{"load", func(c *Config) { c.Churn, c.Arrivals = []float64{-1}, 1 }, "an offered load of -1"},
		{"arrivals", func(c *Config) { c.Churn = []float64{1} }, "0 arrivals of churn"},
		{"no GPU", func(c *Config) { c.NodesFile = mustFile(t, "n.csv", nodesHeader+"a,1,1,0,\n") }, "no node has a GPU"},
		{"no demand", func(c *Config) { c.PodsFile = mustFile(t, "p.csv", podsHeader+"p,1,1,0,0,\n") }, "no pod requests a GPU"},
		{"broken row", func(c *Config) { c.PodsFile = mustFile(t, "p.csv", podsHeader+"p,1,1,x,0,\n") }, "p.csv:2:7: column num_gpu"},
	}
	for _, tt := range tests {
		c := mixed(t, 1)
		c.Policy = BestFit
		tt.change(&c)
		if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestPublished(t *testing.T) {
	nodes := make([]trace.Node, publishedNodes)
	nodes[0].GPUs = publishedGPUs
	got := published("/data/openb_pod_list_cpu250.csv", nodes)
	if got == nil || got.Trace != "cpu250" || got.Alloc100[FGD] != 93.20 || got.Bound != 96.90 {
		t.Errorf("cpu250: %+v", got)
	}
	for name, nodes := range map[string][]trace.Node{
		"openb_pod_list_cpu251.csv": nodes, "openb_pod_list_cpu250.csv": nodes[:1000],
	} {
		if got := published(name, nodes); got != nil {
			t.Errorf("%s on %d nodes: %+v", name, len(nodes), got)
		}
	}
	for name, row := range publishedRows() {
		for i, value := range row[:6] {
			if value > row[6] {
				t.Errorf("%s: figure %d is beyond the bound", name, i)
			}
		}
	}
}

// TestShortOfVCPU checks that Berth allocates more GPUs than FGD where requests
// exceed the vCPUs or the memory.
func TestShortOfVCPU(t *testing.T) {
	nodes, pods := nodesHeader, podsHeader
	for i := range 40 {
		nodes += fmt.Sprintf("n%d,96000,393216,8,G2\n", i)
	}
	for i := range 40 {
		pods += fmt.Sprintf("frugal%d,3000,20000,1,1000,\nusual%d,11000,40000,1,1000,\nmuch%d,19000,60000,1,1000,\n", i, i, i)
		pods += fmt.Sprintf("small%d,8000,30000,0,0,\nlarge%d,32000,49152,0,0,\n", i, i)
	}
	for _, change := range []string{"", "cpu-only=2", "cpu-only=0,memory=2"} {
		alloc := map[string]float64{}
		for _, policy := range []string{FGD, Berth} {
			got, err := Run(t.Context(), Config{
				NodesFile: mustFile(t, "nodes.csv", nodes), PodsFile: mustFile(t, "pods.csv", pods), Vary: change,
				Policy: policy, Seeds: []uint64{1, 2, 3, 4, 5}, Parallel: 1, Now: clock(),
			})
			if err != nil {
				t.Fatal(err)
			}
			alloc[policy] = got.Mean.Alloc100
		}
		t.Logf("%q: Berth %.2f, FGD %.2f", change, alloc[Berth], alloc[FGD])
		if alloc[Berth] < alloc[FGD]+1 {
			t.Errorf("%q: Berth gives away %.2f %%, FGD %.2f %%", change, alloc[Berth], alloc[FGD])
		}
	}
}
