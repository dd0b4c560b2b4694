package compute

import "time"

// StartEstimate is when an execution that waits may start, counted from the
// instant of the view that the estimate was made from.
type StartEstimate struct {
	Execution ExecutionID   `cbor:"1,keyasint"`
	P50       time.Duration `cbor:"2,keyasint"` // In half of the futures it has started by then.
	P90       time.Duration `cbor:"3,keyasint"` // In nine of ten.
	Samples   int           `cbor:"-"`          // Finished executions that the run times were taken from.
}

// Estimated is an estimate as the state keeps it until the execution starts.
type Estimated struct {
	At  Instant       `cbor:"1,keyasint"`
	P50 time.Duration `cbor:"2,keyasint"` // As computed, before any scale.
	P90 time.Duration `cbor:"3,keyasint"`
	By  Scales        `cbor:"4,keyasint"` // What it was scaled by for people.

	Late50 bool `cbor:"5,keyasint,omitempty"` // Counted as above the scale of P50 already.
	Late90 bool `cbor:"6,keyasint,omitempty"`
}

// Scales are what estimates are multiplied by, in millionths.
type Scales struct {
	P50 int64 `cbor:"1,keyasint"`
	P90 int64 `cbor:"2,keyasint"`
}

// ScaleOne leaves an estimate as it is.
const ScaleOne = 1_000_000

// The bounds of a scale, and how far one observation moves it: by 1/scaleStep
// of it, shared between up and down so that it rests at its quantile.
const (
	minScale  = ScaleOne / 20
	maxScale  = ScaleOne * 20
	scaleStep = 32

	// The quantiles that the scales follow, in parts of whole. That of P90 aims
	// above nine of ten, because the truth comes late: while a queue grows the
	// scale lags behind.
	whole = 40
	aim50 = 20
	aim90 = 37

	// firstP90 is the scale while little is known: what comes later can only
	// make a wait longer.
	firstP90 = ScaleOne * 3 / 2
)

// Calibration is how good estimates have been, and what makes up for it. The
// scales follow the quantiles of wait ÷ estimate: one observation above the
// scale moves it up by the quantile's share, one below it down by the rest, so
// that it rests where the promised part of the waits is below (a stochastic
// approximation of the quantile, as in adaptive conformal inference). It
// compares with the scale of now, not with that of the estimate, so that many
// estimates that wait at once cannot drive it past its goal.
type Calibration struct {
	Scale Scales   `cbor:"1,keyasint,omitzero"` // Zero for none.
	P50   Coverage `cbor:"2,keyasint,omitzero"`
	P90   Coverage `cbor:"3,keyasint,omitzero"`
}

// Coverage counts how many executions started by the time that was estimated.
type Coverage struct {
	Covered uint64 `cbor:"1,keyasint"`
	Total   uint64 `cbor:"2,keyasint"`
}

// Scales returns what estimates are multiplied by now.
func (c *Calibration) Scales() Scales {
	if c.Scale == (Scales{}) {
		return Scales{P50: ScaleOne, P90: firstP90}
	}
	return c.Scale
}

// Apply returns e scaled. P90 is never before P50.
func (s Scales) Apply(e StartEstimate) StartEstimate {
	e.P50, e.P90 = scaled(e.P50, s.P50), scaled(e.P90, s.P90)
	e.P90 = max(e.P90, e.P50)
	return e
}

// scaled returns d × scale to the millisecond; d is far below a century.
func scaled(d time.Duration, scale int64) time.Duration {
	return time.Duration(d.Milliseconds()*scale/ScaleOne) * time.Millisecond
}

// Observe counts that an execution started at an instant, and corrects the
// scales.
func (c *Calibration) Observe(e Estimated, started Instant) {
	wait := started.Sub(e.At)
	told := e.By.Apply(StartEstimate{P50: e.P50, P90: e.P90})
	c.P50.count(wait <= told.P50)
	c.P90.count(wait <= told.P90)
	if scale := c.Scales(); !e.Late50 {
		c.Scale = Scales{P50: follow(scale.P50, aim50, wait > scaled(e.P50, scale.P50)), P90: scale.P90}
	}
	if scale := c.Scales(); !e.Late90 {
		c.Scale = Scales{P50: scale.P50, P90: follow(scale.P90, aim90, wait > scaled(e.P90, scale.P90))}
	}
}

// Overdue corrects the scales for an execution that still waits at an instant,
// without waiting for its start: when a queue grows, those that will be late
// start last. It returns the estimate with what was counted, and whether
// anything was.
func (c *Calibration) Overdue(e Estimated, now Instant) (Estimated, bool) {
	wait, before := now.Sub(e.At), e
	if scale := c.Scales(); !e.Late50 && wait > scaled(e.P50, scale.P50) {
		e.Late50 = true
		c.Scale = Scales{P50: follow(scale.P50, aim50, true), P90: scale.P90}
	}
	if scale := c.Scales(); !e.Late90 && wait > scaled(e.P90, scale.P90) {
		e.Late90 = true
		c.Scale = Scales{P50: scale.P50, P90: follow(scale.P90, aim90, true)}
	}
	return e, e != before
}

func (c *Coverage) count(covered bool) {
	c.Total++
	if covered {
		c.Covered++
	}
}

// follow moves a scale after an observation that was above it or not.
func follow(scale, aim int64, above bool) int64 {
	step := scale / (whole * scaleStep)
	if above {
		return min(scale+step*aim, maxScale)
	}
	return max(scale-step*(whole-aim), minScale)
}
