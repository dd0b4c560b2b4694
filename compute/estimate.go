package compute

import "time"

// StartEstimate is when a waiting execution may start, relative to the instant
// of the view from which the estimate was made.
type StartEstimate struct {
	Execution ExecutionID   `cbor:"1,keyasint"`
	P50       time.Duration `cbor:"2,keyasint"` // In half of the simulations it has started by then.
	P90       time.Duration `cbor:"3,keyasint"` // In nine of ten.
	Samples   int           `cbor:"-"`          // Finished executions that provided the run times.
}

// Estimated is an estimate that the state stores until the execution starts.
type Estimated struct {
	At  Instant       `cbor:"1,keyasint"`
	P50 time.Duration `cbor:"2,keyasint"` // As computed, before any scale.
	P90 time.Duration `cbor:"3,keyasint"`
	By  Scales        `cbor:"4,keyasint"` // The scales that were applied for people.

	Late50 bool `cbor:"5,keyasint,omitempty"` // Already counted as above the scale of P50.
	Late90 bool `cbor:"6,keyasint,omitempty"`
}

// Scales are factors for estimates, in millionths.
type Scales struct {
	P50 int64 `cbor:"1,keyasint"`
	P90 int64 `cbor:"2,keyasint"`
}

// ScaleOne leaves an estimate unchanged.
const ScaleOne = 1_000_000

// Bounds and step of a scale. One observation moves the scale by 1/scaleStep of
// it, shared between up and down so that it settles at its quantile. The first
// observations of a size class move it farther.
const (
	minScale   = ScaleOne / 50
	maxScale   = ScaleOne * 50
	scaleStep  = 32
	firstStep  = 8
	firstTries = 24

	// The quantiles of the estimates, in parts of whole, and how far from its
	// quantile a scale may aim to correct wrong estimates. The truth comes late,
	// and the scale lags behind while a queue grows.
	whole           = 1000
	part50, part90  = 500, 900
	swing50         = 200
	least90, most90 = 800, 990

	// maxDebt bounds the remembered error, in parts of whole of one estimate.
	maxDebt = 60 * whole

	// payback is how many parts of whole the aim moves for one wrong estimate
	// beyond the promised share. lead90 is the initial offset, because of the
	// waiting executions the late ones are observed last.
	payback = 10
	lead90  = 20

	// firstP90 is the scale while little is known: later arrivals can only make a
	// wait longer.
	firstP90 = ScaleOne * 3 / 2
)

// SizeClasses is the number of size classes, each with its own scales.
const SizeClasses = 3

// SizeClass returns the class of r: up to one GPU, up to three, and more. The
// more GPUs have to become free together, the more often later work takes them.
func (r *Request) SizeClass() int {
	switch {
	case r.GPUs <= 1:
		return 0
	case r.GPUs < 4:
		return 1
	}
	return 2
}

// SizeClassName returns how many GPUs the requests of a class ask for.
func SizeClassName(class int) string { return [SizeClasses]string{"0-1", "2-3", "4-8"}[class] }

// Calibration measures the quality of estimates and corrects them. It is a
// quantile tracker with an integrator (Angelopoulos, Candès, Tibshirani,
// Conformal PID Control for Time Series Prediction, NeurIPS 2023). Its coverage
// in the long run does not depend on the distribution of the waits.
//
// In each size class, the scales follow the quantiles of wait ÷ estimate. An
// observation above the scale moves it up by the quantile's share, one below
// moves it down by the rest. The scale settles where the promised part of the
// waits is below it. An observation is compared with the current scale, not
// with the estimate's, so that many estimates that wait at once cannot drive
// the scale past its goal. Estimates that did not hold are counted too. They
// move the target quantile until the promised share of estimates holds again.
type Calibration struct {
	P50   Coverage                `cbor:"2,keyasint,omitzero"` // Estimates of all sizes.
	P90   Coverage                `cbor:"3,keyasint,omitzero"`
	Sizes [SizeClasses]Correction `cbor:"4,keyasint,omitzero"`
}

// Correction is the correction of the estimates of one size class.
type Correction struct {
	Scale  Scales `cbor:"1,keyasint,omitzero"` // Zero for none.
	Count  uint64 `cbor:"2,keyasint,omitempty"`
	Debt50 int64  `cbor:"3,keyasint,omitempty"` // Wrong estimates beyond the promised share, in parts of whole.
	Debt90 int64  `cbor:"4,keyasint,omitempty"`
}

// Coverage counts how many executions started by the time that was estimated.
type Coverage struct {
	Covered uint64 `cbor:"1,keyasint"`
	Total   uint64 `cbor:"2,keyasint"`
}

// Scales returns the current factors for estimates.
func (k *Correction) Scales() Scales {
	if k.Scale == (Scales{}) {
		return Scales{P50: ScaleOne, P90: firstP90}
	}
	return k.Scale
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

// Observe records that an execution of a size class started at an instant, and
// corrects the scales.
func (c *Calibration) Observe(e Estimated, class int, started Instant) {
	wait := started.Sub(e.At)
	promised := e.By.Apply(StartEstimate{P50: e.P50, P90: e.P90})
	c.P50.count(wait <= promised.P50)
	c.P90.count(wait <= promised.P90)
	k := &c.Sizes[class]
	k.Count++
	k.Debt50 = owed(k.Debt50, part50, wait <= promised.P50)
	k.Debt90 = owed(k.Debt90, part90, wait <= promised.P90)
	if !e.Late50 {
		k.follow50(wait > scaled(e.P50, k.Scales().P50))
	}
	if !e.Late90 {
		k.follow90(wait > scaled(e.P90, k.Scales().P90))
	}
}

// Overdue corrects the scales for an execution that still waits at an instant,
// before it starts: when a queue grows, the late executions start last. It
// returns the updated estimate and reports whether it changed.
func (c *Calibration) Overdue(e Estimated, class int, now Instant) (Estimated, bool) {
	wait, before, k := now.Sub(e.At), e, &c.Sizes[class]
	if !e.Late50 && wait > scaled(e.P50, k.Scales().P50) {
		e.Late50 = true
		k.follow50(true)
	}
	if !e.Late90 && wait > scaled(e.P90, k.Scales().P90) {
		e.Late90 = true
		k.follow90(true)
	}
	return e, e != before
}

// owed returns the debt after an estimate that held or did not.
func owed(debt, part int64, held bool) int64 {
	if held {
		return max(debt-(whole-part), -maxDebt)
	}
	return min(debt+part, maxDebt)
}

func (k *Correction) follow50(above bool) {
	aim := min(max(part50+k.Debt50*payback/whole, part50-swing50), part50+swing50)
	k.Scale = Scales{P50: k.follow(k.Scales().P50, aim, above), P90: k.Scales().P90}
}

func (k *Correction) follow90(above bool) {
	aim := min(max(part90+lead90+k.Debt90*payback/whole, least90), most90)
	k.Scale = Scales{P50: k.Scales().P50, P90: k.follow(k.Scales().P90, aim, above)}
}

func (c *Coverage) count(covered bool) {
	c.Total++
	if covered {
		c.Covered++
	}
}

// follow moves a scale after an observation above or below it.
func (k *Correction) follow(scale, aim int64, above bool) int64 {
	by := int64(scaleStep)
	if k.Count < firstTries {
		by = firstStep
	}
	if above {
		return min(scale+scale*aim/(whole*by), maxScale)
	}
	return max(scale-scale*(whole-aim)/(whole*by), minScale)
}
