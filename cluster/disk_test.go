package cluster_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"
	"golang.org/x/sys/unix"

	"berth/cluster"
)

// faultyDisk is a log store whose appends hang or fail on demand.
type faultyDisk struct {
	raft.LogStore
	hang   atomic.Bool
	fail   atomic.Pointer[error]
	thaw   chan struct{}
	freeze sync.Once
}

func (d *faultyDisk) StoreLogs(logs []*raft.Log) error {
	if err := d.fail.Load(); err != nil {
		return *err
	}
	if d.hang.Load() {
		<-d.thaw
	}
	return d.LogStore.StoreLogs(logs)
}

// mustFaultyFleet starts n peers with faulty disks. It returns these by peer,
// and what tells whose process was to end.
func mustFaultyFleet(t *testing.T, n int) (*fleet, map[*peer]*faultyDisk, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var ended []string
	disks := map[*peer]*faultyDisk{}
	var f *fleet
	var disk *faultyDisk // Of the peer that is started now.
	f = newFleet(t, func(c *cluster.Config) {
		name := c.Name
		disk = &faultyDisk{thaw: make(chan struct{})}
		c.WrapStore(func(s raft.LogStore) raft.LogStore {
			disk.LogStore = s
			return disk
		})
		c.Fatal = func(error) {
			mu.Lock()
			ended = append(ended, name)
			mu.Unlock()
			f.wire.isolate(name, true) // As the end of its process would.
		}
	})
	for range n {
		disks[f.mustAdd()] = disk
	}
	f.awaitVoters(n)
	return f, disks, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), ended...)
	}
}

func TestLeaderWhoseDiskHangsEnds(t *testing.T) {
	f, disks, ended := mustFaultyFleet(t, 3)
	leader := f.leader()
	disk := disks[leader]
	disk.hang.Store(true)
	defer disk.freeze.Do(func() { close(disk.thaw) })
	f.follower(leader).mustPropose(t, toyCommand{Op: "a", Key: "k", Value: 1})
	if got := ended(); len(got) != 1 || got[0] != leader.cfg.Name {
		t.Errorf("%v ended, the leader is %s", got, leader.cfg.Name)
	}
	disk.freeze.Do(func() { close(disk.thaw) })
	if err := leader.stop(); err == nil {
		t.Error("Run of the leader reports nothing")
	}
}

func TestFollowerWhoseDiskFailsCatchesUp(t *testing.T) {
	f, disks, ended := mustFaultyFleet(t, 3)
	leader := f.leader()
	slow := f.follower(leader)
	full := error(unix.ENOSPC)
	disks[slow].fail.Store(&full)
	_, index := leader.mustPropose(t, toyCommand{Op: "a", Key: "k", Value: 1})
	for range 20 {
		_, index = leader.mustPropose(t, toyCommand{Op: "b", Key: "k", Value: 2})
	}
	disks[slow].fail.Store(nil)
	eventually(t, "the follower catches up", func() bool { return slow.CommitIndex() >= index })
	if got := slow.mustRead(t, "k"); got != 2 {
		t.Errorf("it reads %d", got)
	}
	if got := ended(); len(got) != 0 {
		t.Errorf("%v ended", got)
	}
}

func TestLeaderWhoseDiskFailsStepsDown(t *testing.T) {
	f, disks, _ := mustFaultyFleet(t, 3)
	leader := f.leader()
	full := errors.New("no space left")
	disks[leader].fail.Store(&full)
	f.follower(leader).mustPropose(t, toyCommand{Op: "a", Key: "k", Value: 1})
	disks[leader].fail.Store(nil)
	if got := leader.mustRead(t, "k"); got != 1 {
		t.Errorf("it reads %d", got)
	}
	if got := leader.fsm.applied(); got != 1 {
		t.Errorf("%d operations were applied", got)
	}
}
