package forecast

import (
	"context"

	"berth/compute"
)

// MaxSteps is the limit of a search for moves.
const MaxSteps = maxSteps

// DefragmentSteps returns how many steps the search for moves takes for e, and
// its quote.
func DefragmentSteps(ctx context.Context, v View, e *compute.Execution) (int, *compute.Quote) {
	s := newMoves(ctx, v)
	s.search([]int{s.add(e)})
	if s.best != nil {
		s.best.Exact = !s.cut
	}
	return s.steps, s.best
}
