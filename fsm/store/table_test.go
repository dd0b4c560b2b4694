package store

import (
	"cmp"
	"crypto/sha256"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSharedTablesNeverChange(t *testing.T) {
	work := NewTable[int, string](cmp.Compare[int])
	for i := range 500 {
		work.Set(i, "old")
	}
	view := work.Frozen()
	if work.Frozen() != view || view.Frozen() != view {
		t.Error("a table that has not changed was copied")
	}
	for i := range 500 {
		if i%2 == 0 {
			work.Set(i, "new")
		} else {
			work.Remove(i)
		}
	}
	work.Set(1000, "new")
	if view.Len() != 500 {
		t.Fatalf("the view has %d rows", view.Len())
	}
	for k, v := range view.All() {
		if v != "old" {
			t.Fatalf("row %d of the view is %s", k, v)
		}
	}
	if v, ok := work.Get(2); !ok || v != "new" || work.Len() != 251 {
		t.Errorf("the table has %d rows", work.Len())
	}
}

func TestTablesAreOrdered(t *testing.T) {
	x := NewTable[int, int](cmp.Compare[int])
	for _, k := range []int{5, 1, 9, 3, 7} {
		x.Set(k, -k)
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
		{"all", collect(x.All(), 0), []int{1, 3, 5, 7, 9}},
		{"the first two", collect(x.All(), 2), []int{1, 3}},
		{"from a key", collect(x.From(5), 0), []int{5, 7, 9}},
		{"from between", collect(x.From(6), 0), []int{7, 9}},
		{"down", collect(x.Descend(6), 0), []int{5, 3, 1}},
		{"the next down", collect(x.Descend(9), 1), []int{9}},
	}
	for _, test := range tests {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, test.got, test.want)
		}
	}
}

// TestFrozenRecordsNeverChange changes records, hot and cold, and an index, after they
// were frozen.
func TestFrozenRecordsNeverChange(t *testing.T) {
	r := NewColdRecords(cmp.Compare[string], func(p *item) string { return p.Name }, 1, Cold[string, item]{
		Is: func(p *item) bool { return p.Price == 0 }, Bytes: func(k string) []byte { return []byte(k) },
		Key: func(b []byte) string { return string(b) }, Packer: NewPacker(),
	})
	x := NewIndex(cmp.Compare[string], func(p *item) string { return p.Name }, func(*item) bool { return true })
	for i, name := range []string{"a", "b", "c", "d"} {
		x.Update(r.Put(&item{name, i % 2}), &item{name, 1})
	}
	records, keys := r.Frozen(), x.Frozen()
	if r.Frozen() != records || x.Frozen() != keys || records.Frozen() != records || keys.Frozen() != keys {
		t.Error("what has not changed was copied")
	}
	_, before := records.Digest()
	r.Put(&item{"a", 5})
	r.Put(&item{"b", 0})
	x.Update(r.Drop("c"), nil)
	r.Forget("d")
	var got []item
	for v := range records.Values() {
		got = append(got, *v)
	}
	if _, after := records.Digest(); after != before || !slices.Equal(got, []item{{"a", 0}, {"b", 1}, {"c", 0}, {"d", 1}}) {
		t.Errorf("the frozen records are %v", got)
	}
	if keys.Len() != 4 || records.Len() != 4 || r.Len() != 2 || x.Len() != 3 {
		t.Errorf("%d and %d are frozen, %d and %d are not", records.Len(), keys.Len(), r.Len(), x.Len())
	}
	if r.Frozen() == records || x.Frozen() == keys {
		t.Error("what has changed was not copied")
	}
}

// item is a record.
type item struct {
	Name  string `cbor:"1,keyasint"`
	Price int    `cbor:"2,keyasint"`
}

func TestRecordsSumTheirHashes(t *testing.T) {
	make3 := func(order ...string) Records[string, item] {
		r := NewRecords(cmp.Compare[string], func(p *item) string { return p.Name })
		for i, name := range order {
			r.Put(&item{name, i})
		}
		for _, name := range order {
			r.Put(&item{name, 1})
		}
		return r
	}
	a, b := make3("x", "y", "z"), make3("z", "x", "y")
	sum := func(r Records[string, item]) Sum {
		_, s := r.Digest()
		return s
	}
	if sum(a) != sum(b) {
		t.Error("the sum depends on the order of changes")
	}
	old := b.Put(&item{"x", 2})
	if old == nil || old.Price != 1 || sum(a) == sum(b) {
		t.Error("a change does not change the sum")
	}
	for _, name := range []string{"x", "y", "z"} {
		b.Drop(name)
	}
	if sum(b) != (Sum{}) || b.Drop("x") != nil || b.Len() != 0 {
		t.Errorf("empty, but the sum is %v", sum(b))
	}
}

// TestSumsDoNotDependOnColdness puts the same records, cold, hot, changed and with their
// encodings, and expects the sum of their hashes each time.
func TestSumsDoNotDependOnColdness(t *testing.T) {
	key := func(p *item) string { return p.Name }
	bare := func(p, room *item) *item {
		*room = item{Name: p.Name}
		return room
	}
	for name, lean := range map[string]func(_, _ *item) *item{"whole": nil, "lean": bare} {
		t.Run(name, func(t *testing.T) {
			r := NewColdRecords(cmp.Compare[string], key, 1, Cold[string, item]{
				Is: func(p *item) bool { return p.Price%2 == 0 }, Bytes: func(k string) []byte { return []byte(k) },
				Key: func(b []byte) string { return string(b) }, Packer: NewPacker(), Lean: lean,
			})
			var want Sum
			for i, name := range []string{"a", "b", "c", "d", "e", "f"} {
				r.Put(&item{name, i + 1})
				last := &item{name, i}
				if i < 3 {
					r.Put(last)
				} else {
					r.PutEncoded(last, MustEncode(last))
				}
				if lean != nil {
					last = lean(last, new(item))
				}
				want.Add(sha256.Sum256(MustEncode(last)))
			}
			if n, sum := r.Digest(); n != 6 || r.ColdLen() != 3 || sum != want {
				t.Errorf("%d records, %d of them cold, sum %v, want %v", n, r.ColdLen(), sum, want)
			}
			if got := slices.Collect(r.DescendCold("d", "a")); !slices.Equal(got, []string{"c", "a"}) {
				t.Errorf("cold records from d down are %v", got)
			}
			for i, name := range []string{"a", "b", "c", "d", "e", "f"} {
				if v, ok := r.Get(name); !ok || v.Price != i {
					t.Errorf("%s is %+v", name, v)
				}
			}
		})
	}
}

// TestSumsFollowChanges makes random changes and compares the sum, at random times, with the
// hashes of the records.
func TestSumsFollowChanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	bare := func(p, room *item) *item {
		*room = item{Name: p.Name, Price: p.Price / 2}
		return room
	}
	for _, lean := range []func(_, _ *item) *item{nil, bare} {
		r := NewColdRecords(cmp.Compare[string], func(p *item) string { return p.Name }, 1, Cold[string, item]{
			Is: func(p *item) bool { return p.Price%3 == 0 }, Bytes: func(k string) []byte { return []byte(k) },
			Key: func(b []byte) string { return string(b) }, Packer: NewPacker(), Lean: lean,
		})
		hashed := func(v *item) [sha256.Size]byte {
			if lean != nil {
				v = lean(v, new(item))
			}
			return sha256.Sum256(MustEncode(v))
		}
		var forgotten Sum // The hashes of forgotten records stay.
		check := func(r Records[string, item]) {
			t.Helper()
			want := forgotten
			for v := range r.Values() {
				want.Add(hashed(v))
			}
			if n, sum := r.Digest(); n != r.Len() || sum != want {
				t.Fatalf("the sum of %d records is %v, want %v", n, sum, want)
			}
		}
		name := func() string { return string(rune('a' + rng.IntN(4))) }
		for range 20_000 {
			switch v := (&item{name(), rng.IntN(9)}); rng.IntN(8) {
			case 0:
				r.Drop(name())
			case 1:
				if v, ok := r.GetHot(name()); ok {
					forgotten.Add(hashed(v))
					r.Forget(v.Name)
				}
			case 2:
				r.PutEncoded(v, MustEncode(v))
			case 3:
				check(r)
			case 4:
				frozen := r.Frozen()
				r.Put(v)
				check(frozen)
			default:
				r.Put(v)
			}
		}
		check(r)
	}
}

func TestIndexFollowsItsCondition(t *testing.T) {
	x := NewIndex(cmp.Compare[string], func(p *item) string { return p.Name },
		func(p *item) bool { return p.Price > 0 })
	on, off := &item{"a", 1}, &item{"a", 0}
	steps := []struct {
		name          string
		before, after *item
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
		x.Update(step.before, step.after)
		if x.Len() != step.want {
			t.Fatalf("%s: %d keys, want %d", step.name, x.Len(), step.want)
		}
	}
	for _, name := range []string{"c", "a", "b"} {
		x.Update(nil, &item{name, 1})
	}
	if got := x.FirstKeys(2); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the first two are %v", got)
	}
	if got := slices.Collect(x.Keys("b")); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("from b on are %v", got)
	}
}
