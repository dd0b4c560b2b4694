package admin

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/cmd/berth/clitest"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// ledgerCluster is a cluster with one organization that is granted credits.
type ledgerCluster struct {
	t       *testing.T
	machine *fsm.FSM
	index   uint64
	org     compute.OrgID
}

func newLedgerCluster(t *testing.T) *ledgerCluster {
	b := &ledgerCluster{t: t, machine: fsm.New(), index: 1, org: compute.OrgID{UUID: compute.UUID{15: 2}}}
	b.apply(command.Bootstrap{
		ClusterID: compute.UUID{15: 1}, Prices: map[string]compute.Price{"cpu": 15},
		Signing: compute.SigningKey{ID: "first", Public: []byte{1}, Sealed: []byte{2}},
	})
	b.apply(command.CreateUser{
		Actor: command.Actor{Root: true}, User: compute.User{ID: compute.UserID{UUID: compute.UUID{15: 3}}, Email: "a@example.com"},
		Org: compute.Org{ID: b.org, Slug: "lab"},
	})
	return b
}

func (b *ledgerCluster) apply(cmd command.Command) {
	b.t.Helper()
	frame, err := command.Encode(cmd)
	if err != nil {
		b.t.Fatal(err)
	}
	b.index++
	if r := b.machine.ApplyFrames(b.index, frame); r[0].Refusal != nil {
		b.t.Fatal(r[0].Refusal)
	}
}

// grant adds a line to the ledger.
func (b *ledgerCluster) grant(amount compute.Credits) {
	b.apply(command.Grant{Actor: command.Actor{Root: true}, Org: b.org, Amount: amount, Note: "a grant that the ledger keeps"})
}

// save writes a backup.
func (b *ledgerCluster) save(name string) (string, []byte) {
	b.t.Helper()
	var data bytes.Buffer
	if err := b.machine.View().WriteBackup(&data, "0.1.0", 1_775_000_000_000); err != nil {
		b.t.Fatal(err)
	}
	file := filepath.Join(b.t.TempDir(), name)
	if err := os.WriteFile(file, data.Bytes(), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return file, data.Bytes()
}

// TestLedgerVerify verifies a sound backup, finds every flipped byte of another, and a
// ledger that was rewritten.
func TestLedgerVerify(t *testing.T) {
	b := newLedgerCluster(t)
	b.grant(5)
	earlier, _ := b.save("earlier")
	b.grant(7)
	file, data := b.save("now")
	if r := ledger(t, "verify", file, "--earlier", earlier); r.Code != 0 || !strings.Contains(r.Out, "yes") {
		t.Errorf("a sound backup: %+v", r)
	}
	flipped := filepath.Join(t.TempDir(), "flipped")
	for at := 0; at < len(data); at += 1 + len(data)/100 {
		bad := bytes.Clone(data)
		bad[at] ^= 4
		if err := os.WriteFile(flipped, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if r := ledger(t, "verify", flipped); r.Code == 0 {
			t.Errorf("byte %d of %d was flipped: %+v", at, len(data), r)
		}
	}
	forged := newLedgerCluster(t)
	forged.grant(50)
	forged.grant(7)
	other, _ := forged.save("forged")
	if r := ledger(t, "verify", other); r.Code != 0 {
		t.Errorf("it is sound by itself: %+v", r)
	}
	if r := ledger(t, "verify", other, "--earlier", earlier); r.Code == 0 || !strings.Contains(r.Errors, "line 1 is not the one") {
		t.Errorf("a ledger that was rewritten: %+v", r)
	}
}

// ledger executes berth ledger.
func ledger(t *testing.T, args ...string) clitest.Result {
	t.Helper()
	return clitest.Execute(t.Context(), clitest.Root(NewLedger()), "", append([]string{"ledger"}, args...)...)
}
