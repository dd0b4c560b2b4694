package fsm_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"berth/fsm"
	"berth/fsm/snapshot"
	"berth/testsize"
)

// backup returns a backup of the world's state.
func (w *world) backup() []byte {
	w.Helper()
	var buf bytes.Buffer
	if err := w.view().WriteBackup(&buf, "1.2.3", w.now); err != nil {
		w.Fatal(err)
	}
	return buf.Bytes()
}

func TestBackupHoldsTheState(t *testing.T) {
	w := full(t)
	w.must(w.raiseEpoch())
	data := w.backup()
	head, f, err := fsm.ReadBackup(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	v := w.view()
	want := snapshot.BackupHeader{
		Cluster: v.ClusterID(), Epoch: 1, Index: v.Index(), Term: v.Term(),
		Format: v.Format(), Version: "1.2.3", At: w.now,
	}
	if head != want || f.View().Hash() != v.Hash() {
		t.Errorf("the header is %+v, want %+v, and the state the same", head, want)
	}
	if again, err := snapshot.CheckBackup(bytes.NewReader(data)); err != nil || again != want {
		t.Errorf("checked: %+v, %v", again, err)
	}
	if err := f.View().Check(); err != nil {
		t.Error(err)
	}
	sum := f.View().Summary()
	if sum.Orgs != 2 || sum.Balance != sum.Granted-sum.Charged || sum.Executions != 7 || sum.ByStatus["completed"] != 1 {
		t.Errorf("got %+v", sum)
	}
	r := f.ApplyFrames(v.Index()+1, w.frame(w.raiseEpoch())) // It can continue.
	if r[0].Refusal != nil || f.View().ClusterEpoch() != 2 {
		t.Errorf("the state does not go on: %+v", r)
	}
}

// TestDamagedBackupIsRefused checks that a damaged backup is never read.
func TestDamagedBackupIsRefused(t *testing.T) {
	w := newEmptyWorld(t)
	w.bootstrap(settings())
	w.addNode("n3", "t4")
	data := w.backup()
	for at := 0; at < len(data); at += testsize.Pick(7, 1) { // 7 and 8 have no common factor: all bits have their turn.
		bad := bytes.Clone(data)
		bad[at] ^= 1 << (at % 8)
		if _, err := snapshot.CheckBackup(bytes.NewReader(bad)); err == nil {
			t.Fatalf("a flipped bit in byte %d of %d was not noticed", at, len(data))
		}
		if _, _, err := fsm.ReadBackup(bytes.NewReader(bad)); err == nil {
			t.Fatalf("a state was read in spite of a flipped bit in byte %d", at)
		}
		if _, err := snapshot.CheckBackup(bytes.NewReader(data[:at])); err == nil {
			t.Fatalf("the first %d bytes of %d were taken", at, len(data))
		}
	}
	if _, err := snapshot.CheckBackup(bytes.NewReader(append(bytes.Clone(data), 0))); err == nil {
		t.Error("more behind its end was not noticed")
	}
}

func TestForeignBackupIsRefused(t *testing.T) {
	w := full(t)
	data := w.backup()
	newer := bytes.Clone(data)
	binary.BigEndian.PutUint16(newer[8:], 2)
	for _, test := range []struct{ name, data, want string }{
		{"empty", "", "ends early"},
		{"a snapshot", string(w.snapshot()), "no backup of a berth cluster"},
		{"a newer format", string(newer), "use the version that wrote it"},
	} {
		if _, err := snapshot.CheckBackup(strings.NewReader(test.data)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
}
