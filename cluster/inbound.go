package cluster

import (
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
//   - A snapshot that is older than the newest entry, one that was long on its way,
//     takes acknowledged entries with it; and raft goes on to believe in the log's
//     old end: it refuses everything, or takes entries behind a gap.
//   - It commits up to its own newest entry, also where that was not compared with
//     the leader's (Ongaro and Ousterhout, Raft, figure 2, AppendEntries, rule 5).

// inbound is the transport as raft sees it.
type inbound struct {
	*raft.NetworkTransport

	rpcs  chan raft.RPC
	logs  raft.LogStore
	fatal func(error)
	raft  follower // Set by run.
}

// follower is what raft tells of itself.
type follower interface {
	LastIndex() uint64    // The newest entry, or the end of the newest snapshot.
	AppliedIndex() uint64 // What is committed, and this node knows of it.
	CurrentTerm() uint64
}

func newInbound(transport *raft.NetworkTransport, logs raft.LogStore, fatal func(error)) *inbound {
	return &inbound{NetworkTransport: transport, rpcs: make(chan raft.RPC), logs: logs, fatal: fatal}
}

// Consumer returns what comes from others. Implements raft.Transport.
func (i *inbound) Consumer() <-chan raft.RPC { return i.rpcs }

// run hands on what comes until closed is closed.
func (i *inbound) run(to follower, closed <-chan struct{}) {
	i.raft = to
	for {
		select {
		case call := <-i.NetworkTransport.Consumer():
			if !i.handOn(call, closed) {
				return
			}
		case <-closed:
			return
		}
	}
}

// handOn hands one call on, and reports false once closed is closed.
func (i *inbound) handOn(call raft.RPC, closed <-chan struct{}) bool {
	switch req := call.Command.(type) {
	case *raft.AppendEntriesRequest:
		i.leaveOut(req)
	case *raft.InstallSnapshotRequest:
		if i.needless(req) {
			go answerNeedless(call, req)
			return true
		}
		call = i.watch(call, req, closed)
	}
	select {
	case i.rpcs <- call:
		return true
	case <-closed:
		return false
	}
}

// leaveOut takes those entries out of a request that are here already, which makes
// the newest of them the one to compare with, and commits no more than is compared.
func (i *inbound) leaveOut(req *raft.AppendEntriesRequest) {
	compared := req.PrevLogEntry
	if n := len(req.Entries); n > 0 {
		compared = req.Entries[n-1].Index
	}
	req.LeaderCommitIndex = min(req.LeaderCommitIndex, compared)
	if req.PrevLogEntry >= i.raft.LastIndex() || req.Term < i.raft.CurrentTerm() {
		return // The first is so nearly always; the second raft refuses.
	}
	for len(req.Entries) > 0 {
		sent := req.Entries[0]
		var kept raft.Log
		if err := i.logs.GetLog(sent.Index, &kept); err != nil {
			return
		}
		if kept.Term != sent.Term {
			i.clearBehindSnapshot(req.PrevLogEntry, sent.Index)
			return
		}
		req.PrevLogEntry, req.PrevLogTerm, req.Entries = sent.Index, sent.Term, req.Entries[1:]
	}
}

// clearBehindSnapshot removes the entries from first on, which a leader overrules,
// when raft cannot do it because it has no entry before them to compare with. Raft
// learns of it by a new start.
func (i *inbound) clearBehindSnapshot(before, first uint64) {
	if before > i.raft.AppliedIndex() || i.logs.GetLog(before, new(raft.Log)) == nil {
		return
	}
	last := i.raft.LastIndex()
	if err := i.logs.DeleteRange(first, last); err != nil {
		return // The leader tries again.
	}
	i.fatal(fmt.Errorf("the entries %d to %d, right behind a snapshot, were overruled: start again", first, last))
}

// needless reports whether all of a snapshot is applied here already.
func (i *inbound) needless(req *raft.InstallSnapshotRequest) bool {
	return req.LastLogIndex <= i.raft.AppliedIndex() && req.Term >= i.raft.CurrentTerm()
}

// answerNeedless says that a snapshot is here, as it is.
func answerNeedless(call raft.RPC, req *raft.InstallSnapshotRequest) {
	_, err := io.Copy(io.Discard, call.Reader) // The next call follows on the same connection.
	call.Respond(&raft.InstallSnapshotResponse{Term: req.Term, Success: err == nil}, err)
}

// watch returns the call with a snapshot such that this process ends after it when
// raft believes in more of a log than is left: the next start reads what there is.
// What was behind the snapshot was not committed, as far as it goes beyond it: the
// leader would have gone on there.
func (i *inbound) watch(call raft.RPC, req *raft.InstallSnapshotRequest, closed <-chan struct{}) raft.RPC {
	newest := i.raft.LastIndex()
	if newest <= req.LastLogIndex {
		return call
	}
	to, from := call.RespChan, make(chan raft.RPCResponse, 1)
	call.RespChan = from
	go func() {
		select {
		case answer := <-from:
			if done, ok := answer.Response.(*raft.InstallSnapshotResponse); ok && done.Success {
				i.fatal(fmt.Errorf("a snapshot up to entry %d took the place of a log up to entry %d: start again",
					req.LastLogIndex, newest))
			}
			to <- answer
		case <-closed:
		}
	}()
	return call
}
