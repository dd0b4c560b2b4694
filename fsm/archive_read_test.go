package fsm

import (
	"math"
	"strings"
	"testing"

	"berth/compute"
	"berth/fsm/archive"
	"berth/fsm/store"
)

// TestUnpackedBytesCount checks that the limit of a page also bounds archives
// that are small and unpack to many bytes.
func TestUnpackedBytesCount(t *testing.T) {
	const size = 8 << 20
	const most = maxRead / (size / 2)
	e := compute.Execution{Detail: strings.Repeat("x", size)}
	data, blob, sum := archive.Pack(compute.UUID{1}, 1, []archive.Place{archive.PlaceOf(&e)},
		func(_ compute.ExecutionID, visit func([]byte)) (attempts, callbacks int) {
			visit(store.MustEncode(&e))
			return 0, 0
		})
	file, err := archive.Read(&archive.Record{Blob: blob, Month: 1, Executions: 1, Sum: sum}, data)
	if err != nil {
		t.Fatal(err)
	}
	var refusal error
	opened := 0
	m := merge{
		open: func(*archive.Record) (*archive.File, error) {
			opened++
			return file, nil
		},
		yield: func(_ *archive.Case, err error) bool {
			refusal = err
			return false
		},
	}
	for range 2 * most {
		if m.load(&archive.Record{Size: 1 << 10, Executions: 1}, math.MaxUint64); m.ended {
			break
		}
	}
	if compute.CodeOf(refusal) != compute.CodeInvalid || opened > most {
		t.Errorf("%d archives of %d bytes were opened, %v; want %d at most and a refusal", opened, size, refusal, most)
	}
}
