package fsm_test

import (
	"testing"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// TestRootTokenRotation holds that a rotation ends the rights of the token before with its entry,
// and that one of two rotations at once is refused.
func TestRootTokenRotation(t *testing.T) {
	w := newestWorld(t)
	rotate := func(actor command.Actor, token, before string) command.RotateRootToken {
		return command.RotateRootToken{Actor: actor, Token: hash(token), Before: hash(before)}
	}
	w.refused(rotate(w.ada, "second", "root"), compute.CodeForbidden, "not_an_operator")
	w.refused(rotate(w.root, "root", "root"), compute.CodeInvalid, "root_token")
	w.refused(command.RotateRootToken{Actor: w.root, Before: hash("root")}, compute.CodeInvalid, "root_token")
	w.refused(rotate(w.root, "second", "other"), compute.CodeConflict, "rotation_in_progress")
	if w.view().RootToken() != hash("root") || w.view().RootVersion() != 0 {
		t.Fatal("a refused rotation changes the token")
	}
	w.must(rotate(w.root, "second", "root"))
	if w.view().RootToken() != hash("second") || w.view().RootVersion() != 1 {
		t.Errorf("version %d", w.view().RootVersion())
	}
	if got := w.actions(compute.OrgID{}); got[0] != "root_token.rotate" {
		t.Errorf("the trail begins with %s", got[0])
	}
	w.refused(command.SetBrake{Actor: w.root, Release: true}, compute.CodeUnauthenticated, "root_token_rotated")
	w.refused(rotate(w.root, "third", "second"), compute.CodeUnauthenticated, "root_token_rotated")
	next := command.Actor{Root: true, TokenVersion: 1}
	w.must(command.SetBrake{Actor: next, Release: true})
	w.refused(rotate(next, "third", "root"), compute.CodeConflict, "rotation_in_progress")
	w.must(rotate(next, "third", "second"))
	w.refused(command.SetBrake{Actor: next, Release: true}, compute.CodeUnauthenticated, "root_token_rotated")

	needed, err := command.Needs(rotate(w.root, "second", "root"))
	if err != nil || needed != format.Rotation {
		t.Errorf("a rotation needs format %d, %v", needed, err)
	}
}
