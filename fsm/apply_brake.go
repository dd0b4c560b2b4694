package fsm

import (
	"errors"
	"fmt"

	"berth/attempt"
	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// setBrake records the operator's decision on nodes that vanish at once.
func (s *membership) setBrake(c command.SetBrake) command.Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if c.Share != nil {
		if *c.Share < 0 || *c.Share > 100 {
			return refuse(compute.CodeInvalid, "share_percent",
				"share_percent is 0 to 100: 0 for a third, 100 for no brake")
		}
		s.view.meta.Brake.SharePercent = *c.Share
	}
	if c.Release {
		s.view.meta.Brake.ReleasedAt = s.view.meta.Now
	}
	s.judgeBrake()
	return command.Result{Count: len(s.view.Vanished())}
}

// judgeBrake decides again whether too many nodes have vanished at once. It
// follows each change of a node's state, drain or membership. Below format 3
// there is no brake.
func (s *membership) judgeBrake() {
	if s.view.Format() >= format.Trust {
		s.view.meta.Brake.Since = attempt.BrakedSince(s.view.Nodes(), s.view.meta.Brake, s.view.meta.Now)
	}
}

// Brake returns the operator's decision on nodes that vanish at once, and whether
// too many have.
func (v *clusterState) Brake() compute.Brake { return v.meta.Brake }

// Vanished returns the nodes that vanished at once while those are too many to
// be given up: as long as there are any, no attempt is.
func (v *View) Vanished() []*compute.Node { return attempt.Vanished(v.Nodes(), v.Brake()) }

// checkBrake checks that somebody holds a brake that holds.
func (v checker) checkBrake() error {
	b := v.view.Brake()
	switch {
	case b.Since.IsZero():
		return nil
	case v.view.Format() < format.Trust:
		return errors.New("there is a brake below its format")
	case b.Since > v.view.meta.Now || len(v.view.Vanished()) < attempt.BrakeLeast:
		return fmt.Errorf("a brake holds since %s for %d nodes", b.Since, len(v.view.Vanished()))
	}
	return nil
}
