package fsm_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// full returns a world with something in every table.
func full(t testing.TB) *world {
	w := newWorld(t)
	w.must(command.CreateJoinToken{Actor: w.root, Token: compute.JoinToken{
		ID: "t", Uses: 1, ExpiresAt: w.now.Add(time.Hour),
	}})
	w.must(command.StoreRefresh{Op: w.op(w.org, "login"), Token: compute.RefreshToken{
		Hash: hash("1"), Family: w.uuid(), User: w.ada.User, ExpiresAt: w.now.Add(time.Hour),
	}})
	w.must(command.RotateRefresh{Old: hash("1"), Next: compute.RefreshToken{Hash: hash("2")}})
	w.key("aaaaaaaaaa")
	w.must(command.RemoveNode{Actor: w.root, Node: w.addNode("n4")})
	w.complete(w.submit("t4", func(e *compute.Execution) {
		e.CallbackURLs = []string{"https://example.com/"}
		e.Tags, e.Imports = []string{"a", "b"}, []string{"x.py"}
	}), "n3", time.Second)
	running := w.submit("h100")
	w.place("n1", running)
	w.must(w.started(running))
	w.submit("a100", func(e *compute.Execution) { e.Priority = 7 })
	parent := w.selection(func(e *compute.Execution) { e.MaxCredits = 50_000 })
	w.must(w.take(parent, "gpu.t4", "gpu.l40s"))
	w.selection()
	return w
}

func (w *world) snapshot() []byte {
	w.Helper()
	var buf bytes.Buffer
	if err := w.view().WriteSnapshot(&buf); err != nil {
		w.Fatalf("write snapshot: %v", err)
	}
	return buf.Bytes()
}

func restore(data []byte) (*fsm.FSM, error) {
	f := fsm.New()
	return f, f.Restore(io.NopCloser(bytes.NewReader(data)))
}

func TestSnapshotRestoresTheState(t *testing.T) {
	w := full(t)
	data := w.snapshot()
	f, err := restore(data)
	if err != nil {
		t.Fatal(err)
	}
	if f.View().Hash() != w.view().Hash() || f.View().Index() != w.view().Index() {
		t.Fatal("the restored state is another one")
	}
	var again bytes.Buffer
	if err := f.View().WriteSnapshot(&again); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, again.Bytes()) {
		t.Error("a snapshot of the restored state has other bytes")
	}
	if err := f.View().Check(); err != nil { // Derived data is restored too.
		t.Error(err)
	}
	listed := func(v *fsm.View) (ids []compute.ExecutionID) {
		for e := range v.History(w.org, fsm.HistoryFilter{}) {
			ids = append(ids, e.ID)
		}
		return ids
	}
	if got, want := listed(f.View()), listed(w.view()); !slices.Equal(got, want) {
		t.Errorf("the restored state lists %v, it was made of %v", got, want)
	}
	for n := range f.View().Nodes() {
		if len(f.View().Work(n.ID)) != len(w.view().Work(n.ID)) {
			t.Errorf("node %s has other work", n.Name)
		}
	}
}

func TestDamagedSnapshotIsRefused(t *testing.T) {
	w := newEmptyWorld(t)
	w.bootstrap(settings())
	w.addNode("n3", "t4")
	w.ada = w.addUser("ada")
	w.place("n3", w.submit("t4"))
	data := w.snapshot()
	f, err := restore(data)
	if err != nil {
		t.Fatal(err)
	}
	before := f.View()
	for at := range data {
		bad := bytes.Clone(data)
		bad[at] ^= 1 << (at % 8)
		if err := f.Restore(io.NopCloser(bytes.NewReader(bad))); err == nil {
			t.Fatalf("a flipped bit in byte %d of %d was not noticed", at, len(data))
		}
		if f.View() != before {
			t.Fatal("a refused snapshot changed the state")
		}
	}
	for at := 0; at < len(data); at += 97 {
		if _, err := restore(data[:at]); err == nil {
			t.Fatalf("a snapshot of %d bytes of %d was taken", at, len(data))
		}
	}
	if _, err := restore(append(bytes.Clone(data), 0)); err == nil {
		t.Error("a snapshot with something behind its end was taken")
	}
}

func TestForeignSnapshotIsRefused(t *testing.T) {
	w := full(t)
	older, newer := w.snapshot(), w.snapshot()
	binary.BigEndian.PutUint16(older[8:], 1)
	binary.BigEndian.PutUint16(newer[8:], 3)
	tests := []struct{ name, want, data string }{
		{"empty", "ends early", ""},
		{"something else", "no snapshot", strings.Repeat("x", 100)},
		{"an older format", "format 1 and this version of Berth reads 2: install", string(older)},
		{"a newer format", "format 3 and this version of Berth reads 2: install", string(newer)},
	}
	for _, test := range tests {
		_, err := restore([]byte(test.data))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q in it", test.name, err, test.want)
		}
	}
}

// errReader fails after its data, like a connection.
type errReader struct{ io.Reader }

func (r errReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == io.EOF {
		err = io.ErrClosedPipe
	}
	return n, err
}

// failWriter fails after n bytes, like a full disk.
type failWriter struct{ n int }

func (w *failWriter) Write(p []byte) (int, error) {
	if w.n -= len(p); w.n < 0 {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

func TestSnapshotPassesErrorsOn(t *testing.T) {
	w := full(t)
	data := w.snapshot()
	err := fsm.New().Restore(io.NopCloser(errReader{bytes.NewReader(data[:100])}))
	if err == nil || !strings.Contains(err.Error(), io.ErrClosedPipe.Error()) {
		t.Errorf("restore from a broken stream: %v", err)
	}
	if err := w.view().WriteSnapshot(&failWriter{n: 10}); err == nil {
		t.Error("a failed write was not noticed")
	}
}

func TestViewsNeverChange(t *testing.T) {
	w := full(t)
	old := w.view()
	before := old.Hash()
	data := w.snapshot()
	for range 50 {
		w.complete(w.submit("t4.100m"), "n3", time.Second)
	}
	w.pass(time.Hour)
	if err := old.Check(); err != nil {
		t.Errorf("an old view breaks an invariant: %v", err)
	}
	var again bytes.Buffer
	if err := old.WriteSnapshot(&again); err != nil {
		t.Fatal(err)
	}
	if old.Hash() != before || !bytes.Equal(data, again.Bytes()) {
		t.Error("an old view has changed")
	}
}
