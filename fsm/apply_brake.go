package fsm

import (
	"slices"

	"berth/attempt"
	"berth/compute"
)

// setBrake records what the operator says of nodes that vanish at once.
func (s *state) setBrake(c SetBrake) Result {
	if refusal := s.admitOperator(c.Actor); refusal != nil {
		return Result{Refusal: refusal}
	}
	if c.Share != nil {
		if *c.Share < 0 || *c.Share > 100 {
			return refuse(compute.CodeInvalid, "share_percent",
				"share_percent is 0 to 100: 0 for a third, 100 for no brake")
		}
		s.meta.Brake.SharePercent = *c.Share
	}
	if c.Release {
		s.meta.Brake.ReleasedAt = s.meta.Now
	}
	return Result{Count: len(s.Vanished())}
}

// Brake returns what the operator said of nodes that vanish at once.
func (v *View) Brake() compute.Brake { return v.meta.Brake }

// Vanished returns the nodes that vanished at once while those are too many to
// be given up: as long as there are any, no attempt is.
func (v *View) Vanished() []*compute.Node {
	return attempt.Vanished(slices.Collect(v.Nodes()), v.Brake())
}
