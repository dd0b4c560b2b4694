package faults

import (
	"fmt"
	"slices"
	"time"

	"berth/bench/quantile"
)

// Latency is how long clients waited for their writes, before and during a
// fault.
type Latency struct {
	Before Spread `json:"before"` // Since the end of the previous fault.
	During Spread `json:"during"` // From the time the fault took hold until its repair.
	// Elsewhere covers those writes of During that were sent to a node other
	// than the single broken one. A client's answer comes from the replica of
	// the node that it asked.
	Elsewhere *Spread `json:"elsewhere,omitempty"`
}

// Spread summarizes write latencies. An unanswered write counts with the time
// its client waited.
type Spread struct {
	Writes int     `json:"writes"`
	P50    float64 `json:"p50_s"`
	P99    float64 `json:"p99_s"`
}

// String returns a summary of l.
func (l *Latency) String() string {
	text := fmt.Sprintf("writes p50 %.2f, p99 %.2f s", l.During.P50, l.During.P99)
	if l.Elsewhere != nil {
		text += fmt.Sprintf("; at other nodes %.2f, %.2f s", l.Elsewhere.P50, l.Elsewhere.P99)
	}
	return text + fmt.Sprintf("; before %.2f, %.2f s", l.Before.P50, l.Before.P99)
}

// wrote is one write of a client, from its call until its answer or timeout.
type wrote struct {
	node          string // The node that the client asked.
	called, ended int64
}

// noteWrite records a write that took, or may have taken, effect.
func (t *tally) noteWrite(w wrote) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writes = append(t.writes, w)
}

// spread returns the latencies of the writes that began and ended between two
// instants, excluding the writes to one node. It covers writes since the last
// call of forgetWrites.
func (t *tally) spread(from, to int64, but string) Spread {
	t.mu.Lock()
	defer t.mu.Unlock()
	var took []time.Duration
	for _, w := range t.writes {
		if w.called >= from && w.ended <= to && (but == "" || w.node != but) {
			took = append(took, time.Duration(w.ended-w.called))
		}
	}
	return Spread{Writes: len(took), P50: quantile.At(took, 0.5).Seconds(), P99: quantile.At(took, 0.99).Seconds()}
}

// latency returns the write latencies before a fault began, and from the time
// it took hold until an instant; nil for no writes. broken is the only broken
// node, "" for none or several.
func (t *tally) latency(began, held, until int64, broken string) *Latency {
	l := Latency{Before: t.spread(0, began, ""), During: t.spread(held, until, "")}
	if l.During.Writes == 0 {
		return nil
	}
	if broken != "" {
		l.Elsewhere = new(t.spread(held, until, broken))
	}
	return &l
}

// forgetWrites drops the writes that began before an instant.
func (t *tally) forgetWrites(before int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writes = slices.DeleteFunc(t.writes, func(w wrote) bool { return w.called < before })
}
