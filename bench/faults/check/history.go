package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"berth/compute"
)

// Limits of one object. A search beyond them may not end.
const (
	MaxTries   = 2_000
	MaxClients = 16
)

// never is the return time of an unanswered try.
const never = math.MaxInt64

// Object is the unit of a check: a kind and a name.
type Object struct {
	Kind Kind
	Name string
}

// String returns a readable form of the object.
func (o Object) String() string { return o.Kind.String() + " " + o.Name }

// Kind is a kind of object that has a model.
type Kind uint8

// Kinds of objects.
const (
	KindRegister Kind = iota
	KindAccount
	KindKey
	KindExecution
)

// String returns the name of the kind.
func (k Kind) String() string { return [...]string{"register", "account", "key", "execution"}[k] }

func (k Kind) model() porcupine.Model {
	return [...]func() porcupine.Model{registerModel, accountModel, keyModel, executionModel}[k]()
}

// Violation is behavior that no correct system shows.
type Violation struct {
	What   string `json:"what"`   // The check, such as "linearizability" or "double start".
	Object string `json:"object"` // The checked object.
	Detail string `json:"detail"`
	// Undecided reports that a check did not finish. That is a violation too,
	// although its cause is unknown.
	Undecided bool `json:"undecided,omitempty"`
}

// String returns the violation on one line.
func (v Violation) String() string { return v.What + " of " + v.Object + ": " + v.Detail }

// History records the tries of clients. It is safe for concurrent use.
type History struct {
	now func() int64

	mu    sync.Mutex
	tries map[Object][]*Try
}

// NewHistory returns an empty history. now returns nanoseconds of one monotonic
// clock.
func NewHistory(now func() int64) *History {
	return &History{now: now, tries: map[Object][]*Try{}}
}

// Try is one request of one client. At most one of Return and Drop may be
// called, once. A try with neither may have taken effect.
type Try struct {
	history *History
	client  int
	call    int64
	back    int64
	in, out any
	dropped bool
}

// Call records that a client sends a request, and returns the try. in is an
// input of the model of the object's kind.
func (h *History) Call(o Object, client int, in any) *Try {
	return h.CallAt(o, client, in, h.now())
}

// CallAt is Call at an earlier instant: an event of the system itself is called
// when a client's request first allowed it.
func (h *History) CallAt(o Object, client int, in any, at int64) *Try {
	t := &Try{history: h, client: client, call: at, back: never, in: in}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tries[o] = append(h.tries[o], t)
	return t
}

// Return records the answer.
func (t *Try) Return(out any) {
	t.history.mu.Lock()
	defer t.history.mu.Unlock()
	t.out, t.back = out, t.history.now()
}

// Drop removes the try: it had no effect and showed nothing.
func (t *Try) Drop() {
	t.history.mu.Lock()
	defer t.history.mu.Unlock()
	t.dropped = true
}

// Place is the position of a change in an account's ledger. Seq is the number
// of its first line, 0 for none. Charge is the amount it charges.
type Place struct {
	Seq    uint64
	Charge compute.Credits
}

// Resolve gives every try of an account its place in the ledger, which is known
// once the cluster is whole. place returns the place of an input. An unanswered
// try without a line had no effect and is dropped; one with a line has happened
// by now. The ledger then gives the order of changes, and the search orders
// only reads. Otherwise a search would have to try every order of unanswered
// changes.
func (h *History) Resolve(o Object, place func(in any) Place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.tries[o] {
		if _, read := t.in.(Balance); read || t.dropped || t.out == Refused {
			continue
		}
		at := place(t.in)
		switch {
		case at.Seq == 0 && t.back == never:
			t.dropped = true
			continue
		case at.Seq == 0:
			at.Seq = noLine
		case t.back == never:
			t.back = h.now()
		}
		t.in = placed(t.in, at)
	}
}

// SettleAt records that op was settled at an instant or later, by itself or at
// the end of the run. It does nothing if a client requested it or if the object
// has no tries.
func (h *History) SettleAt(o Object, client int, op string, at int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	asked := slices.ContainsFunc(h.tries[o], func(t *Try) bool {
		in, settles := t.in.(Settle)
		return settles && in.Op == op && !t.dropped
	})
	if !asked {
		h.byItself(o, client, Settle{Op: op}, at)
	}
}

// RenewAt records that op was renewed at an instant or later, with the first of
// its lines at seq. It does nothing if the object has no tries.
func (h *History) RenewAt(o Object, client int, op string, seq uint64, at int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.byItself(o, client, Renew{Op: op, Seq: seq}, at)
}

// byItself records an event that happened without an answer to a client.
func (h *History) byItself(o Object, client int, in any, at int64) {
	if len(h.tries[o]) > 0 {
		h.tries[o] = append(h.tries[o], &Try{history: h, client: client, call: at, back: h.now(), in: in})
	}
}

// HeldAt returns when op was first called to hold credits.
func (h *History) HeldAt(o Object, op string) (at int64, asked bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.tries[o] {
		if in, holds := t.in.(Hold); holds && in.Op == op {
			return t.call, true
		}
	}
	return 0, false
}

// noLine is the place of an acknowledged change that the ledger lacks. No order
// contains it.
const noLine = math.MaxUint64

// placed returns the input with its place in the ledger.
func placed(in any, at Place) any {
	switch in := in.(type) {
	case Grant:
		in.Seq = at.Seq
		return in
	case Hold:
		in.Seq = at.Seq
		return in
	case Settle:
		in.Seq, in.Charge = at.Seq, at.Charge
		return in
	case Renew:
		in.Seq = at.Seq
		return in
	}
	return in
}

// Called returns the time of the call.
func (t *Try) Called() int64 { return t.call }

// Len returns the number of tries of an object.
func (h *History) Len(o Object) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.tries[o])
}

// Checked is the extent of a check.
type Checked struct {
	Objects    int // Objects with at least one operation.
	Operations int // Tries with a possible effect or an informative answer.
}

// Check checks every object and returns the violations, sorted by object. limit
// bounds each search.
func (h *History) Check(limit time.Duration) (sum Checked, wrong []Violation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := make([]Object, 0, len(h.tries))
	for o := range h.tries {
		names = append(names, o)
	}
	slices.SortFunc(names, func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	for _, o := range names {
		v := checkObject(o.Kind, h.tries[o], limit)
		if v.searched > 0 {
			sum.Objects++
			sum.Operations += v.searched
		}
		if v.detail != "" {
			wrong = append(wrong, Violation{
				What: "linearizability", Object: o.String(), Detail: v.detail, Undecided: v.undecided,
			})
		}
	}
	return sum, wrong
}

// Text returns the tries of the named object, one per line, in the order of
// their calls.
func (h *History) Text(name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for o, tries := range h.tries {
		if o.String() != name {
			continue
		}
		inOrder := func(a, b *Try) int { return cmp.Compare(a.call, b.call) }
		for _, t := range slices.SortedFunc(slices.Values(tries), inOrder) {
			back := "never"
			if t.back != never {
				back = time.Duration(t.back).String()
			}
			fmt.Fprintf(&b, "%v - %s client %d: %T%+v -> %+v dropped: %v\n",
				time.Duration(t.call), back, t.client, t.in, t.in, t.out, t.dropped)
		}
	}
	return b.String()
}

// objectResult is the result of the check of one object.
type objectResult struct {
	searched  int    // The number of operations searched.
	detail    string // Describes the violation; "" for none.
	undecided bool   // The check did not finish.
}

// checkObject checks the tries of one object.
func checkObject(kind Kind, tries []*Try, limit time.Duration) objectResult {
	var operations []porcupine.Operation
	clients := map[int]bool{}
	unknown := 0
	seen := valuesRead(tries)
	for _, t := range tries {
		if t.dropped || t.unseen(seen) {
			continue
		}
		clients[t.client] = true
		if t.back == never {
			unknown++
		}
		operations = append(operations, porcupine.Operation{
			ClientId: t.client, Input: t.in, Call: t.call, Output: t.out, Return: t.back,
		})
	}
	size := fmt.Sprintf("%d tries, %d without an answer", len(operations), unknown)
	if len(operations) > MaxTries || len(clients) > MaxClients {
		return objectResult{undecided: true, detail: fmt.Sprintf(
			"%s by %d clients: more than the %d by %d that can be checked",
			size, len(clients), MaxTries, MaxClients)}
	}
	f := objectResult{searched: len(operations)}
	switch porcupine.CheckOperationsTimeout(kind.model(), operations, limit) {
	case porcupine.Ok:
	case porcupine.Unknown:
		f.undecided, f.detail = true, fmt.Sprintf("%s: not decided within %v", size, limit)
	case porcupine.Illegal:
		f.detail = size + ": no order explains them; " + shortest(kind, operations, limit)
	}
	return f
}

// valuesRead returns the values of a register that were read.
func valuesRead(tries []*Try) map[any]bool {
	seen := map[any]bool{}
	for _, t := range tries {
		if _, read := t.in.(Read); read && t.out != nil && !t.dropped {
			seen[t.out] = true
		}
	}
	return seen
}

// unseen reports whether a try is an unanswered write to a register whose value
// was never read. Its effect is invisible, so removing it does not change
// whether the rest is linearizable.
func (t *Try) unseen(seen map[any]bool) bool {
	w, write := t.in.(Write)
	return write && t.back == never && !seen[w.Value]
}

// shortest returns the earliest instant up to which the history is not
// linearizable, treating later answers as missing.
func shortest(kind Kind, all []porcupine.Operation, limit time.Duration) string {
	ends := make([]int64, 0, len(all))
	for _, op := range all {
		if op.Return != never {
			ends = append(ends, op.Return)
		}
	}
	slices.Sort(ends)
	at, _ := slices.BinarySearchFunc(ends, true, func(end int64, _ bool) int {
		if porcupine.CheckOperationsTimeout(kind.model(), until(all, end), limit) == porcupine.Illegal {
			return 0
		}
		return -1
	})
	if at >= len(ends) {
		return "the first cause is not known"
	}
	for _, op := range all {
		if op.Return == ends[at] {
			return fmt.Sprintf("the first that is wrong: %+v answered %+v, called at %v, answered at %v",
				op.Input, op.Output, time.Duration(op.Call), time.Duration(op.Return))
		}
	}
	return ""
}

// until returns the operations as known at an instant.
func until(all []porcupine.Operation, end int64) []porcupine.Operation {
	var out []porcupine.Operation
	for _, op := range all {
		if op.Call > end {
			continue
		}
		if op.Return > end {
			op.Output, op.Return = nil, never
		}
		out = append(out, op)
	}
	return out
}
