package scheduler

import (
	"slices"

	"berth/compute"
	"berth/compute/capacity"
)

// maxAgendas is for how many shapes a Packer remembers when they fit where.
const maxAgendas = 32

// agenda remembers, for one shape, when it fits on each node if everything
// there runs to its latest end and nothing comes after. It is a heap of the
// nodes, the earliest instant on top, the first by id when equal. An instant
// that was remembered is never later than the true one: as time passes,
// attempts overstay and release nothing. So the top is true once it was
// reckoned again and has stayed on top.
type agenda struct {
	at    []compute.Instant // By node.
	heap  []int32           // Of nodes.
	place []int32           // In the heap, by node.

	cursor uint64 // How much of the board's log is included.
}

// agenda returns when q fits where, up to date but for what has overstayed.
func (s *pass) agenda(q *capacity.Shape) *agenda {
	p := s.packer
	a := p.agendas[*q]
	if a == nil {
		if len(p.agendas) >= maxAgendas || p.agendas == nil {
			p.agendas = map[capacity.Shape]*agenda{}
		}
		a = &agenda{}
		p.agendas[*q] = a
	}
	end := p.dropped + uint64(len(p.log))
	if len(a.at) != len(p.slots) || a.cursor < p.dropped || end-a.cursor > uint64(len(p.slots)/2) {
		a.fill(len(p.slots), func(node int) compute.Instant { return s.opens(node, q) })
	} else {
		p.looks++
		for _, node := range p.log[a.cursor-p.dropped:] {
			if p.seen[node] != p.looks {
				p.seen[node] = p.looks
				a.set(int(node), s.opens(int(node), q))
			}
		}
	}
	a.cursor = end
	return a
}

// opens returns when q, which does not fit there now, fits on a node; never
// when nobody knows.
func (s *pass) opens(node int, q *capacity.Shape) compute.Instant {
	if why := s.packer.slots[node].refusal(q); why != gpusBusy && why != resourcesBusy {
		return compute.Never
	}
	return s.startOn(node, q)
}

// fill reckons every node.
func (a *agenda) fill(nodes int, at func(node int) compute.Instant) {
	a.at = slices.Grow(a.at[:0], nodes)[:nodes]
	a.heap, a.place = slices.Grow(a.heap[:0], nodes)[:nodes], slices.Grow(a.place[:0], nodes)[:nodes]
	for i := range nodes {
		a.at[i], a.heap[i], a.place[i] = at(i), int32(i), int32(i)
	}
	for i := nodes/2 - 1; i >= 0; i-- {
		a.sink(i)
	}
}

// first returns the node on top and its instant, never when no node has one.
func (a *agenda) first() (node int, at compute.Instant) {
	if len(a.heap) == 0 {
		return -1, compute.Never
	}
	return int(a.heap[0]), a.at[a.heap[0]]
}

// set changes the instant of a node.
func (a *agenda) set(node int, at compute.Instant) {
	if a.at[node] == at {
		return
	}
	a.at[node] = at
	a.rise(int(a.place[node]))
	a.sink(int(a.place[node]))
}

// before is the order of the heap, by places in it.
func (a *agenda) before(i, j int) bool {
	x, y := a.heap[i], a.heap[j]
	return a.at[x] < a.at[y] || a.at[x] == a.at[y] && x < y
}

func (a *agenda) rise(i int) {
	for ; i > 0 && a.before(i, (i-1)/2); i = (i - 1) / 2 {
		a.swap(i, (i-1)/2)
	}
}

func (a *agenda) sink(i int) {
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

func (a *agenda) swap(i, j int) {
	a.heap[i], a.heap[j] = a.heap[j], a.heap[i]
	a.place[a.heap[i]], a.place[a.heap[j]] = int32(i), int32(j)
}
