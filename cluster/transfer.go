package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/raftconf"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/loop"
)

// Limits of transfers of leadership.
const (
	transferTimeout = 3 * time.Second // For the one attempt per process.
	transferStuck   = 10 * time.Second
	transferTick    = time.Second // How often a transfer that may be stuck is checked.
	transferProbe   = time.Second // For raft to accept an entry, which shows that it is not stuck.
)

// errTransferSpent refuses a second attempt.
var errTransferSpent = errors.New("this process has tried to hand leadership over before")

// HandOver transfers leadership if this node leads, so that the other servers need
// no election when it stops. A process tries this once, here or in Transfer; later
// calls do nothing.
func (c *Cluster) HandOver() {
	if !c.IsLeader() || len(c.servers()) < 2 {
		return
	}
	err := c.transfers.transferOnce(func() raft.Future { return c.raft.LeadershipTransfer() })
	if err != nil && !errors.Is(err, errTransferSpent) {
		c.logger.Warn("leadership not transferred", "err", err)
	}
}

// transfers hands leadership over.
type transfers struct{ *Cluster }

// transferOnce starts a transfer of leadership with begin and waits for its end.
// A process does it once: a second attempt with a stuck follower can make raft
// refuse every entry (hashicorp/raft issue 696).
func (c transfers) transferOnce(begin func() raft.Future) error {
	if c.transferred.Swap(true) {
		return errTransferSpent
	}
	done := make(chan error, 1)
	go func() { done <- begin().Error() }()
	timer := time.NewTimer(transferTimeout)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("no answer within %s", transferTimeout)
	}
}

// transferRequest asks the leader to transfer leadership to a voter.
type transferRequest struct {
	To compute.NodeID `cbor:"1,keyasint,omitempty"` // Zero for the one that has kept up best.
}

// Transfer makes the leader, on any node, transfer leadership to a voter, or with
// a zero id to the one that has kept up best, and returns the new leader. It does
// nothing when that voter leads. It refuses with not_found and the conflicts
// "not_a_voter", "nobody_to_lead", "transfer_failed", and "transfer_spent" when the
// leader's process has tried it before.
func (c *Cluster) Transfer(ctx context.Context, to compute.NodeID) (compute.NodeID, error) {
	leader, known := c.Leader()
	switch {
	case !known:
		return compute.NodeID{}, errNoLeader()
	case leader == to:
		return leader, nil
	case leader == c.id:
		return c.transfers.transfer(ctx, to)
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout+2*statusTimeout)
	defer cancel()
	data, err := c.Call(ctx, leader, methodTransfer, c.codec.Marshal(transferRequest{to}))
	if err != nil {
		return compute.NodeID{}, err
	}
	var now compute.NodeID
	return now, c.codec.Unmarshal(data, &now)
}

// handleTransfer answers another server that was asked for a transfer.
func (c transfers) handleTransfer(ctx context.Context, _ rpc.Peer, data []byte) ([]byte, error) {
	var req transferRequest
	if err := c.codec.Unmarshal(data, &req); err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "The request cannot be read: %w", err)
	}
	if !c.IsLeader() {
		return nil, errNoLeader()
	}
	now, err := c.transfer(ctx, req.To)
	if err != nil {
		return nil, err
	}
	return c.codec.Marshal(now), nil
}

// transfer transfers this node's leadership.
func (c transfers) transfer(ctx context.Context, to compute.NodeID) (compute.NodeID, error) {
	conflict := func(detail, format string, args ...any) error {
		return compute.Errorf(compute.CodeConflict, format, args...).Named(detail)
	}
	servers := c.servers()
	at := slices.IndexFunc(servers, func(s raft.Server) bool { return s.ID == raftconf.ServerID(to) })
	others := slices.ContainsFunc(servers, func(s raft.Server) bool {
		return s.Suffrage == raft.Voter && s.ID != raftconf.ServerID(c.id)
	})
	switch {
	case to == c.id:
		return c.id, nil
	case !to.IsZero() && at < 0:
		return compute.NodeID{}, compute.Errorf(compute.CodeNotFound, "No server has this identifier.")
	case !to.IsZero() && servers[at].Suffrage != raft.Voter:
		return compute.NodeID{}, conflict("not_a_voter", "The server does not vote, so it cannot lead.")
	case !others:
		return compute.NodeID{}, conflict("nobody_to_lead", "No other server votes: there is nobody to lead.")
	}
	begin := func() raft.Future { return c.raft.LeadershipTransfer() }
	if !to.IsZero() {
		begin = func() raft.Future { return c.raft.LeadershipTransferToServer(servers[at].ID, servers[at].Address) }
	}
	err := c.transferOnce(begin)
	switch {
	case errors.Is(err, errTransferSpent):
		return compute.NodeID{}, conflict("transfer_spent",
			"The leader has handed leadership over, or tried to, since it was started, which it does once: "+
				"restart it to have another one lead.")
	case err != nil:
		return compute.NodeID{}, conflict("transfer_failed",
			"The leader did not get rid of leadership: %w. Restart it to have another one lead.", err)
	}
	c.logger.Info("leadership transferred", "node", to)
	return c.successor(ctx)
}

// successor waits until another server leads.
func (c transfers) successor(ctx context.Context) (compute.NodeID, error) {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	for {
		changed := c.leaders.next()
		if leader, known := c.Leader(); known && leader != c.id {
			return leader, nil
		}
		if err := c.leadership.awaitChange(ctx, changed); err != nil {
			return compute.NodeID{}, errNoLeader()
		}
	}
}

// refusals detects a leader that refuses every entry because a transfer of
// leadership never ends.
type refusals struct {
	mu    sync.Mutex
	since time.Time // When raft first refused since it last took an entry; zero for none.
}

// note records the result of an entry that was given to raft.
func (r *refusals) note(now time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !errors.Is(err, raft.ErrLeadershipTransferInProgress):
		r.since = time.Time{}
	case r.since.IsZero():
		r.since = now
	}
}

// lasted returns for how long every entry was refused.
func (r *refusals) lasted(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() {
		return 0
	}
	return max(now.Sub(r.since), 1)
}

// check probes raft with another entry while entries are refused, and returns an
// error once that has lasted too long.
func (r *refusals) check(leads bool, now func() time.Time, probe func() error) error {
	if r.lasted(now()) == 0 {
		return nil
	}
	if !leads {
		r.note(now(), nil) // Another leader accepts entries.
		return nil
	}
	r.note(now(), probe())
	if took := r.lasted(now()); took > transferStuck {
		return fmt.Errorf("raft has refused every entry for %s: %w", took.Round(time.Second),
			raft.ErrLeadershipTransferInProgress)
	}
	return nil
}

// watchTransfer ends the process when a transfer of leadership is stuck: the node
// would lead and refuse every entry for ever.
func (c transfers) watchTransfer(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	loop.Every(ctx, transferTick, func() {
		err = c.refusals.check(c.IsLeader(), time.Now, func() error { return c.raft.Barrier(transferProbe).Error() })
		if err != nil {
			c.fatal(err)
			cancel()
		}
	})
	return err
}
