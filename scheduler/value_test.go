package scheduler

import (
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

// formula is the value of free room as DESIGN.md writes it, in real numbers.
type formula struct {
	mix               *compute.Mix
	gpu, vcpu, memory float64 // Asked by work with GPUs.
	cpuOnly           float64
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

// rest is what free vCPU and memory beside gpu are worth.
func (f *formula) rest(gpu, vcpu, memory, rho float64) float64 {
	worth := 0.0
	if gpu > 0 {
		worth = -max(0, gpu-vcpu/(f.vcpu/f.gpu), gpu-memory/(f.memory/f.gpu))
	}
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
	weight := min(0.3*math.Pow(rho, 16), 16) / (f.vcpu / f.gpu)
	for _, s := range classes[:most] {
		c, m := float64(s.Request.VCPUMilli), float64(s.Request.MemoryMiB)
		if vcpu >= c && memory >= m {
			use := vcpu
			if m > 0 && c > 0 {
				use = min(use, memory*c/m)
			}
			worth += weight * float64(s.Count) / covered * use
		}
	}
	return worth
}

// TestValueIsTheFormula holds that the integers are what the design says, to a
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
		for _, s := range mix.Shares {
			n, r := float64(s.Count), s.Request
			if r.GPUs == 0 {
				f.cpuOnly += n * float64(r.VCPUMilli)
				continue
			}
			f.gpu += n * float64(r.GPUs*r.MilliGPU)
			f.vcpu += n * float64(r.VCPUMilli)
			f.memory += n * float64(r.MemoryMiB)
		}
		for r := range 1001 {
			if got, want := float64(b.value.residues[r])/one, f.residue(r); math.Abs(got-want) > 0.001 {
				t.Fatalf("round %d: a residue of %d is worth %f, want %f", round, r, got, want)
			}
		}
		gpus, vcpu, others := int64(0), int64(0), int64(0)
		for _, n := range nodes {
			gpus += int64(1000 * len(n.GPUs))
			if len(n.GPUs) > 0 {
				vcpu += n.VCPUMilli
			} else {
				others += n.VCPUMilli
			}
		}
		scale := float64(coarseSum(b.gpu)) / f.gpu
		rho := (f.vcpu*scale + max(0, f.cpuOnly*scale-float64(coarse(others)))) / float64(coarse(vcpu))
		for i := range b.slots {
			s := &b.slots[i]
			want := f.rest(float64(s.gpuFree), float64(s.vcpu), float64(s.memory), rho)
			if got := float64(s.rest) / one; math.Abs(got-want) > 0.5+math.Abs(want)/1000 {
				t.Fatalf("round %d: the rest of %+v is worth %f, want %f (rho %f)", round, s, got, want, rho)
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
		room  float64
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
			o := opening{count: int64(tt.room * one), price: -1}
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

// TestRowIsAScan holds that a row says what a look at every node would.
func TestRowIsAScan(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2, 15, 16, 17, 256, 257, 5000} {
		var r row
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
