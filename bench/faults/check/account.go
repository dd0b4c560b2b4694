package check

import (
	"cmp"
	"hash/maphash"
	"slices"

	"github.com/anishathalye/porcupine"

	"berth/compute"
)

// Grant adds credits to an account. Op names the operation; a repeat has the
// same one. Seq is the number of its line in the account's ledger, 0 if
// unknown. Its output is true.
type Grant struct {
	Op     string
	Amount compute.Credits
	Seq    uint64
}

// Hold reserves credits. Its output is Held or Refused.
type Hold struct {
	Op     string
	Amount compute.Credits
	Seq    uint64
}

// Settle releases the hold of the operation Op and charges for its use. Its
// output is the charge, as compute.Credits. Charge is the charge in the ledger,
// in the line after Seq. A repeated Settle, or one without a hold, changes
// nothing if it charges nothing.
type Settle struct {
	Op     string
	Charge compute.Credits
	Seq    uint64
}

// Renew releases the hold of the operation Op and at once makes an equal one:
// its execution is queued again. No client requests it.
type Renew struct {
	Op  string
	Seq uint64 // The first of its two lines.
}

// Balance reads an account's balance and holds. Its output is a Money.
type Balance struct{}

// Money is the state of an account.
type Money struct{ Balance, Held compute.Credits }

// Verdict is the answer to a Hold.
type Verdict uint8

// Results of a Hold.
const (
	Refused Verdict = iota // Too few credits were available.
	Held
)

// account is the state of the model. It is immutable.
type account struct {
	money   Money
	seq     uint64   // The last ledger line; 0 if unknown.
	held    []Hold   // By Op.
	granted []string // Ops of grants, sorted.
	settled []string // Ops whose holds were released, sorted.
}

func accountModel() porcupine.Model {
	seed := maphash.MakeSeed()
	return porcupine.Model{
		Init: func() any { return &account{} },
		Step: func(state, in, out any) (bool, any) {
			a := state.(*account)
			switch in := in.(type) {
			case Grant:
				return a.follows(in.Seq), a.grant(in)
			case Hold:
				return a.hold(in, out)
			case Settle:
				return a.settle(in, out)
			case Renew:
				return a.renew(in)
			}
			return out == nil || out == a.money, a
		},
		Equal: func(a, b any) bool { return a.(*account).equal(b.(*account)) },
		Hash: func(state any) uint64 {
			return maphash.Comparable(seed, state.(*account).money)
		},
	}
}

func (a *account) equal(b *account) bool {
	return a.money == b.money && a.seq == b.seq && slices.Equal(a.held, b.held) &&
		slices.Equal(a.granted, b.granted) && slices.Equal(a.settled, b.settled)
}

// follows reports whether a line with the given number may be the next one.
func (a *account) follows(seq uint64) bool { return seq == 0 || seq == a.seq+1 }

func (a *account) grant(in Grant) *account {
	at, done := slices.BinarySearch(a.granted, in.Op)
	if done {
		return a
	}
	next := *a
	next.seq = in.Seq
	next.money.Balance += in.Amount
	next.granted = slices.Insert(slices.Clone(a.granted), at, in.Op)
	return &next
}

// find returns the index where the hold of an operation is, or would be.
func (a *account) find(op string) (int, bool) {
	return slices.BinarySearchFunc(a.held, op, func(h Hold, op string) int { return cmp.Compare(h.Op, op) })
}

func (a *account) hold(in Hold, out any) (bool, any) {
	at, held := a.find(in.Op)
	_, settled := slices.BinarySearch(a.settled, in.Op)
	if held || settled {
		return out == nil || out == Held, a
	}
	if a.money.Balance-a.money.Held < in.Amount {
		return out == nil || out == Refused, a
	}
	if out == Refused || !a.follows(in.Seq) {
		return false, a
	}
	next := *a
	next.seq = in.Seq
	next.money.Held += in.Amount
	next.held = slices.Insert(slices.Clone(a.held), at, in)
	return true, &next
}

func (a *account) settle(in Settle, out any) (bool, any) {
	if out != nil && out != in.Charge {
		return false, a
	}
	at, held := a.find(in.Op)
	if !held {
		return in.Charge == 0 && in.Seq == 0, a
	}
	hold := a.held[at]
	if in.Charge > hold.Amount || !a.follows(in.Seq) {
		return false, a
	}
	next := *a
	next.seq = in.Seq
	if in.Seq > 0 && in.Charge > 0 {
		next.seq++
	}
	next.money.Held -= hold.Amount
	next.money.Balance -= in.Charge
	next.held = slices.Delete(slices.Clone(a.held), at, at+1)
	into, _ := slices.BinarySearch(a.settled, in.Op)
	next.settled = slices.Insert(slices.Clone(a.settled), into, in.Op)
	return true, &next
}

func (a *account) renew(in Renew) (bool, any) {
	if _, held := a.find(in.Op); !held || !a.follows(in.Seq) {
		return false, a
	}
	next := *a
	next.seq = in.Seq + 1
	return true, &next
}
