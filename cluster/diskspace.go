package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/disk"
	"berth/cluster/raftconf"
	"berth/cluster/replica"
	"berth/compute"
)

// How room on the disk is kept.
const (
	spaceTick     = time.Second
	compactEvery  = time.Minute // While the disk is full.
	trailingShort = 1024        // Entries kept behind a snapshot while it is.
	fullRetry     = 10 * time.Second
)

// errStarved is why a node cannot be closed in order.
var errStarved = errors.New("the disk is full: raft waits for room to store its term")

// look is what one look at the disk found. It decides alone from what it holds.
type spaceCheck struct {
	free  int64 // Bytes of the file system.
	slack int64 // Bytes inside of the log's file that entries take before it grows.
	size  int64 // Of the ballast.
	held  bool  // The ballast is there.
	full  bool  // As of the look before.
}

// short reports whether the disk is too full for what makes the state grow:
// when it leaves less than the ballast, beside the ballast. What was full needs
// a quarter more to be so no longer.
func (l spaceCheck) short() bool {
	need := l.size
	if !l.held {
		need += l.size
	}
	if l.full {
		need += l.size / 4
	}
	return l.free+l.slack < need
}

// restores reports whether there is room to make the ballast again.
func (l spaceCheck) restores() bool { return !l.held && l.size > 0 && l.free >= l.size+l.size/4 }

// room looks after the room on the disk of the data directory. While it is
// short of that a leader refuses what makes the state grow, so that there is
// some left for what makes it smaller; the ballast is given up when a write of
// raft's finds none at all.
type diskSpace struct {
	c       *Cluster
	ballast *disk.Ballast
	wake    chan struct{} // Signals that a write found no room; of size one.
	needed  atomic.Bool   // Some was not to be had from the ballast.

	mu        sync.Mutex
	full      bool
	free      int64
	others    map[compute.NodeID]bool // Servers whose disks are full, as they told this leader.
	compacted time.Time               // When the log was last compacted for room.
}

func newDiskSpace(c *Cluster) *diskSpace {
	return &diskSpace{c: c, wake: make(chan struct{}, 1), others: make(map[compute.NodeID]bool)}
}

// open finds the ballast and has the stores ask for its room.
func (d *diskSpace) open() (err error) {
	if d.ballast, err = disk.OpenBallast(d.c.dir.Root(), d.c.cfg.Ballast); err != nil {
		return err
	}
	d.c.replica.Log.Relieve(d.dropBallast)
	d.c.replica.Snapshots.Relieve(d.dropForSnapshot)
	d.check()
	return nil
}

// relieve gives the ballast up. Any write of raft's may call it.
func (d *diskSpace) dropBallast() bool {
	dropped := d.ballast.Drop()
	if dropped {
		d.c.logger.Error("the disk is full: its ballast was given up", "err", d.describe())
	} else {
		d.needed.Store(true)
	}
	select {
	case d.wake <- struct{}{}:
	default: // A signal is waiting already.
	}
	return dropped
}

// relieveSnapshot is relieve for a snapshot, which may take more than any ballast:
// whatever can go makes room for the next try.
func (d *diskSpace) dropForSnapshot() bool {
	d.needed.Store(true)
	return d.dropBallast()
}

// run looks at the disk until ctx ends.
func (d *diskSpace) run(ctx context.Context) error {
	ticker := time.NewTicker(spaceTick)
	defer ticker.Stop()
	for {
		if d.needed.Swap(false) {
			d.c.raftNode.dropDamaged()
		}
		if d.check() {
			d.reclaim()
			d.handOverToSpace(ctx)
		}
		select {
		case <-ticker.C:
		case <-d.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// look looks once, makes the ballast where there is room, and reports whether
// the disk is full.
func (d *diskSpace) check() bool {
	size := d.ballast.Size()
	if size == 0 {
		return false
	}
	free, _, err := d.c.cfg.freeSpace(d.c.dir.Root())
	if err != nil {
		d.c.logger.Warn("room on the disk not known", "err", err)
		return d.isFull()
	}
	now := spaceCheck{free: free, slack: d.c.replica.Log.Slack(), size: size, held: d.ballast.Held(), full: d.isFull()}
	if now.restores() {
		if err := d.ballast.Make(); err != nil {
			d.c.logger.Warn("ballast not made", "err", err)
		} else {
			now.held, now.free = true, now.free-size
		}
	}
	full := now.short()
	d.mu.Lock()
	d.full, d.free = full, now.free
	d.mu.Unlock()
	d.c.metrics.showSpace(now.free, now.held, size, full)
	switch {
	case full && !now.full:
		d.c.logger.Error("the disk is full", "err", d.describe())
	case now.full && !full:
		d.c.logger.Info("the disk has room again")
	}
	return full
}

// isFull reports whether this node's disk is short of room.
func (d *diskSpace) isFull() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.full
}

// note keeps what another server told this leader of its disk.
func (d *diskSpace) note(id compute.NodeID, full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if full {
		d.others[id] = true
	} else {
		delete(d.others, id)
	}
}

// words say how full the disk is and what to do about it.
func (d *diskSpace) describe() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	need := d.ballast.Size()
	if !d.ballast.Held() {
		need *= 2
	}
	return fmt.Errorf("%d MiB are free on the file system of %s, %d MiB are needed: make room there",
		d.free>>20, d.c.dir.Root(), need>>20+1)
}

// makeRoom has the log compacted and old snapshots removed, at most once a
// minute: entries that a snapshot covers are kept for followers that are
// behind, which can be given the snapshot instead.
func (d *diskSpace) reclaim() {
	now := time.Now() //nolint:forbidigo // A stopwatch.
	d.mu.Lock()
	due := d.compacted.IsZero() || now.Sub(d.compacted) > compactEvery
	if due {
		d.compacted = now
	}
	d.mu.Unlock()
	if !due {
		return
	}
	if err := d.compact(); err != nil {
		d.c.logger.Warn("log not compacted", "err", err)
	}
	d.c.replica.Quarantine.PruneTo(0)
}

// compact makes a snapshot, unless it would let few entries go, and keeps only
// the newest.
func (d *diskSpace) compact() error {
	first, err := d.c.replica.Log.FirstIndex()
	if err != nil {
		return err
	}
	if last := d.c.raft.LastIndex(); first > 0 && last-first > 2*trailingShort {
		err := d.c.raftNode.withTrailing(trailingShort, func() error { return d.c.raft.Snapshot().Error() })
		if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
			return fmt.Errorf("snapshot: %w", err)
		}
	}
	return d.c.replica.Snapshots.KeepNewest()
}

// withTrailing has raft keep so many entries behind snapshots that are made by
// do, which may take long: meanwhile other settings may change.
func (c raftNode) withTrailing(entries uint64, do func() error) error {
	var usual uint64
	err := c.reloadRaft(func(now *raft.ReloadableConfig) { usual, now.TrailingLogs = now.TrailingLogs, entries })
	if err != nil {
		return fmt.Errorf("keep fewer entries: %w", err)
	}
	err = do()
	if err := c.reloadRaft(func(now *raft.ReloadableConfig) { now.TrailingLogs = usual }); err != nil {
		return fmt.Errorf("keep more entries: %w", err)
	}
	return err
}

// giveLeadership hands leadership to a voter whose disk has room, once.
func (d *diskSpace) handOverToSpace(ctx context.Context) {
	if !d.c.IsLeader() || d.c.transferred.Load() {
		return
	}
	for _, s := range d.c.servers() {
		id := raftconf.NodeOf(s.ID)
		d.mu.Lock()
		full := d.others[id]
		d.mu.Unlock()
		if id == d.c.id || s.Suffrage != raft.Voter || full {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, statusTimeout)
		st, err := d.c.healthReport.status(asking, id)
		cancel()
		if err != nil || st.Full || st.Last+caughtUp < d.c.raft.LastIndex() {
			continue
		}
		d.c.logger.Info("leadership goes to a node whose disk has room", "node", id)
		err = d.c.transfers.transferOnce(func() raft.Future { return d.c.raft.LeadershipTransferToServer(s.ID, s.Address) })
		if err != nil {
			d.c.logger.Warn("leadership not handed over", "err", err)
		}
		return
	}
}

// admit returns the proposals of a batch that may be committed now. The others
// are refused: there is no room for what makes the state grow.
func (d *diskSpace) admit(batch []*proposal) []*proposal {
	refusal := d.refusal()
	if refusal == nil {
		return batch
	}
	return slices.DeleteFunc(batch, func(p *proposal) bool {
		if d.c.cfg.Relieves(p.frame) {
			return false
		}
		p.done <- outcome{Err: refusal}
		return true
	})
}

// refusal returns why this leader commits nothing that makes the state grow:
// its own disk is full, or too few voters have room; nil when it does.
func (d *diskSpace) refusal() *compute.Error {
	d.mu.Lock()
	full, others := d.full, len(d.others)
	d.mu.Unlock()
	if !full && others == 0 {
		return nil
	}
	if full {
		e := compute.Errorf(compute.CodeNoSpace, "The disk of node %s is full: %w. "+
			"What is stored can be read, stopped and deleted.", d.c.cfg.Name, d.describe())
		return e.Named("no_space").Retry(fullRetry)
	}
	voters, roomy := 0, 0
	d.mu.Lock()
	for _, s := range d.c.servers() {
		if s.Suffrage == raft.Voter {
			voters++
			if !d.others[raftconf.NodeOf(s.ID)] {
				roomy++
			}
		}
	}
	d.mu.Unlock()
	if roomy >= raftconf.Quorum(voters) {
		return nil
	}
	e := compute.Errorf(compute.CodeNoSpace, "The disks of %d of %d voting nodes are full: make room there. "+
		"What is stored can be read, stopped and deleted.", voters-roomy, voters)
	return e.Named("no_space").Retry(fullRetry)
}

// giveDamagedUp empties the quarantine to make free space, unless no other
// server is known to hold the state.
func (c raftNode) dropDamaged() {
	if c.othersHold() {
		c.replica.Quarantine.PruneTo(replica.KeepNone)
	}
}

// othersHold reports whether other servers hold the state too: one of them leads,
// or this one does and has other voters.
func (c raftNode) othersHold() bool {
	leader, known := c.Leader()
	return known && (leader != c.id || slices.ContainsFunc(c.servers(), func(s raft.Server) bool {
		return s.Suffrage == raft.Voter && raftconf.NodeOf(s.ID) != c.id
	}))
}
