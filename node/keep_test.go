package node

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"berth/compute"
	"berth/fsm"
	"berth/node/storage"
)

// pipes are the servers of one process; those that are nil do not answer.
type pipes map[compute.NodeID]*storage.Blobs

func (p pipes) Open(ctx context.Context, id compute.NodeID, req []byte) (io.ReadWriteCloser, error) {
	if p[id] == nil {
		return nil, errors.New("it does not answer")
	}
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		_ = p[id].Serve(ctx, req, far) // The other end sees it.
	}()
	return near, nil
}

// TestKeeperSaysWhatItLacks holds that a server brings archives, says of those
// that it could not bring that it lacks them, and waits for none that is lost.
func TestKeeperSaysWhatItLacks(t *testing.T) {
	l := newLedger(t)
	l.must(fsm.RegisterNode{Node: compute.Node{ID: l.node, Name: "n1", Format: fsm.Format}})
	other := compute.NodeID{UUID: compute.UUID{2}}
	peers, blobs := pipes{}, []*storage.Blobs{nil, nil}
	for i, id := range []compute.NodeID{l.node, other} {
		store, err := storage.Open(t.TempDir(), time.Now)
		if err != nil {
			t.Fatal(err)
		}
		blobs[i] = storage.New(storage.Config{
			Self: id, Store: store, Peers: peers, Replicas: 2, Logger: slog.New(slog.DiscardHandler),
			Nodes:   func() []storage.Node { return []storage.Node{{ID: l.node, Up: true}, {ID: other, Up: true}} },
			Metrics: prometheus.NewRegistry(),
		})
	}
	k := &keeper{
		view: l.machine.View, blobs: blobs[0], logger: slog.New(slog.DiscardHandler),
		missing: prometheus.NewGauge(prometheus.GaugeOpts{}), wake: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if lacks := k.wait(ended); lacks.nothing() || lacks.Looked {
		t.Errorf("before any look: %+v", lacks)
	}
	blob := l.archive(t)
	look := func(what string, want lacking, missing float64) {
		t.Helper()
		k.look(t.Context())
		if k.lacks != want || testutil.ToFloat64(k.missing) != missing {
			t.Errorf("%s: %+v and %g missing, want %+v and %g", what, k.lacks, testutil.ToFloat64(k.missing), want, missing)
		}
	}
	look("the other server does not answer", lacking{Archives: 1}, 1)
	peers[other] = blobs[1]
	look("no server has it", lacking{}, 1)
	if _, err := blobs[1].Spread(t.Context(), blob, 1); err != nil {
		t.Fatal(err)
	}
	look("another server has it", lacking{}, 0)
}

// archive has the state keep one finished execution and returns the blob of the
// others.
func (l *ledger) archive(t *testing.T) []byte {
	t.Helper()
	l.must(fsm.SetFormat{Term: 1, Format: fsm.Format})
	settings := l.machine.View().Settings()
	settings.MaxFinished = 1
	l.must(fsm.SetSettings{Term: 1, Settings: settings})
	for _, id := range l.waits {
		l.must(fsm.StopExecution{Op: l.nextOp(), Actor: l.actor, Execution: id, Stop: compute.StopHard})
	}
	draft := l.machine.View().DraftArchive(nil)
	if draft == nil {
		t.Fatal("nothing is due")
	}
	draft.Command.Term = 1
	l.must(draft.Command)
	return draft.Blob
}

func TestRemovalNamesWhoCopies(t *testing.T) {
	l := newLedger(t)
	other := compute.NodeID{UUID: compute.UUID{2}}
	servers := []compute.NodeID{l.node, other}
	for _, test := range []struct {
		name  string
		lacks []lacking
		want  string // "" for no refusal.
	}{
		{"all have all", []lacking{{Looked: true}, {Looked: true}}, ""},
		{"archives", []lacking{{Looked: true, Archives: 7}, {Looked: true}}, "n1 lacks 7 archives"},
		{"code", []lacking{{Looked: true, Bundles: 3}, {Looked: true}}, "and 3 bundles"},
		{"no look yet", []lacking{{Looked: true}, {}}, other.String() + " still looks whether"},
		{"still looks", []lacking{{Archives: 2}, {Archives: 1}}, "2 archives of old executions and 0 bundles of code; "},
	} {
		err := copiesRefusal(l.machine.View(), servers, test.lacks)
		if test.want == "" && err == nil {
			continue
		}
		e, ok := errors.AsType[*compute.Error](err)
		if !ok || e.Code != compute.CodeConflict || e.Detail != "copies_missing" || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}
