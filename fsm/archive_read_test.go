package fsm

import (
	"math"
	"testing"

	"berth/compute"
)

// TestUnpackedBytesCount checks that the limit of a page also bounds archives
// that are small and unpack to many bytes.
func TestUnpackedBytesCount(t *testing.T) {
	const size = 8 << 20
	const most = maxRead / (size / 2)
	var refusal error
	opened := 0
	m := merge{
		open: func(*Archive) (*ArchiveFile, error) {
			opened++
			return &ArchiveFile{body: make([]byte, size)}, nil
		},
		yield: func(_ *Case, err error) bool {
			refusal = err
			return false
		},
	}
	for range 2 * most {
		if m.load(&Archive{Size: 1 << 10, Executions: 1}, math.MaxUint64); m.ended {
			break
		}
	}
	if compute.CodeOf(refusal) != compute.CodeInvalid || opened > most {
		t.Errorf("%d archives of %d bytes were opened, %v; want %d at most and a refusal", opened, size, refusal, most)
	}
}
