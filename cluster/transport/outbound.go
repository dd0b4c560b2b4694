package transport

import (
	"sync"

	"github.com/hashicorp/raft"

	"berth/fault"
)

// Outbound is a transport that also reports a commit to followers as soon as raft has
// nothing else to send to them. Raft reports it with the next append or, without one,
// after its CommitTimeout. With a short timeout idle nodes are busy, with a long one
// followers are late.
//
// It sends the same append as raft: without entries, behind an entry that the follower
// has acknowledged in this term, with that entry as the commit index. A follower
// compares the entry before it commits.
type Outbound struct {
	*Inbound

	raft leader
	logs raft.LogStore // Read, never written.
	send func(raft.ServerID, raft.ServerAddress, *raft.AppendEntriesRequest, *raft.AppendEntriesResponse) error

	mu        sync.Mutex
	followers map[raft.ServerID]*acknowledged
}

// leader is the state of raft that is read here.
type leader interface {
	LastIndex() uint64
	CommitIndex() uint64
	CurrentTerm() uint64
	State() raft.RaftState
}

// acknowledged is the last entry that a follower has acknowledged in the newest term in
// which this server sent it entries.
type acknowledged struct {
	id      raft.ServerID
	address raft.ServerAddress
	header  raft.RPCHeader
	leader  []byte

	term    uint64
	matched uint64 // The newest entry that it has as the leader has it.
	commit  uint64 // The newest commit index that it knows.
	sending bool   // A commit index is on its way.
}

// NewOutbound returns a transport that reads entries from logs.
func NewOutbound(in *Inbound, logs raft.LogStore) *Outbound {
	return &Outbound{
		Inbound: in, logs: logs, send: in.NetworkTransport.AppendEntries,
		followers: make(map[raft.ServerID]*acknowledged),
	}
}

// Lead sets raft. Before that no commits are sent.
func (o *Outbound) Lead(r leader) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.raft = r
}

// AppendEntries sends an append, and remembers the follower's acknowledgement.
// Implements raft.Transport.
func (o *Outbound) AppendEntries(
	id raft.ServerID, address raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse,
) error {
	err := o.send(id, address, req, resp)
	if err == nil && resp.Success {
		o.note(id, address, req)
	}
	return err
}

// note remembers that a follower has acknowledged req.
func (o *Outbound) note(id raft.ServerID, address raft.ServerAddress, req *raft.AppendEntriesRequest) {
	matched := req.PrevLogEntry
	if n := len(req.Entries); n > 0 {
		matched = req.Entries[n-1].Index
	}
	if matched == 0 {
		return // A heartbeat.
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.followers[id]
	if f == nil || f.term < req.Term {
		f = &acknowledged{id: id, term: req.Term}
		o.followers[id] = f
	}
	if f.term == req.Term {
		f.address, f.header = address, req.RPCHeader
		f.leader = req.Leader //nolint:staticcheck // Sent as raft sends it, for older followers.
		f.matched = max(f.matched, matched)
		f.commit = max(f.commit, min(req.LeaderCommitIndex, matched))
	}
	o.pushTo(f)
}

// Committed reports the newest commit to the followers. Call it after a commit. It does
// not wait.
func (o *Outbound) Committed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range o.followers {
		o.pushTo(f)
	}
}

// pushTo starts to tell a follower of the newest commit, unless it knows, or an append
// that raft is about to send will tell it. The caller holds o.mu.
func (o *Outbound) pushTo(f *acknowledged) {
	if o.raft == nil || f.sending || f.matched < o.raft.LastIndex() {
		return
	}
	req := o.commitOf(f)
	if req == nil {
		return
	}
	f.sending = true
	id, address := f.id, f.address
	go func() {
		fault.Point("cluster.commit.push")
		err := o.send(id, address, req, new(raft.AppendEntriesResponse))
		o.mu.Lock()
		defer o.mu.Unlock()
		f.sending = false
		f.commit = max(f.commit, req.LeaderCommitIndex) // Refused, it hears of it after the CommitTimeout.
		if err == nil && o.followers[id] == f {
			o.pushTo(f) // More may have been committed meanwhile.
		}
	}()
}

// commitOf returns the append that tells a follower of a commit, nil when there is
// nothing to tell or this server no longer leads in the term.
func (o *Outbound) commitOf(f *acknowledged) *raft.AppendEntriesRequest {
	index := min(o.raft.CommitIndex(), f.matched)
	if index <= f.commit {
		return nil
	}
	var entry raft.Log
	if err := o.logs.GetLog(index, &entry); err != nil {
		return nil // Compacted.
	}
	// Commit index and entry were read while this server led in the term, because it
	// still does: a later leader may have committed another entry at the index.
	if o.raft.State() != raft.Leader || o.raft.CurrentTerm() != f.term {
		return nil
	}
	return &raft.AppendEntriesRequest{
		RPCHeader: f.header, Term: f.term,
		Leader:       f.leader, //nolint:staticcheck // As above.
		PrevLogEntry: index, PrevLogTerm: entry.Term, LeaderCommitIndex: index,
	}
}
