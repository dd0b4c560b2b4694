package faults

import (
	"fmt"
	"slices"
	"time"
)

// Latency is how long clients waited for their writes, before a fault and during
// it.
type Latency struct {
	Before Spread `json:"before"` // Since the fault before was over.
	During Spread `json:"during"` // From when it had taken hold until it was mended.
	// Elsewhere are those of During that other nodes were asked for than the one
	// that was broken, where it was one: what a client is answered it reads from
	// the replica of the node that it asked.
	Elsewhere *Spread `json:"elsewhere,omitempty"`
}

// Spread is how long writes took. One that was never answered took as long as
// its client waited.
type Spread struct {
	Writes int     `json:"writes"`
	P50    float64 `json:"p50_s"`
	P99    float64 `json:"p99_s"`
}

// String returns what there is to say of l.
func (l *Latency) String() string {
	told := fmt.Sprintf("writes p50 %.2f, p99 %.2f s", l.During.P50, l.During.P99)
	if l.Elsewhere != nil {
		told += fmt.Sprintf("; at other nodes %.2f, %.2f s", l.Elsewhere.P50, l.Elsewhere.P99)
	}
	return told + fmt.Sprintf("; before %.2f, %.2f s", l.Before.P50, l.Before.P99)
}

// wrote is one write of a client, from its call until it was answered or given
// up.
type wrote struct {
	node          string // That was asked.
	called, ended int64
}

// noteWrite notes a write that took, or may have taken, effect.
func (t *tally) noteWrite(w wrote) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writes = append(t.writes, w)
}

// spread returns how long the writes took that were called and ended between two
// instants, since writes were forgotten last, but for those of one node.
func (t *tally) spread(from, to int64, but string) Spread {
	t.mu.Lock()
	defer t.mu.Unlock()
	var took []time.Duration
	for _, w := range t.writes {
		if w.called >= from && w.ended <= to && (but == "" || w.node != but) {
			took = append(took, time.Duration(w.ended-w.called))
		}
	}
	return Spread{Writes: len(took), P50: quantile(took, 0.5).Seconds(), P99: quantile(took, 0.99).Seconds()}
}

// latency returns how long writes took before a fault began, and between when it
// had taken hold and an instant; nil for none then. Broken is the one node that
// was, "" where there is none or there are several.
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

// forgetWrites forgets the writes that were called before an instant.
func (t *tally) forgetWrites(before int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writes = slices.DeleteFunc(t.writes, func(w wrote) bool { return w.called < before })
}
