package fsm_test

import (
	"testing"

	"berth/compute"
	"berth/fsm/command"
)

// TestMasterRotation checks that keys are refused if the master key that sealed them no
// longer seals, and that a key is replaced only if it is the one that was read.
func TestMasterRotation(t *testing.T) {
	w := newestWorld(t)
	old, fresh := []byte("old..."), []byte("fresh.")
	w.must(command.CreateBucket{Actor: w.ada, Bucket: compute.Bucket{Sealed: old}})
	seal := func(prefixes ...[]byte) command.SealWith { return command.SealWith{Actor: w.root, Prefixes: prefixes} }
	w.refused(command.SealWith{Actor: w.ada, Prefixes: [][]byte{fresh[:5]}}, compute.CodeForbidden, "not_an_operator")
	w.refused(seal(), compute.CodeInvalid, "sealing")
	w.refused(seal(fresh), compute.CodeInvalid, "sealing")
	w.must(seal(old[:5], fresh[:5]))
	w.must(command.CreateBucket{Actor: w.other, Bucket: compute.Bucket{Sealed: old}})
	late := seal(old[:5], []byte("third"))
	late.Before = command.SealingHash([][]byte{old[:5]}) // It has not seen that another one began.
	w.refused(late, compute.CodeConflict, "rotation_in_progress")
	mine := seal(fresh[:5])
	mine.Before = command.SealingHash([][]byte{old[:5], fresh[:5]})
	w.must(mine)
	put := command.PutVariables{Actor: w.ada, Key: &compute.DataKey{Sealed: old}, Variables: []compute.Variable{{Name: "A", Value: "a"}}}
	w.refused(put, compute.CodeUnavailable, "master_key_rotated")
	put.Key.Sealed = fresh
	w.must(put)

	keys := w.view().SealedOtherwise(fresh[:5])
	buckets := 0
	for i := range keys {
		if keys[i].Kind == command.SealedBucket {
			buckets++
		}
		keys[i].Sealed = fresh
	}
	if buckets != 2 || len(keys) != 2+len(w.view().SigningKeys()) {
		t.Fatalf("%d keys are sealed otherwise, %d of buckets", len(keys), buckets)
	}
	changed := keys[0]
	changed.Before = compute.Hash{1}
	if r := w.must(command.Reseal{Actor: w.root, Keys: []command.SealedKey{changed}}); r.Count != 0 {
		t.Error("a key that was changed meanwhile is replaced")
	}
	if r := w.must(command.Reseal{Actor: w.root, Keys: keys}); r.Count != len(keys) {
		t.Errorf("%d of %d keys are replaced", r.Count, len(keys))
	}
	if left := w.view().SealedOtherwise(fresh[:5]); len(left) != 0 {
		t.Errorf("%d keys are left", len(left))
	}
	if got := w.actions(compute.OrgID{}); got[0] != "master_key.rotate" {
		t.Errorf("the trail begins with %s", got[0])
	}
}
