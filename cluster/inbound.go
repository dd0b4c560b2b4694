package cluster

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"
)

// What the leader sends a follower passes through here on its way to raft, whose
// follower has these weaknesses in the release that is used (v1.8.0; the first two
// are relatives of https://github.com/hashicorp/raft/issues/697):
//
//   - Right behind a snapshot that came from the leader it has no entry to compare
//     with. A leader that did not hear that what follows is here already, since the
//     follower started again meanwhile, say, is refused. It sends the snapshot
//     again, and again.
//   - A snapshot takes all entries with it, also acknowledged ones behind its end;
//     and raft goes on to believe in the log's old end: it refuses everything, or
//     takes entries behind a gap. It does so too when it has removed entries that
//     were overruled and finds no room for those that take their place.
//   - It commits up to its own newest entry, also where that was not compared with
//     the leader's (Ongaro and Ousterhout, Raft, figure 2, AppendEntries, rule 5).
//   - It answers heartbeats beside everything else, and writes the term of one: over
//     a newer one if it votes in that meanwhile.
//
// Nothing here writes to the log: raft does, and it alone looks at terms. What is
// read here may be older than what raft finds when it takes the call, since it may
// have led in between. So a call is changed by facts alone that stay true: what is
// applied here is committed, in the log of every leader that raft still listens to,
// and in this server's log or snapshot for good. For the same reason calls are not
// looked at before raft has answered the one before. DESIGN.md has the argument.

// inbound is the transport as raft sees it.
type inbound struct {
	*raft.NetworkTransport

	calls <-chan raft.RPC // As they come.
	rpcs  chan raft.RPC   // As raft gets them.
	late  chan raft.RPC   // Heartbeats that take their turn.
	logs  raft.LogStore   // Read, never written.
	fatal func(error)

	closed    <-chan struct{}
	running   chan struct{}  // Closed by run, once
	raft      follower       // this is set.
	heartbeat func(raft.RPC) // Raft's own, for heartbeats.
}

// follower is what raft tells of itself.
type follower interface {
	LastIndex() uint64    // The newest entry, or the end of the newest snapshot.
	AppliedIndex() uint64 // What is committed, and this node knows of it.
	CurrentTerm() uint64
	State() raft.RaftState
}

func newInbound(
	transport *raft.NetworkTransport, logs raft.LogStore, fatal func(error), closed <-chan struct{},
) *inbound {
	return &inbound{
		NetworkTransport: transport, calls: transport.Consumer(), rpcs: make(chan raft.RPC), late: make(chan raft.RPC),
		logs: logs, fatal: fatal, closed: closed, running: make(chan struct{}),
	}
}

// Consumer returns what comes from others. Implements raft.Transport.
func (i *inbound) Consumer() <-chan raft.RPC { return i.rpcs }

// SetHeartbeatHandler takes raft's handler of heartbeats. Implements
// raft.Transport.
func (i *inbound) SetHeartbeatHandler(handle func(raft.RPC)) {
	i.heartbeat = handle
	i.NetworkTransport.SetHeartbeatHandler(i.beat)
}

// beat has raft answer a heartbeat at once, beside a call that may wait for the
// disk, or has it wait for its turn when raft would write a term for it.
func (i *inbound) beat(call raft.RPC) {
	if i.writesNoTerm(call) {
		i.heartbeat(call)
		return
	}
	select {
	case i.late <- call:
	case <-i.closed:
	}
}

// writesNoTerm reports whether a heartbeat is of the term that raft follows, or
// of an older one, which it refuses.
func (i *inbound) writesNoTerm(call raft.RPC) bool {
	select {
	case <-i.running:
	default:
		return false
	}
	req, ok := call.Command.(*raft.AppendEntriesRequest)
	term := i.raft.CurrentTerm()
	return ok && (req.Term < term || req.Term == term && i.raft.State() == raft.Follower)
}

// run hands on what comes until i.closed is closed, or raft is wrong about its
// log. Most heartbeats do not come this way.
func (i *inbound) run(to follower) {
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

// handOn hands one call on and passes the answer back. It reports false when no
// other is to follow.
func (i *inbound) forward(call raft.RPC) bool {
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
	call.RespChan <- answer // It has room for it.
	return wrong == nil
}

// ask has raft answer a call, and reports false once i.closed is closed.
func (i *inbound) ask(call raft.RPC) (raft.RPCResponse, bool) {
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

// leaveOut has raft compare nothing that is committed: it may not have it any
// more, and it is the same everywhere. Raft compares nothing before entry 1, so
// what follows is sent as if it began there. It commits no more than is compared.
func (i *inbound) skipCommitted(req *raft.AppendEntriesRequest) {
	compared := req.PrevLogEntry
	if n := len(req.Entries); n > 0 {
		compared = req.Entries[n-1].Index
	}
	req.LeaderCommitIndex = min(req.LeaderCommitIndex, compared)
	committed := i.raft.AppliedIndex()
	if req.PrevLogEntry > committed || req.PrevLogEntry == i.raft.LastIndex() {
		return // As nearly always: raft has what it compares with, or refuses.
	}
	for len(req.Entries) > 0 && req.Entries[0].Index <= committed {
		req.Entries = req.Entries[1:]
	}
	req.PrevLogEntry, req.PrevLogTerm = 0, 0
}

// needless reports whether all of a snapshot is here: it is applied, or the log
// has the entry at its end, and so those before it as the leader has them. What
// follows that entry was perhaps acknowledged, and stays (Raft, section 7).
func (i *inbound) alreadyHeld(req *raft.InstallSnapshotRequest) bool {
	if req.LastLogIndex <= i.raft.AppliedIndex() {
		return true
	}
	var end raft.Log
	return i.logs.GetLog(req.LastLogIndex, &end) == nil && end.Term == req.LastLogTerm
}

// answerNeedless says of a snapshot that it is here. Raft is asked as if nothing
// were in it: the term is looked at, and the leader was heard.
func (i *inbound) acknowledgeHeld(call raft.RPC, req *raft.InstallSnapshotRequest) bool {
	nothing := &raft.AppendEntriesRequest{RPCHeader: req.RPCHeader, Term: req.Term}
	answer, ok := i.ask(raft.RPC{Command: nothing})
	if !ok {
		return false
	}
	done := &raft.InstallSnapshotResponse{}
	if heard, ok := answer.Response.(*raft.AppendEntriesResponse); ok {
		done.RPCHeader, done.Term, done.Success = heard.RPCHeader, heard.Term, heard.Success
	}
	go func() { // The snapshot may take long to come, and what is said of it stays true.
		_, err := io.Copy(io.Discard, call.Reader) // The next call follows on the same connection.
		call.Respond(done, errors.Join(answer.Error, err))
	}()
	return true
}

// misled returns what raft is wrong about after a call, nil for nothing: then the
// process has to end, and the next start reads what there is. Newest is the entry
// in which raft believed before.
func (i *inbound) inconsistency(call any, newest uint64, answer any) error {
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
