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
// of it, shared between up and down so that it rests at its quantile. The
// first observations of a size move it farther.
const (
	minScale   = ScaleOne / 50
	maxScale   = ScaleOne * 50
	scaleStep  = 32
	firstStep  = 8
	firstTries = 24

	// The quantiles that estimates are of, in parts of whole, and how far from
	// it a scale may aim to make up for wrong estimates: the truth comes late,
	// and while a queue grows the scale lags behind.
	whole           = 1000
	part50, part90  = 500, 900
	swing50         = 200
	least90, most90 = 800, 990

	// maxDebt bounds the remembered error, in parts of whole of one estimate.
	maxDebt = 60 * whole

	// payback is how many parts of whole the aim moves for one estimate that
	// was wrong beyond what is promised. lead90 is where it begins: of those
	// that wait, the ones that are late are seen last.
	payback = 10
	lead90  = 20

	// firstP90 is the scale while little is known: what comes later can only
	// make a wait longer.
	firstP90 = ScaleOne * 3 / 2
)

// SizeClasses is how many classes of sizes have scales of their own.
const SizeClasses = 3

// SizeClass returns the class of r: up to one GPU, up to three, and more. The
// more GPUs have to become free together, the more often they are taken by
// what comes later.
func (r *Request) SizeClass() int {
	switch {
	case r.GPUs <= 1:
		return 0
	case r.GPUs < 4:
		return 1
	}
	return 2
}

// SizeClassName returns how many GPUs those of a class ask for.
func SizeClassName(class int) string { return [SizeClasses]string{"0-1", "2-3", "4-8"}[class] }

// Calibration is how good estimates have been, and what makes up for it. For
// each class of sizes, the scales follow the quantiles of wait ÷ estimate: one
// observation above the scale moves it up by the quantile's share, one below
// it down by the rest, so that it rests where the promised part of the waits
// is below. It compares with the scale of now, not with that of the estimate,
// so that many estimates that wait at once cannot drive it past its goal.
// Estimates that did not hold are counted too, and move the target quantile
// until the account is even again: a quantile tracker with an
// integrator (Angelopoulos, Candès, Tibshirani, Conformal PID Control for Time
// Series Prediction, NeurIPS 2023), whose coverage in the long run does not
// depend on how the waits are distributed.
type Calibration struct {
	P50   Coverage                `cbor:"2,keyasint,omitzero"` // Of all sizes.
	P90   Coverage                `cbor:"3,keyasint,omitzero"`
	Sizes [SizeClasses]Correction `cbor:"4,keyasint,omitzero"`
}

// Correction is what makes up for the estimates of one class of sizes.
type Correction struct {
	Scale  Scales `cbor:"1,keyasint,omitzero"` // Zero for none.
	Count  uint64 `cbor:"2,keyasint,omitempty"`
	Debt50 int64  `cbor:"3,keyasint,omitempty"` // Told wrong beyond what is promised, in parts of whole.
	Debt90 int64  `cbor:"4,keyasint,omitempty"`
}

// Coverage counts how many executions started by the time that was estimated.
type Coverage struct {
	Covered uint64 `cbor:"1,keyasint"`
	Total   uint64 `cbor:"2,keyasint"`
}

// Scales returns what estimates are multiplied by now.
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

// Observe counts that an execution of a size class started at an instant, and
// corrects the scales.
func (c *Calibration) Observe(e Estimated, class int, started Instant) {
	wait := started.Sub(e.At)
	told := e.By.Apply(StartEstimate{P50: e.P50, P90: e.P90})
	c.P50.count(wait <= told.P50)
	c.P90.count(wait <= told.P90)
	k := &c.Sizes[class]
	k.Count++
	k.Debt50 = owed(k.Debt50, part50, wait <= told.P50)
	k.Debt90 = owed(k.Debt90, part90, wait <= told.P90)
	if !e.Late50 {
		k.follow50(wait > scaled(e.P50, k.Scales().P50))
	}
	if !e.Late90 {
		k.follow90(wait > scaled(e.P90, k.Scales().P90))
	}
}

// Overdue corrects the scales for an execution that still waits at an instant,
// without waiting for its start: when a queue grows, those that will be late
// start last. It returns the estimate with what was counted, and whether
// anything was.
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

// owed returns the account after an estimate that held or did not.
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

// follow moves a scale after an observation that was above it or not.
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
