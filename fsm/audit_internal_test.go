package fsm

import (
	"testing"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// trailWithGaps returns a trail of administration in which routine lines are gone.
func trailWithGaps() (*state, compute.OrgID) {
	s := newState()
	s.view.meta.Format = format.Newest
	org := compute.OrgID{UUID: compute.UUID{1}}
	add := func(count int, of command.Actor, action string) {
		for range count {
			s.trail.append(auditEntry{of, org, action, "", ""}, earlier{})
		}
	}
	root, member := command.Actor{Root: true}, command.Actor{User: compute.UserID{UUID: compute.UUID{2}}}
	for range 5 {
		add(1, root, "key.create")
		add(10, member, "variables.set")
	}
	add(maxRoutine, member, actionLogin)
	return s, org
}

// TestVerifyFindsMissingLines checks that no line can be removed from a trail in which routine
// lines are gone, nor be taken for one of those.
func TestVerifyFindsMissingLines(t *testing.T) {
	s, org := trailWithGaps()
	if err := s.view.VerifyAudit(org); err != nil {
		t.Fatal(err)
	}
	const last = 5*11 + maxRoutine
	for _, seq := range []uint64{1, 12, 45, 56, 500, last} {
		s, org := trailWithGaps()
		gone := s.view.audit.Drop(numberKey{org.UUID, seq})
		if gone == nil {
			t.Fatalf("there is no line %d", seq)
		}
		if next, ok := s.view.audit.Get(numberKey{org.UUID, seq + 1}); ok {
			next := *next
			next.Before = gone.Hash
			s.view.audit.Put(&next)
		}
		if err := s.view.VerifyAudit(org); err == nil {
			t.Errorf("a trail without line %d is whole", seq)
		}
	}
	line, _ := s.view.audit.Get(numberKey{org.UUID, 12})
	changed := *line
	changed.Target = "another"
	s.view.audit.Put(&changed)
	if err := s.view.VerifyAudit(org); err == nil {
		t.Error("a trail with a changed line is whole")
	}
}
