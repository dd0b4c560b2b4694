package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sys/unix"

	"berth/cluster"
	"berth/cluster/disk"
	"berth/fault"
)

// faultyDisk is a log store whose appends hang or fail on demand.
type faultyDisk struct {
	raft.LogStore
	hang   atomic.Bool
	fail   atomic.Pointer[error]
	hung   atomic.Int32 // Appends that hang, or have hung.
	thaw   chan struct{}
	freeze sync.Once
}

func (d *faultyDisk) StoreLogs(logs []*raft.Log) error {
	if err := d.fail.Load(); err != nil {
		return *err
	}
	if d.hang.Load() {
		d.hung.Add(1)
		<-d.thaw
	}
	return d.LogStore.StoreLogs(logs)
}

// Probe checks whether the disk hangs.
func (d *faultyDisk) Probe() error {
	if d.hang.Load() {
		<-d.thaw
	}
	return nil
}

// mustFaultyFleet starts n peers with faulty disks. It returns the disks by
// peer, and a function that names the peers whose process was to end.
func mustFaultyFleet(t *testing.T, n int) (*fleet, map[*peer]*faultyDisk, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var ended []string
	disks := map[*peer]*faultyDisk{}
	var f *fleet
	var started *faultyDisk // The peer that is starting.
	f = newFleet(t, func(c *cluster.Config) {
		name := c.Name
		started = &faultyDisk{thaw: make(chan struct{})}
		c.WrapStore(func(s raft.LogStore) raft.LogStore {
			started.LogStore = s
			return started
		})
		c.Fatal = func(error) {
			mu.Lock()
			ended = append(ended, name)
			mu.Unlock()
			f.wire.isolate(name, true) // As the end of its process would.
		}
	})
	for range n {
		disks[f.mustAdd()] = started
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
	hung := disks[leader]
	hung.hang.Store(true)
	defer hung.freeze.Do(func() { close(hung.thaw) })
	f.follower(leader).mustPropose(t, toyCommand{Op: "a", Key: "k", Value: 1})
	if got := ended(); len(got) != 1 || got[0] != leader.cfg.Name {
		t.Errorf("%v ended, the leader is %s", got, leader.cfg.Name)
	}
	hung.freeze.Do(func() { close(hung.thaw) })
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

// TestRefusedAppendsDoNotStopReplication has a follower repeatedly refuse
// appends for a moment while the leader sends it many. With pipelined appends
// about every second such moment would stop its replication for good.
func TestRefusedAppendsDoNotStopReplication(t *testing.T) {
	f, disks, _ := mustFaultyFleet(t, 3)
	leader := f.leader()
	slow := f.follower(leader)
	full := error(unix.ENOSPC)
	rounds := 12
	if fault.Enabled { // The control, with and without the bug.
		rounds = 300
	}
	for round := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		for i := range 4 {
			clients.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					op := toyCommand{Op: fmt.Sprintf("r%d-%d-%d", round, i, n), Key: "k", Value: 1}
					if _, _, err := leader.Propose(ctx, opFrame(op)); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
			})
		}
		<-time.After(20 * time.Millisecond)
		disks[slow].fail.Store(&full)
		<-time.After(20 * time.Millisecond)
		disks[slow].fail.Store(nil)
		<-time.After(20 * time.Millisecond)
		cancel()
		clients.Wait()
		_, index := leader.mustPropose(t, toyCommand{Op: fmt.Sprint("last", round), Key: "k", Value: 2})
		eventually(t, "the follower catches up", func() bool { return slow.CommitIndex() >= index })
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

// TestDisksThatHangTogetherEndNobody pauses the storage of all voters for
// longer than a leader's limit, and then resumes it.
func TestDisksThatHangTogetherEndNobody(t *testing.T) {
	f, disks, ended := mustFaultyFleet(t, 3)
	leader := f.leader()
	for _, d := range disks {
		d.hang.Store(true)
	}
	thaw := func() {
		for _, d := range disks {
			d.hang.Store(false)
			d.freeze.Do(func() { close(d.thaw) })
		}
	}
	defer thaw()
	proposed := make(chan error, 1)
	go func() {
		_, _, err := leader.Propose(t.Context(), opFrame(toyCommand{Op: "a", Key: "k", Value: 1}))
		proposed <- err
	}()
	eventually(t, "the leader's write to hang for long", func() bool {
		return leader.WritePending() > 2*disk.AppendLimitLeader
	})
	thaw()
	if err := <-proposed; err != nil {
		t.Errorf("the write that hung: %v", err)
	}
	for _, p := range f.peers {
		if got := p.mustRead(t, "k"); got != 1 {
			t.Errorf("%s reads %d", p.cfg.Name, got)
		}
	}
	if got := ended(); len(got) != 0 {
		t.Errorf("%v ended", got)
	}
}
