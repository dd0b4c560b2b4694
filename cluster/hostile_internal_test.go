package cluster

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"berth/cluster/datadir"
	"berth/cluster/disk"
	"berth/cluster/transport"
	"berth/compute"
)

// TestVerdictOf checks the report of a server in a later epoch: it counts if
// too few servers are in this epoch.
func TestVerdictOf(t *testing.T) {
	id := func(n byte) compute.NodeID { return compute.NodeID{UUID: compute.UUID{n}} }
	here := func(n byte, leader byte) readmissionReply {
		return readmissionReply{id(n), status{Leader: id(leader)}, nil}
	}
	away := func(n byte) readmissionReply { return readmissionReply{id(n), status{}, errors.New("no route")} }
	later := func(n byte) readmissionReply { return readmissionReply{id(n), status{}, transport.EpochError(3)} }
	for _, test := range []struct {
		name     string
		replies  []readmissionReply
		outlived bool
	}{
		{"nobody answers", []readmissionReply{away(1), away(2)}, false},
		{"a stray one, the others have a leader", []readmissionReply{later(1), here(2, 2), away(3)}, false},
		{"a stray one, the others can elect", []readmissionReply{later(1), here(2, 0), here(3, 0), here(4, 0)}, false},
		{"the restored one is up first", []readmissionReply{later(1), away(2)}, true},
		{"one is left behind like this one", []readmissionReply{later(1), here(2, 0)}, true},
		{"most are there", []readmissionReply{later(1), later(2), here(3, 0), away(4)}, true},
	} {
		if err := readmissionVerdict(test.replies, 2); errors.Is(err, ErrOutlived) != test.outlived {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if err := readmissionVerdict([]readmissionReply{{id(1), status{}, transport.ErrRemoved()}, here(2, 2)}, 2); !IsRemoved(err) {
		t.Errorf("of a removed one: %v", err)
	}
}

// TestReplicaIsReplacedOnAFullDisk makes the creation of an empty replica run
// out of disk space.
func TestReplicaIsReplacedOnAFullDisk(t *testing.T) {
	for _, test := range []struct {
		name  string
		fails []error // In order.
		calls int
	}{
		{"room", []error{nil}, 1},
		{"some after all", []error{unix.ENOSPC, nil}, 2},
		{"none", []error{unix.ENOSPC, unix.ENOSPC}, 2},
		{"another error", []error{unix.EIO}, 1},
	} {
		cfg := Config{DataDir: t.TempDir(), Ballast: 1 << 20, Logger: slog.New(slog.DiscardHandler)}
		c := newCluster(cfg.withDefaults())
		var err error
		if c.dir, err = datadir.Open(cfg.DataDir); err != nil {
			t.Fatal(err)
		}
		defer c.dir.Close()
		c.raftNode.newReplica()
		ballast, err := disk.OpenBallast(cfg.DataDir, cfg.Ballast)
		if err := errors.Join(err, ballast.Make(), os.WriteFile(c.dir.Path(datadir.RaftDir, disk.FileName), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		aside, err := c.replica.Quarantine.SetAside(c.cfg.Now(), errors.New("damaged"))
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		err = c.rejoiner.withFreeSpace(func() error { calls++; return test.fails[calls-1] })
		if want := test.fails[len(test.fails)-1]; calls != test.calls || !errors.Is(err, want) {
			t.Errorf("%s: called %d times, %v", test.name, calls, err)
		}
		for _, path := range []string{aside, filepath.Join(cfg.DataDir, "ballast")} {
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) != (test.calls > 1) {
				t.Errorf("%s: %s: %v", test.name, path, err)
			}
		}
	}
}
