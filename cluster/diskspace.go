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
	"berth/loop"
)

// How free space on the disk is kept.
const (
	spaceTick     = time.Second
	compactEvery  = time.Minute // While the disk is full.
	trailingShort = 1024        // Entries kept behind a snapshot while the disk is full.
	fullRetry     = 10 * time.Second
)

// errStarved is returned by Close when raft cannot be shut down.
var errStarved = errors.New("the disk is full: raft waits for free space to store its term")

// spaceCheck is one measurement of the disk. Its methods decide from its fields
// alone.
type spaceCheck struct {
	free  int64 // Bytes of the file system.
	slack int64 // Unused bytes in the log's file.
	size  int64 // Bytes of the ballast.
	held  bool  // The ballast exists.
	full  bool  // The previous check found the disk full.
}

// short reports whether the disk is too full for commands that grow the state:
// whether less than another ballast is free beside the ballast. A full disk counts
// as full until a quarter more is free.
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

// restores reports whether there is space to make the ballast again.
func (l spaceCheck) restores() bool { return !l.held && l.size > 0 && l.free >= l.size+l.size/4 }

// diskSpace watches the free space of the data directory's disk. While the disk is
// full, a leader refuses commands that grow the state, so that space remains for
// those that shrink it. When a write of raft finds no space, the ballast is
// dropped.
type diskSpace struct {
	c       *Cluster
	ballast *disk.Ballast
	wake    chan struct{} // Signals that a write found no space; of size one.
	needed  atomic.Bool   // The ballast was not enough.

	mu        sync.Mutex
	full      bool
	free      int64
	others    map[compute.NodeID]bool // Servers that reported a full disk to this leader.
	compacted time.Time               // When the log was last compacted.
}

func newDiskSpace(c *Cluster) *diskSpace {
	return &diskSpace{c: c, wake: make(chan struct{}, 1), others: make(map[compute.NodeID]bool)}
}

// open opens the ballast and lets the stores drop it.
func (d *diskSpace) open() (err error) {
	if d.ballast, err = disk.OpenBallast(d.c.dir.Root(), d.c.cfg.Ballast); err != nil {
		return err
	}
	d.c.replica.Log.OnNoSpace(d.dropBallast)
	d.c.replica.Snapshots.OnNoSpace(d.dropForSnapshot)
	d.check()
	return nil
}

// dropBallast drops the ballast. Any write of raft may call it.
func (d *diskSpace) dropBallast() bool {
	dropped := d.ballast.Drop()
	if dropped {
		d.c.logger.Error("disk full, ballast dropped", "err", d.describe())
	} else {
		d.needed.Store(true)
	}
	select {
	case d.wake <- struct{}{}:
	default: // A signal is waiting already.
	}
	return dropped
}

// dropForSnapshot is dropBallast for a snapshot, which may need more than the
// ballast: everything that can be removed is, for the next attempt.
func (d *diskSpace) dropForSnapshot() bool {
	d.needed.Store(true)
	return d.dropBallast()
}

// run checks the disk until ctx ends.
func (d *diskSpace) run(ctx context.Context) error {
	loop.OnChange(ctx, spaceTick, func() <-chan struct{} { return d.wake }, func() {
		if d.needed.Swap(false) {
			d.c.raftNode.dropDamaged()
		}
		if d.check() {
			d.reclaim()
			d.handOverToSpace(ctx)
		}
	})
	return nil
}

// check measures the disk, makes the ballast if there is space, and reports whether
// the disk is full.
func (d *diskSpace) check() bool {
	size := d.ballast.Size()
	if size == 0 {
		return false
	}
	free, _, err := d.c.cfg.freeSpace(d.c.dir.Root())
	if err != nil {
		d.c.logger.Warn("free disk space unknown", "err", err)
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
		d.c.logger.Error("disk full", "err", d.describe())
	case now.full && !full:
		d.c.logger.Info("disk has free space again")
	}
	return full
}

// isFull reports whether this node's disk is full.
func (d *diskSpace) isFull() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.full
}

// note records another server's report to this leader about its disk.
func (d *diskSpace) note(id compute.NodeID, full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if full {
		d.others[id] = true
	} else {
		delete(d.others, id)
	}
}

// describe returns an error that says how full the disk is and what to do.
func (d *diskSpace) describe() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	need := d.ballast.Size()
	if !d.ballast.Held() {
		need *= 2
	}
	return fmt.Errorf("%d MiB are free on the file system of %s, %d MiB are needed: free some space there",
		d.free>>20, d.c.dir.Root(), need>>20+1)
}

// reclaim compacts the log and removes old snapshots, at most once a minute. The
// entries that a snapshot covers are kept for followers that are behind, which can
// receive the snapshot instead.
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

// compact takes a snapshot, unless that would free few entries, and keeps only the
// newest one.
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

// withTrailing makes raft keep fewer entries behind the snapshots that do takes.
// Other settings may change meanwhile.
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

// handOverToSpace transfers leadership to a voter with free disk space, once.
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
		d.c.logger.Info("transferring leadership to a node with free disk space", "node", id)
		err = d.c.transfers.transferOnce(func() raft.Future { return d.c.raft.LeadershipTransferToServer(s.ID, s.Address) })
		if err != nil {
			d.c.logger.Warn("leadership not transferred", "err", err)
		}
		return
	}
}

// admit returns the proposals of a batch that may be committed now, and refuses
// those that grow the state while the disk is full.
func (d *diskSpace) admit(batch []*proposal) []*proposal {
	refusal := d.refusal()
	if refusal == nil {
		return batch
	}
	return slices.DeleteFunc(batch, func(p *proposal) bool {
		if d.c.cfg.AllowedOnFullDisk(p.frame) {
			return false
		}
		p.done <- outcome{Err: refusal}
		return true
	})
}

// refusal returns why this leader commits no command that grows the state: its own
// disk is full, or too few voters have space; nil when it does.
func (d *diskSpace) refusal() *compute.Error {
	d.mu.Lock()
	full, others := d.full, len(d.others)
	d.mu.Unlock()
	if !full && others == 0 {
		return nil
	}
	if full {
		e := compute.Errorf(compute.CodeNoSpace, "The disk of node %s is full: %w. "+
			"Reads, stops and deletes still work.", d.c.cfg.Name, d.describe())
		return e.Named("no_space").Retry(fullRetry)
	}
	voters, writable := 0, 0
	d.mu.Lock()
	for _, s := range d.c.servers() {
		if s.Suffrage == raft.Voter {
			voters++
			if !d.others[raftconf.NodeOf(s.ID)] {
				writable++
			}
		}
	}
	d.mu.Unlock()
	if writable >= raftconf.Quorum(voters) {
		return nil
	}
	e := compute.Errorf(compute.CodeNoSpace, "The disks of %d of %d voting nodes are full: free some space there. "+
		"Reads, stops and deletes still work.", voters-writable, voters)
	return e.Named("no_space").Retry(fullRetry)
}

// dropDamaged empties the quarantine to make free space, unless no other
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
