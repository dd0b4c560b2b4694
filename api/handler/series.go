package handler

import (
	"context"
	"time"

	"berth/compute"
)

// SeriesMetrics is how many values a SeriesPoint has.
const SeriesMetrics = 12

// SeriesPoint has the measurements of an attempt in the step before an instant, in the
// order of the arrays of wire.ExecutionMetrics. Values that were not measured are NaN.
type SeriesPoint struct {
	At     compute.Instant
	Values [SeriesMetrics]float64
}

// SeriesQuery says which points of an attempt are wanted: after From, until To.
type SeriesQuery struct {
	From, To compute.Instant
	Step     time.Duration
}

// Series reads what attempts did with their hardware, wherever that is kept.
type Series interface {
	Read(ctx context.Context, e *compute.Execution, a *compute.Attempt, q SeriesQuery) ([]SeriesPoint, error)
}
