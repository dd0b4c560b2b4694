package scheduler

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"berth/compute"
)

// drawMix returns a random demand: shares and whole GPUs, some with types, and
// CPU-only work.
func drawMix(rng *rand.Rand) *compute.Mix {
	m := &compute.Mix{Version: 1}
	for range 3 + rng.IntN(20) {
		r := compute.Request{VCPUMilli: int64(1000 * rng.IntN(20)), MemoryMiB: int64(1024 * rng.IntN(60))}
		switch rng.IntN(5) {
		case 0, 1:
			r.GPUs, r.MilliGPU = 1, 1+rng.IntN(999)
		case 2:
			r.GPUs, r.MilliGPU = 1, 1000
		case 3:
			r.GPUs, r.MilliGPU = 1<<rng.IntN(4), 1000
			r.AnyOf = [][]string{nil, {"a"}, {"a", "b"}}[rng.IntN(3)]
		}
		m.Shares = append(m.Shares, compute.MixShare{Request: r, Count: 1 + uint64(rng.IntN(500))})
	}
	m.Shares = append(m.Shares, compute.MixShare{
		Request: compute.Request{GPUs: 1, MilliGPU: 1000, VCPUMilli: 9000, MemoryMiB: 30_000}, Count: 10,
	})
	return m
}

// drawNode returns a random node of type a or b, partly used.
func drawNode(rng *rand.Rand, n int) *compute.Node {
	node := &compute.Node{VCPUMilli: int64(32_000 * (1 + rng.IntN(4))), MemoryMiB: int64(131_072 * (1 + rng.IntN(4)))}
	node.ID.UUID[0], node.ID.UUID[1] = byte(n>>8), byte(n)
	gpuType := []string{"a", "b"}[rng.IntN(2)]
	for i := range []int{0, 2, 4, 8}[rng.IntN(4)] {
		g := compute.GPU{ID: compute.GPUID(string(rune('a' + i))), Index: i, Type: gpuType}
		if rng.IntN(2) == 0 {
			g.UsedMilli = rng.IntN(1001)
		}
		node.GPUs = append(node.GPUs, g)
	}
	node.UsedVCPUMilli = rng.Int64N(node.VCPUMilli + 1)
	node.UsedMemoryMiB = rng.Int64N(node.MemoryMiB + 1)
	return node
}

// formula is the value of free capacity as DESIGN.md writes it, in real
// numbers.
type formula struct {
	mix  *compute.Mix
	gpu  float64 // Asked by work with GPUs.
	risk float64 // Part of the GPU at risk beside free capacity for CPU-only work.
}

// residue is r times the part of the devices asked for that need more.
func (f *formula) residue(r int) float64 {
	more, all := 0.0, 0.0
	for _, s := range f.mix.Shares {
		n := float64(s.Count) * float64(s.Request.GPUs)
		all += n
		if s.Request.MilliGPU > r {
			more += n
		}
	}
	if r == 1000 {
		return 0
	}
	return float64(r) * more / all
}

// feeds is how much of gpu an amount feeds when the most frugal eighth of the demand
// is served first. need is the amount that a request asks for.
func (f *formula) feeds(gpu, amount float64, need func(*compute.Request) int64) float64 {
	shares := slices.DeleteFunc(slices.Clone(f.mix.Shares), func(s compute.MixShare) bool { return s.Request.GPUs == 0 })
	ratio := func(s *compute.MixShare) float64 {
		return float64(need(&s.Request)) / float64(s.Request.GPUs*s.Request.MilliGPU)
	}
	slices.SortStableFunc(shares, func(a, b compute.MixShare) int { return cmp.Compare(ratio(&a), ratio(&b)) })
	left, fed := amount, 0.0
	partGPU, part := 0.0, 0.0
	for i := range shares {
		s := &shares[i]
		// The demand is scaled to the free GPUs.
		partGPU += gpu * float64(s.Count) * float64(s.Request.GPUs*s.Request.MilliGPU) / f.gpu
		part += gpu * float64(s.Count) * float64(need(&s.Request)) / f.gpu
		if partGPU < gpu/segments*(1-1e-12) && i < len(shares)-1 {
			continue
		}
		if part > left {
			return fed + partGPU*left/part
		}
		left, fed = left-part, fed+partGPU
		partGPU, part = 0, 0
	}
	return fed
}

// rest is the worth of free vCPU and memory beside gpu.
func (f *formula) rest(gpu, vcpu, memory float64) float64 {
	if gpu == 0 {
		return 0
	}
	served := min(
		f.feeds(gpu, vcpu, func(r *compute.Request) int64 { return r.VCPUMilli }),
		f.feeds(gpu, memory, func(r *compute.Request) int64 { return r.MemoryMiB }),
	)
	var classes []compute.MixShare
	total := 0.0
	for _, s := range f.mix.Shares {
		if s.Request.GPUs == 0 {
			classes = append(classes, s)
			total += float64(s.Count)
		}
	}
	slices.SortStableFunc(classes, func(a, b compute.MixShare) int { return int(b.Count) - int(a.Count) })
	covered, most := 0.0, 0
	for covered <= 0.95*total && most < len(classes) && most < 16 {
		covered += float64(classes[most].Count)
		most++
	}
	fits := 0.0
	for _, s := range classes[:most] {
		if vcpu >= float64(s.Request.VCPUMilli) && memory >= float64(s.Request.MemoryMiB) {
			fits += float64(s.Count) / covered
		}
	}
	return served*(1-f.risk*fits) - gpu
}

// TestValueIsTheFormula holds that the integers equal the formula of the design, up to a
// small part of a step.
func TestValueIsTheFormula(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		b := newBoard()
		mix := drawMix(rng)
		b.setMix(mix)
		var nodes []*compute.Node
		for i := range 20 {
			nodes = append(nodes, drawNode(rng, i))
		}
		nodes = append(nodes, &compute.Node{VCPUMilli: 64_000, MemoryMiB: 131_072, GPUs: []compute.GPU{{Type: "a"}}})
		b.setNodes(slices.Values(nodes))
		b.refresh()
		f := formula{mix: mix}
		var asked, only, all, others [2]float64 // vCPU, memory.
		for _, s := range mix.Shares {
			n, r := float64(s.Count), s.Request
			f.gpu += n * float64(r.GPUs*r.MilliGPU)
			for i, amount := range []int64{r.VCPUMilli, r.MemoryMiB} {
				if r.GPUs == 0 {
					only[i] += n * float64(amount)
				} else {
					asked[i] += n * float64(amount)
				}
			}
		}
		for r := range 1001 {
			if got, want := float64(b.value.residues[r])/one, f.residue(r); math.Abs(got-want) > 0.001 {
				t.Fatalf("round %d: a residue of %d is worth %f, want %f", round, r, got, want)
			}
		}
		for _, n := range nodes {
			of := &all
			if len(n.GPUs) == 0 {
				of = &others
			}
			of[0], of[1] = of[0]+float64(n.VCPUMilli), of[1]+float64(n.MemoryMiB)
		}
		scale := float64(coarseSum(b.gpu)) / f.gpu
		for i := range all {
			some := func(n float64) float64 { return float64(coarse(int64(n))) }
			rho := (asked[i]*scale + max(0, only[i]*scale-some(others[i]))) / some(all[i])
			f.risk = max(f.risk, min((rho-0.9)/0.2, 1)*0.5)
		}
		for i := range b.slots {
			s := &b.slots[i]
			want := f.rest(float64(s.GPUFree), float64(s.VCPU), float64(s.Memory))
			if got := float64(s.rest) / one; math.Abs(got-want) > 0.5+math.Abs(want)/1000 {
				t.Fatalf("round %d: the rest of %+v is worth %f, want %f (risk %f)", round, s, got, want, f.risk)
			}
		}
	}
}

func coarseSum(gpu []int64) (sum int64) {
	for _, n := range gpu {
		sum += coarse(n)
	}
	return sum
}

func TestCoarse(t *testing.T) {
	for n, want := range map[int64]int64{0: 0, 1: 1, 63: 63, 64: 64, 65: 66, 127: 128, 1000: 1008, 1_000_000: 1_015_808} {
		if got := coarse(n); got != want {
			t.Errorf("%d is about %d, want %d", n, got, want)
		}
	}
}

func TestPriceOfOpenings(t *testing.T) {
	tests := []struct {
		name  string
		free  float64
		need  float64
		price float64 // Part of the GPUs of one opening.
	}{
		{"none left", 0, 4, 1},
		{"as many as the number in service wavers by", 4, 16, 1},
		{"twice as many", 8, 16, 0.25},
		{"four times as many", 16, 16, 0.0625},
		{"half-way is rounded down in price", 4 * math.Sqrt2 * 1.01, 16, 0.5},
		{"plenty", 4 * 129, 16, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := opening{count: int64(tt.free * one), price: -1}
			g := group{gpus: 8, need: tt.need}
			if !o.reprice(&g) || o.reprice(&g) {
				t.Error("the price must change once")
			}
			if got := float64(o.price) / one / 8000; got != tt.price {
				t.Errorf("costs %f of its GPUs, want %f", got, tt.price)
			}
		})
	}
}

// TestScoreTreeIsAScan checks that a score tree gives the same answers as a
// scan of every node.
func TestScoreTreeIsAScan(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2, 15, 16, 17, 256, 257, 5000} {
		var r scoreTree
		r.size(n)
		scores := make([]int64, n)
		for i := range scores {
			scores[i] = int64(rng.IntN(40) - 20)
			r.levels[0][i] = entry(scores[i], i)
		}
		r.summarize()
		for range 500 {
			i := rng.IntN(n)
			scores[i] = []int64{int64(rng.IntN(40) - 20), gpusBusy, neverFits, worstFit}[rng.IntN(4)]
			r.set(i, scores[i])
			best, second := 0, -1
			for j := 1; j < n; j++ {
				switch {
				case scores[j] < scores[best]:
					best, second = j, best
				case second < 0 || scores[j] < scores[second]:
					second = j
				}
			}
			if second >= 0 && scores[second] > worstFit {
				second = -1
			}
			if got, score := r.best(); got != best || score != scores[best] {
				t.Fatalf("%d nodes: best is %d with %d, want %d with %d", n, got, score, best, scores[best])
			}
			if got, _ := r.runnerUp(best); got != second {
				t.Fatalf("%d nodes: runner-up is %d, want %d", n, got, second)
			}
		}
	}
}
