package transport

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/disk"
	"berth/cluster/liblog"
)

// toldFollower is a stub of raft with preset answers.
type toldFollower struct{ last, applied uint64 }

func (f toldFollower) LastIndex() uint64    { return f.last }
func (f toldFollower) AppliedIndex() uint64 { return f.applied }
func (toldFollower) CurrentTerm() uint64    { return 4 }
func (toldFollower) State() raft.RaftState  { return raft.Follower }

// entriesOf returns entries from first on, with the given terms.
func entriesOf(first uint64, terms ...uint64) []*raft.Log {
	var out []*raft.Log
	for i, term := range terms {
		out = append(out, &raft.Log{Index: first + uint64(i), Term: term})
	}
	return out
}

// TestInboundAppend checks a leader's appends to a server that has applied
// entry 6.
func TestInboundAppend(t *testing.T) {
	for _, tt := range []struct {
		name        string
		last        uint64
		prev        uint64
		entries     []*raft.Log
		commit      uint64
		prevOut     uint64
		prevTermOut uint64
		entriesOut  int
		commitOut   uint64
	}{
		{"what follows", 8, 8, entriesOf(9, 4), 8, 8, 2, 1, 8},
		{"nothing, and a commit beyond what is compared", 8, 7, nil, 8, 7, 2, 0, 7},
		{"what is not committed as far as is known", 8, 7, entriesOf(8, 4), 8, 7, 2, 1, 8},
		{"what follows all that is committed", 8, 6, entriesOf(7, 4, 4, 4), 6, 0, 0, 3, 6},
		{"what is committed, and more", 8, 3, entriesOf(4, 2, 2, 2, 4), 9, 0, 0, 1, 7},
		{"what is committed alone", 8, 3, entriesOf(4, 2, 2), 9, 0, 0, 0, 5},
		{"everything", 8, 0, entriesOf(1, 1, 1, 2, 2, 2, 2, 2, 2, 4), 9, 0, 0, 3, 9},
		{"what follows a snapshot that raft forgot for one of its own", 4, 6, entriesOf(7, 4), 6, 0, 0, 1, 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i := &Inbound{raft: toldFollower{last: tt.last, applied: 6}}
			req := &raft.AppendEntriesRequest{
				Term: 4, PrevLogEntry: tt.prev, PrevLogTerm: 2, Entries: tt.entries, LeaderCommitIndex: tt.commit,
			}
			i.skipCommitted(req)
			got := []uint64{req.PrevLogEntry, req.PrevLogTerm, uint64(len(req.Entries)), req.LeaderCommitIndex}
			want := []uint64{tt.prevOut, tt.prevTermOut, uint64(tt.entriesOut), tt.commitOut}
			if !slices.Equal(got, want) {
				t.Errorf("previous entry and term, entries, commit: %v, want %v", got, want)
			}
		})
	}
}

// realFollower is a real raft behind an inbound, with calls made by a test.
type realFollower struct {
	*raft.Raft

	inbound  *Inbound
	store    *heldStore
	machine  *countingMachine
	calls    chan raft.RPC
	closed   chan struct{}
	end      func() // Closes it.
	ended    []error
	handling chan struct{} // Closed when no more calls are forwarded.
}

// heldStore is a store whose writes a test can block or fail.
type heldStore struct {
	*raft.InmemStore

	terms, entries chan struct{} // Closed to release writes; nil for no block.
	term           uint64        // The only term that blocks; 0 for all.
	full, stuck    error         // Errors of appends, and of removals.
}

func (s *heldStore) SetUint64(key []byte, value uint64) error {
	if s.terms != nil && (s.term == 0 || s.term == value) {
		<-s.terms
	}
	return s.InmemStore.SetUint64(key, value)
}

func (s *heldStore) StoreLogs(logs []*raft.Log) error {
	if s.entries != nil {
		<-s.entries
	}
	if s.full != nil {
		return s.full
	}
	return s.InmemStore.StoreLogs(logs)
}

func (s *heldStore) DeleteRange(low, high uint64) error {
	if s.stuck != nil {
		return s.stuck
	}
	return s.InmemStore.DeleteRange(low, high)
}

// countingMachine counts its restores.
type countingMachine struct{ restored int }

func (m *countingMachine) Apply(*raft.Log) any                 { return nil }
func (m *countingMachine) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.ErrUnsupported }
func (m *countingMachine) Restore(r io.ReadCloser) error {
	m.restored++
	_, err := io.Copy(io.Discard, r)
	return errors.Join(err, r.Close())
}

// mustFollow starts raft with a snapshot that ends at an entry of term 2, and
// the given entries, in term 4.
func mustFollow(t *testing.T, snapshot uint64, entries []*raft.Log) *realFollower {
	t.Helper()
	f := &realFollower{
		store: &heldStore{InmemStore: raft.NewInmemStore()}, machine: new(countingMachine),
		calls: make(chan raft.RPC), closed: make(chan struct{}), handling: make(chan struct{}),
	}
	f.end = sync.OnceFunc(func() { close(f.closed) })
	layer := NewLayer("follower", nil)
	transport := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: layer, Logger: liblog.Discard()})
	snapshots := raft.NewInmemSnapshotStore()
	sink, err := snapshots.Create(1, snapshot, 2, servers(), 1, transport)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(sink.Close(), f.store.StoreLogs(entries), f.store.SetUint64([]byte(disk.KeyCurrentTerm), 4))
	if err != nil {
		t.Fatal(err)
	}
	config := raft.DefaultConfig()
	config.LocalID, config.Logger, config.NoLegacyTelemetry = "follower", liblog.Discard(), true
	config.HeartbeatTimeout, config.ElectionTimeout, config.NoSnapshotRestoreOnStart = time.Hour, time.Hour, true
	logs := &disk.Cache{LogStore: f.store}
	i := NewInbound(transport, logs, func(err error) { f.ended = append(f.ended, err) }, f.closed)
	i.calls, f.inbound = f.calls, i
	if f.Raft, err = raft.NewRaft(config, f.machine, logs, f.store, snapshots, i); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(f.handling)
		i.Run(f.Raft)
	}()
	t.Cleanup(func() {
		f.end()
		if err := errors.Join(f.Shutdown().Error(), transport.Close()); err != nil {
			t.Error(err)
		}
	})
	return f
}

func servers() raft.Configuration {
	var out raft.Configuration
	for _, id := range []raft.ServerID{"follower", "leader", "third"} {
		out.Servers = append(out.Servers, raft.Server{ID: id, Address: raft.ServerAddress(id)})
	}
	return out
}

// call makes a call, waits until everything blocks, and returns the channel of
// the answer.
func (f *realFollower) call(command any, content io.Reader) chan raft.RPCResponse {
	answers := make(chan raft.RPCResponse, 1)
	go func() {
		select {
		case f.calls <- raft.RPC{Command: command, Reader: content, RespChan: answers}:
		case <-f.closed:
		}
	}()
	synctest.Wait()
	return answers
}

func fromLeader() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: 3, ID: []byte("leader"), Addr: []byte("leader")}
}

// append sends entries that follow an entry of a term.
func (f *realFollower) append(term, prev, prevTerm uint64, entries ...*raft.Log) chan raft.RPCResponse {
	req := &raft.AppendEntriesRequest{
		RPCHeader: fromLeader(), Term: term, PrevLogEntry: prev, PrevLogTerm: prevTerm, Entries: entries,
	}
	if n := len(entries); n > 0 {
		req.LeaderCommitIndex = entries[n-1].Index
	}
	return f.call(req, nil)
}

// install sends a snapshot that ends at an entry of a term.
func (f *realFollower) install(term, index, indexTerm uint64) chan raft.RPCResponse {
	content := strings.NewReader("content")
	return f.call(&raft.InstallSnapshotRequest{
		RPCHeader: fromLeader(), SnapshotVersion: 1, Term: term, LastLogIndex: index, LastLogTerm: indexTerm,
		Configuration: raft.EncodeConfiguration(servers()), ConfigurationIndex: 1, Size: content.Size(),
	}, content)
}

// succeeded reports whether a call was answered, and with success.
func succeeded(answers chan raft.RPCResponse) bool {
	select {
	case answer := <-answers:
		switch done := answer.Response.(type) {
		case *raft.AppendEntriesResponse:
			return done.Success && answer.Error == nil
		case *raft.InstallSnapshotResponse:
			return done.Success && answer.Error == nil
		}
	default:
	}
	return false
}

// mustHold checks the terms of the log from first on, and the numbers of ends
// of the process and restores of the state.
func (f *realFollower) mustHold(t *testing.T, ended, restored int, first uint64, terms ...uint64) {
	t.Helper()
	synctest.Wait()
	var got []uint64
	last, err := f.store.LastIndex()
	for i := first; i <= last && err == nil; i++ {
		var entry raft.Log
		err = f.store.GetLog(i, &entry)
		got = append(got, entry.Term)
	}
	if err != nil || !slices.Equal(got, terms) {
		t.Errorf("from %d on it has entries of the terms %v, want %v; %v", first, got, terms, err)
	}
	if len(f.ended) != ended || f.machine.restored != restored {
		t.Errorf("the process ended for %v, and the state was restored %d times, want %d and %d",
			f.ended, f.machine.restored, ended, restored)
	}
}

// TestInboundBehindASnapshot sends entries whose previous entry raft no longer
// has.
func TestInboundBehindASnapshot(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prev    uint64
		entries []*raft.Log
		want    []uint64
	}{
		{"what is here already, and more", 10, entriesOf(11, 3, 3, 3, 5), []uint64{3, 3, 3, 5}},
		{"what overrules", 10, entriesOf(11, 5), []uint64{5}},
		{"what overrules a part", 10, entriesOf(11, 3, 5), []uint64{3, 5}},
		{"what begins in the snapshot", 8, entriesOf(9, 2, 2, 3, 3, 3, 5), []uint64{3, 3, 3, 5}},
		{"what ends in the snapshot", 7, entriesOf(8, 2, 2), []uint64{3, 3, 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := mustFollow(t, 10, entriesOf(11, 3, 3, 3))
				if !succeeded(f.append(5, tt.prev, 2, tt.entries...)) {
					t.Error("refused")
				}
				f.mustHold(t, 0, 0, 11, tt.want...)
			})
		})
	}
}

// beat sends a heartbeat.
func (f *realFollower) beat(term uint64) chan raft.RPCResponse {
	answers := make(chan raft.RPCResponse, 1)
	req := &raft.AppendEntriesRequest{RPCHeader: fromLeader(), Term: term}
	go f.inbound.beat(raft.RPC{Command: req, RespChan: answers})
	synctest.Wait()
	return answers
}

// TestInboundTermsRise has a server vote in a term while the older term of a
// heartbeat is being written: the server stays in the newer one.
func TestInboundTermsRise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := mustFollow(t, 10, entriesOf(11, 3))
		f.store.terms, f.store.term = make(chan struct{}), 5
		heard := f.beat(5)
		f.call(&raft.RequestVoteRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("third"), Addr: []byte("third")},
			Term:      6, LastLogIndex: 20, LastLogTerm: 5, LeadershipTransfer: true,
		}, nil)
		close(f.store.terms)
		synctest.Wait()
		kept, err := f.store.GetUint64([]byte(disk.KeyCurrentTerm))
		if err != nil || kept != 6 || f.CurrentTerm() != 6 || !succeeded(heard) {
			t.Errorf("it is in term %d, and %d on disk, want 6; %v", f.CurrentTerm(), kept, err)
		}
	})
}

// TestInboundHeartbeatWaitsForNoDisk checks that heartbeats are answered while
// an append waits for the disk.
func TestInboundHeartbeatWaitsForNoDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := mustFollow(t, 10, entriesOf(11, 3))
		f.store.entries = make(chan struct{})
		appended := f.append(4, 11, 3, entriesOf(12, 4)...)
		if !succeeded(f.beat(4)) {
			t.Error("a heartbeat waits for the disk")
		}
		close(f.store.entries)
		synctest.Wait()
		if !succeeded(appended) {
			t.Error("the append was refused")
		}
	})
}

// TestInboundHeartbeatAtTheEnd checks that raft is not shut down while it handles a heartbeat,
// and handles none after it.
func TestInboundHeartbeatAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := mustFollow(t, 10, entriesOf(11, 3))
		synctest.Wait() // Before it runs, heartbeats wait for their turn.
		var handled atomic.Int32
		entered, leave := make(chan struct{}), make(chan struct{})
		f.inbound.heartbeat = func(raft.RPC) {
			handled.Add(1)
			close(entered)
			<-leave
		}
		beat := raft.RPC{Command: &raft.AppendEntriesRequest{RPCHeader: fromLeader(), Term: 4}}
		go f.inbound.beat(beat)
		<-entered
		f.end()
		if f.inbound.beats.TryLock() { // As WaitForBeats does, but that it does not wait.
			t.Fatal("a heartbeat is being handled, and is not waited for")
		}
		close(leave)
		f.inbound.WaitForBeats()
		f.inbound.beat(beat)
		if n := handled.Load(); n != 1 {
			t.Errorf("%d heartbeats were handled, want only the one before the end", n)
		}
	})
}

// TestInboundSnapshot sends snapshots to a server with entries 11 to 13 of term
// 3 after its own snapshot, which ends at entry 10.
func TestInboundSnapshot(t *testing.T) {
	kept := []uint64{3, 3, 3}
	for _, tt := range []struct {
		name             string
		term             uint64
		index, indexTerm uint64
		accepted         bool
		ended, restored  int
		log              []uint64
		stuck            error
	}{
		{"of long ago", 5, 8, 2, true, 0, 0, kept, nil},
		{"of what is applied", 5, 10, 2, true, 0, 0, kept, nil},
		{"of an entry that the log has", 5, 12, 3, true, 0, 0, kept, nil},
		{"of the end of the log", 5, 13, 3, true, 0, 0, kept, nil},
		{"of a leader of before", 3, 12, 3, false, 0, 0, kept, nil},
		{"newer", 5, 20, 5, true, 0, 1, nil, nil},
		{"that overrules the log", 5, 12, 5, true, 1, 1, nil, nil},
		{"that overrules the end of the log", 5, 13, 5, true, 1, 1, nil, nil},
		{"newer, and the log cannot be cleared", 5, 20, 5, true, 1, 1, kept, errors.ErrUnsupported},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := mustFollow(t, 10, entriesOf(11, 3, 3, 3))
				f.store.stuck = tt.stuck
				if got := succeeded(f.install(tt.term, tt.index, tt.indexTerm)); got != tt.accepted {
					t.Errorf("accepted: %v, want %v", got, tt.accepted)
				}
				f.mustHold(t, tt.ended, tt.restored, 11, tt.log...)
				if tt.ended == 0 && tt.accepted { // The leader continues from there.
					next := entriesOf(tt.index+1, 5, 5, 5, 5, 5, 5)
					if !succeeded(f.append(5, tt.index, tt.indexTerm, next...)) || f.LastIndex() != tt.index+6 {
						t.Errorf("what follows is refused; the last entry is %d", f.LastIndex())
					}
				}
			})
		})
	}
}

// TestInboundAcknowledgedBehindASnapshot has a leader send a snapshot that ends
// before entries that this server has acknowledged.
func TestInboundAcknowledgedBehindASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := mustFollow(t, 10, entriesOf(11, 3, 3, 3, 3, 3))
		f.store.full = errors.ErrUnsupported
		if succeeded(f.append(4, 15, 3, entriesOf(16, 4)...)) {
			t.Error("there was room")
		}
		if !succeeded(f.install(4, 12, 3)) {
			t.Error("the snapshot was refused")
		}
		f.mustHold(t, 0, 0, 11, 3, 3, 3, 3, 3)
		f.store.full = nil
		if !succeeded(f.append(4, 12, 3, entriesOf(13, 3, 3, 3, 4)...)) {
			t.Error("refused")
		}
		f.mustHold(t, 0, 0, 11, 3, 3, 3, 3, 3, 4)
	})
}

// TestInboundWaitsForRaft sends a second call while raft processes the first.
func TestInboundWaitsForRaft(t *testing.T) {
	t.Run("an append of a leader of before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := mustFollow(t, 10, entriesOf(11, 3))
			f.store.terms = make(chan struct{})
			x := f.append(5, 11, 3, entriesOf(12, 5)...)
			y := f.append(4, 10, 2, entriesOf(11, 4)...)
			close(f.store.terms)
			synctest.Wait()
			if !succeeded(x) || len(y) != 1 || succeeded(y) {
				t.Error("the newer leader was refused, or the older one was not")
			}
			f.mustHold(t, 0, 0, 11, 3, 5)
		})
	})
	t.Run("a snapshot of what is being appended", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := mustFollow(t, 10, entriesOf(11, 3, 3, 3))
			f.store.entries = make(chan struct{})
			x := f.append(5, 10, 2, entriesOf(11, 5, 5, 5, 5)...)
			y := f.install(5, 12, 5)
			close(f.store.entries)
			synctest.Wait()
			if !succeeded(x) || !succeeded(y) {
				t.Error("refused")
			}
			f.mustHold(t, 0, 0, 11, 5, 5, 5, 5)
		})
	})
	t.Run("a snapshot that overrules what is being appended", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := mustFollow(t, 10, nil)
			f.store.entries = make(chan struct{})
			req := &raft.AppendEntriesRequest{
				RPCHeader: fromLeader(), Term: 4, PrevLogEntry: 10, PrevLogTerm: 2, Entries: entriesOf(11, 4, 4, 4),
			}
			x := f.call(req, nil)
			y := f.install(5, 12, 5)
			close(f.store.entries)
			synctest.Wait()
			if !succeeded(x) || !succeeded(y) {
				t.Error("refused")
			}
			f.mustHold(t, 1, 1, 11)
			select {
			case <-f.handling:
			default:
				t.Error("raft gets calls that it takes for a log that is gone")
			}
		})
	})
}

// TestInboundLostEnd overwrites entries while the disk has no space for the
// replacement.
func TestInboundLostEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := mustFollow(t, 10, entriesOf(11, 3, 3, 3))
		f.store.full = errors.ErrUnsupported
		if succeeded(f.append(5, 11, 3, entriesOf(12, 5)...)) {
			t.Error("there was room")
		}
		f.mustHold(t, 1, 0, 11, 3)
	})
}

// TestInboundNeedlessContent sends an unneeded snapshot slowly. The server
// reads it to its end before it answers, and other calls do not wait for it.
func TestInboundNeedlessContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := mustFollow(t, 10, entriesOf(11, 3))
		content, rest := io.Pipe()
		slow := f.call(&raft.InstallSnapshotRequest{RPCHeader: fromLeader(), Term: 5, LastLogIndex: 8}, content)
		if len(slow) > 0 || !succeeded(f.append(5, 11, 3, entriesOf(12, 5)...)) {
			t.Error("it was answered early, or kept others waiting")
		}
		if err := rest.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !succeeded(slow) {
			t.Error("refused")
		}
	})
}
