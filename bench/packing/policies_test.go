package packing

import (
	"math"
	"reflect"
	"testing"

	"berth/bench/trace"
)

func mustWorkload(t *testing.T, nodes, pods string) *workload {
	t.Helper()
	n, err := trace.ReadNodes(mustFile(t, "nodes.csv", nodesHeader+nodes))
	if err != nil {
		t.Fatal(err)
	}
	p, err := trace.ReadPods(mustFile(t, "pods.csv", podsHeader+pods))
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorkload(n, p)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestInflate holds that the arrivals are the trace and pods drawn from it up
// to the goal, and a part of it where it asks for more.
func TestInflate(t *testing.T) {
	w := mustWorkload(t, "a,8000,8192,8,T4\n", "p,1,1,1,1000,\nq,1,1,2,1000,\nr,1,1,0,0,\n")
	got := w.inflate(source(1, forPods), Inflation)
	count, demand := map[int]int{}, int64(0)
	for _, s := range got {
		count[s]++
		demand += w.shapes[s].demand()
	}
	if count[0] < 1 || count[1] < 1 || count[2] < 1 {
		t.Errorf("arrivals %v do not hold the trace", got)
	}
	if last := w.shapes[got[len(got)-1]].demand(); demand < 10400 || demand-last >= 10400 {
		t.Errorf("%d thousandths arrive, the last %d; want just over 10,400", demand, last)
	}
	if again := w.inflate(source(1, forPods), Inflation); !reflect.DeepEqual(got, again) {
		t.Errorf("seed 1 gives %v, then %v", got, again)
	}
	small := w.inflate(source(1, forPods), 0.1) // 800 thousandths: one pod with GPUs.
	demand = 0
	for _, s := range small {
		demand += w.shapes[s].demand()
	}
	if len(small) > 3 || demand < 800 || demand > 3000 {
		t.Errorf("arrivals %v for a tenth", small)
	}
}

func TestUnplaceable(t *testing.T) {
	w := mustWorkload(t, "a,8000,8192,2,T4\nb,64000,65536,1,G2\n",
		"ok,1,1,2,1000,\nmodel,1,1,1,1000,P100\nboth,9000,1,2,1000,\nmemory,1,65537,0,0,\nmany,1,1,4,1000,\nbig,64000,1,1,1000,\n")
	if w.unplaceable != 4 {
		t.Errorf("%d pods that no node can host, want 4", w.unplaceable)
	}
}

func TestTarget(t *testing.T) {
	pods := ""
	for range 12 {
		pods += "a,1000,1,1,500,\n"
	}
	for range 7 {
		pods += "b,2000,1,0,0,\n"
	}
	pods += "c,9000,1,8,1000,\n" // The twentieth: 95 % are covered without it.
	got := target(mustWorkload(t, "n,8000,8192,2,T4\n", pods))
	if len(got) != 2 || got[0].milli != 500 || math.Abs(got[0].share-12.0/19) > 1e-9 || got[1].cpu != 2000 {
		t.Errorf("target workload %+v", got)
	}
}

// TestFragment computes by hand what a node's free GPUs are worth.
func TestFragment(t *testing.T) {
	classes := []class{
		{cpu: 4000, gpus: 1, milli: 500, models: ^uint64(0), share: 0.5},
		{cpu: 1000, gpus: 2, milli: 1000, models: ^uint64(0), share: 0.3},
		{cpu: 1000, share: 0.2}, // Wants no GPU: all is lost on it.
	}
	tests := []struct {
		name    string
		cpu     int64
		model   int
		devices []int
		want    float64
	}{
		{"full", 8000, 0, []int{0, 0}, 0},
		{"idle", 8000, 0, []int{1000, 1000}, 0.2 * 2000},
		{"one cut", 8000, 0, []int{1000, 400}, 0.5*400 + 0.3*1400 + 0.2*1400},
		{"no vCPU for the first", 3999, 0, []int{1000, 1000}, 0.5*2000 + 0.2*2000},
		{"cut beside two idle", 8000, 0, []int{1000, 300, 1000}, 0.5*300 + 0.3*300 + 0.2*2300},
		{"no model", 8000, noModel, []int{1000}, 1000},
	}
	for _, tt := range tests {
		n := node{model: tt.model}
		if got := fragment(&n, tt.cpu, tt.devices, classes); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: fragment %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestScores computes by hand how the published policies rate a node.
func TestScores(t *testing.T) {
	share := shape{cpu: 8000, gpus: 1, milli: 400, kind: 0}
	two := shape{cpu: 8000, gpus: 2, milli: 1000, kind: 1}
	none := shape{cpu: 8000, kind: noKind}
	idle := node{cpu: 64000, devices: []int{1000, 1000, 1000, 1000}, free: 4000, kinds: []int{0, 0}}
	used := node{cpu: 64000, devices: []int{1000, 550, 0, 1000}, free: 2550, kinds: []int{2, 1}}
	alike := node{cpu: 64000, devices: []int{450, 550, 0, 600}, free: 1600, kinds: []int{5, 0}}
	tests := []struct {
		name  string
		score scorer
		node  *node
		shape *shape
		want  int
	}{
		{"best-fit idle", scoreBestFit, &idle, &share, 55}, // 1 - 56/256 - 3.6/16
		{"best-fit used", scoreBestFit, &used, &two, 74},   // 1 - 56/256 - 0.55/16
		{"dot-product idle", scoreDotProduct, &idle, &share, 97},
		{"dot-product two", scoreDotProduct, &idle, &two, 92},
		{"packing idle", scorePacking, &idle, &share, 29},      // 33 - 4 idle devices
		{"packing in use", scorePacking, &used, &share, 95},    // 100 - 55/10
		{"packing whole", scorePacking, &used, &two, 48},       // 50 - 2 devices
		{"packing tightest", scorePacking, &alike, &share, 96}, // 100 - 45/10
		{"packing none", scorePacking, &used, &none, 0},
		{"clustering idle", scoreClustering, &idle, &share, 37},   // 25 + 25*4000/8000
		{"clustering alike", scoreClustering, &alike, &share, 95}, // 75 + 25*6400/8000
		{"clustering mixed", scoreClustering, &used, &two, 67},    // 50 + 25*5450/8000
		{"clustering other", scoreClustering, &alike, &two, 20},   // 25*6400/8000
		{"clustering none", scoreClustering, &used, &none, 0},
	}
	for _, tt := range tests {
		if got, _ := tt.score(0, tt.node, tt.shape); got != tt.want {
			t.Errorf("%s: score %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestGradient holds that FGD takes the device whose cut loses least, and
// rounds as published.
func TestGradient(t *testing.T) {
	classes := []class{{cpu: 1000, gpus: 1, milli: 500, models: ^uint64(0), share: 1}}
	g := newGradient(classes, 1)
	n := node{cpu: 8000, devices: []int{1000, 900, 500}, free: 2400, version: 1}
	score, device := g.score(0, &n, &shape{cpu: 1000, gpus: 1, milli: 500})
	// 500 left of the first and none of the third lose nothing; 400 left of
	// the second would be lost. Among equals the first.
	if score != 50 || device != 0 {
		t.Errorf("score %d on device %d, want 50 on 0", score, device)
	}
	if score, device = g.score(0, &n, &shape{cpu: 1000, gpus: 1, milli: 450}); score != 50 || device != 0 {
		t.Errorf("score %d on device %d, want 50 on 0", score, device)
	}
	n.devices[0], n.version = 450, 2 // All of it is lost already: using it up helps.
	if score, device = g.score(0, &n, &shape{cpu: 1000, gpus: 1, milli: 450}); score != 61 || device != 0 {
		t.Errorf("score %d on device %d, want 61 on 0", score, device) // 100/(1+exp(-0.45))
	}
}

// TestMemoryChangesNothing holds that remembered scores are those of scoring
// every node again.
func TestMemoryChangesNothing(t *testing.T) {
	for _, policy := range Policies() {
		c := mixed(t, 11)
		c.Policy = policy
		nodes, err := trace.ReadNodes(c.NodesFile)
		if err != nil {
			t.Fatal(err)
		}
		pods, err := trace.ReadPods(c.PodsFile)
		if err != nil {
			t.Fatal(err)
		}
		w, err := newWorkload(nodes, pods)
		if err != nil {
			t.Fatal(err)
		}
		m := &measurement{config: &c, workload: w, classes: target(w)}
		order := w.order(source(1, forNodes))
		one, again := m.policy(1, order), m.policy(1, order)
		for i, shape := range w.inflate(source(1, forPods), Inflation) {
			forget(again)
			a, ok := one.place(shape)
			b, okAgain := again.place(shape)
			if a != b || ok != okAgain {
				t.Fatalf("%s, arrival %d: %v %v, with nothing remembered %v %v", policy, i, a, ok, b, okAgain)
			}
		}
	}
}

// forget clears what a published policy remembers.
func forget(p chooser) {
	switch p := p.(type) {
	case *ranked:
		clear(p.rows)
	case *drawn:
		clear(p.rows)
	}
}
