package archive_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/node/logs/archive"
	"berth/node/objects"
	"berth/node/statetest"
)

// world is an Archive over blobs in memory, with the attempt of an execution that has
// printed something.
type world struct {
	*statetest.State
	*archive.Archive
	*testing.T

	id      compute.ExecutionID
	blobs   map[compute.Hash][]byte
	fail    error // Error of the next blobs.
	printed string
	whole   bool
	reads   int           // Linearizable reads of the state.
	endless bool          // It prints without end.
	later   time.Duration // How far the clock is beyond the state.
}

func newWorld(t *testing.T, known uint64) *world {
	w := &world{State: statetest.New(t), T: t, blobs: map[compute.Hash][]byte{}, printed: strings.Repeat("a line\n", 1000), whole: true}
	w.Must(command.RegisterNode{Node: compute.Node{ID: w.Node, Name: "n1", Format: format.Newest}})
	w.Must(command.SetFormat{Term: 1, Format: known})
	w.id = w.Waiting[0]
	e, _ := w.Machine.View().AnyExecution(w.id)
	w.Must(command.CommitPlan{Term: 1, ViewIndex: w.Index, Plan: compute.Plan{Assignments: []compute.Assignment{{
		Execution: e.ID, Node: w.Node, GPUs: []compute.GPUShare{{GPU: "A", Milli: 1000}},
	}}}})
	store := objects.New(objects.Config{
		Blobs: w, Keys: keys{}, Propose: w.propose, NewID: func() compute.UUID { return compute.UUID{9} },
		Wait:   func(context.Context, uint64) (*fsm.View, error) { return w.Machine.View(), nil },
		Now:    time.Now,
		Logger: slog.New(slog.DiscardHandler), SealsChunks: func() bool { return true },
	})
	w.Archive = archive.New(archive.Config{
		View: w.Machine.View, Objects: store, Propose: w.propose, MaxBytes: 1, Registerer: prometheus.NewRegistry(),
		Now: func() time.Time { return w.Machine.View().Now().Time().Add(w.later) },
		Read: func(context.Context) (*fsm.View, error) {
			w.reads++
			return w.Machine.View(), nil
		},
		Export: func(_ context.Context, _ compute.Attempt, to io.Writer) (int, bool, error) {
			zeros := make([]byte, 1<<20)
			for w.endless {
				if _, err := to.Write(zeros); err != nil {
					return 1, true, err
				}
			}
			_, err := io.WriteString(to, w.printed)
			return strings.Count(w.printed, "\n"), w.whole, err
		},
	})
	return w
}

// end ends the attempt.
func (w *world) end() {
	w.Must(command.FinishAttempt{Node: w.Node, Outcome: compute.Outcome{
		Execution: w.id, Epoch: 1, Status: compute.StatusFailed, Ran: true, Duration: time.Second,
		Usage: compute.Usage{OutputLines: int64(strings.Count(w.printed, "\n"))},
	}})
}

func (w *world) propose(_ context.Context, cmd command.Command) (command.Result, uint64, error) {
	return w.Must(cmd), w.Index, nil
}

func (w *world) Put(_ context.Context, data []byte) (compute.Hash, error) {
	hash := compute.Hash(sha256.Sum256(data))
	w.blobs[hash] = bytes.Clone(data)
	return hash, w.fail
}

func (w *world) Lend(ctx context.Context, data []byte) (compute.Hash, bool, error) {
	hash, err := w.Put(ctx, data)
	return hash, true, err
}

func (w *world) Get(_ context.Context, hash compute.Hash) ([]byte, error) {
	return w.blobs[hash], w.fail
}

func (*world) Peek(compute.Hash, []byte) ([]byte, bool) { return nil, false }

// keys seals nothing.
type keys struct{}

func (keys) New(org compute.OrgID) (*compute.Bucket, error) {
	return &compute.Bucket{Org: org, Sealed: []byte{1}}, nil
}

func (keys) Open(*compute.Bucket) (objects.Key, error) { return plain{}, nil }

type plain struct{}

func (plain) Seal(data, _ []byte) ([]byte, error) { return bytes.Clone(data), nil }

func (plain) Open(sealed, _ []byte) ([]byte, error) { return sealed, nil }

func (plain) SealChunk(dst, data, _ []byte) ([]byte, objects.IV, error) {
	return append(dst, data...), objects.IV{}, nil
}

func (plain) OpenChunk(sealed, _ []byte, _ objects.IV) ([]byte, error) { return sealed, nil }

// mustKeep wants Keep to report done.
func (w *world) mustKeep(what string, done bool) {
	w.Helper()
	got, err := w.Keep(w.Context(), w.Node, w.id, 1)
	if err != nil || got != done {
		w.Errorf("%s: the output may go is %v, want %v; %v", what, got, done, err)
	}
}

// mustOpen wants the output in the archive to be as it was printed.
func (w *world) mustOpen(whole bool) {
	w.Helper()
	output, all, err := w.Open(w.Context(), w.id, 1)
	if err != nil || output == nil {
		w.Fatalf("opened %v, %v", output, err)
	}
	defer output.Close()
	got, err := io.ReadAll(output)
	if err != nil || string(got) != w.printed || all != whole {
		w.Errorf("read %d bytes, whole %v, %v", len(got), all, err)
	}
}

// TestKeep archives output once its attempt has ended, and lets it go when that is known.
func TestKeep(t *testing.T) {
	w := newWorld(t, format.Newest)
	w.mustKeep("a live attempt", false)
	if output, _, err := w.Open(t.Context(), w.id, 1); output != nil || err != nil {
		t.Errorf("opened %v, %v", output, err)
	}
	w.end()
	w.whole = false
	w.mustKeep("a part", false)
	w.mustOpen(false)
	w.whole, w.printed = true, w.printed+"the end\n"
	w.mustKeep("the whole, as its node is up", false)
	w.mustOpen(true)
	w.mustKeep("the whole was archived just now", false)
	w.later = time.Minute
	w.mustKeep("the whole is archived", true)
	if done, err := w.Keep(t.Context(), compute.NodeID{UUID: compute.UUID{7}}, w.id, 1); done || compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("another node may remove it is %v, %v", done, err)
	}
	if _, size := w.Machine.View().ArchivedOutputs(); size <= 0 || size > int64(len(w.printed)/10) {
		t.Errorf("%d compressible bytes are archived as %d", len(w.printed), size)
	}
	if w.reads != 0 {
		t.Error("the leader was asked for an execution that this node knows")
	}
	w.id.UUID[15]++
	w.mustKeep("an execution that is gone", true)
	if w.reads != 1 {
		t.Error("output of an execution that others may know was let go")
	}
}

// TestKeepNothing lets go of what is not worth archiving, or cannot be archived yet.
func TestKeepNothing(t *testing.T) {
	w := newWorld(t, format.Newest)
	w.end()
	w.printed = ""
	w.mustKeep("nothing was printed", true)
	old := newWorld(t, 9)
	old.end()
	old.mustKeep("a server is too old", true)
	for _, w := range []*world{w, old} {
		if count, _ := w.Machine.View().ArchivedOutputs(); count != 0 {
			t.Errorf("%d outputs are archived", count)
		}
	}
}

// mustKeepCopy wants KeepCopy to report done.
func (w *world) mustKeepCopy(what string, done bool) {
	w.Helper()
	got, err := w.KeepCopy(w.Context(), w.id, 1)
	if err != nil || got != done {
		w.Errorf("%s: the copy may go is %v, want %v; %v", what, got, done, err)
	}
}

// TestKeepCopy leaves output to its node while that is up, and archives what is left of it
// once otherwise. The node's own output is kept until it is archived whole.
func TestKeepCopy(t *testing.T) {
	w := newWorld(t, format.Newest)
	w.end()
	w.whole, w.later = false, time.Minute
	w.mustKeepCopy("its node is up", false)
	if count, _ := w.Machine.View().ArchivedOutputs(); count != 0 {
		t.Errorf("%d outputs of a node that is up are archived", count)
	}
	w.Must(command.SetNodeState{Term: 1, Node: w.Node, State: compute.NodeDown})
	w.mustKeepCopy("a part", false)
	w.mustKeepCopy("no more is to be had", true)
	w.mustKeep("its node has the rest, and seems to be down", false)
	w.Must(command.SetNodeState{Term: 1, Node: w.Node, State: compute.NodeUp})
	w.mustKeepCopy("its node has the rest", false)
	w.whole = true
	w.mustKeep("the whole", false)
	w.mustKeepCopy("the whole is archived", true)
	w.mustKeep("the whole is archived", true)
}

// TestKeepCopyOfNothing lets a copy go that has no output: its node archives none.
func TestKeepCopyOfNothing(t *testing.T) {
	w := newWorld(t, format.Newest)
	w.printed = ""
	w.end()
	w.mustKeepCopy("nothing was printed", true)
}

// TestKeepForNobody lets go of output that nobody could read.
func TestKeepForNobody(t *testing.T) {
	w := newWorld(t, format.Newest)
	w.end()
	w.Must(command.StopExecution{Op: w.NextOp(), Actor: w.Actor, Execution: w.Waiting[1], Stop: compute.StopHard})
	w.Must(command.DeleteOrg{Op: w.NextOp(), Actor: w.Actor, Org: w.Actor.Org})
	w.mustKeep("the organization has ended", true)
}

// TestKeepTooMuch refuses output that is larger than any that a node keeps.
func TestKeepTooMuch(t *testing.T) {
	w := newWorld(t, format.Newest)
	w.end()
	w.endless = true
	if done, err := w.Keep(t.Context(), w.Node, w.id, 1); done || compute.CodeOf(err) != compute.CodeTooLarge {
		t.Errorf("may go is %v, %v", done, err)
	}
}

// TestKeepFails keeps output on its node while it cannot be stored, and says why archived
// output cannot be read.
func TestKeepFails(t *testing.T) {
	w := newWorld(t, format.Newest)
	w.end()
	w.fail = errors.New("the disks are full")
	if done, err := w.Keep(t.Context(), w.Node, w.id, 1); done || err == nil || !strings.Contains(err.Error(), "the disks are full") {
		t.Errorf("may go is %v, %v", done, err)
	}
	w.fail = nil
	w.mustKeep("the disks have space again", false)
	w.mustOpen(true)
	for hash, data := range w.blobs {
		w.blobs[hash] = data[:len(data)/2]
	}
	output, _, err := w.Open(t.Context(), w.id, 1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadAll(output)
	if e, ok := errors.AsType[*compute.Error](err); !ok || e.Code != compute.CodeUnavailable || e.Detail != "output_unreadable" {
		t.Errorf("damaged output: %v", err)
	}
	if err := output.Close(); err != nil {
		t.Error(err)
	}
}

// TestTrim drops archived output beyond the limit.
func TestTrim(t *testing.T) {
	w := newWorld(t, format.Newest)
	w.end()
	w.mustKeep("first", false)
	if err := w.Trim(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if count, size := w.Machine.View().ArchivedOutputs(); count != 0 || size != 0 {
		t.Errorf("%d outputs of %d bytes are left", count, size)
	}
}
