package transport

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"
)

// Calls from the leader pass through here before they reach raft. Raft's follower
// has these defects in the version in use (v1.8.0; the first two are related to
// https://github.com/hashicorp/raft/issues/697):
//
//   - Right behind a snapshot from the leader it has no entry to compare with. When
//     the leader does not know that the following entries are here already, after a
//     restart of the follower, say, it is refused and sends the snapshot again and
//     again.
//   - A snapshot clears the whole log, including acknowledged entries behind its
//     end, and raft keeps the log's old end in memory: it refuses all entries, or
//     accepts some behind a gap. The same happens when it has removed conflicting
//     entries and has no disk space for their replacements.
//   - It commits up to its own newest entry, even if that was not compared with the
//     leader's (Ongaro and Ousterhout, Raft, figure 2, AppendEntries, rule 5).
//   - It answers heartbeats concurrently and stores their term, even over a newer
//     one in which it votes meanwhile, and after it has shut down: then it panics,
//     because its store is closed.
//
// Nothing here writes to the log, and only raft checks terms. The log may change
// between a check here and raft's handling of the call, since the server may have
// led in between. So a call is changed only by facts that stay true: an applied
// entry is committed, is in the log of every leader that raft still accepts, and
// stays in this server's log or snapshot. For the same reason a call is checked
// only after raft has answered the one before. DESIGN.md has the proof.

// Inbound is the transport as raft sees it.
type Inbound struct {
	*raft.NetworkTransport

	calls <-chan raft.RPC // From the network.
	rpcs  chan raft.RPC   // To raft.
	late  chan raft.RPC   // Heartbeats that are handled in order.
	logs  raft.LogStore   // Read, never written.
	fatal func(error)

	closed    <-chan struct{}
	running   chan struct{}  // Closed by Run, once
	raft      follower       // this is set.
	heartbeat func(raft.RPC) // Raft's own, for heartbeats.
	beats     sync.RWMutex   // Held for reading while raft handles one.
}

// follower is the state of raft that is read here.
type follower interface {
	LastIndex() uint64    // The newest entry, or the end of the newest snapshot.
	AppliedIndex() uint64 // The newest entry that this node has applied.
	CurrentTerm() uint64
	State() raft.RaftState
}

// NewInbound returns a transport that checks the calls of transport against logs.
// It ends once closed is closed. It calls fatal when raft's memory of its log is
// wrong; the process must then end.
func NewInbound(
	transport *raft.NetworkTransport, logs raft.LogStore, fatal func(error), closed <-chan struct{},
) *Inbound {
	return &Inbound{
		NetworkTransport: transport, calls: transport.Consumer(), rpcs: make(chan raft.RPC), late: make(chan raft.RPC),
		logs: logs, fatal: fatal, closed: closed, running: make(chan struct{}),
	}
}

// Consumer returns the calls of other servers. Implements raft.Transport.
func (i *Inbound) Consumer() <-chan raft.RPC { return i.rpcs }

// SetHeartbeatHandler sets raft's handler of heartbeats. Implements
// raft.Transport.
func (i *Inbound) SetHeartbeatHandler(handle func(raft.RPC)) {
	i.heartbeat = handle
	i.NetworkTransport.SetHeartbeatHandler(i.beat)
}

// beat makes raft answer a heartbeat at once, concurrently with a call that may
// wait for the disk. A heartbeat for which raft would store a term waits its turn.
func (i *Inbound) beat(call raft.RPC) {
	if i.writesNoTerm(call) {
		i.beatNow(call)
		return
	}
	select {
	case i.late <- call:
	case <-i.closed:
	}
}

// beatNow makes raft answer a heartbeat, unless i.closed is closed: raft may have shut down.
func (i *Inbound) beatNow(call raft.RPC) {
	i.beats.RLock()
	defer i.beats.RUnlock()
	select {
	case <-i.closed:
	default:
		i.heartbeat(call)
	}
}

// WaitForBeats waits until raft handles no heartbeat, once i.closed is closed. Raft may be
// shut down then.
func (i *Inbound) WaitForBeats() {
	i.beats.Lock()
	defer i.beats.Unlock()
}

// writesNoTerm reports whether a heartbeat is of the term that raft follows, or
// of an older one, which it refuses.
func (i *Inbound) writesNoTerm(call raft.RPC) bool {
	select {
	case <-i.running:
	default:
		return false
	}
	req, ok := call.Command.(*raft.AppendEntriesRequest)
	term := i.raft.CurrentTerm()
	return ok && (req.Term < term || req.Term == term && i.raft.State() == raft.Follower)
}

// Run forwards calls to raft until i.closed is closed, or raft is wrong about its log. Most
// heartbeats do not pass here.
func (i *Inbound) Run(to follower) {
	i.raft = to
	close(i.running)
	for {
		var call raft.RPC
		select {
		case call = <-i.calls:
		case call = <-i.late:
		case <-i.closed:
			return
		}
		if !i.forward(call) {
			return
		}
	}
}

// forward forwards one call and passes the answer back. It reports false when no
// other call may follow.
func (i *Inbound) forward(call raft.RPC) bool {
	switch req := call.Command.(type) {
	case *raft.AppendEntriesRequest:
		i.skipCommitted(req)
	case *raft.InstallSnapshotRequest:
		if i.alreadyHeld(req) {
			return i.acknowledgeHeld(call, req)
		}
	}
	newest := i.raft.LastIndex()
	answer, ok := i.ask(call)
	if !ok {
		return false
	}
	wrong := i.inconsistency(call.Command, newest, answer.Response)
	if wrong != nil {
		i.fatal(wrong)
	}
	call.RespChan <- answer // Buffered.
	return wrong == nil
}

// ask makes raft answer a call, and reports false once i.closed is closed.
func (i *Inbound) ask(call raft.RPC) (raft.RPCResponse, bool) {
	answers := make(chan raft.RPCResponse, 1)
	call.RespChan = answers
	select {
	case i.rpcs <- call:
	case <-i.closed:
		return raft.RPCResponse{}, false
	}
	select {
	case answer := <-answers:
		return answer, true
	case <-i.closed:
		return raft.RPCResponse{}, false
	}
}

// skipCommitted removes committed entries from an append: raft may have compacted
// them, and they are the same everywhere. Raft compares nothing before entry 1, so
// the rest is sent as if it began there. It commits no more than was compared.
func (i *Inbound) skipCommitted(req *raft.AppendEntriesRequest) {
	compared := req.PrevLogEntry
	if n := len(req.Entries); n > 0 {
		compared = req.Entries[n-1].Index
	}
	req.LeaderCommitIndex = min(req.LeaderCommitIndex, compared)
	committed := i.raft.AppliedIndex()
	if req.PrevLogEntry > committed || req.PrevLogEntry == i.raft.LastIndex() {
		return // The usual case: raft has the entry to compare with, or refuses.
	}
	for len(req.Entries) > 0 && req.Entries[0].Index <= committed {
		req.Entries = req.Entries[1:]
	}
	req.PrevLogEntry, req.PrevLogTerm = 0, 0
}

// alreadyHeld reports whether all of a snapshot is here: it is applied, or the log
// has its last entry, and so all before it as the leader has them. The entries
// behind it may have been acknowledged, and stay (Raft, section 7).
func (i *Inbound) alreadyHeld(req *raft.InstallSnapshotRequest) bool {
	if req.LastLogIndex <= i.raft.AppliedIndex() {
		return true
	}
	var end raft.Log
	return i.logs.GetLog(req.LastLogIndex, &end) == nil && end.Term == req.LastLogTerm
}

// acknowledgeHeld acknowledges a snapshot that is already here. It asks raft with
// an empty append, so that raft checks the term and notes the contact.
func (i *Inbound) acknowledgeHeld(call raft.RPC, req *raft.InstallSnapshotRequest) bool {
	nothing := &raft.AppendEntriesRequest{RPCHeader: req.RPCHeader, Term: req.Term}
	answer, ok := i.ask(raft.RPC{Command: nothing})
	if !ok {
		return false
	}
	done := &raft.InstallSnapshotResponse{}
	if heard, ok := answer.Response.(*raft.AppendEntriesResponse); ok {
		done.RPCHeader, done.Term, done.Success = heard.RPCHeader, heard.Term, heard.Success
	}
	go func() { // Reading the snapshot may take long, and the answer stays true.
		_, err := io.Copy(io.Discard, call.Reader) // The next call follows on the same connection.
		call.Respond(done, errors.Join(answer.Error, err))
	}()
	return true
}

// inconsistency returns how raft's memory of its log is wrong after a call, nil if
// it is right. If it is wrong, the process must end, and the next start reads the
// log from disk. Newest is raft's newest entry before the call.
func (i *Inbound) inconsistency(call any, newest uint64, answer any) error {
	switch done := answer.(type) {
	case *raft.InstallSnapshotResponse:
		req, ok := call.(*raft.InstallSnapshotRequest)
		if !ok || !done.Success {
			return nil
		}
		first, err := i.logs.FirstIndex()
		if newest < req.LastLogIndex && err == nil && (first == 0 || first > req.LastLogIndex) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("a snapshot up to entry %d took the place of a log up to entry %d: start again",
			req.LastLogIndex, newest))
	case *raft.AppendEntriesResponse:
		last := i.raft.LastIndex()
		if done.Success || last <= i.raft.AppliedIndex() { // The latter may be the end of a snapshot.
			return nil
		}
		if err := i.logs.GetLog(last, new(raft.Log)); errors.Is(err, raft.ErrLogNotFound) {
			return fmt.Errorf("the log was overruled, and does not reach entry %d any more: start again", last)
		}
	}
	return nil
}
