package fsm

import (
	"reflect"
	"slices"
	"testing"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// unaudited are the commands of people that no audit trail lists: those about work and
// files, which the history and the bucket have, and those that follow an audited one.
func unaudited() []string {
	return []string{
		"Submit", "StopExecution", "DeleteExecution", "ScaleService", "CompleteExecution", "ChangeDeployment", "UpdateDeployment",
		"CreateUpload", "ReceiveChunks", "CommitUpload", "RedeliverCallbacks", "SetDefaultOrg",
		"CreateBucket", "PutObject", "DeleteObjects", "StartObjectUpload", "PutObjectPart", "AbortObjectUpload",
		"RotateKey", "Reseal", // Listed when they name a new key.
		"RotateRefresh", // Listed when its token was spent before.
	}
}

// TestCommandsOfPeopleAreAudited checks that each command with an Actor has a line in an
// audit trail, or is one of those that have none on purpose.
func TestCommandsOfPeopleAreAudited(t *testing.T) {
	s := newState()
	s.view.meta.Format = format.Newest
	for _, c := range command.All() {
		if _, ofPeople := reflect.TypeOf(c.Command).FieldByName("Actor"); !ofPeople {
			continue
		}
		_, audited := s.trail.entryOf(c.Command, command.Result{})
		if without := slices.Contains(unaudited(), c.Name()); audited == without {
			t.Errorf("%s: audited %t, listed as not audited %t", c.Name(), audited, without)
		}
	}
}

func TestOnlyCommandsAreAllowed(t *testing.T) {
	for _, cmd := range []command.Command{nil, 1, "Tick", &command.Tick{}, command.Settings{}} {
		if err := newState().view.Allows(cmd); err == nil {
			t.Errorf("%T may be proposed", cmd)
		}
	}
}

func TestAppliersAreComplete(t *testing.T) {
	for name, list := range map[string][]applier{
		"one is missing": appliers()[1:],
		"one is twice":   append(appliers(), by((*state).setBrake)),
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: it is a table", name)
				}
			}()
			newApplierTable(list...)
		}()
	}
}

// TestApplyingACommand applies commands by functions of its own. The format check, the
// memory of requests and the term of the leader follow from the rows of the commands.
func TestApplyingACommand(t *testing.T) {
	table := *applied
	times, ticks := 0, 0
	s := newState()
	s.applied = &table
	s.view.meta.Cluster, s.view.meta.Term = compute.UUID{1}, 3
	brake := command.SetBrake{Op: command.Op{ID: compute.OpID{UUID: compute.UUID{7}}}, Release: true}
	tick := command.Tick{Term: 3}
	for _, c := range command.All() {
		switch c.Command.(type) {
		case command.SetBrake:
			table[c.Number()] = by(func(*state, command.SetBrake) command.Result {
				times++
				return command.Result{Count: 1}
			}).apply
		case command.Tick:
			table[c.Number()] = by(func(*state, command.Tick) command.Result { ticks++; return command.Result{} }).apply
		}
	}
	if err := s.view.Allows(brake); compute.CodeOf(err) != compute.CodeConflict {
		t.Errorf("below its format: %v", err)
	}
	s.view.meta.Format = format.Trust
	if err := s.view.Allows(brake); err != nil {
		t.Errorf("from its format on: %v", err)
	}
	apply := func(cmd command.Command) command.Result {
		frame, err := command.Encode(cmd)
		if err != nil {
			t.Fatal(err)
		}
		return s.applyEntry(s.view.meta.Index+1, frame, new(stage))[0]
	}
	if got := apply(brake); got.Refusal != nil || got.Count != 1 || times != 1 {
		t.Errorf("applied %d times: %+v", times, got)
	}
	if got := apply(brake); !got.Repeat || got.Count != 1 || times != 1 {
		t.Errorf("a repeat was applied: %+v", got)
	}
	if got := apply(tick); got.Refusal != nil || ticks != 1 {
		t.Errorf("applied %d times: %+v", ticks, got)
	}
	tick.Term = 2
	if got := apply(tick); got.Refusal == nil || got.Refusal.Detail != "stale_term" || ticks != 1 {
		t.Errorf("from an older leader: %+v", got)
	}
}
