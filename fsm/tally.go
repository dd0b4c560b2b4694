package fsm

import (
	"cmp"
	"iter"
	"strings"

	"berth/compute"
)

// maxTallies is the largest number of tallies. Beyond it the GPU type is
// "other". Nodes report the types, so an operator's mistake could create many.
const maxTallies = 512

// otherType is the GPU type of tallies beyond maxTallies.
const otherType = "other"

// tallied is a counted quantity.
type tallied uint8

// Counted quantities. Their values are in the state: append only.
const (
	talliedMadeRoom   tallied = iota // Attempts that were preempted and gave way.
	talliedEndedFirst                // Attempts that were preempted, but ended by themselves or were stopped.
	talliedUnbilled                  // Unbilled attempts after a system failure or a preemption, by the reason.
)

// tally counts events that no record shows, for metrics. It is in the state so
// that no counter falls after a change of leaders or a restart, and every node
// shows the same.
type tally struct {
	What    tallied         `cbor:"1,keyasint"`
	Reason  compute.Reason  `cbor:"2,keyasint,omitempty"` // Reason of an unbilled attempt.
	GPUType string          `cbor:"3,keyasint"`           // "cpu" without GPUs.
	Count   uint64          `cbor:"4,keyasint"`
	Worth   compute.Credits `cbor:"5,keyasint,omitempty"` // Price × time of execution that is not charged.
}

// tallyKey identifies a tally.
type tallyKey struct {
	what    tallied
	reason  compute.Reason
	gpuType string
}

func keyOfTally(t *tally) tallyKey { return tallyKey{t.What, t.Reason, t.GPUType} }

func byTally(a, b tallyKey) int {
	return cmp.Or(cmp.Compare(a.what, b.what), cmp.Compare(a.reason, b.reason), strings.Compare(a.gpuType, b.gpuType))
}

// tally counts an attempt of e.
func (s *statistics) tally(what tallied, why compute.Reason, e *compute.Execution, worth compute.Credits) {
	key := tallyKey{what, why, e.Request.GPUType}
	if e.Request.IsGPU() && key.gpuType == "" {
		key.gpuType = compute.AnyGPU // It is not placed.
	}
	if key.gpuType == "" {
		key.gpuType = "cpu"
	}
	known, ok := s.view.tallies.Get(key)
	if !ok && s.view.tallies.Len() >= maxTallies {
		key.gpuType = otherType
		known, ok = s.view.tallies.Get(key)
	}
	t := tally{What: key.what, Reason: key.reason, GPUType: key.gpuType}
	if ok {
		t = *known
	}
	t.Count++
	t.Worth += worth
	s.view.tallies.Put(&t)
}

// tallyEnd counts the end of an attempt that was preempted or is unbilled.
func (s *statistics) tallyEnd(a *compute.Attempt, e *compute.Execution, status compute.Status, why compute.Reason) {
	worth := e.Price.Charge(a.Ran(s.view.meta.Now))
	switch {
	case !a.PreemptAt.IsZero() && why == compute.ReasonPreempted && status == compute.StatusSystemFailure:
		s.tally(talliedMadeRoom, compute.ReasonNone, e, worth)
	case !a.PreemptAt.IsZero():
		s.tally(talliedEndedFirst, compute.ReasonNone, e, 0)
	}
	if status == compute.StatusSystemFailure && (!a.ForOwn || why != compute.ReasonPreempted) {
		s.tally(talliedUnbilled, why, e, worth)
	}
}

// Tally is a count of events, for metrics.
type Tally struct {
	GPUType string // "cpu" without GPUs.
	Reason  compute.Reason
	Count   uint64
	Worth   compute.Credits // Price × time of execution that is not charged.
}

// Preempted yields how many attempts were preempted for work of a higher
// priority, by GPU type: with made those that gave way, otherwise those that
// ended before.
func (v *learnedTables) Preempted(made bool) iter.Seq[Tally] {
	if made {
		return v.talliesOf(talliedMadeRoom)
	}
	return v.talliesOf(talliedEndedFirst)
}

// Unbilled yields how many placed attempts were not charged, by reason and GPU
// type: system failures and preemptions.
func (v *learnedTables) Unbilled() iter.Seq[Tally] { return v.talliesOf(talliedUnbilled) }

func (v *learnedTables) talliesOf(what tallied) iter.Seq[Tally] {
	return func(yield func(Tally) bool) {
		for _, t := range v.tallies.From(tallyKey{what: what}) {
			if t.What != what || !yield(Tally{t.GPUType, t.Reason, t.Count, t.Worth}) {
				return
			}
		}
	}
}
