package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"berth/api/client"
	"berth/bench/faults/world"
	"berth/loop"
)

// How long to wait for a node that may be about to exit.
const (
	endPoll     = 50 * time.Millisecond
	endsWithin  = time.Second // A process whose threads the tracer has released.
	settleLimit = 30 * time.Second
)

// A node that finds its replica damaged may exit and is started again, as a
// supervisor would. A node that exits this often refuses to start.
const (
	damagedStarts = 5
	damagedPause  = time.Second
)

// hangLimit is how long a node waits for a write if the disks of the other
// nodes hang as well. After that it may exit.
const hangLimit = 30 * time.Second

// strace injections into the system calls that sync a file.
const (
	syncsLate  = "fdatasync,fsync:delay_exit=200000" // By 200 ms.
	syncsLater = "fdatasync,fsync:delay_exit=500000"
	syncsFail  = "fdatasync,fsync:error=EIO"
	syncsHang  = "fdatasync,fsync:delay_exit=600000000" // Until the repair.
)

// appendsFull fails writes to the log's file as a full file system does,
// however small they are. With nowAndThen it fails most of them. The follower
// then accepts entries again while more are in flight, and a pipelining leader
// loses its position.
const (
	appendsFull = "pwrite64:error=ENOSPC"
	nowAndThen  = ":when=2+5" // The second call of each thread, and each fifth after it.
)

// The report has write latencies for these faults.
const (
	leaderSlowDisk   = "leader-slow-disk"
	followerSlowDisk = "follower-slow-disk"
)

// catchUpLimit is how long a follower may take to catch up with the others.
const catchUpLimit = 60 * time.Second

// diskNemeses break disks.
func diskNemeses() []nemesis {
	traced := func(pick func(*breaker) *world.Node, inject string) injectFunc {
		return func(ctx context.Context, b *breaker) (repairFunc, error) {
			n := pick(b)
			b.note, b.slow = n.Name, n.Name
			return b.trace(ctx, n, inject)
		}
	}
	leader := func(b *breaker) *world.Node { return b.leader }
	return []nemesis{
		{"power-cut", seconds(0, 2), func(ctx context.Context, b *breaker) (repairFunc, error) {
			return b.world.StartAll, b.world.PowerCut(ctx)
		}},
		{leaderSlowDisk, seconds(3, 8), traced(leader, syncsLater)},
		{followerSlowDisk, seconds(3, 8), traced((*breaker).follower, syncsLater)},
		{"leader-failing-disk", seconds(2, 5), traced(leader, syncsFail)},
		{"follower-failing-disk", seconds(2, 5), traced((*breaker).follower, syncsFail)},
		{"follower-full-log", seconds(5, 10), func(ctx context.Context, b *breaker) (repairFunc, error) {
			return b.refuseAppends(ctx, b.follower())
		}},
		{"leader-hanging-disk", seconds(3, 6), traced(leader, syncsHang)},
		{"follower-hanging-disk", seconds(3, 6), traced((*breaker).follower, syncsHang)},
		{"slow-disks", seconds(3, 8), func(ctx context.Context, b *breaker) (repairFunc, error) {
			return b.traceAll(ctx, syncsLate, func(ended int) {
				if ended > 0 {
					b.violate("slow disks", "cluster", "%d nodes ended while all disks were slow", ended)
				}
			})
		}},
		{"hanging-disks", seconds(4, 4), func(ctx context.Context, b *breaker) (repairFunc, error) {
			return b.traceAll(ctx, syncsHang, func(ended int) {
				if all := len(b.world.Nodes); b.hold < hangLimit && !quorum(all-ended, all) {
					b.violate("hanging disks", "cluster", "%d of %d nodes ended while all disks hung for %v: no quorum was left",
						ended, all, b.hold)
				}
			})
		}},
		{"full-disk", seconds(3, 8), func(_ context.Context, b *breaker) (repairFunc, error) {
			n := b.any()
			b.note = n.Name
			return b.fill(n)
		}},
		{"full-disks", seconds(5, 8), func(_ context.Context, b *breaker) (repairFunc, error) {
			return b.fill(b.world.Nodes...)
		}},
		{"damaged-file", seconds(0, 1), damageFile},
	}
}

// trace interferes with system calls of a node. The node may exit because of
// it.
func (b *breaker) trace(ctx context.Context, n *world.Node, inject string) (repairFunc, error) {
	stop, err := n.Trace(ctx, inject)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		ended, _ := n.Ended()
		held := !ended && !n.Running()
		hit, err := stop()
		if !hit {
			b.miss()
		}
		// A process whose thread the tracer holds in the kernel goes on, or
		// exits, only after the tracer has released it.
		if held {
			return errors.Join(err, n.Kill(ctx), n.Start(ctx))
		}
		loop.Sleep(ctx, endsWithin) // It may be about to exit.
		err = errors.Join(err, b.settle(ctx, n))
		if ended, _ := n.Ended(); ended {
			b.note += ": it ended"
		}
		return errors.Join(err, restart(n)(ctx))
	}, nil
}

// refuseAppends makes the appends of a node fail while its process runs on, as
// on a full disk. Once appends succeed again, the node must catch up without a
// restart. Raft's leader can stop sending it entries for good while heartbeats
// succeed.
func (b *breaker) refuseAppends(ctx context.Context, n *world.Node) (repairFunc, error) {
	inject := appendsFull
	if b.rng.IntN(2) == 0 {
		inject += nowAndThen
	}
	stop, err := n.Trace(ctx, inject, n.RaftLog())
	if err != nil {
		return nil, err
	}
	b.note = n.Name
	b.recover = func(ctx context.Context) error { return b.catchesUp(ctx, n) }
	return func(ctx context.Context) error {
		hit, err := stop()
		if !hit {
			b.miss()
		}
		loop.Sleep(ctx, endsWithin) // It may be about to exit.
		if ended, how := n.Ended(); ended {
			b.violate("full log", "node "+n.Name, "its process ended: %v", how)
		}
		return errors.Join(err, restart(n)(ctx))
	}, nil
}

// catchesUp waits until a node has applied everything that the others had at
// the call. The error is stuck if it does not.
func (b *breaker) catchesUp(ctx context.Context, n *world.Node) error {
	want := uint64(0)
	for _, other := range b.world.Nodes {
		if index, known := b.index(ctx, other); known && other != n {
			want = max(want, index)
		}
	}
	waiting, cancel := context.WithTimeout(ctx, catchUpLimit)
	defer cancel()
	for {
		at, known := b.index(waiting, n)
		if known && at >= want {
			return ctx.Err()
		}
		if !loop.Sleep(waiting, endPoll) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			b.violate("stays behind", "node "+n.Name,
				"it is at %d (known: %v); when its log was repaired, %v ago, the others were at %d",
				at, known, catchUpLimit, want)
			return stuck{fmt.Errorf("%s stays behind", n.Name)}
		}
	}
}

// index returns the applied index of a node, if it answers.
func (b *breaker) index(ctx context.Context, n *world.Node) (at uint64, known bool) {
	c, err := client.New(client.Config{Addrs: []string{n.URL()}, Token: b.world.RootToken, RetryFor: -1})
	if err != nil {
		return 0, false
	}
	one, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	state, err := c.State(one, false)
	return state.Index, err == nil
}

// traceAll interferes with system calls of all nodes, as if their disks shared
// one storage. judge receives the number of nodes that exited. The fault is
// missed if a node made no such call.
func (b *breaker) traceAll(ctx context.Context, inject string, judge func(ended int)) (repairFunc, error) {
	nodes := append(b.others(), b.leader) // In another order the leader would find the others still writing.
	var stops []func() (bool, error)
	release := func() (everywhere bool, err error) {
		hits, errs := make([]bool, len(stops)), make([]error, len(stops))
		var all sync.WaitGroup
		for i, stop := range stops {
			all.Go(func() { hits[i], errs[i] = stop() })
		}
		all.Wait()
		return !slices.Contains(hits, false), errors.Join(errs...)
	}
	for _, n := range nodes {
		stop, err := n.Trace(ctx, inject)
		if err != nil {
			_, also := release()
			return nil, errors.Join(err, also)
		}
		stops = append(stops, stop)
	}
	return func(ctx context.Context) error {
		everywhere, err := release()
		loop.Sleep(ctx, endsWithin) // They may be about to exit.
		ended := 0
		for _, n := range nodes {
			err = errors.Join(err, b.settle(ctx, n))
			if gone, _ := n.Ended(); gone {
				ended++
			}
		}
		b.note = fmt.Sprintf("%d of %d ended", ended, len(nodes))
		if !everywhere {
			b.miss()
		}
		judge(ended)
		return errors.Join(err, restart(nodes...)(ctx))
	}, nil
}

// quorum reports whether some is a majority of all.
func quorum(some, all int) bool { return some > all/2 }

// settle waits until the node's process answers or has exited. On a busy
// machine an exiting process takes its time.
func (b *breaker) settle(ctx context.Context, n *world.Node) error {
	c, err := client.New(client.Config{Addrs: []string{n.URL()}, RetryFor: -1})
	if err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	for {
		if ended, _ := n.Ended(); ended || c.Ready(waiting) == nil || !loop.Sleep(waiting, endPoll) {
			return ctx.Err()
		}
	}
}

// damageFile kills a node, flips a bit in one of its files or truncates it, and
// starts the node. The node must come back by itself. Its contents must be
// intact, or empty and then copied from the others. Nothing restores the file.
// The comparison of states finds damage that the node accepts silently.
func damageFile(ctx context.Context, b *breaker) (repairFunc, error) {
	n := b.follower()
	if err := n.Kill(ctx); err != nil {
		return nil, err
	}
	what, err := n.Damage(b.rng)
	if err != nil {
		return nil, err
	}
	b.note = n.Name + ", " + what
	aside, err := n.Asides()
	if err != nil {
		return nil, err
	}
	b.recover = func(ctx context.Context) error {
		starts, err := b.comeBack(ctx, n)
		if err != nil {
			return err
		}
		now, err := n.Asides()
		switch {
		case err != nil:
			return err
		case slices.ContainsFunc(now, func(dir string) bool { return !slices.Contains(aside, dir) }):
			b.note += ": it set that aside"
		default:
			b.note += ": it was of no consequence"
		}
		if starts > 1 {
			b.note += fmt.Sprintf(", at start %d", starts)
		}
		return b.checkState(ctx, n)
	}
	return restart(n), nil
}

// comeBack restarts a node that exits on damage, and returns the number of
// starts until it answered. The error is stuck if the node refuses to start.
func (b *breaker) comeBack(ctx context.Context, n *world.Node) (starts int, err error) {
	for starts = 1; ; starts++ {
		if err := b.settle(ctx, n); err != nil {
			return starts, err
		}
		ended, how := n.Ended()
		if !ended {
			return starts, nil
		}
		if starts == damagedStarts {
			said, err := n.LastLogLine("berth: ")
			if err != nil {
				return starts, err
			}
			return starts, stuck{fmt.Errorf("%s: it ended %d times (%w): %s", b.note, starts, how, said)}
		}
		if !loop.Sleep(ctx, damagedPause) {
			return starts, ctx.Err()
		}
		if err := n.Start(ctx); err != nil {
			return starts, err
		}
	}
}

// checkState has a node check its own replica. A node that does not answer is
// awaited elsewhere.
func (b *breaker) checkState(ctx context.Context, n *world.Node) error {
	c, err := client.New(client.Config{Addrs: []string{n.URL()}, Token: b.world.RootToken, RetryFor: settleLimit})
	if err != nil {
		return err
	}
	state, err := c.State(ctx, true)
	if err == nil && state.Detail != "" {
		b.violate("invariant", "node "+n.Name, "%s: %s", b.note, state.Detail)
	}
	return ctx.Err()
}
