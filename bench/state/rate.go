package state

import (
	"context"
	"crypto/sha256"
	"time"

	"berth/bench/quantile"
	"berth/fsm"
	"berth/fsm/command"
)

// Limits of entries at a fixed rate. Each entry has a Clock and some commands.
const (
	rateInterval = 2 * time.Millisecond
	rateCommands = 8
	rateFor      = 10 * time.Microsecond // Duration for each execution of the history, up to rateMost.
	rateMost     = 10 * time.Second
	workBytes    = 64 << 10
)

// Spread is the distribution of a series of times.
type Spread struct {
	P50MS  float64 `json:"p50_ms"`
	P99MS  float64 `json:"p99_ms"`
	P999MS float64 `json:"p99_9_ms"`
	MaxMS  float64 `json:"max_ms"`
}

func spreadOf(times []time.Duration) Spread {
	at := func(q float64) float64 { return ms(quantile.At(times, q)) }
	return Spread{P50MS: at(0.5), P99MS: at(0.99), P999MS: at(0.999), MaxMS: at(1)}
}

// FixedRate is the latency of entries that arrived at a fixed rate, whether or not
// the previous one had been applied.
type FixedRate struct {
	Entries int    `json:"entries"`
	Late    Spread `json:"from_due"`   // From the due time to the result.
	Apply   Spread `json:"from_begin"` // From the start of its application.
}

// applier applies entries at a fixed rate.
type applier struct {
	machine *fsm.FSM
	clock   func() time.Time
	due     time.Time
	late    []time.Duration
	own     []time.Duration
}

// apply applies one entry when it is due. A late entry does not delay the due
// times of later ones.
func (p *applier) apply(index uint64, frames [][]byte) []command.Result {
	p.due = p.due.Add(rateInterval)
	if wait := p.due.Sub(p.clock()); wait > 0 {
		<-time.After(wait)
	}
	start := p.clock()
	results := p.machine.ApplyFrames(index, frames...)
	end := p.clock()
	p.late, p.own = append(p.late, end.Sub(p.due)), append(p.own, end.Sub(start))
	return results
}

// atFixedRate runs executions at a fixed rate until done is closed.
func (m *measurement) atFixedRate(ctx context.Context, done <-chan struct{}) (FixedRate, error) {
	f := m.filler
	p := &applier{machine: f.machine, clock: m.cfg.Now, due: m.cfg.Now()}
	before := f.entry
	f.entry = p.apply
	defer func() { f.entry = before }()
	for {
		select {
		case <-done:
			return FixedRate{Entries: len(p.own), Late: spreadOf(p.late), Apply: spreadOf(p.own)}, nil
		default:
			if err := f.fill(ctx, rateCommands, func(int) {}); err != nil {
				return FixedRate{}, err
			}
		}
	}
}

// quiet measures entries alone, and beside another goroutine that computes. The
// second shows the machine's own cost.
func (m *measurement) quiet(ctx context.Context) (err error) {
	long := min(time.Duration(m.cfg.Executions)*rateFor, rateMost)
	alone := make(chan struct{})
	time.AfterFunc(long, func() { close(alone) })
	if m.report.Quiet, err = m.atFixedRate(ctx, alone); err != nil {
		return err
	}
	beside := make(chan struct{})
	ends := m.cfg.Now().Add(long)
	go func() {
		defer close(beside)
		block := make([]byte, workBytes)
		for m.cfg.Now().Before(ends) {
			sum := sha256.Sum256(block)
			copy(block, sum[:])
		}
	}()
	m.report.Beside, err = m.atFixedRate(ctx, beside)
	<-beside
	return err
}
