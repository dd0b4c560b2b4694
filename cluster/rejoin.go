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
	"berth/compute"
	"berth/loop"
)

// A server whose replica is damaged has forgotten what it acknowledged, and for
// whom it voted. Before it takes part again it says nothing to raft: it asks the
// leader, through any server, to take its vote from it. Only when that is
// committed, which takes a quorum of the others, it sets the replica aside and
// comes in empty, as a standby like a new one. DESIGN.md says why that is safe.

// Limits of a rejoin.
const (
	rejoinFor   = time.Minute // How long a server asks before it gives up.
	rejoinPause = 500 * time.Millisecond
	rejoinTry   = 10 * time.Second // To have the leader take the vote.
)

// rejoinRequest asks the leader to take a server's vote.
type rejoinRequest struct {
	Node compute.NodeID `cbor:"1,keyasint"` // Whose replica is damaged.
}

// rejoinAnswer says that the server has no vote any more, by a configuration
// that is committed.
type rejoinAnswer struct {
	Term  uint64 `cbor:"1,keyasint"`           // In which that was confirmed.
	Index uint64 `cbor:"2,keyasint,omitempty"` // Committed, and not before that configuration.
}

// rejoiner is both sides of a rejoin: the server with a damaged replica and the leader that takes its vote.
type rejoiner struct{ *Cluster }

// rejoin puts an empty replica in the place of a damaged one, once the server
// has no vote. The error says what to do when the others cannot see to that;
// then nothing has changed here.
func (c rejoiner) rejoin(ctx context.Context, damage error) error {
	c.logger.Error("replica damaged: it takes no part until the others have taken its vote", "err", damage)
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
	c.logger.Warn("damaged replica set aside: this server comes in empty and without a vote",
		"term", answer.Term, "err", fmt.Sprintf("%v; what is left of it is in %s", damage, aside))
	c.replica.Quarantine.Prune()
	return nil
}

// withRoom calls replace, and once more when it found no room: the ballast and what
// was set aside damaged before are given up then, since the others hold the state.
func (c rejoiner) withFreeSpace(replace func() error) error {
	err := replace()
	if !disk.NoSpace(err) {
		return err
	}
	c.logger.Error("the disk is full: there is no room for an empty replica", "err", err)
	if ballast, err := disk.OpenBallast(c.dir.Root(), c.cfg.Ballast); err != nil {
		c.logger.Warn("ballast not given up", "err", err)
	} else {
		ballast.Drop()
	}
	c.replica.Quarantine.PruneTo(replica.KeepNone)
	return replace()
}

// awaitReadmission asks until the leader has taken this server's vote.
func (c rejoiner) awaitReadmission(ctx context.Context) (rejoinAnswer, error) {
	peers := c.dir.Record().Peers
	if len(peers) == 0 {
		return rejoinAnswer{}, replica.ErrAlone()
	}
	asking, cancel := context.WithTimeout(ctx, c.cfg.RejoinFor)
	defer cancel()
	var last error // Of the newest try that had its time.
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
				c.logger.Warn("not readmitted yet", "err", err)
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

// errDamagedLost is why a damaged replica is not healed: no quorum of the
// others confirmed it.
func errDamagedLost(asked time.Duration, reason error) error {
	return compute.Errorf(compute.CodeConflict,
		"No leader took its vote within %s (%w), so it cannot come in empty: what most voters have on disk counts, "+
			"and this one has lost its part. Start the other servers and then this one again. When most of the voters "+
			"are damaged or lost for good, stop all of them and run berth admin raft recover on the one that is intact, "+
			"or restore a backup with berth admin snapshot restore.", asked, reason)
}

// readmissionReply is how one server answered.
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
	slices.SortStableFunc(replies, func(a, b readmissionReply) int { // The newest word first, a leader's own before.
		return cmp.Or(cmp.Compare(b.st.Term, a.st.Term), byBool(b.st.Leader == b.id, a.st.Leader == a.id))
	})
	errs := []error{errNoLeader()}
	for _, r := range replies {
		switch {
		case r.err != nil:
			errs = append(errs, fmt.Errorf("server %s: %w", r.id, r.err))
		case r.st.Leader.IsZero():
			errs = append(errs, fmt.Errorf("server %s answers and knows no leader", r.id))
		default:
			return c.askVoteTaken(ctx, r.id)
		}
	}
	return rejoinAnswer{}, errors.Join(errs...)
}

// askVoteTaken asks a server, which passes it to the leader.
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
			"The leader's version does not say up to where this server has to catch up: upgrade the others first.")
	}
	return answer, nil
}

// askPeers asks all known servers for their status.
func (c rejoiner) askPeers(ctx context.Context, peers []datadir.Peer) []readmissionReply {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	replies := make(chan readmissionReply, len(peers)) // Room for all, so that none blocks.
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

// verdictOf returns an answer after which there is nothing more to ask. That a
// server is in a later epoch is one only when those in this one that answer know
// no leader and are too few to elect one: a stray server's word, of a backup that
// somebody has tried out, does not keep this one out of a cluster that works.
func readmissionVerdict(replies []readmissionReply, own uint64) error {
	same, led, outlived := 0, false, false
	for _, r := range replies {
		if IsRemoved(r.err) {
			return r.err
		}
		if e, ok := errors.AsType[epochError](r.err); ok && uint64(e) > own {
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
