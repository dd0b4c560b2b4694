package partial

import (
	"testing"

	"berth/compute"
	"berth/fsm/store"
)

// TestPartialDecodeKnowsAllFields fails when a field is added to a record,
// until the partial decode handles it: is it a field that checks, indexes,
// counts or filters use? Then the partial decode must read it.
func TestPartialDecodeKnowsAllFields(t *testing.T) {
	for name, test := range map[string]struct {
		schema *store.Schema
		last   int
	}{
		"execution": {executionSchema, 86},
		"attempt":   {attemptSchema, 16},
	} {
		if last := test.schema.LastField(); last != test.last {
			t.Errorf("the last field of an %s is %d, its partial decode knows %d", name, last, test.last)
		}
	}
}

// TestPartialDecodeRefusesUnknownFields checks that a record with an unknown key
// is left to the decoder, which refuses it.
func TestPartialDecodeRefusesUnknownFields(t *testing.T) {
	known := store.MustEncode(&compute.Execution{Status: compute.StatusCompleted})
	with := func(key uint64, item byte) []byte {
		f, n := store.FieldsOf(known)
		return append(store.AppendHead(append(store.AppendHead(nil, store.MajorMap, n+1), f.Rest...), store.MajorUint, key), item)
	}
	var e compute.Execution
	if !Execution(with(46, 1), &e) || e.MaxRetries != 1 {
		t.Error("a field that it knows is refused")
	}
	for _, key := range []uint64{48, 62, 63, 64, 1 << 40} {
		if Execution(with(key, 1), &e) {
			t.Errorf("field %d is taken", key)
		}
	}
	if Execution(append(with(46, 1), 0), &e) {
		t.Error("what is behind the record is overlooked")
	}
}
