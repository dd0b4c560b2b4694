package node_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
	"berth/node/nodetest"
	"berth/node/repair"
)

// mustFind returns the entry of the stopped server in dir with such a command.
func mustFind(t *testing.T, dir, cmd string) repair.Skipped {
	t.Helper()
	for index := uint64(1); ; index++ {
		s, err := repair.SkipEntry(dir, index, "", false, false)
		switch {
		case compute.CodeOf(err) == compute.CodeInvalid: // Raft's own.
		case err != nil:
			t.Fatalf("no entry holds %s: %v", cmd, err)
		case slices.ContainsFunc(s.Commands, func(f command.Frame) bool { return f.Command == cmd }):
			return s
		}
	}
}

// TestSkipEntry has a server leave out an entry: only while it is stopped, and
// only what its own log has, unless it is forced.
func TestSkipEntry(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.New(t, 1)
	n := c.Nodes[0]
	dir, listed := n.Config.DataDir, filepath.Join(n.Config.DataDir, "skip-entries")
	root := nodetest.MustClient(t, c.RootToken, n.URL())
	ada := wire.NewUser{Email: "ada@example.com", Password: "correct horse battery", OrgSlug: "acme", OrgName: "Acme"}
	if _, err := root.CreateUser(t.Context(), ada); err != nil {
		t.Fatal(err)
	}
	if _, err := repair.SkipEntry(dir, 1, "", false, false); err == nil || !strings.Contains(err.Error(), "stop it first") {
		t.Errorf("of a node that runs: %v", err)
	}
	n.Stop()
	found := mustFind(t, dir, "CreateUser")
	other := strings.Repeat("00", 32)
	for _, test := range []struct {
		name  string
		entry uint64
		hash  string
		force bool
		want  string
	}{
		{"another hash", found.Entry, other, false, "is another one: the SHA-256 of its bytes is " + found.Hash},
		{"another hash, forced", found.Entry, other, true, "is another one"},
		{"no hash", found.Entry, "abc", false, "is not a SHA-256"},
		{"not there", found.Last + 9, other, false, "and --force"},
		{"no entry", 0, other, true, "is not an index of an entry"},
		{"not there, forced without a hash", found.Last + 9, "", true, "does not have entry"},
	} {
		for _, do := range []bool{false, true} {
			_, err := repair.SkipEntry(dir, test.entry, test.hash, test.force, do)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want %q", test.name, err, test.want)
			}
		}
	}
	if s, err := repair.SkipEntry(dir, found.Entry, found.Hash, false, false); err != nil || s.Done || s.Listed || !s.Held {
		t.Errorf("a dry run: %+v, %v", s, err)
	}
	if _, err := os.Stat(listed); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file was made: %v", err)
	}
	s, err := repair.SkipEntry(dir, found.Entry, strings.ToUpper(found.Hash), false, true)
	if err != nil || !s.Done || s.Listed {
		t.Errorf("left out: %+v, %v", s, err)
	}
	if s, err := repair.SkipEntry(dir, found.Last+1000, other, true, true); err != nil || !s.Done || s.Held {
		t.Errorf("what it has yet to get: %+v, %v", s, err)
	}
	if s, err := repair.SkipEntry(dir, found.Entry, found.Hash, false, false); err != nil || s.Done || !s.Listed {
		t.Errorf("again: %+v, %v", s, err)
	}
	kept, err := os.ReadFile(listed)
	if info, statErr := os.Stat(listed); err != nil || statErr != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v, %v", info, err, statErr)
	}
	if err := os.WriteFile(listed, append(kept, "x\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	mustRefuse(t, n.Config, listed+", line 5", "copy the file of another server")
	_, err = repair.SkipEntry(dir, found.Entry, found.Hash, false, true)
	if err == nil || !strings.Contains(err.Error(), "line 5") {
		t.Errorf("with a line that cannot be read: %v", err)
	}
	if err := os.WriteFile(listed, kept, 0o600); err != nil {
		t.Fatal(err)
	}

	if r, err := repair.Recover(dir, []compute.NodeID{found.Node}, true); err != nil || !r.Done {
		t.Fatalf("%+v, %v", r, err)
	}
	for hash, force := range map[string]bool{other: true, "": false} {
		_, err = repair.SkipEntry(dir, found.Entry-1, hash, force, force)
		if err == nil || !strings.Contains(err.Error(), "has applied entry") {
			t.Errorf("of what is in its snapshot: %v", err)
		}
	}
}
