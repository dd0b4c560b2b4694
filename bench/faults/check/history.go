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

// Limits of one object: beyond them a search may not end.
const (
	MaxTries   = 2_000
	MaxClients = 16
)

// never is when a try returns of which no answer came.
const never = math.MaxInt64

// Object is what is checked apart from all others: a kind of thing, and which.
type Object struct {
	Kind Kind
	Name string
}

// String returns the object for people.
func (o Object) String() string { return o.Kind.String() + " " + o.Name }

// Kind is a kind of thing that has a model.
type Kind uint8

// The kinds.
const (
	KindRegister Kind = iota
	KindAccount
	KindKey
	KindExecution
)

// String returns the kind for people.
func (k Kind) String() string { return [...]string{"register", "account", "key", "execution"}[k] }

func (k Kind) model() porcupine.Model {
	return [...]func() porcupine.Model{registerModel, accountModel, keyModel, executionModel}[k]()
}

// Violation is something that no correct system does.
type Violation struct {
	What   string `json:"what"`   // The check, such as "linearizability" or "double start".
	Object string `json:"object"` // What was checked.
	Detail string `json:"detail"`
	// Undecided says that a check did not come to its end: a violation all the
	// same, of which nothing is known.
	Undecided bool `json:"undecided,omitempty"`
}

// String returns the violation in one line.
func (v Violation) String() string { return v.What + " of " + v.Object + ": " + v.Detail }

// History is what clients saw. Its methods may be called by any goroutine.
type History struct {
	now func() int64

	mu    sync.Mutex
	tries map[Object][]*Try
}

// NewHistory returns an empty history whose instants come from now: nanoseconds
// of one clock that never goes back.
func NewHistory(now func() int64) *History {
	return &History{now: now, tries: map[Object][]*Try{}}
}

// Try is one request of one client. Exactly one of Return and Drop may be
// called, once; a try of which neither was called may have taken effect.
type Try struct {
	history *History
	client  int
	call    int64
	back    int64
	in, out any
	dropped bool
}

// Call notes that a client asks for in, now, and returns the try. in is an
// input of the model of the object's kind.
func (h *History) Call(o Object, client int, in any) *Try {
	return h.CallAt(o, client, in, h.now())
}

// CallAt is Call at an earlier instant: what the system does by itself is
// called when the client gave it reason to.
func (h *History) CallAt(o Object, client int, in any, at int64) *Try {
	t := &Try{history: h, client: client, call: at, back: never, in: in}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tries[o] = append(h.tries[o], t)
	return t
}

// Return notes the answer, now.
func (t *Try) Return(out any) {
	t.history.mu.Lock()
	defer t.history.mu.Unlock()
	t.out, t.back = out, t.history.now()
}

// Drop forgets the try: it surely had no effect and showed nothing.
func (t *Try) Drop() {
	t.history.mu.Lock()
	defer t.history.mu.Unlock()
	t.dropped = true
}

// Place is where the ledger has a change of an account: Seq is that of its first
// line, 0 for none, and Charge what it charges.
type Place struct {
	Seq    uint64
	Charge compute.Credits
}

// Resolve gives every try of an account its place in the ledger, as everybody can
// see once the cluster is whole: place returns it for an input. What was never
// answered and has no line had no effect, and is dropped; what has one has
// happened by now. The order of changes is the ledger's then, and only reads are
// searched for: without that a search would have to try every order of what was
// never answered.
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

// SettleAt notes that op was given back, at an instant or later, by itself or by
// who closed the books, unless some client asked for it, or nobody asked for
// anything of the object.
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

// RenewAt notes that op was renewed, at an instant or later, with the first of
// its lines at seq, unless nobody asked for anything of the object.
func (h *History) RenewAt(o Object, client int, op string, seq uint64, at int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.byItself(o, client, Renew{Op: op, Seq: seq}, at)
}

// byItself notes what has happened without an answer to anybody.
func (h *History) byItself(o Object, client int, in any, at int64) {
	if len(h.tries[o]) > 0 {
		h.tries[o] = append(h.tries[o], &Try{history: h, client: client, call: at, back: h.now(), in: in})
	}
}

// HeldAt returns when op was first asked for to set credits aside.
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

// noLine is the place of what was acknowledged and is not in the ledger: no
// order has it.
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

// Called returns when the try was called.
func (t *Try) Called() int64 { return t.call }

// Len returns how many tries an object has.
func (h *History) Len(o Object) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.tries[o])
}

// Checked is how much a check has searched.
type Checked struct {
	Objects    int // With an operation or more.
	Operations int // Tries that had, or may have had, an effect or an answer that shows something.
}

// Check checks every object and returns what is wrong, sorted by object. Each
// search has so much time at most.
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
		v := verdict(o.Kind, h.tries[o], limit)
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

// Text returns the tries of the object with a name, one a line, in the order
// of their calls.
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

// finding is what came of the check of one object.
type finding struct {
	searched  int    // Operations that a search was given.
	detail    string // What is wrong; "" for nothing.
	undecided bool   // Only that it is not known.
}

// verdict checks the tries of one object.
func verdict(kind Kind, tries []*Try, limit time.Duration) finding {
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
		return finding{undecided: true, detail: fmt.Sprintf("%s by %d clients: more than the %d by %d that can be checked",
			size, len(clients), MaxTries, MaxClients)}
	}
	f := finding{searched: len(operations)}
	switch porcupine.CheckOperationsTimeout(kind.model(), operations, limit) {
	case porcupine.Ok:
	case porcupine.Unknown:
		f.undecided, f.detail = true, fmt.Sprintf("%s: not decided within %v", size, limit)
	case porcupine.Illegal:
		f.detail = size + ": no order explains them; " + shortest(kind, operations, limit)
	}
	return f
}

// valuesRead returns which values of a register somebody read.
func valuesRead(tries []*Try) map[any]bool {
	seen := map[any]bool{}
	for _, t := range tries {
		if _, read := t.in.(Read); read && t.out != nil && !t.dropped {
			seen[t.out] = true
		}
	}
	return seen
}

// unseen reports whether a try is a write of a register that was never answered
// and whose value nobody read: whether it happened shows nowhere, so that the
// rest can be explained with it exactly if it can be without.
func (t *Try) unseen(seen map[any]bool) bool {
	w, write := t.in.(Write)
	return write && t.back == never && !seen[w.Value]
}

// shortest returns the earliest moment up to which the tries cannot be
// explained: what came back later is taken as never answered.
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

// until returns the operations as they were known at an instant.
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
