package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/raftconf"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/fault"
)

// roundTimeout bounds one round of asking for the read index.
const roundTimeout = 3 * time.Second

// errNotReady is returned when this node does not lead, or has not opened its term
// yet.
var errNotReady = errors.New("not the leader, or not yet ready to lead")

// ReadIndex returns an index whose state includes everything that was acknowledged
// before the call. Wait until the state machine's own count of applied entries
// reaches it; raft's count moves before entries are applied. The error is
// CodeUnavailable when no leader was found or confirmed.
func (c *Cluster) ReadIndex(ctx context.Context) (uint64, error) {
	start := time.Now() //nolint:forbidigo // A stopwatch.
	for {
		changed := c.leaders.next()
		index, err := c.reads.join(ctx)
		if err == nil {
			return index, nil
		}
		if time.Since(start) > leaderWait {
			return 0, errNoLeader()
		}
		if err := c.leadership.awaitChange(ctx, changed); err != nil {
			if e, ok := errors.AsType[*compute.Error](err); ok {
				return 0, e
			}
			return 0, errNoLeader()
		}
	}
}

// rounds serves reads in rounds. A round serves only the reads that arrived
// before it began: older evidence of leadership proves nothing for a read.
type rounds struct {
	spawn func(func())
	do    func() (uint64, error)

	mu      sync.Mutex
	waiting *round // The next round; nil without waiting reads.
	active  bool
}

// round is one round and its result.
type round struct {
	done  chan struct{}
	index uint64
	err   error
}

// join waits for the result of the next round.
func (r *rounds) join(ctx context.Context) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	r.mu.Lock()
	if r.waiting == nil {
		r.waiting = &round{done: make(chan struct{})}
	}
	mine := r.waiting
	if !r.active {
		r.active = true
		r.spawn(r.run)
	}
	r.mu.Unlock()
	select {
	case <-mine.done:
		return mine.index, mine.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// run does rounds while reads wait.
func (r *rounds) run() {
	for {
		r.mu.Lock()
		now := r.waiting
		r.waiting = nil
		r.active = now != nil
		r.mu.Unlock()
		if now == nil {
			return
		}
		now.index, now.err = r.do()
		close(now.done)
	}
}

// reader finds read indexes.
type reader struct{ *Cluster }

// readRound gets a read index, from this node or from the leader.
func (c reader) readRound() (uint64, error) {
	if c.IsLeader() {
		ctx, cancel := context.WithTimeout(context.Background(), roundTimeout)
		defer cancel()
		return c.confirmedIndex(ctx)
	}
	leader, known := c.Leader()
	if !known || leader == c.id || c.raft == nil { // A worker has no Raft, and no state to read.
		return 0, errNotReady
	}
	ctx, cancel := c.leadership.whileLeads(leader, roundTimeout)
	defer cancel()
	// The reads of this round have begun before this server says in which term it is.
	data, err := c.Call(ctx, leader, methodReadIndex, c.codec.Marshal(readQuestion{Term: c.raft.CurrentTerm()}))
	if err != nil {
		return 0, err
	}
	var index uint64
	return index, c.codec.Unmarshal(data, &index)
}

// readQuestion is what a server asks the leader for a read index with.
type readQuestion struct {
	Term uint64 `cbor:"1,keyasint"` // The term that it was in after the reads had begun.
}

// confirmedIndex is the quorum term check. Its order matters: first the commit
// index, then the voters, then their terms. A voter raises its term before it
// grants a vote. So while a majority is in this leader's term, no later leader was
// elected and nothing newer was acknowledged.
func (c reader) confirmedIndex(ctx context.Context) (uint64, error) {
	index, number, err := c.leaderIndex()
	if err != nil {
		return 0, err
	}
	if err := c.confirmLeader(ctx, number); err != nil {
		return 0, fmt.Errorf("confirm leadership: %w", err)
	}
	return index, nil
}

// askedIndex is confirmedIndex where this leader and the voter that asks are a majority, as
// they are among three. It reports false where others have to be asked too. The voter was in
// this leader's term after the reads had begun, and this leader still is. So before
// that, neither had voted for a later leader, without whose acknowledgements nothing newer
// exists.
func (c reader) askedIndex(asker compute.NodeID, term uint64) (index uint64, ok bool) {
	if fault.Planted(fault.VerifyLeader) {
		return 0, false
	}
	index, number, err := c.leaderIndex()
	if err != nil || number != term {
		return 0, false
	}
	voters, agreed := 0, 0
	for _, s := range c.servers() {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if s.ID == raftconf.ServerID(c.id) || s.ID == raftconf.ServerID(asker) {
			agreed++
		}
	}
	return index, agreed == 2 && 2*agreed > voters && c.raft.CurrentTerm() == number
}

// leaderIndex returns the newest index that this leader has committed, and its term. It is a
// read index once a majority of the voters is found to be still in that term.
func (c reader) leaderIndex() (index, number uint64, err error) {
	number = c.terms.ready()
	if number == 0 || !c.IsLeader() || c.raft.CurrentTerm() != number {
		return 0, 0, errNotReady
	}
	commit := c.raft.CommitIndex()
	c.commits.Committed() // A follower that asks waits for it.
	index, err = c.appliedIndex(commit)
	return index, number, err
}

// appliedIndex returns the newest entry up to commit that the state machine sees:
// no no-op and no barrier. The term's opening entry is one, so the search is
// short.
func (c reader) appliedIndex(commit uint64) (uint64, error) {
	var entry raft.Log
	for index := commit; index > 0; index-- {
		if err := c.replica.Cache.GetLog(index, &entry); err != nil {
			return 0, fmt.Errorf("find read index: %w", err)
		}
		if entry.Type == raft.LogCommand || entry.Type == raft.LogConfiguration && c.appliesConfigurations() {
			return index, nil
		}
	}
	return 0, errNotReady
}

// appliesConfigurations reports whether the state machine sees configuration
// entries.
func (c reader) appliesConfigurations() bool {
	switch c.cfg.FSM.(type) {
	case raft.BatchingFSM, raft.ConfigurationStore:
		return true
	}
	return false
}

// handleReadIndex answers another node. A server that does not lead refuses and
// does not forward: its caller can find the leader as well.
func (c reader) handleReadIndex(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	if !c.IsLeader() {
		return nil, errNoLeader()
	}
	var asks readQuestion
	if len(data) > 0 { // Servers of earlier versions send nothing.
		if err := c.codec.Unmarshal(data, &asks); err != nil {
			return nil, compute.Errorf(compute.CodeInvalid, "The request for a read index cannot be read.")
		}
	}
	if index, ok := c.askedIndex(peer.ID, asks.Term); ok {
		return c.codec.Marshal(index), nil
	}
	index, err := c.reads.join(ctx)
	if err != nil {
		return nil, errNoLeader()
	}
	return c.codec.Marshal(index), nil
}

// status is a server's report on its replica.
type status struct {
	Term   uint64         `cbor:"1,keyasint"`
	Last   uint64         `cbor:"2,keyasint"`
	Leader compute.NodeID `cbor:"3,keyasint,omitempty"`

	Full      bool   `cbor:"4,keyasint,omitempty"` // Its disk is full.
	PendingMS uint64 `cbor:"5,keyasint,omitempty"` // For how long its disk has not answered.
	Behind    bool   `cbor:"6,keyasint,omitempty"` // It rejoined with an empty replica and has not caught up.
}

// handleStatus answers from memory, even while the disk hangs.
func (c healthReport) handleStatus(context.Context, rpc.Peer, []byte) ([]byte, error) {
	leader, _ := c.Leader()
	return c.codec.Marshal(status{
		Term:   c.raft.CurrentTerm(),
		Last:   c.raft.LastIndex(),
		Leader: leader,

		Full:      c.space.isFull(),
		PendingMS: uint64(c.replica.Watchdog.Pending().Milliseconds()),
		Behind:    c.behind.Load(),
	}), nil
}

// status asks a server for its status.
func (c healthReport) status(ctx context.Context, id compute.NodeID) (status, error) {
	var s status
	data, err := c.Call(ctx, id, methodStatus, nil)
	if err != nil {
		return s, err
	}
	return s, c.codec.Unmarshal(data, &s)
}
