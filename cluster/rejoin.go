package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"berth/cluster/datadir"
	"berth/cluster/disk"
	"berth/cluster/raftconf"
	"berth/cluster/replica"
	"berth/cluster/transport"
	"berth/compute"
	"berth/loop"
)

// A server with a damaged replica has lost acknowledged entries and its votes. So
// it does not start raft. It asks the leader, through any server, to take its
// vote. Once that is committed, which needs a quorum of the others, it sets the
// replica aside and rejoins with an empty one, as a standby. DESIGN.md proves that
// this is safe.

// Limits of a rejoin.
const (
	rejoinFor   = time.Minute // How long a server asks before it gives up.
	rejoinPause = 500 * time.Millisecond
	rejoinTry   = 10 * time.Second // One call to the leader.
)

// rejoinRequest asks the leader to take a server's vote.
type rejoinRequest struct {
	Node compute.NodeID `cbor:"1,keyasint"` // The server with the damaged replica.
}

// rejoinAnswer confirms that the server has no vote in a committed configuration.
type rejoinAnswer struct {
	Term  uint64 `cbor:"1,keyasint"`           // In which this was confirmed.
	Index uint64 `cbor:"2,keyasint,omitempty"` // A committed entry at or behind that configuration.
}

// rejoiner is both sides of a rejoin: the server with a damaged replica and the leader that takes its vote.
type rejoiner struct{ *Cluster }

// rejoin replaces a damaged replica by an empty one, once the server has no vote.
// When the other servers cannot take the vote, nothing has changed here, and the
// error has a hint for the operator.
func (c rejoiner) rejoin(ctx context.Context, damage error) error {
	c.logger.Error("replica damaged, waiting to rejoin", "err", damage)
	answer, err := c.awaitReadmission(ctx)
	if err != nil {
		return fmt.Errorf("the replica of this server is damaged: %w; %w", damage, err)
	}
	var aside string
	err = c.withFreeSpace(func() (err error) {
		if err := c.dir.Update(func(r *datadir.Record) { r.CatchUp = answer.Index }); err != nil {
			return err
		}
		aside, err = c.replica.Quarantine.ReplaceDamaged(answer.Term, damage, c.cfg.Now())
		return err
	})
	if err != nil {
		return fmt.Errorf("replace damaged replica: %w", err)
	}
	c.replica.Replaced()
	c.logger.Warn("damaged replica set aside, rejoining with an empty one",
		"term", answer.Term, "err", damage, "path", aside)
	c.replica.Quarantine.Prune()
	return nil
}

// withFreeSpace calls replace, and once more when the disk is full. Before that it
// drops the ballast and empties the quarantine, since the others hold the state.
func (c rejoiner) withFreeSpace(replace func() error) error {
	err := replace()
	if !disk.NoSpace(err) {
		return err
	}
	c.logger.Error("no free disk space for an empty replica", "err", err)
	if ballast, err := disk.OpenBallast(c.dir.Root(), c.cfg.Ballast); err != nil {
		c.logger.Warn("ballast not dropped", "err", err)
	} else {
		ballast.Drop()
	}
	c.replica.Quarantine.PruneTo(replica.KeepNone)
	return replace()
}

// awaitReadmission retries until the leader has taken this server's vote.
func (c rejoiner) awaitReadmission(ctx context.Context) (rejoinAnswer, error) {
	peers := c.dir.Record().Peers
	if len(peers) == 0 {
		return rejoinAnswer{}, replica.ErrAlone()
	}
	asking, cancel := context.WithTimeout(ctx, c.cfg.RejoinFor)
	defer cancel()
	var last error // Error of the newest attempt that was not cut short.
	for {
		answer, err := c.askReadmission(asking, peers)
		if err == nil {
			return answer, nil
		}
		if IsRemoved(err) || errors.Is(err, ErrOutlived) {
			return rejoinAnswer{}, err
		}
		if last == nil || asking.Err() == nil {
			if last == nil || last.Error() != err.Error() {
				c.logger.Warn("rejoin refused, retrying", "err", err)
			}
			last = err
		}
		if loop.Sleep(asking, rejoinPause) {
			continue
		}
		if ctx.Err() != nil {
			return rejoinAnswer{}, ctx.Err()
		}
		return rejoinAnswer{}, errDamagedLost(c.cfg.RejoinFor, last)
	}
}

// errDamagedLost is returned when no leader took the vote of this server in time.
func errDamagedLost(asked time.Duration, reason error) error {
	return compute.Errorf(compute.CodeConflict,
		"No leader took its vote within %s (%w), so it cannot rejoin with an empty replica: a majority of the voters "+
			"must hold the state, and this one has lost it. Start the other servers and then this one again. "+
			"When most of the voters "+
			"are damaged or lost for good, stop all of them and run berth admin raft recover on the one that is intact, "+
			"or restore a backup with berth admin snapshot restore.", asked, reason)
}

// readmissionReply is one server's answer.
type readmissionReply struct {
	id  compute.NodeID
	st  status
	err error
}

// askReadmission finds the leader and asks it once.
func (c rejoiner) askReadmission(ctx context.Context, peers []datadir.Peer) (rejoinAnswer, error) {
	replies := c.askPeers(ctx, peers)
	if err := readmissionVerdict(replies, c.Epoch()); err != nil {
		return rejoinAnswer{}, err
	}
	// The newest term first, the leader's own answer before others.
	slices.SortStableFunc(replies, func(a, b readmissionReply) int {
		return cmp.Or(cmp.Compare(b.st.Term, a.st.Term), byBool(b.st.Leader == b.id, a.st.Leader == a.id))
	})
	errs := []error{errNoLeader()}
	for _, r := range replies {
		switch {
		case r.err != nil:
			errs = append(errs, fmt.Errorf("server %s: %w", r.id, r.err))
		case r.st.Leader.IsZero():
			errs = append(errs, fmt.Errorf("server %s knows no leader", r.id))
		default:
			return c.askVoteTaken(ctx, r.id)
		}
	}
	return rejoinAnswer{}, errors.Join(errs...)
}

// askVoteTaken asks the leader through a server.
func (c rejoiner) askVoteTaken(ctx context.Context, via compute.NodeID) (rejoinAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, rejoinTry)
	defer cancel()
	var answer rejoinAnswer
	data, err := c.Call(ctx, via, methodRejoin, c.codec.Marshal(rejoinRequest{Node: c.id}))
	if err != nil {
		return answer, err
	}
	if err := c.codec.Unmarshal(data, &answer); err != nil {
		return answer, err
	}
	if answer.Index == 0 {
		return answer, compute.Errorf(compute.CodeUnavailable,
			"The leader's version does not report how far this server has to catch up: upgrade the others first.")
	}
	return answer, nil
}

// askPeers asks all known servers for their status.
func (c rejoiner) askPeers(ctx context.Context, peers []datadir.Peer) []readmissionReply {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	replies := make(chan readmissionReply, len(peers)) // Buffered for all, so that none blocks.
	for _, p := range peers {
		c.work.Go(func() {
			st, err := c.healthReport.status(ctx, p.ID)
			replies <- readmissionReply{p.ID, st, err}
		})
	}
	all := make([]readmissionReply, 0, len(peers))
	for range peers {
		all = append(all, <-replies)
	}
	return all
}

// readmissionVerdict returns an error after which no retry helps. A server in a later
// epoch alone is not such an error: it may be a stray one, started from a backup for a
// test. It counts only if the servers of this epoch that answer know no leader and are
// too few to elect one.
func readmissionVerdict(replies []readmissionReply, own uint64) error {
	same, led, outlived := 0, false, false
	for _, r := range replies {
		if IsRemoved(r.err) {
			return r.err
		}
		if e, ok := errors.AsType[transport.EpochError](r.err); ok && uint64(e) > own {
			outlived = true
		}
		if r.err == nil {
			same++
			led = led || !r.st.Leader.IsZero()
		}
	}
	if outlived && !led && same < raftconf.Quorum(len(replies)+1) {
		return ErrOutlived
	}
	return nil
}

// byBool orders booleans: false before true.
func byBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
