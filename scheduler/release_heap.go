package scheduler

import (
	"slices"

	"berth/compute"
	"berth/compute/capacity"
)

// maxReleaseHeaps is how many shapes a Packer has release heaps for.
const maxReleaseHeaps = 32

// releaseHeap orders the nodes by when one shape fits there, if every attempt
// runs to its latest end and nothing else is placed. The earliest instant is on
// top, the first node by id when equal. A cached instant is never later than
// the true one: as time passes attempts become overdue and release nothing. So
// the top is true once it was computed again and has stayed on top.
type releaseHeap struct {
	at    []compute.Instant // By node.
	heap  []int32           // The nodes.
	place []int32           // Position in the heap, by node.

	cursor uint64 // Position in the board's log up to which changes are included.
}

// releaseHeap returns the heap for q. It is up to date but for attempts that
// have become overdue.
func (s *pass) releaseHeap(q *capacity.Shape) *releaseHeap {
	p := s.packer
	a := p.releaseHeaps[*q]
	if a == nil {
		if len(p.releaseHeaps) >= maxReleaseHeaps || p.releaseHeaps == nil {
			p.releaseHeaps = map[capacity.Shape]*releaseHeap{}
		}
		a = &releaseHeap{}
		p.releaseHeaps[*q] = a
	}
	end := p.dropped + uint64(len(p.log))
	if len(a.at) != len(p.slots) || a.cursor < p.dropped || end-a.cursor > uint64(len(p.slots)/2) {
		a.fill(len(p.slots), func(node int) compute.Instant { return s.opens(node, q) })
	} else {
		p.syncs++
		for _, node := range p.log[a.cursor-p.dropped:] {
			if p.seen[node] != p.syncs {
				p.seen[node] = p.syncs
				a.set(int(node), s.opens(int(node), q))
			}
		}
	}
	a.cursor = end
	return a
}

// opens returns when q, which does not fit there at present, fits on a node. It
// is Never when that is unknown.
func (s *pass) opens(node int, q *capacity.Shape) compute.Instant {
	if why := s.packer.slots[node].refusal(q); why != gpusBusy && why != resourcesBusy {
		return compute.Never
	}
	return s.startOn(node, q)
}

// fill computes the instant of every node.
func (a *releaseHeap) fill(nodes int, at func(node int) compute.Instant) {
	a.at = slices.Grow(a.at[:0], nodes)[:nodes]
	a.heap, a.place = slices.Grow(a.heap[:0], nodes)[:nodes], slices.Grow(a.place[:0], nodes)[:nodes]
	for i := range nodes {
		a.at[i], a.heap[i], a.place[i] = at(i), int32(i), int32(i)
	}
	for i := nodes/2 - 1; i >= 0; i-- {
		a.sink(i)
	}
}

// first returns the node on top and its instant, Never when no node has one.
func (a *releaseHeap) first() (node int, at compute.Instant) {
	if len(a.heap) == 0 {
		return -1, compute.Never
	}
	return int(a.heap[0]), a.at[a.heap[0]]
}

// set changes the instant of a node.
func (a *releaseHeap) set(node int, at compute.Instant) {
	if a.at[node] == at {
		return
	}
	a.at[node] = at
	a.rise(int(a.place[node]))
	a.sink(int(a.place[node]))
}

// before orders two positions of the heap.
func (a *releaseHeap) before(i, j int) bool {
	x, y := a.heap[i], a.heap[j]
	return a.at[x] < a.at[y] || a.at[x] == a.at[y] && x < y
}

func (a *releaseHeap) rise(i int) {
	for ; i > 0 && a.before(i, (i-1)/2); i = (i - 1) / 2 {
		a.swap(i, (i-1)/2)
	}
}

func (a *releaseHeap) sink(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(a.heap); child++ {
			if a.before(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		a.swap(i, least)
		i = least
	}
}

func (a *releaseHeap) swap(i, j int) {
	a.heap[i], a.heap[j] = a.heap[j], a.heap[i]
	a.place[a.heap[i]], a.place[a.heap[j]] = int32(i), int32(j)
}
