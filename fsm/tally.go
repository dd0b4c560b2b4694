package fsm

import (
	"cmp"
	"iter"
	"strings"

	"berth/compute"
)

// maxTallies is how many different tallies there are: beyond, the GPU type is
// "other". Types are what nodes report, so an operator's mistake could make
// many.
const maxTallies = 512

// otherType is the GPU type of what is over maxTallies.
const otherType = "other"

// tallied is what is counted.
type tallied uint8

// Counted quantities. Their values are in the state: append only.
const (
	talliedMadeRoom   tallied = iota // Attempts that were asked to make room, and did.
	talliedEndedFirst                // Attempts that were asked, and ended by themselves or were stopped.
	talliedUnbilled                  // Attempts that are free, as a failure of ours or preempted, by the reason.
)

// tally counts what happened and of which no record tells any more, for
// metrics. It is in the state so that a change of leaders or a restart makes
// no counter fall, and every node shows the same.
type tally struct {
	What    tallied         `cbor:"1,keyasint"`
	Reason  compute.Reason  `cbor:"2,keyasint,omitempty"` // Of what is free.
	GPUType string          `cbor:"3,keyasint"`           // "cpu" without GPUs.
	Count   uint64          `cbor:"4,keyasint"`
	Worth   compute.Credits `cbor:"5,keyasint,omitempty"` // Price × time that was executed and is not charged.
}

// tallyKey is what a tally is of.
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
	if key.gpuType == "" {
		key.gpuType = "cpu"
	}
	known, ok := s.tallies.Get(key)
	if !ok && s.tallies.Len() >= maxTallies {
		key.gpuType = otherType
		known, ok = s.tallies.Get(key)
	}
	t := tally{What: key.what, Reason: key.reason, GPUType: key.gpuType}
	if ok {
		t = *known
	}
	t.Count++
	t.Worth += worth
	s.tallies.Put(&t)
}

// tallyEnd counts how an attempt ended that was asked to make room, or is free.
func (s *statistics) tallyEnd(a *compute.Attempt, e *compute.Execution, status compute.Status, why compute.Reason) {
	worth := e.Price.Charge(a.Ran(s.meta.Now))
	switch {
	case !a.PreemptAt.IsZero() && why == compute.ReasonPreempted && status == compute.StatusSystemFailure:
		s.tally(talliedMadeRoom, compute.ReasonNone, e, worth)
	case !a.PreemptAt.IsZero():
		s.tally(talliedEndedFirst, compute.ReasonNone, e, 0)
	}
	if status == compute.StatusSystemFailure {
		s.tally(talliedUnbilled, why, e, worth)
	}
}

// Tally is how often something happened, for metrics.
type Tally struct {
	GPUType string // "cpu" without GPUs.
	Reason  compute.Reason
	Count   uint64
	Worth   compute.Credits // Price × time that was executed and is not charged.
}

// Preempted yields how many attempts were asked to make room for work of a
// higher priority, by GPU type: with made those that did, else those that
// ended before.
func (v *learnedTables) Preempted(made bool) iter.Seq[Tally] {
	if made {
		return v.talliesOf(talliedMadeRoom)
	}
	return v.talliesOf(talliedEndedFirst)
}

// Unbilled yields how many attempts nobody was charged for though they were
// placed, by reason and GPU type: failures of the system and preemptions.
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
