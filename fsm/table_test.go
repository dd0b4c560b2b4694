package fsm

import (
	"cmp"
	"slices"
	"testing"

	"berth/compute"
)

func TestSharedTablesNeverChange(t *testing.T) {
	work := newTable[int, string](cmp.Compare[int])
	for i := range 500 {
		work.set(i, "old")
	}
	work.share()
	view := work
	view.freeze()
	same := work.shared
	if work.share(); work.shared != same {
		t.Error("a table that has not changed was copied")
	}
	for i := range 500 {
		if i%2 == 0 {
			work.set(i, "new")
		} else {
			work.remove(i)
		}
	}
	work.set(1000, "new")
	if view.len() != 500 {
		t.Fatalf("the view has %d rows", view.len())
	}
	for k, v := range view.all() {
		if v != "old" {
			t.Fatalf("row %d of the view is %s", k, v)
		}
	}
	if v, ok := work.get(2); !ok || v != "new" || work.len() != 251 {
		t.Errorf("the table has %d rows", work.len())
	}
}

func TestTablesAreOrdered(t *testing.T) {
	x := newTable[int, int](cmp.Compare[int])
	for _, k := range []int{5, 1, 9, 3, 7} {
		x.set(k, -k)
	}
	collect := func(seq func(func(int, int) bool), n int) (out []int) {
		for k, v := range seq {
			if k != -v {
				t.Errorf("row %d is %d", k, v)
			}
			if out = append(out, k); len(out) == n {
				break
			}
		}
		return out
	}
	tests := []struct {
		name string
		got  []int
		want []int
	}{
		{"all", collect(x.all(), 0), []int{1, 3, 5, 7, 9}},
		{"the first two", collect(x.all(), 2), []int{1, 3}},
		{"from a key", collect(x.from(5), 0), []int{5, 7, 9}},
		{"from between", collect(x.from(6), 0), []int{7, 9}},
		{"down", collect(x.downFrom(6), 0), []int{5, 3, 1}},
		{"the next down", collect(x.downFrom(9), 1), []int{9}},
	}
	for _, test := range tests {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, test.got, test.want)
		}
	}
	if k, _, ok := x.first(); !ok || k != 1 {
		t.Errorf("the first is %d", k)
	}
	empty := newTable[int, int](cmp.Compare[int])
	if _, _, ok := empty.first(); ok {
		t.Error("an empty table has a first row")
	}
}

func TestRecordsSumTheirHashes(t *testing.T) {
	make3 := func(order ...string) records[string, price] {
		r := newRecords(cmp.Compare[string], func(p *price) string { return p.Name })
		for i, name := range order {
			r.put(&price{name, compute.Price(i)})
		}
		for _, name := range order {
			r.put(&price{name, 1})
		}
		return r
	}
	a, b := make3("x", "y", "z"), make3("z", "x", "y")
	if a.sum != b.sum {
		t.Error("the sum depends on the order of changes")
	}
	old := b.put(&price{"x", 2})
	if old == nil || old.Price != 1 || a.sum == b.sum {
		t.Error("a change does not change the sum")
	}
	for _, name := range []string{"x", "y", "z"} {
		b.drop(name)
	}
	if b.sum != (sum{}) || b.drop("x") != nil || b.len() != 0 {
		t.Errorf("empty, but the sum is %v", b.sum)
	}
}

func TestIndexFollowsItsCondition(t *testing.T) {
	x := newIndex(cmp.Compare[string], func(p *price) string { return p.Name },
		func(p *price) bool { return p.Price > 0 })
	on, off := &price{"a", 1}, &price{"a", 0}
	steps := []struct {
		name          string
		before, after *price
		want          int
	}{
		{"not yet", nil, off, 0},
		{"holds now", off, on, 1},
		{"still", on, on, 1},
		{"no more", on, off, 0},
		{"again", off, on, 1},
		{"gone", on, nil, 0},
	}
	for _, step := range steps {
		x.update(step.before, step.after)
		if x.len() != step.want {
			t.Fatalf("%s: %d keys, want %d", step.name, x.len(), step.want)
		}
	}
	for _, name := range []string{"c", "a", "b"} {
		x.update(nil, &price{name, 1})
	}
	if got := x.take(2); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the first two are %v", got)
	}
	if got := slices.Collect(x.keys("b")); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("from b on are %v", got)
	}
}

func TestOrders(t *testing.T) {
	id := func(i byte) (u compute.UUID) { u[15] = i; return u }
	queue := []turn{
		{priority: 50, index: 1, id: compute.ExecutionID{UUID: id(9)}},
		{priority: 50, index: 2, id: compute.ExecutionID{UUID: id(1)}},
		{priority: 50, index: 2, id: compute.ExecutionID{UUID: id(2)}},
		{priority: 0, index: 0, id: compute.ExecutionID{UUID: id(0)}},
	}
	if !slices.IsSortedFunc(queue, byTurn) {
		t.Error("the queue is not by priority, then age, then identifier")
	}
	lines := []line{{id(1), 2}, {id(1), 300}, {id(2), 1}}
	if !slices.IsSortedFunc(lines, byLine) {
		t.Error("lines are not by owner, then number")
	}
	places := []place{
		{compute.OrgID{UUID: id(1)}, 5, compute.ExecutionID{UUID: id(9)}},
		{compute.OrgID{UUID: id(1)}, 6, compute.ExecutionID{UUID: id(1)}},
		{compute.OrgID{UUID: id(2)}, 1, compute.ExecutionID{UUID: id(1)}},
	}
	if !slices.IsSortedFunc(places, byPlace) {
		t.Error("places are not by organization, then index")
	}
	m := momentOf(7, id(3))
	if m.execution() != (compute.ExecutionID{UUID: id(3)}) || byMoment(m, momentOf(8, id(1))) >= 0 {
		t.Error("moments are not by time, or lose their execution")
	}
}
