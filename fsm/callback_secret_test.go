package fsm_test

import (
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// TestCallbackSecrets sets, rotates and removes the secret of an organization.
func TestCallbackSecrets(t *testing.T) {
	w := newestWorld(t)
	set := func(number uint64) command.SetCallbackSecret {
		return command.SetCallbackSecret{Actor: w.ada, Org: w.org, Secret: compute.CallbackSecret{
			Number: number, Key: 1, Sealed: []byte{byte(number)},
		}}
	}
	first := set(1)
	w.refused(first, compute.CodeConflict, "data_key_changed") // Nothing can open it.
	first.Key = &compute.DataKey{Sealed: []byte("key")}
	w.must(first)
	w.refused(first, compute.CodeConflict, "data_key_changed")
	w.refused(set(1), compute.CodeConflict, "data_key_changed")
	numbers := func(after time.Duration) (out []uint64) {
		o, _ := w.view().Org(w.org)
		for _, s := range o.SigningSecrets(w.view().Now().Add(after)) {
			out = append(out, s.Number)
		}
		return out
	}
	w.must(set(2))
	if now, later := numbers(0), numbers(24*time.Hour); len(now) != 2 || now[0] != 2 || len(later) != 1 || later[0] != 2 {
		t.Errorf("after a rotation %v sign, and a day later %v", now, later)
	}
	w.must(set(3))
	if now := numbers(0); len(now) != 2 || now[0] != 3 || now[1] != 2 {
		t.Errorf("after two rotations %v sign", now)
	}
	again, err := restore(w.snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if err := again.View().Check(); err != nil {
		t.Error(err)
	}
	bad := set(4)
	bad.Secret.Sealed = nil
	w.refused(bad, compute.CodeInvalid, "secret")
	w.must(command.RemoveCallbackSecret{Actor: w.ada, Org: w.org})
	w.must(command.RemoveCallbackSecret{Actor: w.ada, Org: w.org})
	if len(numbers(0)) > 0 {
		t.Error("a removed secret signs")
	}
}
