package scheduler

import "berth/compute"

// shape is what an execution needs of a node. Executions of one shape are one
// question, so its answer is remembered under it.
type shape struct {
	gpuType int // Number of kinds; 0 for CPU-only work.
	gpus    int
	milli   int // Of each GPU.
	vcpu    int64
	memory  int64 // MiB.
	kinds   *kindSet
}

// kind is what a device is to those who ask: a GPU type, or a MIG slice of it.
type kind struct {
	gpuType string
	slice   string
}

// kindSet is which kinds a request accepts.
type kindSet struct {
	number int
	ask    compute.Request // Its types and its slice.
	has    []bool          // By the number of the kind; as long as there are kinds.
}

// setKey tells one set from another.
type setKey struct{ types, slice string }

// types numbers the kinds of devices and the sets of kinds that requests
// accept, so that asking costs a look.
type types struct {
	kinds  map[kind]int
	names  []kind // By number.
	sizes  []int  // Worth of one device in thousandths of a GPU, by number.
	sets   map[setKey]*kindSet
	inSets []*kindSet
}

func newTypes() *types {
	return &types{kinds: map[kind]int{}, sets: map[setKey]*kindSet{}}
}

// of returns the number of the kind that g is.
func (t *types) of(g *compute.GPU) int {
	k := kind{g.Type, g.Slice()}
	n, known := t.kinds[k]
	if known {
		return n
	}
	n = len(t.names)
	t.kinds[k] = n
	t.names = append(t.names, k)
	t.sizes = append(t.sizes, compute.SliceMilli(k.gpuType, k.slice))
	for _, s := range t.inSets {
		s.has = append(s.has, k.in(&s.ask))
	}
	return n
}

// in reports whether a request accepts devices of kind k.
func (k kind) in(r *compute.Request) bool {
	g := compute.GPU{Type: k.gpuType, MIG: k.slice}
	return r.IsGPU() && g.Is(*r)
}

// set returns the set of the kinds that r accepts.
func (t *types) set(r *compute.Request) *kindSet {
	key := setKey{types: r.GPUType, slice: r.MIG}
	if r.GPUType == "" {
		key.types = r.Types()
	}
	if s := t.sets[key]; s != nil {
		return s
	}
	s := &kindSet{
		ask: compute.Request{GPUType: r.GPUType, GPUs: r.GPUs, MIG: r.MIG, AnyOf: r.AnyOf},
		has: make([]bool, len(t.names)),
	}
	if r.IsGPU() {
		s.number = len(t.inSets) + 1
	}
	for i, k := range t.names {
		s.has[i] = k.in(r)
	}
	t.sets[key] = s
	t.inSets = append(t.inSets, s)
	return s
}

// shape returns the shape of a request.
func (t *types) shape(r *compute.Request) shape {
	s := shape{vcpu: r.VCPUMilli, memory: r.MemoryMiB, kinds: t.set(r)}
	s.gpuType = s.kinds.number
	if r.IsGPU() {
		s.gpus, s.milli = max(r.GPUs, 1), r.MilliGPU
		if s.milli <= 0 {
			s.milli = compute.WholeGPU
		}
	}
	return s
}
