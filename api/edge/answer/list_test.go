package answer

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
)

// rowsOf returns a reader of a list of n rows of 100 bytes, which ends with err
// or a panic, and how many rows were taken of it.
func rowsOf(t *testing.T, n int, end func(yield func(any, error) bool)) (r *ListReader, taken *int) {
	t.Helper()
	conn, peer := net.Pipe()
	t.Cleanup(func() { conn.Close(); peer.Close() })
	taken = new(int)
	l, err := ListIn(map[string]any{"rows": []string{}, "total": n}, "rows", func(context.Context) iter.Seq2[any, error] {
		return func(yield func(any, error) bool) {
			for range n {
				if *taken++; !yield(strings.Repeat("<", 98), nil) {
					return
				}
			}
			if end != nil {
				end(yield)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	r = l.Open(t.Context(), conn, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { r.Close() })
	return r, taken
}

// TestListIsEncodedAsItIsRead checks that a node holds one piece of a list,
// whatever its length.
func TestListIsEncodedAsItIsRead(t *testing.T) {
	const rows = 10_000
	r, taken := rowsOf(t, rows, nil)
	if _, err := io.ReadFull(r, make([]byte, listPiece)); err != nil {
		t.Fatal(err)
	}
	if most := 2 * listPiece / 100; *taken > most {
		t.Errorf("%d rows are encoded for %d bytes, want at most %d", *taken, listPiece, most)
	}
	r, _ = rowsOf(t, rows, nil)
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Rows  []string
		Total int
	}
	if err := json.Unmarshal(data, &got); err != nil || len(got.Rows) != rows || got.Total != rows {
		t.Errorf("%d rows of %d, %v", len(got.Rows), got.Total, err)
	}
}

// TestListScans checks that the scan of a list is taken while its rows are computed,
// and not while its client takes them.
func TestListScans(t *testing.T) {
	r, taken := rowsOf(t, 10_000, nil)
	scans := 0
	r.Scan = func(context.Context) (func(), error) {
		scans++
		return func() { scans-- }, nil
	}
	rows := r.next
	r.next = func() (any, error, bool) {
		if scans != 1 {
			t.Errorf("%d scans while a row is computed", scans)
		}
		return rows()
	}
	if _, err := io.ReadFull(r, make([]byte, 2*listPiece)); err != nil || scans != 0 || *taken == 0 {
		t.Errorf("%d scans after %d rows, %v", scans, *taken, err)
	}
	refused := errors.New("busy")
	r, taken = rowsOf(t, 10_000, nil)
	r.Scan = func(context.Context) (func(), error) { return nil, refused }
	if err := r.Fill(); !errors.Is(err, refused) || *taken != 0 {
		t.Errorf("%d rows without a scan, %v", *taken, err)
	}
}

// TestListsEnd checks that a client which takes a list slowly does not keep a view of
// the state for ever.
func TestListsEnd(t *testing.T) {
	r, _ := rowsOf(t, 10_000, nil)
	r.until = time.Now()
	if data, err := io.ReadAll(r); err == nil || json.Valid(data) {
		t.Errorf("%d bytes after its time, %v", len(data), err)
	}
}

func TestShortLists(t *testing.T) {
	for n, want := range []string{`{"rows":[],"total":0}`, `{"rows":["` + strings.Repeat("<", 98) + `"],"total":1}`} {
		r, _ := rowsOf(t, n, nil)
		if data, err := io.ReadAll(r); err != nil || string(data) != want {
			t.Errorf("%d rows are %s, %v", n, data, err)
		}
	}
	if _, err := ListIn(map[string]any{"rows": []int{1}}, "rows", nil); err == nil {
		t.Error("a list with rows of its own is accepted")
	}
}

// TestListsThatBreak checks that a list that ends early is never taken for a
// whole one.
func TestListsThatBreak(t *testing.T) {
	cause := errors.New("archive is gone")
	for name, end := range map[string]func(func(any, error) bool){
		"error":      func(yield func(any, error) bool) { yield(nil, cause) },
		"panic":      func(func(any, error) bool) { panic(cause.Error()) },
		"bad number": func(yield func(any, error) bool) { yield(func() {}, nil) },
	} {
		r, _ := rowsOf(t, 2_000, end)
		data, err := io.ReadAll(r)
		if err == nil || json.Valid(data) {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
		if _, again := r.Read(make([]byte, 1)); again == nil || errors.Is(again, io.EOF) {
			t.Errorf("%s: read again after it broke: %v", name, again)
		}
	}
}
