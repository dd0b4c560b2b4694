package packing

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"berth/bench/fragment"
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

// TestInflate checks that the arrivals are the trace and pods drawn from it up
// to the goal, or a part of the trace if it requests more.
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
	pods += "c,9000,1,8,1000,\n" // The twentieth: the others cover 95 %.
	got := target(mustWorkload(t, "n,8000,8192,2,T4\n", pods))
	if len(got) != 2 || got[0].Milli != 500 || math.Abs(got[0].Share-12.0/19) > 1e-9 || got[1].CPU != 2000 {
		t.Errorf("target workload %+v", got)
	}
}

// TestScores checks the published policies' scores against values computed by
// hand.
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

// TestOracle checks that an oracle places by the trace's whole mix, and that
// otherwise only the arrived pods are known.
func TestOracle(t *testing.T) {
	w := mustWorkload(t, "a,8000,8192,2,T4\n", "p,1000,1024,1,500,\nq,1000,1024,1,1000,G2|T4|g2\nr,1000,1024,0,0,\n")
	known := newOwn(w, w.order(nil), true)
	if known.learner != nil {
		t.Error("an oracle learns")
	}
	if r := known.requests[1]; r.Types() != "g2|t4" || r.GPUs != 1 || r.MilliGPU != 1000 {
		t.Errorf("request %+v", r)
	}
	if r := known.requests[2]; r.IsGPU() {
		t.Errorf("request %+v of a pod without GPU", r)
	}
	mix := mixOf(w, known.requests)
	for _, share := range mix.Shares {
		if share.Count != 1 {
			t.Errorf("%s comes %d times, want once", share.Request.Key(), share.Count)
		}
	}
	learning := newOwn(w, w.order(nil), false)
	for i := range 16 {
		if n := len(learning.learner.Mix().Shares); n != 0 {
			t.Fatalf("%d requests are known after %d arrivals", n, i)
		}
		learning.place(0)
	}
	if m := learning.learner.Mix(); len(m.Shares) != 1 || m.Shares[0].Count != 16 {
		t.Errorf("the mix after 16 arrivals: %+v", m)
	}
}

// TestGradient checks that FGD takes the device whose use loses least, and
// rounds as published.
func TestGradient(t *testing.T) {
	classes := []fragment.Class{{CPU: 1000, GPUs: 1, Milli: 500, Models: ^uint64(0), Share: 1}}
	g := newGradient(classes, 1)
	n := node{cpu: 8000, devices: []int{1000, 900, 500}, free: 2400, version: 1}
	score, device := g.score(0, &n, &shape{cpu: 1000, gpus: 1, milli: 500})
	// 500 left on the first device and none on the third lose nothing; 400 left
	// on the second would be lost. The first of equals wins.
	if score != 50 || device != 0 {
		t.Errorf("score %d on device %d, want 50 on 0", score, device)
	}
	if score, device = g.score(0, &n, &shape{cpu: 1000, gpus: 1, milli: 450}); score != 50 || device != 0 {
		t.Errorf("score %d on device %d, want 50 on 0", score, device)
	}
	n.devices[0], n.version = 450, 2 // All of it is lost already, so using it helps.
	if score, device = g.score(0, &n, &shape{cpu: 1000, gpus: 1, milli: 450}); score != 61 || device != 0 {
		t.Errorf("score %d on device %d, want 61 on 0", score, device) // 100/(1+exp(-0.45))
	}
}

// TestMemoryChangesNothing checks that cached scores equal newly computed ones.
// Package scheduler checks the same for its own.
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

// forget clears the cache of a published policy.
func forget(p chooser) {
	switch p := p.(type) {
	case *ranked:
		clear(p.rows)
	case *drawn:
		clear(p.rows)
	}
}

// TestVary checks that each variant makes its change and no other.
func TestVary(t *testing.T) {
	nodes := []trace.Node{
		{CPUMilli: 8000, MemoryMiB: 8192, GPUs: 2, Model: "T4"}, {CPUMilli: 8000, MemoryMiB: 8192, GPUs: 8, Model: "G2"},
	}
	pods := []trace.Pod{
		{Name: "c", CPUMilli: 1000, MemoryMiB: 10},
		{Name: "s", CPUMilli: 100, MemoryMiB: 10, GPUs: 1, GPUMilli: 500},
		{Name: "w", CPUMilli: 100, MemoryMiB: 10, GPUs: 1, GPUMilli: 1000},
		{Name: "c", CPUMilli: 1000, MemoryMiB: 10},
		{Name: "m", CPUMilli: 100, MemoryMiB: 10, GPUs: 4, GPUMilli: 1000},
	}
	tests := []struct{ spec, names string }{
		{"", "cswcm"},
		{"cpu-only=0", "swm"},
		{"cpu-only=1.5", "cswccm"},
		{"shares=3", "csssWcm"},
		{"whole=0", "csc"},
		{"multi-gpu=2,shares=0", "cwcmm"},
		{"whole=0.5", "cscm"},
	}
	for _, tt := range tests {
		got, err := vary(nodes, pods, tt.spec)
		names := ""
		for i := range got {
			names += got[i].Name
		}
		if err != nil || names != strings.ToLower(tt.names) {
			t.Errorf("%q makes %s of cswcm, want %s (%v)", tt.spec, names, tt.names, err)
		}
	}
	got, err := vary(nodes, pods, "vcpu=2,memory=1.5,types=1")
	if err != nil {
		t.Fatal(err)
	}
	if got[0].CPUMilli != 1000 || got[1].CPUMilli != 200 || got[0].MemoryMiB != 15 || pods[1].CPUMilli != 100 {
		t.Errorf("pods %+v", got)
	}
	if len(got[0].Models) != 0 || len(got[1].Models) != 1 || !reflect.DeepEqual(got[4].Models, []string{"G2"}) {
		t.Errorf("models %v, %v, %v; want none, one, and the one with four GPUs", got[0].Models, got[1].Models, got[4].Models)
	}
	for _, spec := range []string{"cpu-only", "cpu-only=x", "cpu-only=-1", "cpus=2", "types=2", "memory=1e9"} {
		if _, err := vary(nodes, pods, spec); err == nil {
			t.Errorf("%q is accepted", spec)
		}
	}
	for _, spec := range Variants() {
		if _, err := vary(nodes, pods, spec); err != nil {
			t.Errorf("%q: %v", spec, err)
		}
	}
}
