package snapshot_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"berth/compute"
	"berth/fsm/snapshot"
)

// state is the hash in the snapshots of these tests.
var state = compute.Hash{1, 2, 3}

// written returns a snapshot with two tables.
func written(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	w := snapshot.NewWriter(&out, []byte("meta"))
	w.Table(0, 2)
	w.Record([]byte("first"))
	w.Record(bytes.Repeat([]byte("x"), 300<<10)) // Longer than a block.
	w.Table(1, 0)
	if err := w.Close(state); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// read returns the lengths of the records of all tables.
func read(r io.Reader) (lengths []int, err error) {
	in, meta, err := snapshot.NewReader(r)
	if err != nil {
		return nil, err
	}
	lengths = append(lengths, len(meta))
	for table := 0; in.More(); table++ {
		n, err := in.Table(table)
		if err != nil {
			return nil, err
		}
		for range n {
			record, err := in.Record()
			if err != nil {
				return nil, err
			}
			lengths = append(lengths, len(record))
		}
	}
	return lengths, in.Close(state)
}

// TestSnapshot reads a snapshot back, and refuses it when it is cut, goes on, has a
// changed byte or another state's hash.
func TestSnapshot(t *testing.T) {
	data := written(t)
	got, err := read(bytes.NewReader(data))
	if want := []int{4, 5, 300 << 10}; err != nil || !slices.Equal(got, want) {
		t.Fatalf("records of %d bytes, error %v, want %d", got, err, want)
	}
	for _, at := range []int{0, 8, 9, 12, 20, 30, len(data) / 2, len(data) - 60, len(data) - 1} {
		if _, err := read(bytes.NewReader(data[:at])); err == nil {
			t.Errorf("a snapshot cut at %d of %d bytes was read", at, len(data))
		}
		bad := bytes.Clone(data)
		bad[at] ^= 4
		if _, err := read(bytes.NewReader(bad)); err == nil {
			t.Errorf("a snapshot with byte %d changed was read", at)
		}
	}
	if _, err := read(bytes.NewReader(append(bytes.Clone(data), 0))); !errors.Is(err, snapshot.ErrDamaged) {
		t.Errorf("a snapshot with a byte behind its end: %v", err)
	}
	var out bytes.Buffer
	if err := snapshot.NewWriter(&out, []byte("meta")).Close(compute.Hash{9}); err != nil {
		t.Fatal(err)
	}
	if _, err := read(&out); !errors.Is(err, snapshot.ErrDamaged) {
		t.Errorf("a snapshot with the hash of another state: %v", err)
	}
}

// TestBackup reads the snapshot in a backup back in pieces.
func TestBackup(t *testing.T) {
	head, data := snapshot.BackupHeader{Index: 7, Version: "1.2.3"}, written(t)
	var out bytes.Buffer
	err := snapshot.WriteBackup(&out, head, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	in, err := snapshot.OpenBackup(bytes.NewReader(out.Bytes()))
	if err != nil || in.Header != head {
		t.Fatalf("header %+v, error %v, want %+v", in.Header, err, head)
	}
	if got, err := io.ReadAll(in); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, error %v, want the %d written", len(got), err, len(data))
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if _, err := snapshot.CheckBackup(bytes.NewReader(out.Bytes()[:out.Len()-1])); !errors.Is(err, snapshot.ErrBackup) {
		t.Errorf("a backup that is cut: %v", err)
	}
}
