package capacity

import (
	"slices"
	"strings"

	"berth/compute"
)

// Shape is the capacity that an execution needs on a node. It is comparable, so that
// callers can remember an answer per shape.
type Shape struct {
	GPUType int // Number of the accepted set of kinds; 0 for CPU-only work.
	GPUs    int
	Milli   int // Thousandths of each GPU.
	VCPU    int64
	Memory  int64 // MiB.
	Kinds   *KindSet
	Needs   *Needs // nil for none.
}

// Needs are the requirements of requests beside capacity that is used up.
type Needs struct{ Request compute.Request }

// Offered reports whether the node meets the needs of q beside capacity.
func (q *Shape) Offered(n *compute.Node) bool { return q.Needs == nil || n.Offering(&q.Needs.Request) }

// Kind identifies interchangeable devices: a GPU type, or a MIG slice of it.
type Kind struct {
	GPUType string
	Slice   string
}

// KindSet is the set of kinds that a request accepts.
type KindSet struct {
	Number  int             // The same for sets of the same kinds, whichever of them is preferred.
	Request compute.Request // The GPU types, the slice and the least memory of the request.
	Has     []bool          // By the number of the kind; as long as there are kinds.
	Ranks   []int           // By the number of the kind, 0 for the one that the request prefers; nil without preference.
}

// Enough reports whether a device with so much memory has enough for the set.
func (s *KindSet) Enough(vramMiB int64) bool {
	return s.Request.MinVRAMMiB == 0 || compute.EnoughVRAM(vramMiB, s.Request.MinVRAMMiB)
}

// Rank returns the place of a kind in the preference of the request, 0 for the first.
func (s *KindSet) Rank(kind int) int {
	if s.Ranks == nil || kind < 0 {
		return 0
	}
	return s.Ranks[kind]
}

// add adds the next kind to the set.
func (s *KindSet) add(k Kind) {
	s.Has = append(s.Has, k.accepted(&s.Request))
	if s.Request.Ranked {
		s.Ranks = append(s.Ranks, max(slices.Index(s.Request.AnyOf, k.GPUType), 0))
	}
}

// setKey identifies a set.
type setKey struct {
	types, slice string
	minVRAM      int64
	ranked       bool
}

// Kinds numbers the kinds of devices, and the sets of kinds that requests
// accept. A numbered kind is compared in one step.
type Kinds struct {
	Names []Kind // By number.
	Sizes []int  // Worth of one device in thousandths of a GPU, by number.
	Sets  []*KindSet

	numbers map[Kind]int
	byKey   map[setKey]*KindSet
	accepts map[setKey]int // Numbers of sets, whatever is preferred.
	needs   map[string]*Needs
}

// NewKinds returns a Kinds that has numbered nothing.
func NewKinds() *Kinds {
	return &Kinds{
		numbers: map[Kind]int{}, byKey: map[setKey]*KindSet{}, accepts: map[setKey]int{}, needs: map[string]*Needs{},
	}
}

// Number returns the number of g's kind. It numbers a kind that it has not seen before.
func (t *Kinds) Number(g *compute.GPU) int {
	k := Kind{g.Type, g.Slice()}
	n, known := t.numbers[k]
	if known {
		return n
	}
	n = len(t.Names)
	t.numbers[k] = n
	t.Names = append(t.Names, k)
	t.Sizes = append(t.Sizes, compute.SliceMilli(k.GPUType, k.Slice))
	for _, s := range t.Sets {
		s.add(k)
	}
	return n
}

// accepted reports whether a request accepts devices of kind k.
func (k Kind) accepted(r *compute.Request) bool {
	g, whole := compute.GPU{Type: k.GPUType, MIG: k.Slice}, *r
	whole.MinVRAMMiB = 0 // Devices of one kind may differ in it.
	return r.IsGPU() && g.Is(whole)
}

// Set returns the set of the kinds that r accepts.
func (t *Kinds) Set(r *compute.Request) *KindSet {
	key := setKey{types: r.GPUType, slice: r.MIG, minVRAM: r.MinVRAMMiB, ranked: r.Ranked}
	if r.GPUType == "" {
		key.types = r.Types()
	}
	if s := t.byKey[key]; s != nil {
		return s
	}
	s := &KindSet{
		Request: compute.Request{
			GPUType: r.GPUType, GPUs: r.GPUs, MIG: r.MIG, AnyOf: r.AnyOf, MinVRAMMiB: r.MinVRAMMiB, Ranked: r.Ranked,
		},
	}
	if r.IsGPU() {
		s.Number = t.numberOf(key, r)
	}
	for _, k := range t.Names {
		s.add(k)
	}
	t.byKey[key] = s
	t.Sets = append(t.Sets, s)
	return s
}

// numberOf returns the number of the set of key, which r accepts. A preference
// changes the choice among the accepted kinds, not the set.
func (t *Kinds) numberOf(key setKey, r *compute.Request) int {
	key.ranked = false
	if r.GPUType == "" && len(r.AnyOf) > 0 {
		key.types = strings.Join(slices.Sorted(slices.Values(r.AnyOf)), "|")
	}
	n, known := t.accepts[key]
	if !known {
		n = len(t.accepts) + 1
		t.accepts[key] = n
	}
	return n
}

// need returns the needs of r beside capacity, the same pointer for equal needs.
func (t *Kinds) need(r *compute.Request) *Needs {
	if r.ScratchMiB == 0 && len(r.Needs) == 0 {
		return nil
	}
	only := compute.Request{ScratchMiB: r.ScratchMiB, Needs: r.Needs}
	key := only.Key()
	n, known := t.needs[key]
	if !known {
		n = &Needs{Request: only}
		t.needs[key] = n
	}
	return n
}

// Shape returns the shape of a request.
func (t *Kinds) Shape(r *compute.Request) Shape {
	s := Shape{VCPU: r.VCPUMilli, Memory: r.MemoryMiB, Kinds: t.Set(r), Needs: t.need(r)}
	s.GPUType = s.Kinds.Number
	if r.IsGPU() {
		s.GPUs, s.Milli = max(r.GPUs, 1), r.MilliGPU
		if s.Milli <= 0 {
			s.Milli = compute.WholeGPU
		}
	}
	return s
}
