package series

import (
	"bytes"
	"compress/flate"
	"os"
	"path/filepath"
	"testing"

	"berth/compute"
)

// TestArchiveHasTheSeries also reads archives that are damaged.
func TestArchiveHasTheSeries(t *testing.T) {
	s := mustStore(t)
	execution := compute.ExecutionID{UUID: compute.UUID{1}}
	if data, err := s.Archive(execution, 1); err != nil || data != nil {
		t.Errorf("without a series there is an archive of %d bytes, %v", len(data), err)
	}
	path := s.path(execution, 1)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	w, err := newWriter(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		p := Unknown(compute.Instant(1000 * (i + 1)))
		p.Values[CPUPercent] = float64(i)
		if err := w.add(p); err != nil {
			t.Fatal(err)
		}
	}
	data, err := s.Archive(execution, 1)
	if err != nil || len(data) == 0 || len(data) > 2000 {
		t.Fatalf("the archive has %d bytes, %v", len(data), err)
	}
	points, err := ReadArchive(data, 10_000, 20_000)
	if err != nil || len(points) != 10 || points[0].At != 11_000 || points[9].Values[CPUPercent] != 19 {
		t.Errorf("read %v, %v", points, err)
	}
	var other bytes.Buffer
	f, err := flate.NewWriter(&other, 1)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.Write(make([]byte, 100))
	_ = f.Close()
	for _, damaged := range [][]byte{nil, data[:len(data)/2], other.Bytes()} {
		if _, err := ReadArchive(damaged, 0, 1<<40); err == nil {
			t.Error("a damaged archive is read")
		}
	}
}
