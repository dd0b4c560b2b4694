package cluster

import (
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// toldFollower is a raft that says what it is told to.
type toldFollower struct{ last, applied, term uint64 }

func (f toldFollower) LastIndex() uint64    { return f.last }
func (f toldFollower) AppliedIndex() uint64 { return f.applied }
func (f toldFollower) CurrentTerm() uint64  { return f.term }

// entriesOf returns entries from first on, of these terms.
func entriesOf(first uint64, terms ...uint64) []*raft.Log {
	var out []*raft.Log
	for i, term := range terms {
		out = append(out, &raft.Log{Index: first + uint64(i), Term: term})
	}
	return out
}

// TestInboundAppend looks at what becomes of what a leader sends to a server that
// has entries 5 to 8, of terms 2, 2, 2 and 3, behind a snapshot.
func TestInboundAppend(t *testing.T) {
	for _, tt := range []struct {
		name         string
		prev, term   uint64
		entries      []*raft.Log
		commit       uint64
		prevOut      uint64
		prevTermOut  uint64
		entriesOut   int
		commitOut    uint64
		last, status uint64 // What is left of the log: its end, and whether the process ends.
	}{
		{"what follows", 8, 4, entriesOf(9, 4), 8, 8, 3, 1, 8, 8, 0},
		{"nothing, and a commit beyond what is compared", 6, 4, nil, 8, 6, 2, 0, 6, 8, 0},
		{"what is here already", 4, 4, entriesOf(5, 2, 2, 2, 3), 9, 8, 3, 0, 8, 8, 0},
		{"some of it", 4, 4, entriesOf(5, 2, 2), 9, 6, 2, 0, 6, 8, 0},
		{"that and more", 4, 4, entriesOf(5, 2, 2, 2, 3, 4), 9, 8, 3, 1, 9, 8, 0},
		{"what overrules the end", 4, 4, entriesOf(5, 2, 2, 4), 9, 6, 2, 1, 7, 8, 0},
		{"what overrules all behind the snapshot", 4, 4, entriesOf(5, 4, 4), 9, 4, 1, 2, 6, 0, 1},
		{"the same of a leader of before", 4, 2, entriesOf(5, 1, 1), 9, 4, 1, 2, 6, 8, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			logs := raft.NewInmemStore()
			if err := logs.StoreLogs(entriesOf(5, 2, 2, 2, 3)); err != nil {
				t.Fatal(err)
			}
			ended := uint64(0)
			i := &inbound{logs: logs, raft: toldFollower{last: 8, applied: 4, term: 3}, fatal: func(error) { ended++ }}
			prevTerm := []uint64{1, 2, 2, 2, 3}[tt.prev-4]
			req := &raft.AppendEntriesRequest{
				Term: tt.term, PrevLogEntry: tt.prev, PrevLogTerm: prevTerm, Entries: tt.entries, LeaderCommitIndex: tt.commit,
			}
			i.leaveOut(req)
			last, err := logs.LastIndex()
			if err != nil {
				t.Fatal(err)
			}
			got := []uint64{req.PrevLogEntry, req.PrevLogTerm, uint64(len(req.Entries)), req.LeaderCommitIndex, last, ended}
			want := []uint64{tt.prevOut, tt.prevTermOut, uint64(tt.entriesOut), tt.commitOut, tt.last, tt.status}
			if !slices.Equal(got, want) {
				t.Errorf("previous entry and term, entries, commit, end of the log, ends: %v, want %v", got, want)
			}
		})
	}
}

// TestInboundSnapshot looks at what becomes of snapshots at a server that has
// applied entry 60 and has entries up to 80.
func TestInboundSnapshot(t *testing.T) {
	for _, tt := range []struct {
		name   string
		index  uint64
		term   uint64
		passes bool
		ends   bool
	}{
		{"of long ago", 57, 3, false, false},
		{"of what is applied", 60, 3, false, false},
		{"of a leader of before", 57, 2, true, true}, // Raft refuses it; here it is made to take it.
		{"older than the newest entry", 70, 3, true, true},
		{"newer", 90, 3, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ended := make(chan error, 1)
			closed := make(chan struct{})
			defer close(closed)
			i := newInbound(nil, nil, func(err error) { ended <- err })
			i.raft = toldFollower{last: 80, applied: 60, term: 3}
			answers := make(chan raft.RPCResponse, 1)
			content := strings.NewReader("content")
			passed := make(chan bool, 1)
			go func() {
				select {
				case call := <-i.rpcs:
					passed <- true
					call.Respond(&raft.InstallSnapshotResponse{Success: true}, nil)
				case <-closed:
				}
			}()
			call := raft.RPC{
				Command: &raft.InstallSnapshotRequest{LastLogIndex: tt.index, Term: tt.term}, Reader: content, RespChan: answers,
			}
			if !i.handOn(call, closed) {
				t.Fatal("it is closed")
			}
			answer := <-answers
			if done, ok := answer.Response.(*raft.InstallSnapshotResponse); !ok || !done.Success || answer.Error != nil {
				t.Errorf("answered %+v", answer)
			}
			if len(passed) > 0 != tt.passes || len(ended) > 0 != tt.ends {
				t.Errorf("raft got it: %v, the process ended: %v", len(passed) > 0, len(ended) > 0)
			}
			if !tt.passes && content.Len() > 0 {
				t.Errorf("%d bytes are left before the next call", content.Len())
			}
		})
	}
}
