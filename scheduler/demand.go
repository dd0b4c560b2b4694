package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"berth/compute"
	"berth/compute/capacity"
)

// supply is the hardware of the nodes that take work. It is coarse, so that one
// node more or less of many changes nothing.
type supply struct {
	gpu                    []int64 // Thousandths of a GPU by kind.
	vcpu, memory           int64   // On nodes with GPUs.
	otherVCPU, otherMemory int64   // On nodes without GPUs.
	hardware               []family
}

// family is nodes of about the same size.
type family struct {
	vcpu, memory int64
	devices      string // Kinds of the devices and how many, spelled out.
	counts       []int  // Usable devices by kind.
}

// total returns the thousandths of a GPU of all kinds.
func (c *supply) total() int64 {
	sum := int64(0)
	for _, n := range c.gpu {
		sum += n
	}
	return sum
}

// demand is a mix relative to the supply. Its floats are sums, products and
// quotients of integers, rounded one at a time, so that every machine computes
// the same.
type demand struct {
	types         *capacity.Kinds
	supply        *supply
	shares        []share
	gpu           float64 // Thousandths of a GPU in one pass through the mix.
	vcpu          float64 // vCPU that work with GPUs asks for.
	memory        float64
	cpuOnly       float64 // vCPU that work without GPUs asks for.
	cpuOnlyMemory float64
}

// share is one request of a mix and its count.
type share struct {
	capacity.Shape
	count float64
	gpu   float64 // Thousandths of a GPU that one asks for.
}

// newDemand returns the demand of a mix.
func newDemand(m *compute.Mix, t *capacity.Kinds, c *supply) *demand {
	d := &demand{types: t, supply: c}
	if m == nil {
		return d
	}
	for i := range m.Shares {
		s := share{Shape: t.Shape(&m.Shares[i].Request), count: float64(m.Shares[i].Count)}
		if s.GPUs > 0 {
			size := compute.SliceMilli(strings.Split(m.Shares[i].Request.Types(), "|")[0], m.Shares[i].Request.MIG)
			s.gpu = float64(int64(s.GPUs)*int64(s.Milli)*int64(size)) / compute.WholeGPU
			d.gpu += float64(s.gpu * s.count)
			d.vcpu += float64(float64(s.VCPU) * s.count)
			d.memory += float64(float64(s.Memory) * s.count)
		} else {
			d.cpuOnly += float64(float64(s.VCPU) * s.count)
			d.cpuOnlyMemory += float64(float64(s.Memory) * s.count)
		}
		d.shares = append(d.shares, s)
	}
	return d
}

// value returns the value of free capacity under d.
func (d *demand) value() *value {
	v := &value{scarce: make([]int64, len(d.types.Names))}
	if d.gpu == 0 {
		d.presume(v)
		return v
	}
	d.residues(v)
	v.vcpu = d.frontier(func(s *share) float64 { return float64(s.VCPU) })
	v.memory = d.frontier(func(s *share) float64 { return float64(s.Memory) })
	d.pressure(v)
	d.exposure(v)
	v.groups = d.groups()
	return v
}

// presume fills in v while no demand for GPUs is known. It presumes any number
// of whole GPUs of any type, with their share of the nodes.
func (d *demand) presume(v *value) {
	for r := 1; r < compute.WholeGPU; r++ {
		v.residues[r] = int64(r) * one
	}
	c := d.supply
	gpu := float64(c.total())
	if gpu == 0 {
		return
	}
	v.vcpu = frontier{{slope: slope(gpu, float64(c.vcpu))}}
	v.memory = frontier{{slope: slope(gpu, float64(c.memory))}}
	const sizes = 3 // 2, 4 and 8 GPUs.
	for n := range sizes {
		k := int64(2) << n
		each := k * compute.WholeGPU
		v.groups = append(v.groups, group{
			gpus: int(k), need: gpu / float64(sizes*each),
			members: []member{{
				kinds: d.types.Set(&compute.Request{GPUs: int(k)}), weight: one,
				vcpu:   int64(float64(c.vcpu) * (float64(each) / gpu)),
				memory: int64(float64(c.memory) * (float64(each) / gpu)),
			}},
		})
	}
}

// slope returns how much GPU one unit of the amount feeds.
func slope(gpu, amount float64) int64 {
	if amount <= 0 {
		return 0
	}
	return int64(min(gpu/amount*(1<<slopePlaces), maxSlope))
}

// residues sets the loss from each free share: r times the part of the
// requested devices of which more than r is asked. It is the expected fragment
// of one device in the sense of Weng et al. (USENIX ATC 2023).
func (d *demand) residues(v *value) {
	var asked [compute.WholeGPU + 1]float64
	devices := 0.0
	for i := range d.shares {
		s := &d.shares[i]
		asked[min(s.Milli, compute.WholeGPU)] += float64(s.count * float64(s.GPUs))
		devices += float64(s.count * float64(s.GPUs))
	}
	more := 0.0
	for r := compute.WholeGPU - 1; r > 0; r-- {
		more += asked[r+1]
		v.residues[r] = int64(float64(r) * one * (more / devices))
	}
}

// scale returns how many times the mix must arrive to ask for all GPUs.
func (d *demand) scale() float64 { return float64(d.supply.total()) / d.gpu }

// pressure sets the price of each kind. The demand of requests that name their
// types is poured, at full load, onto the type with the lowest load. Types that
// receive much of it are left to the work that needs them.
func (d *demand) pressure(v *value) {
	masks := d.masks()
	load := make([]float64, len(d.types.Names))
	const pours = 400
	for _, m := range masks {
		part := float64(m.gpu*d.scale()) / pours
		for range pours {
			best := capacity.Mixed
			for _, kind := range m.kinds {
				if best == capacity.Mixed || load[kind]/float64(d.supply.gpu[kind]) < load[best]/float64(d.supply.gpu[best]) {
					best = kind
				}
			}
			load[best] += part
		}
	}
	for kind, l := range load {
		if l == 0 {
			continue
		}
		rho := min(l/float64(d.supply.gpu[kind]), 8)
		v.scarce[kind] = int64(float64(float64(rho*rho)*rho) * (typeWeight * one))
	}
}

// mask is the demand of all requests that accept the same kinds.
type mask struct {
	name  string
	gpu   float64
	kinds []int // Those with supply, in the order of their names.
}

// masks returns the demand of requests that do not accept every kind, by the
// types that they name.
func (d *demand) masks() []mask {
	order := make([]int, 0, len(d.types.Names))
	for kind := range d.types.Names {
		if d.supply.gpu[kind] > 0 {
			order = append(order, kind)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := d.types.Names[a], d.types.Names[b]
		return cmp.Or(strings.Compare(x.GPUType, y.GPUType), strings.Compare(x.Slice, y.Slice))
	})
	var out []mask
	at := map[*capacity.KindSet]int{}
	for i := range d.shares {
		s := &d.shares[i]
		if s.GPUs == 0 || s.Kinds.Request.Types() == "*" {
			continue
		}
		n, known := at[s.Kinds]
		if !known {
			n = len(out)
			at[s.Kinds] = n
			r := &s.Kinds.Request
			out = append(out, mask{name: fmt.Sprint(r.Types(), "/", r.MIG, "/", r.MinVRAMMiB)})
			for _, kind := range order {
				if s.Kinds.Has[kind] {
					out[n].kinds = append(out[n].kinds, kind)
				}
			}
		}
		out[n].gpu += float64(s.gpu * s.count)
	}
	out = slices.DeleteFunc(out, func(m mask) bool { return len(m.kinds) == 0 })
	slices.SortFunc(out, func(a, b mask) int { return strings.Compare(a.name, b.name) })
	return out
}

// exposure sets how much of the GPU is at risk beside free capacity for
// CPU-only work. It is none unless vCPU or memory runs short at full load. Then
// all that such work takes there is taken from work with GPUs.
func (d *demand) exposure(v *value) {
	var classes []share
	total := 0.0
	for i := range d.shares {
		if s := &d.shares[i]; s.GPUs == 0 {
			classes = append(classes, *s)
			total += s.count
		}
	}
	risk := float64(d.shortage()-riskFrom) / (riskTo - riskFrom)
	risk = min(risk, 1) * riskMost
	if total == 0 || risk <= 0 {
		return
	}
	slices.SortStableFunc(classes, func(a, b share) int { return cmp.Compare(b.count, a.count) })
	most, covered := 0, 0.0
	for covered <= 0.95*total && most < len(classes) && most < maxGroups {
		covered += classes[most].count
		most++
	}
	for _, c := range classes[:most] {
		v.cpuOnly = append(v.cpuOnly, cpuClass{c.VCPU, c.Memory, int64(risk * (c.count / covered) * one)})
	}
}

// shortage returns the part of the vCPU or the memory, whichever is more, of
// nodes with GPUs that is asked for at full load. CPU-only work that nodes
// without GPUs can take is not counted.
func (d *demand) shortage() float64 {
	part := func(gpu, cpuOnly float64, others, all int64) float64 {
		if all == 0 {
			return 0
		}
		left := max(float64(cpuOnly*d.scale())-float64(others), 0)
		return (float64(gpu*d.scale()) + left) / float64(all)
	}
	c := d.supply
	return max(part(d.vcpu, d.cpuOnly, c.otherVCPU, c.vcpu), part(d.memory, d.cpuOnlyMemory, c.otherMemory, c.memory))
}

// groups returns the groups of multi-GPU work, those that ask for most first.
func (d *demand) groups() []group {
	type found struct {
		group
		members []*share
		gpu     float64
		count   float64
	}
	var all []*found
	at := map[string]*found{}
	for i := range d.shares {
		s := &d.shares[i]
		if s.GPUs < 2 || s.Milli != compute.WholeGPU {
			continue
		}
		hosts := d.hosts(s)
		f := at[hosts]
		if f == nil {
			f = &found{group: group{gpus: s.GPUs}}
			at[hosts] = f
			all = append(all, f)
		}
		f.members = append(f.members, s)
		f.gpu += float64(s.gpu * s.count)
		f.count += s.count
	}
	slices.SortStableFunc(all, func(a, b *found) int { return cmp.Compare(b.gpu, a.gpu) })
	var out []group
	for _, f := range all[:min(len(all), maxGroups)] {
		f.need = float64(f.count * d.scale())
		for _, s := range f.members {
			weight := int64(s.count / f.count * one)
			f.group.members = append(f.group.members, member{s.Kinds, s.VCPU, s.Memory, weight})
		}
		out = append(out, f.group)
	}
	return out
}

// hosts returns a key for the number of GPUs of s and the hardware that could
// host it when idle.
func (d *demand) hosts(s *share) string {
	key := make([]byte, 0, 2+len(d.supply.hardware))
	key = append(key, byte(s.GPUs), byte(s.GPUs>>8))
	for i := range d.supply.hardware {
		h := &d.supply.hardware[i]
		most := 0
		for kind, n := range h.counts {
			if s.Kinds.Has[kind] {
				most = max(most, n)
			}
		}
		can := byte(0)
		if h.vcpu >= s.VCPU && h.memory >= s.Memory && most >= s.GPUs {
			can = 1
		}
		key = append(key, can)
	}
	return string(key)
}
