package replication

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"berth/cluster/rpc"
	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/node/statetest"
	"berth/node/storage"
	"berth/node/trees"
)

// servers are the servers of one process, each with its disk and its Repairer.
// Those that are silent do not answer.
type servers struct {
	*statetest.State

	t *testing.T

	ids       []compute.NodeID
	blobs     map[compute.NodeID]*storage.Blobs
	repairers map[compute.NodeID]*Repairer
	now       time.Time

	mu     sync.Mutex
	silent map[compute.NodeID]bool
}

func newServers(t *testing.T, n, replicas int) *servers {
	t.Helper()
	return newServersOn(t, n, replicas, func(int) string { return t.TempDir() })
}

// newServersOn is newServers with the directories of their disks.
func newServersOn(t *testing.T, n, replicas int, dirOf func(i int) string) *servers {
	t.Helper()
	f := &servers{
		State: statetest.New(t), t: t, blobs: map[compute.NodeID]*storage.Blobs{}, repairers: map[compute.NodeID]*Repairer{},
		now: time.Unix(1_800_000_000, 0), silent: map[compute.NodeID]bool{},
	}
	settings := f.Machine.View().Settings()
	settings.Queued = 0 // No limit.
	f.Must(command.SetSettings{Term: 1, Settings: settings})
	f.Must(command.CreateJoinToken{Op: f.NextOp(), Actor: command.Actor{Root: true}, Token: compute.JoinToken{
		ID: "t", Hash: compute.Hash{3}, Uses: n + 1, ExpiresAt: f.Machine.View().Now().Add(time.Hour),
	}})
	for i := range n {
		f.add(replicas, dirOf(i))
	}
	return f
}

// add has another server join.
func (f *servers) add(replicas int, dir string) {
	f.t.Helper()
	i := len(f.ids)
	id := compute.NodeID{UUID: compute.UUID{1 + byte(i)}}
	register := command.RegisterNode{Node: compute.Node{ID: id, Name: fmt.Sprint("n", 1+i), Format: format.Newest}}
	if id != f.Node {
		register.TokenID, register.TokenHash = "t", compute.Hash{3}
	}
	f.Must(register)
	store, err := storage.Open(dir, time.Now)
	if err != nil {
		f.t.Fatal(err)
	}
	f.ids = append(f.ids, id)
	f.blobs[id] = storage.New(storage.Config{
		Self: id, Store: store, Peers: f, Replicas: replicas, Logger: slog.New(slog.DiscardHandler),
		Nodes: func() []storage.Node { return Nodes(f.Machine.View()) }, Metrics: prometheus.NewRegistry(),
	})
	f.repairers[id] = NewRepairer(f.Machine.View, f.blobs[id], trees.New(f.blobs[id].Get), &storedObjects{},
		func() time.Time { return f.now }, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

// setSilent makes servers stop answering, or answer again.
func (f *servers) setSilent(silent bool, ids ...compute.NodeID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		f.silent[id] = silent
	}
}

func (f *servers) answers(id compute.NodeID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.silent[id] {
		return errors.New("it does not answer")
	}
	return nil
}

// Open implements storage.Peers.
func (f *servers) Open(ctx context.Context, id compute.NodeID, req []byte) (io.ReadWriteCloser, error) {
	if err := f.answers(id); err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		_ = f.blobs[id].Serve(ctx, req, far) // The other end sees it.
	}()
	return near, nil
}

// code queues n executions and stores their code on its owners.
func (f *servers) code(n int) []compute.Hash {
	f.t.Helper()
	hashes := make([]compute.Hash, n)
	for i := range hashes {
		hash, err := f.blobs[f.ids[0]].Put(f.t.Context(), fmt.Appendf(nil, "code %d of %d", i, f.Index))
		if err != nil {
			f.t.Fatal(err)
		}
		f.Must(command.Submit{Op: f.NextOp(), Actor: f.Actor, Execution: compute.Execution{
			ID: compute.ExecutionID{UUID: compute.UUID{30, f.NextOp().ID.UUID[1]}}, Profile: "t4", Timeout: time.Minute,
			Bundle: compute.BundleRef{Hash: hash, Size: 20 << 10},
		}})
		hashes[i] = hash
	}
	return hashes
}

// count returns how many of hashes are on none of ids.
func (f *servers) count(hashes []compute.Hash, ids ...compute.NodeID) (gone int) {
	for _, hash := range hashes {
		if !slices.ContainsFunc(ids, func(id compute.NodeID) bool { return f.blobs[id].Has(hash) }) {
			gone++
		}
	}
	return gone
}

// copies returns on how many of ids a blob is.
func (f *servers) copies(hash compute.Hash, ids []compute.NodeID) (n int) {
	for _, id := range ids {
		if f.blobs[id].Has(hash) {
			n++
		}
	}
	return n
}

// scanAll runs one scan on every server.
func (f *servers) scanAll() {
	for _, k := range f.repairers {
		k.scan(f.t.Context())
	}
}

// remove asks whether a server may leave, as the API does.
func (f *servers) remove(id compute.NodeID) error {
	ask := func(ctx context.Context, id compute.NodeID, q query) (Missing, error) {
		if err := f.answers(id); err != nil {
			return Missing{}, err
		}
		k, answer := f.repairers[id], make(chan Missing)
		go func() { answer <- k.Wait(ctx, q.Leaver, q.Silent) }()
		<-k.wake
		k.scan(ctx)
		return <-answer, nil
	}
	_, err := missingWithout(f.t.Context(), f.Machine.View(), id, ask)
	return err
}

// mustRefuse fails unless the removal of a server is refused for a reason that
// contains all of want.
func (f *servers) mustRefuse(id compute.NodeID, want ...string) {
	f.t.Helper()
	err := f.remove(id)
	e, ok := errors.AsType[*compute.Error](err)
	if !ok || e.Detail != "copies_missing" {
		f.t.Fatalf("the removal gives %v, want copies_missing", err)
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			f.t.Errorf("the refusal is %q, want %q", err, text)
		}
	}
}

// TestNoServerLeavesWithTheOnlyCopy checks that code with a single copy is
// copied to another server before its server leaves. A server that does not
// provide its copy leaves only by force.
func TestNoServerLeavesWithTheOnlyCopy(t *testing.T) {
	f := newServers(t, 3, 1)
	hashes := f.code(9)
	f.scanAll()
	leaver, stay := f.ids[0], f.ids[1:]
	if f.count(hashes, stay...) == 0 {
		t.Fatal("it has nothing alone")
	}
	f.setSilent(true, leaver)
	f.mustRefuse(leaver, " lacks 0 archives of old executions and ", " bundles of code (such as blob ")
	f.Must(command.SetNodeState{Term: 1, Node: leaver, State: compute.NodeDown})
	f.mustRefuse(leaver, "such as blob ")
	f.setSilent(false, leaver)
	if err := f.remove(leaver); err != nil || f.count(hashes, stay...) != 0 {
		t.Errorf("%v, and %d blobs would be lost", err, f.count(hashes, stay...))
	}
}

// TestSilentCopiesDoNotCount checks that a server cannot leave with the last
// copy that answers, whether or not the state reports the other copy's server
// as down.
func TestSilentCopiesDoNotCount(t *testing.T) {
	for name, down := range map[string]bool{"known to be down": true, "not known": false} {
		t.Run(name, func(t *testing.T) {
			f := newServers(t, 4, 2)
			hashes := f.code(20)
			f.scanAll()
			leaver, dead, stay := f.ids[0], f.ids[1], f.ids[2:]
			if f.count(hashes, stay...) == 0 {
				t.Fatal("the two have nothing alone")
			}
			f.setSilent(true, leaver, dead)
			if down {
				f.Must(command.SetNodeState{Term: 1, Node: dead, State: compute.NodeDown})
			}
			f.mustRefuse(leaver, "bundles of code", "not counted is what n2 has")
			f.setSilent(false, leaver)
			if err := f.remove(leaver); err != nil || f.count(hashes, stay...) != 0 {
				t.Errorf("%v, and %d blobs would be lost", err, f.count(hashes, stay...))
			}
			f.setSilent(true, stay...)
			f.mustRefuse(leaver, "no other server says")
		})
	}
}

// TestServerWithoutUniqueCopiesMayLeave checks that a server that has no unique copy
// can leave, although another server that has one is down.
func TestServerWithoutUniqueCopiesMayLeave(t *testing.T) {
	f := newServers(t, 4, 1)
	hashes := f.code(40)
	f.scanAll()
	leaver, dead := f.ids[0], f.ids[1]
	f.setSilent(true, dead)
	if err := f.remove(leaver); err != nil {
		t.Error(err)
	}
	if all, without := f.count(hashes, f.ids[1:]...), f.count(hashes, f.ids[2:]...); all != 0 || without == 0 {
		t.Errorf("%d blobs would be lost, %d with the one that is down", all, without)
	}
}

// TestTwoLeaveAtOnce checks that of two servers that are about to leave,
// neither counts on the other's copies until it is clear that one stays.
func TestTwoLeaveAtOnce(t *testing.T) {
	f := newServers(t, 4, 1)
	hashes := f.code(12)
	f.scanAll()
	for _, leaver := range f.ids[:2] {
		if err := f.remove(leaver); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.count(hashes, f.ids[2:]...); n != 0 {
		t.Errorf("%d blobs would be lost", n)
	}
	k := f.repairers[f.ids[3]]
	f.Must(command.RemoveNode{Op: f.NextOp(), Actor: command.Actor{Root: true}, Node: f.ids[1]})
	if _, without := k.begin(); !slices.Equal(without.leavers, f.ids[:1]) {
		t.Errorf("once one has left, %v are to leave", without.leavers)
	}
	f.now = f.now.Add(leavePeriod + time.Second)
	if _, without := k.begin(); len(without.leavers) != 0 {
		t.Errorf("later %v are to leave", without.leavers)
	}
}

// TestRepairerFindsLateCode checks that a server periodically scans for code
// that was put while it did not answer.
func TestRepairerFindsLateCode(t *testing.T) {
	f := newServers(t, 3, 1)
	f.scanAll()
	late := f.ids[2]
	f.setSilent(true, late)
	hashes := f.code(9)
	f.setSilent(false, late)
	f.scanAll()
	if f.count(hashes, late) != len(hashes) {
		t.Error("it scans all the time")
	}
	f.now = f.now.Add(bundlePeriod)
	f.scanAll()
	if f.count(hashes, late) == len(hashes) {
		t.Error("it has none of its share")
	}
}

// TestCodeIsCopiedWhileAServerStaysDown checks that code gets its full number
// of copies again once a server is down for long, but not when it merely
// restarts.
func TestCodeIsCopiedWhileAServerStaysDown(t *testing.T) {
	f := newServers(t, 4, 2)
	hashes := f.code(20)
	f.scanAll()
	dead, stay := f.ids[0], f.ids[1:]
	f.setSilent(true, dead)
	f.Must(command.SetNodeState{Term: 1, Node: dead, State: compute.NodeDown})
	single := func() (n int) {
		for _, hash := range hashes {
			if f.copies(hash, stay) < 2 {
				n++
			}
		}
		return n
	}
	f.scanAll()
	if single() == 0 {
		t.Fatal("a server that was down for no time is as good as gone")
	}
	for range 2 { // One entry cannot advance the clock so far.
		f.Must(command.Clock{Term: 1, At: f.Machine.View().Now().Add(downPeriod / 2)})
	}
	f.scanAll()
	if n := single(); n != 0 {
		t.Errorf("%d of %d blobs have one copy that answers", n, len(hashes))
	}
}

// TestFetchAllEnds checks that a scan ends early when going on is useless, and
// counts the blobs that it left.
func TestFetchAllEnds(t *testing.T) {
	k, hashes := &Repairer{}, make([]compute.Hash, 2*maxFailed)
	for i := range hashes {
		hashes[i] = compute.Hash{1 + byte(i)}
	}
	for _, test := range []struct {
		name                        string
		code                        compute.Code
		tried, lost, refused, brung int
	}{
		{name: "all come", tried: len(hashes), brung: len(hashes)},
		{name: "nobody has them", code: compute.CodeNotFound, tried: len(hashes), lost: len(hashes)},
		{name: "nobody answers", code: compute.CodeUnavailable, tried: maxFailed, refused: len(hashes)},
		{name: "the disk is full", code: compute.CodeNoSpace, tried: 1, refused: len(hashes)},
	} {
		tried, have := 0, 0
		b := k.fetchAll(t.Context(), hashes, func(context.Context, compute.Hash) error {
			tried++
			if test.code == "" {
				return nil
			}
			return compute.Errorf(test.code, "No.")
		}, func() { have++ })
		if tried != test.tried || b.lost != test.lost || b.refused != test.refused || have != test.brung ||
			compute.CodeOf(b.err) != test.code || (b.held == compute.Hash{}) != (test.refused == 0) {
			t.Errorf("%s: %d tried, %d fetched, %+v", test.name, tried, have, b)
		}
	}
}

// TestMissingIsAnsweredSafely checks the answer to an older server, which does
// not report which server leaves: not scanned, because an error would be no
// refusal. An older server refuses the query of a newer one.
func TestMissingIsAnsweredSafely(t *testing.T) {
	old, err := cbor.Marshal(uint64(7))
	if err != nil {
		t.Fatal(err)
	}
	data, err := (&Copies{}).serve(t.Context(), rpc.Peer{}, old)
	var lacks Missing
	if err != nil || cbor.Unmarshal(data, &lacks) != nil || lacks.Scanned || lacks.None() {
		t.Errorf("an older server gets %+v, %v", lacks, err)
	}
	f := newServers(t, 2, 1)
	q := query{Index: f.Index, Leaver: f.ids[1], Silent: f.ids[:1]}
	request, err := cbor.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	var index uint64
	if cbor.Unmarshal(request, &index) == nil {
		t.Error("an older server takes the question for its own")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	k := f.repairers[f.ids[0]]
	if _, err := (&Copies{Machine: f.Machine, Repairer: k}).serve(ended, rpc.Peer{}, request); err != nil {
		t.Error(err)
	}
	if _, without := k.begin(); !slices.Equal(without.leavers, f.ids[1:]) || !slices.Equal(without.silent, f.ids[:1]) {
		t.Errorf("it was asked %+v, and understood %+v", q, without)
	}
}

// TestRepairerReportsMissingBlobs checks that a server fetches archives, reports as
// missing those that it could not fetch, and does not wait for lost ones.
func TestRepairerReportsMissingBlobs(t *testing.T) {
	f := newServers(t, 2, 2)
	k, other := f.repairers[f.ids[0]], f.ids[1]
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if lacks := k.Wait(ended, other, nil); lacks.None() || lacks.Scanned {
		t.Errorf("before any scan: %+v", lacks)
	}
	blob := f.archive(t)
	f.setSilent(true, other)
	scan := func(what string, want Missing, missing float64) {
		t.Helper()
		want.Scanned = true
		k.scan(t.Context())
		if k.lacks != want || testutil.ToFloat64(k.metrics.archives) != missing {
			t.Errorf("%s: %+v and %g missing, want %+v and %g", what, k.lacks, testutil.ToFloat64(k.metrics.archives), want, missing)
		}
	}
	scan("the other server does not answer", Missing{Archives: 1}, 1)
	if lacks := k.Wait(ended, other, nil); lacks.Scanned || lacks.Archives != 1 {
		t.Errorf("of the previous scan: %+v", lacks)
	}
	f.setSilent(false, other)
	scan("no server has it", Missing{}, 1)
	f.setSilent(true, f.ids[0])
	if _, err := f.blobs[other].Spread(t.Context(), blob, 1); err != nil {
		t.Fatal(err)
	}
	scan("another server has it", Missing{}, 0)
}

// archive archives all finished executions but one and returns the blob of the
// archive.
func (f *servers) archive(t *testing.T) []byte {
	t.Helper()
	f.Must(command.SetFormat{Term: 1, Format: format.Newest})
	settings := f.Machine.View().Settings()
	settings.MaxFinished = 1
	f.Must(command.SetSettings{Term: 1, Settings: settings})
	for _, id := range f.Waiting {
		f.Must(command.StopExecution{Op: f.NextOp(), Actor: f.Actor, Execution: id, Stop: compute.StopHard})
	}
	draft := f.Machine.View().DraftArchive(nil)
	if draft == nil {
		t.Fatal("nothing is due")
	}
	draft.Command.Term = 1
	f.Must(draft.Command)
	return draft.Blob
}

func TestRemovalNamesServersThatCopy(t *testing.T) {
	l := statetest.New(t)
	other := compute.NodeID{UUID: compute.UUID{2}}
	servers := []compute.NodeID{l.Node, other}
	for _, test := range []struct {
		name  string
		lacks []Missing
		want  string // "" for no refusal.
	}{
		{"all have all", []Missing{{Scanned: true}, {Scanned: true}}, ""},
		{"archives", []Missing{{Scanned: true, Archives: 7}, {Scanned: true}}, "n1 lacks 7 archives"},
		{"code", []Missing{{Scanned: true, Bundles: 3}, {Scanned: true}}, "and 3 bundles"},
		{"no scan yet", []Missing{{Scanned: true}, {}}, other.String() + " is still checking for"},
		{"scan in progress", []Missing{{Archives: 2}, {Archives: 1}}, "2 archives of old executions and 0 bundles of code; "},
	} {
		err := copiesRefusal(l.Machine.View(), servers, test.lacks, nil)
		if test.want == "" && err == nil {
			continue
		}
		e, ok := errors.AsType[*compute.Error](err)
		if !ok || e.Code != compute.CodeConflict || e.Detail != "copies_missing" || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}
