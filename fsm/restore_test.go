package fsm

import (
	"reflect"
	"strconv"
	"strings"
	"testing"

	"berth/compute"
)

// TestOutlinesKnowAllFields holds that a field that is added to a record comes
// to the knowledge of what outlines it.
func TestOutlinesKnowAllFields(t *testing.T) {
	for name, test := range map[string]struct {
		record any
		last   uint64
	}{
		"execution": {compute.Execution{}, lastExecutionField},
		"attempt":   {compute.Attempt{}, lastAttemptField},
		"op":        {op{}, lastOpField},
		"line":      {compute.LedgerEntry{}, hashKey},
	} {
		last := uint64(0)
		for f := range reflect.TypeOf(test.record).Fields() {
			n, _, _ := strings.Cut(f.Tag.Get("cbor"), ",")
			key, err := strconv.ParseUint(n, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			last = max(last, key)
		}
		if last != test.last {
			t.Errorf("the last field of an %s is %d, its outline knows %d", name, last, test.last)
		}
	}
}
