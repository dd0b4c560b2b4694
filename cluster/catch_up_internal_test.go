package cluster

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"

	"berth/cluster/datadir"
)

// TestCatchingUpWhileTheLogIsCompacted has a server with an empty replica catch
// up while a full disk makes it retain fewer entries. Afterwards it stands for
// election like any other, and retains as many entries.
func TestCatchingUpWhileTheLogIsCompacted(t *testing.T) {
	c := newCluster(Config{DataDir: t.TempDir()}.withDefaults())
	c.id = letter('A')
	var err error
	if c.dir, err = datadir.Open(c.cfg.DataDir); err != nil {
		t.Fatal(err)
	}
	defer c.dir.Close()
	if err := c.dir.Update(func(r *datadir.Record) { r.CatchUp = 7 }); err != nil {
		t.Fatal(err)
	}
	store := raft.NewInmemStore()
	_, transport := raft.NewInmemTransport("")
	c.raft, err = raft.NewRaft(c.catchUp.raftConfigAtStart(), &raft.MockFSM{}, store, store, raft.NewInmemSnapshotStore(), transport)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.raft.Shutdown().Error(); err != nil {
			t.Error(err)
		}
	}()
	err = c.raftNode.withTrailing(trailingShort, func() error {
		if got := c.raft.ReloadableConfig().TrailingLogs; got != trailingShort {
			t.Errorf("it keeps %d entries, want %d", got, trailingShort)
		}
		if !c.catchUp.participate() {
			return errors.New("it takes no part")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got, usual := c.raft.ReloadableConfig(), c.raftNode.raftConfig()
	if got.HeartbeatTimeout != usual.HeartbeatTimeout || got.ElectionTimeout != usual.ElectionTimeout {
		t.Errorf("its timeouts are %s and %s, want %s and %s",
			got.HeartbeatTimeout, got.ElectionTimeout, usual.HeartbeatTimeout, usual.ElectionTimeout)
	}
	if got.TrailingLogs != usual.TrailingLogs {
		t.Errorf("it keeps %d entries, want %d", got.TrailingLogs, usual.TrailingLogs)
	}
}
