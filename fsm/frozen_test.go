package fsm

import (
	"bytes"
	_ "embed"
	"encoding/hex"
	"strings"
	"testing"

	"berth/compute"
	"berth/fsm/store"
)

//go:embed testdata/frozen.txt
var frozen string

// TestRecordsAreFrozen checks that the encoding of executions, attempts and
// callbacks, empty and with every field set, never changes. The bytes in
// testdata/frozen.txt must not change; lines are only added. An archive is
// accepted when the sum of the hashes of its encoded records is the same on all
// servers, and a server that replays the command after an upgrade encodes the
// records again. A new field therefore needs omitempty, a new number and a zero
// value that means the previous behaviour.
func TestRecordsAreFrozen(t *testing.T) {
	again := map[string]func([]byte) []byte{
		"execution": encodeAgain[compute.Execution],
		"attempt":   encodeAgain[compute.Attempt],
		"callback":  encodeAgain[compute.Callback],
	}
	lines := strings.Fields(frozen)
	if len(lines) < 2*2*len(again) {
		t.Fatalf("there are %d words of records", len(lines))
	}
	for i := 0; i < len(lines); i += 2 {
		want, err := hex.DecodeString(lines[i+1])
		if err != nil {
			t.Fatal(err)
		}
		if got := again[lines[i]](want); !bytes.Equal(got, want) {
			t.Errorf("the %s\n%x is now encoded as\n%x", lines[i], want, got)
		}
	}
}

func encodeAgain[V any](encoded []byte) []byte { return store.MustEncode(store.MustDecode[V](encoded)) }
