package fsm_test

import (
	"testing"

	"berth/fsm"
)

func TestWhatAFullDiskLetsThrough(t *testing.T) {
	for _, test := range []struct {
		cmd  fsm.Command
		want bool
	}{
		{fsm.FinishAttempt{}, true},
		{fsm.StopExecution{}, true},
		{fsm.DeleteExecution{}, true},
		{fsm.Tick{}, true},
		{fsm.Clock{}, true},
		{fsm.LoseAttempts{}, true},
		{fsm.StoreRefresh{}, true},
		{fsm.SetBrake{}, true},
		{fsm.RaiseEpoch{}, true},
		{fsm.Submit{}, false},
		{fsm.CommitPlan{}, false},
		{fsm.CreateUser{}, false},
		{fsm.Grant{}, false},
	} {
		if got := fsm.Relieves([]byte{byte(test.cmd.Kind())}); got != test.want {
			t.Errorf("%T: %v", test.cmd, got)
		}
	}
	if fsm.Relieves(nil) {
		t.Error("nothing at all makes room")
	}
}
