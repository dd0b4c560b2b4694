package fair_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"berth/node/inference/fair"
)

// TestOrder gives the order in which requests are served, each as its owner; costs are
// in tokens.
func TestOrder(t *testing.T) {
	type push struct {
		owner string
		cost  int64
		times int
	}
	for _, test := range []struct {
		name   string
		pushes []push
		want   string
	}{
		{"one owner", []push{{"a", 5, 3}}, "aaa"},
		{"equal requests alternate", []push{{"a", 5, 4}, {"b", 5, 2}}, "ababaa"},
		{"the large ones wait for their tokens", []push{{"a", 30, 2}, {"b", 10, 6}}, "bbabbbab"},
		{"small ones have no burst", []push{{"a", 1, 4}, {"b", 1, 1}, {"c", 1, 2}}, "abcacaa"},
		{"costs below one count", []push{{"a", 0, 3}, {"b", -7, 2}}, "ababa"},
	} {
		var q fair.Queue[string]
		for _, p := range test.pushes {
			for range p.times {
				q.Push(p.owner, p.cost)
			}
		}
		var got strings.Builder
		for q.Len() > 0 {
			got.WriteString(q.Pop().Owner())
		}
		if got.String() != test.want || q.Pop() != nil {
			t.Errorf("%s: served %s, want %s", test.name, &got, test.want)
		}
	}
}

// TestRandomHistories pushes, pops and removes at random. Nothing is lost, owners are
// served in their order, and those that wait all the time get the same number of tokens
// within the cost of one request.
func TestRandomHistories(t *testing.T) {
	const owners, costMost, steps = 5, 100, 3000
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		h := newHistory(t, owners)
		for range steps {
			switch owner := rng.IntN(owners); rng.IntN(5) {
			case 0, 1:
				h.push(owner, 1+rng.Int64N(costMost))
			case 2:
				h.remove(owner, rng)
			default:
				h.pop()
			}
			h.check(costMost)
		}
		for h.Len() > 0 {
			h.pop()
			h.check(costMost)
		}
		for owner, left := range h.waiting {
			if len(left) > 0 {
				t.Fatalf("seed %d: %d requests of %d are lost", seed, len(left), owner)
			}
		}
	}
}

// history is a queue beside a plain list of its requests.
type history struct {
	*testing.T
	fair.Queue[int]

	waiting [][]*fair.Ticket[int]
	costs   map[*fair.Ticket[int]]int64
	served  [][]int64 // By pair: the cost that the first owner got since both wait.
}

func newHistory(t *testing.T, owners int) *history {
	h := &history{T: t, waiting: make([][]*fair.Ticket[int], owners), costs: map[*fair.Ticket[int]]int64{}}
	for range owners {
		h.served = append(h.served, make([]int64, owners))
	}
	return h
}

func (h *history) push(owner int, cost int64) {
	ticket := h.Push(owner, cost)
	h.waiting[owner] = append(h.waiting[owner], ticket)
	h.costs[ticket] = cost
}

func (h *history) remove(owner int, rng *rand.Rand) {
	if n := len(h.waiting[owner]); n > 0 {
		at := rng.IntN(n)
		if ticket := h.waiting[owner][at]; !h.Remove(ticket) || h.Remove(ticket) {
			h.Fatal("a request is not removed, or twice")
		}
		h.waiting[owner] = append(h.waiting[owner][:at:at], h.waiting[owner][at+1:]...)
	}
}

func (h *history) pop() {
	ticket := h.Pop()
	if ticket == nil {
		return
	}
	owner := ticket.Owner()
	if h.waiting[owner][0] != ticket {
		h.Fatal("an owner's requests are not served in their order")
	}
	h.waiting[owner] = h.waiting[owner][1:]
	for other := range h.served {
		h.served[owner][other] += h.costs[ticket]
	}
}

// check compares the costs of owners that have waited at the same time all along.
func (h *history) check(costMost int64) {
	sum := 0
	for owner, list := range h.waiting {
		sum += len(list)
		if h.LenOf(owner) != len(list) {
			h.Fatalf("%d requests wait, want %d", h.LenOf(owner), len(list))
		}
		for other := range owner {
			if len(list) == 0 || len(h.waiting[other]) == 0 {
				h.served[owner][other], h.served[other][owner] = 0, 0
			}
			if d := h.served[owner][other] - h.served[other][owner]; d > 2*costMost || d < -2*costMost {
				h.Fatalf("one owner got %d tokens more than another", d)
			}
		}
	}
	if h.Len() != sum {
		h.Fatalf("%d requests wait, want %d", h.Len(), sum)
	}
}

// TestShare divides places among routers.
func TestShare(t *testing.T) {
	for _, test := range []struct {
		places int
		others []int
		want   int
	}{
		{8, nil, 8},
		{8, []int{0, 0}, 8},
		{9, []int{fair.Unknown, fair.Unknown}, 3},
		{8, []int{fair.Unknown, fair.Unknown}, 3},
		{12, []int{1, fair.Unknown}, 6},
		{12, []int{1, 2}, 9},
		{12, []int{100, 0}, 6},
		{12, []int{5, 5}, 4},
		{1, []int{5, 5}, 1},
		{0, []int{3}, 1},
	} {
		if got := fair.Share(test.places, test.others); got != test.want {
			t.Errorf("of %d places beside %v: %d, want %d", test.places, test.others, got, test.want)
		}
	}
}
