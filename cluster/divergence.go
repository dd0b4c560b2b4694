package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/datadir"
	"berth/cluster/disk"
	"berth/cluster/raftconf"
	"berth/cluster/rpc"
	"berth/compute"
)

// Replicas that have applied the same entries hold the same state. One that does
// not, by a fault of memory or of the program, would answer and, as a leader,
// decide otherwise than the rest. The leader compares hashes of the state at
// indexes at which each replica takes one, and who differs from a majority of
// the voters sets its replica aside, as if it were damaged. Where there is no
// majority nobody does: that is for people.

const (
	compareEvery = 10 * time.Second
	divergedOnce = 24 * time.Hour // One that differs again within stays out for as long.
	maxMarks     = 16             // That a server tells of.
)

// StateMark is the hash of the state after one entry.
type StateMark struct {
	Index uint64       `cbor:"1,keyasint"`
	Hash  compute.Hash `cbor:"2,keyasint"`
}

// marks is what a server tells of its state.
type marks struct {
	Version string      `cbor:"1,keyasint"` // Of the program: another one may encode otherwise.
	Marks   []StateMark `cbor:"2,keyasint,omitempty"`
}

func (m marks) at(index uint64) (compute.Hash, bool) {
	for _, mark := range m.Marks {
		if mark.Index == index {
			return mark.Hash, true
		}
	}
	return compute.Hash{}, false
}

// ownMarks returns the newest marks of this server.
func (c *Cluster) ownMarks() marks {
	own := marks{Version: c.cfg.Version}
	if c.cfg.StateMarks != nil {
		own.Marks = c.cfg.StateMarks()
		own.Marks = own.Marks[max(0, len(own.Marks)-maxMarks):]
	}
	return own
}

func (c *Cluster) handleMarks(context.Context, rpc.Peer, []byte) ([]byte, error) {
	return c.codec.Marshal(c.ownMarks()), nil
}

// compareStates compares the replicas while this node leads.
func (c *Cluster) compareStates(ctx context.Context) error {
	if c.cfg.StateMarks == nil {
		return nil
	}
	err := c.WhileLeader(ctx, func(ctx context.Context, _ uint64) error {
		defer c.metrics.diverged.Set(0)
		defer c.health.compared(comparison{})
		for pause(ctx, compareEvery) == nil {
			c.compareOnce(ctx)
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // The end of ctx.
	}
	return err
}

// compareOnce compares the replicas and tells those that differ.
func (c *Cluster) compareOnce(ctx context.Context) {
	servers := c.servers()
	told := c.askMarks(ctx, servers)
	voters := make(map[compute.NodeID]bool)
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			voters[raftconf.NodeOf(s.ID)] = true
		}
	}
	found := compareMarks(told, voters)
	shown := found
	if found.unclear {
		shown.odd = slices.Collect(maps.Keys(told))
	}
	c.health.compared(shown)
	c.metrics.diverged.Set(float64(len(shown.odd)))
	if found.unclear {
		c.logger.Error("the states of replicas differ, and no majority of the voters agrees: an operator has to choose",
			"index", found.right.Index)
		return
	}
	for _, id := range found.odd {
		c.logger.Error("the state of a replica differs from that of the majority", "node", id, "index", found.right.Index)
		var err error
		if id == c.id {
			err = c.diverged(found.right)
		} else {
			_, err = c.Call(ctx, id, methodDiverged, c.codec.Marshal(found.right))
		}
		if err != nil && ctx.Err() == nil {
			c.logger.Error("a replica that differs goes on", "node", id, "err", err)
		}
	}
}

// askMarks returns what the servers tell of their states that this version can
// be compared with.
func (c *Cluster) askMarks(ctx context.Context, servers []raft.Server) map[compute.NodeID]marks {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	type reply struct {
		id compute.NodeID
		m  marks
	}
	replies := make(chan reply, len(servers)) // Room for all, so that none blocks.
	for _, s := range servers {
		id := raftconf.NodeOf(s.ID)
		c.work.Go(func() {
			r := reply{id: id}
			if data, err := c.Call(ctx, id, methodMarks, nil); err != nil || c.codec.Unmarshal(data, &r.m) != nil {
				r.m = marks{}
			}
			replies <- r
		})
	}
	told := make(map[compute.NodeID]marks, len(servers))
	for range servers {
		if r := <-replies; r.m.Version == c.cfg.Version && len(r.m.Marks) <= maxMarks {
			told[r.id] = r.m
		}
	}
	return told
}

// comparison is what comparing replicas found.
type comparison struct {
	right   StateMark // Of the majority; with unclear its index alone counts.
	odd     []compute.NodeID
	unclear bool // They differ, and there is no majority.
}

// compareMarks compares at the newest index at which a quorum of the voters has
// a mark.
func compareMarks(told map[compute.NodeID]marks, voters map[compute.NodeID]bool) comparison {
	need := raftconf.Quorum(len(voters))
	found := comparison{right: StateMark{Index: newestMark(told, voters, need)}}
	if found.right.Index == 0 {
		return found
	}
	agree := make(map[compute.Hash]int)
	for id, m := range told {
		if hash, ok := m.at(found.right.Index); ok && voters[id] {
			agree[hash]++
		}
	}
	found.unclear = true
	for hash, n := range agree {
		if n >= need {
			found.right.Hash, found.unclear = hash, false
		}
	}
	if found.unclear {
		return found
	}
	for id, m := range told {
		if hash, ok := m.at(found.right.Index); ok && hash != found.right.Hash {
			found.odd = append(found.odd, id)
		}
	}
	return found
}

// newestMark returns the newest index of which as many voters as needed have a
// mark, 0 for none.
func newestMark(told map[compute.NodeID]marks, voters map[compute.NodeID]bool, need int) (newest uint64) {
	have := make(map[uint64]int)
	for id, m := range told {
		for _, mark := range m.Marks {
			if voters[id] {
				have[mark.Index]++
			}
		}
	}
	for index, n := range have {
		if n >= need {
			newest = max(newest, index)
		}
	}
	return newest
}

// handleDiverged hears from the leader that this server's state is not the
// majority's.
func (c *Cluster) handleDiverged(_ context.Context, _ rpc.Peer, data []byte) ([]byte, error) {
	var right StateMark
	if err := c.codec.Unmarshal(data, &right); err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "The mark cannot be read: %w", err)
	}
	return nil, c.diverged(right)
}

// diverged ends this server, which sets its replica aside at its next start,
// when its state is another than that of the majority.
func (c *Cluster) diverged(right StateMark) error {
	hash, known := c.ownMarks().at(right.Index)
	if !known || hash == right.Hash {
		return compute.Errorf(compute.CodeConflict, "The state of this server does not differ at entry %d.", right.Index)
	}
	return c.distrust(fmt.Sprintf("the state after entry %d is not that of the other servers", right.Index))
}

// distrust ends this server, which sets its replica aside at its next start. One
// that is distrusted again within a day stays out, since it would go on like that:
// its memory or its program is at fault, and people have to look.
func (c *Cluster) distrust(damage string) error {
	now := c.cfg.Now()
	err := c.dir.Update(func(r *datadir.Record) {
		if since := now.Sub(r.DivergedAt).Abs(); since < divergedOnce {
			r.OutUntil = now.Add(divergedOnce)
		}
		r.Damaged, r.DivergedAt = damage, now
	})
	if err != nil {
		c.logger.Error("not written down that the state is wrong", "err", err)
	}
	err = fmt.Errorf("%w: %s", disk.ErrCorrupt, damage)
	if out := checkTrusted(c.dir, now); out != nil {
		err = out
	}
	c.fatal(err)
	return nil
}

// checkTrusted refuses to start a server that was distrusted twice within a day.
func checkTrusted(dir *datadir.Dir, now time.Time) error {
	record := dir.Record()
	if left := record.OutUntil.Sub(now); left <= 0 || left > divergedOnce { // Or that clock was wrong.
		return nil
	}
	return compute.Errorf(compute.CodeConflict,
		"The state of this server was wrong twice within %s, the last time at %s (%s): its memory or its program is at "+
			"fault. Test the memory (memtest86+, rasdaemon) and compare the version with that of the others. It stays out "+
			"until %s and then comes in empty; berth admin raft rejoin --data-dir %s --yes lets it in before.",
		divergedOnce, record.DivergedAt.UTC().Format(time.RFC3339), record.Damaged,
		record.OutUntil.UTC().Format(time.RFC3339), dir.Root()).Named("state_differs_again")
}
