package transport

import (
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
)

// toldLeader is a stub of raft with preset answers.
type toldLeader struct {
	last, commit, term uint64
	state              raft.RaftState
}

func (l *toldLeader) LastIndex() uint64     { return l.last }
func (l *toldLeader) CommitIndex() uint64   { return l.commit }
func (l *toldLeader) CurrentTerm() uint64   { return l.term }
func (l *toldLeader) State() raft.RaftState { return l.state }

// newOutbound returns the transport of a leader in term 4, whose entries up to 6 are of
// term 2 and the later ones of its own, and a function that returns its requests.
func newOutbound(t *testing.T, l *toldLeader) (o *Outbound, sent func() []*raft.AppendEntriesRequest) {
	t.Helper()
	logs := raft.NewInmemStore()
	if err := logs.StoreLogs(append(entriesOf(1, 2, 2, 2, 2, 2, 2), entriesOf(7, 4, 4, 4, 4)...)); err != nil {
		t.Fatal(err)
	}
	var all []*raft.AppendEntriesRequest
	o = &Outbound{
		logs: logs, followers: map[raft.ServerID]*acknowledged{},
		send: func(
			_ raft.ServerID, _ raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse,
		) error {
			all = append(all, req)
			resp.Success = true
			return nil
		},
	}
	o.Lead(l)
	return o, func() []*raft.AppendEntriesRequest {
		synctest.Wait()
		return all
	}
}

// TestCommitIsPushed checks when a leader tells a follower of a commit beside raft, and
// of which.
func TestCommitIsPushed(t *testing.T) {
	// The follower has acknowledged up to entry 8 of a leader that had committed 6.
	acknowledge := raft.AppendEntriesRequest{
		Term: 4, PrevLogEntry: 6, PrevLogTerm: 2, Entries: entriesOf(7, 4, 4), LeaderCommitIndex: 6,
	}
	for _, tt := range []struct {
		name     string
		leader   toldLeader
		index    uint64 // 0: nothing is sent.
		prevTerm uint64
	}{
		{"all that it has", toldLeader{last: 8, commit: 8, term: 4, state: raft.Leader}, 8, 4},
		{"a part of what it has", toldLeader{last: 8, commit: 7, term: 4, state: raft.Leader}, 7, 4},
		{"what it knows", toldLeader{last: 8, commit: 6, term: 4, state: raft.Leader}, 0, 0},
		{"an append follows", toldLeader{last: 9, commit: 8, term: 4, state: raft.Leader}, 0, 0},
		{"no leader any more", toldLeader{last: 8, commit: 8, term: 4, state: raft.Follower}, 0, 0},
		{"leader of a later term", toldLeader{last: 8, commit: 8, term: 6, state: raft.Leader}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				early := tt.leader
				early.commit = 6
				o, sent := newOutbound(t, &early)
				req := acknowledge
				if err := o.AppendEntries("f", "f", &req, new(raft.AppendEntriesResponse)); err != nil {
					t.Fatal(err)
				}
				if n := len(sent()); n != 1 {
					t.Fatalf("%d appends before the commit, want raft's own", n)
				}
				early.commit = tt.leader.commit
				o.Committed()
				o.Committed()
				pushed := sent()[1:]
				if tt.index == 0 {
					if len(pushed) > 0 {
						t.Fatalf("sent %+v", pushed[0])
					}
					return
				}
				if len(pushed) != 1 {
					t.Fatalf("%d appends after the commit, want one", len(pushed))
				}
				got := pushed[0]
				if got.Term != 4 || got.PrevLogEntry != tt.index || got.PrevLogTerm != tt.prevTerm ||
					got.LeaderCommitIndex != tt.index || len(got.Entries) > 0 {
					t.Errorf("sent %+v", got)
				}
			})
		})
	}
}

// TestHeartbeatsAcknowledgeNothing checks that a follower that has only answered
// heartbeats hears of no commit: its log was not compared.
func TestHeartbeatsAcknowledgeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, sent := newOutbound(t, &toldLeader{last: 8, commit: 8, term: 4, state: raft.Leader})
		for range 3 {
			if err := o.AppendEntries("f", "f", &raft.AppendEntriesRequest{Term: 4}, new(raft.AppendEntriesResponse)); err != nil {
				t.Fatal(err)
			}
			o.Committed()
		}
		if n := len(sent()); n != 3 {
			t.Errorf("%d appends, want the heartbeats alone", n)
		}
	})
}

// TestPushCountsForItsTerm checks that an acknowledgement of a follower in an earlier
// term, in which this server led too, does not count in a later one.
func TestPushCountsForItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &toldLeader{last: 10, commit: 6, term: 4, state: raft.Leader}
		o, sent := newOutbound(t, l)
		for _, req := range []*raft.AppendEntriesRequest{
			{Term: 3, PrevLogEntry: 10, LeaderCommitIndex: 6}, {Term: 4, PrevLogEntry: 7, PrevLogTerm: 4, LeaderCommitIndex: 6},
		} {
			if err := o.AppendEntries("f", "f", req, new(raft.AppendEntriesResponse)); err != nil {
				t.Fatal(err)
			}
		}
		l.commit = 10
		o.Committed()
		if n := len(sent()); n != 2 {
			t.Errorf("%d appends: entry 10 was acknowledged in term 3, entry 7 in term 4", n)
		}
	})
}
