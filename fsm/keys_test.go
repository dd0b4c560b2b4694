package fsm

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"berth/compute"
	"berth/fsm/archive"
)

func TestOrders(t *testing.T) {
	id := func(i byte) (u compute.UUID) { u[15] = i; return u }
	queue := []priorityKey{
		{priority: 50, index: 1, id: compute.ExecutionID{UUID: id(9)}},
		{priority: 50, index: 2, id: compute.ExecutionID{UUID: id(1)}},
		{priority: 50, index: 2, id: compute.ExecutionID{UUID: id(2)}},
		{priority: 0, index: 0, id: compute.ExecutionID{UUID: id(0)}},
	}
	if !slices.IsSortedFunc(queue, byPriorityKey) {
		t.Error("the queue is not by priority, then age, then identifier")
	}
	lines := []numberKey{{id(1), 2}, {id(1), 300}, {id(2), 1}}
	if !slices.IsSortedFunc(lines, byNumberKey) {
		t.Error("lines are not by owner, then number")
	}
	places := []archive.Place{
		{Org: compute.OrgID{UUID: id(1)}, Index: 5, ID: compute.ExecutionID{UUID: id(9)}},
		{Org: compute.OrgID{UUID: id(1)}, Index: 6, ID: compute.ExecutionID{UUID: id(1)}},
		{Org: compute.OrgID{UUID: id(2)}, Index: 1, ID: compute.ExecutionID{UUID: id(1)}},
	}
	if !slices.IsSortedFunc(places, archive.ByPlace) {
		t.Error("places are not by organization, then index")
	}
	waiting := []queueKey{
		{9, compute.OrgID{UUID: id(2)}, 9, compute.ExecutionID{UUID: id(9)}},
		{8, compute.OrgID{UUID: id(1)}, 7, compute.ExecutionID{UUID: id(9)}},
		{8, compute.OrgID{UUID: id(1)}, 8, compute.ExecutionID{UUID: id(1)}},
		{8, compute.OrgID{UUID: id(1)}, 8, compute.ExecutionID{UUID: id(2)}},
		{8, compute.OrgID{UUID: id(2)}, 1, compute.ExecutionID{UUID: id(1)}},
	}
	if !slices.IsSortedFunc(waiting, byQueueKey) || byQueueKey(waiting[3], waiting[2]) <= 0 {
		t.Error("the queue is not by priority, then organization, then age, then identifier")
	}
	m := timeKeyOf(7, id(3))
	if m.execution() != (compute.ExecutionID{UUID: id(3)}) || byTimeKey(m, timeKeyOf(8, id(1))) >= 0 {
		t.Error("moments are not by time, or lose their execution")
	}
}

func TestKeysAsBytesKeepTheirOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	id := func() (u compute.UUID) { u[0], u[15] = byte(rng.IntN(2)), byte(rng.IntN(3)); return u }
	for range 1000 {
		a, b := archive.Place{Org: compute.OrgID{UUID: id()}, Index: rng.Uint64N(300), ID: compute.ExecutionID{UUID: id()}},
			archive.Place{Org: compute.OrgID{UUID: id()}, Index: rng.Uint64N(300), ID: compute.ExecutionID{UUID: id()}}
		if bytes.Compare(historyKeyBytes(a), historyKeyBytes(b)) != archive.ByPlace(a, b) || historyKeyFrom(historyKeyBytes(a)) != a {
			t.Fatalf("places %v and %v", a, b)
		}
		c, d := numberKey{id(), rng.Uint64N(300)}, numberKey{id(), rng.Uint64N(300)}
		if bytes.Compare(numberKeyBytes(c), numberKeyBytes(d)) != byNumberKey(c, d) || numberKeyFrom(numberKeyBytes(c)) != c {
			t.Fatalf("lines %v and %v", c, d)
		}
		e, f := pair{id(), id()}, pair{id(), id()}
		if bytes.Compare(pairBytes(e), pairBytes(f)) != byPair(e, f) || pairFrom(pairBytes(e)) != e {
			t.Fatalf("pairs %v and %v", e, f)
		}
		g, h := timeKeyOf(compute.Instant(rng.IntN(600)-300), id()), timeKeyOf(compute.Instant(rng.IntN(600)-300), id())
		if bytes.Compare(endKeyBytes(g), endKeyBytes(h)) != byTimeKey(g, h) || endKeyFrom(endKeyBytes(g)) != g {
			t.Fatalf("moments %v and %v", g, h)
		}
	}
}
