package fsm_test

import (
	"bytes"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// mustPoison returns the poison with which do panics.
func mustPoison(t *testing.T, do func()) (p *fsm.PoisonError) {
	t.Helper()
	defer func() {
		if p, _ = recover().(*fsm.PoisonError); p == nil {
			t.Error("the entry was applied")
			p = &fsm.PoisonError{}
		}
	}()
	do()
	return nil
}

// poison returns an entry that raises the clock and creates a key; the rest of
// it cannot be decoded.
func (w *world) poison(key command.CreateKey) []byte {
	w.Helper()
	later := command.Clock{At: w.now.Add(1000), Term: w.term}
	return slices.Concat(w.frame(later), w.frame(key), []byte{200, 1, 0, 0, 0, 1, 0xa0})
}

func (w *world) newKey(name string) command.CreateKey {
	return command.CreateKey{Op: w.op(w.org, name), Actor: w.ada, Key: compute.Key{
		ID: compute.KeyID{UUID: w.uuid()}, Lookup: "l" + name, Name: name, User: w.ada.User, Personal: true,
	}}
}

// TestNothingIsPublishedAfterPoison checks that a half-changed state is never
// visible: in no view, snapshot or checkpoint, even if the caller continues.
func TestNothingIsPublishedAfterPoison(t *testing.T) {
	w := newWorld(t)
	var kept bytes.Buffer
	before := w.view()
	if err := before.WriteSnapshot(&kept); err != nil {
		t.Fatal(err)
	}
	const at = 256 // A checkpoint is due there.
	entry := w.poison(w.newKey("half"))
	var ends *fsm.PoisonError
	w.fsm.Guard(fsm.Guard{Poisoned: func(p *fsm.PoisonError) { ends = p }})
	p := mustPoison(t, func() {
		w.fsm.ApplyBatch([]*raft.Log{
			{Index: at - 1, Type: raft.LogCommand, Data: w.frame(command.Clock{At: w.now, Term: w.term})},
			{Index: at, Type: raft.LogCommand, Data: entry},
		})
	})
	if ends != p || p.Index != at || p.Hash != fsm.HashEntry(entry) || p.Frame != 3 || p.Frames != 3 || len(p.Stack) == 0 {
		t.Errorf("got %+v", p)
	}
	configuration := func() { w.fsm.StoreConfiguration(at+1, raft.Configuration{}) }
	for name, do := range map[string]func(){
		"an entry":         func() { w.fsm.ApplyFrames(at, w.frame(command.Clock{At: w.now, Term: w.term})) },
		"another log":      func() { w.fsm.Apply(&raft.Log{Index: at + 1, Type: raft.LogNoop}) },
		"a configuration":  configuration,
		"the same, again":  func() { w.fsm.ApplyEntries(at, entry) },
		"an empty entry":   func() { w.fsm.ApplyEntries(at + 1) },
		"configuration, 2": configuration,
	} {
		if again := mustPoison(t, do); again.Index != at {
			t.Errorf("%s: got %v", name, again)
		}
	}
	if _, err := w.fsm.Snapshot(); err == nil {
		t.Error("a snapshot was made")
	}
	if w.view() != before || len(w.fsm.Checkpoints()) != 0 {
		t.Errorf("index %d was published, marks %v", w.view().Index(), w.fsm.Checkpoints())
	}
	if err := w.fsm.Restore(io.NopCloser(&kept)); err != nil {
		t.Fatal(err)
	}
	if w.must(w.newKey("whole")); w.view().Hash() == before.Hash() {
		t.Error("a restored machine does not go on")
	}
}

// TestListedEntriesAreSkipped checks that an entry is skipped when both its
// index and its bytes are listed, on all replicas alike.
func TestListedEntriesAreSkipped(t *testing.T) {
	w := newWorld(t)
	key := w.newKey("poisoned")
	entry := w.poison(key)
	index, hash := w.index+1, fsm.HashEntry(entry)
	w.entries = append(w.entries, entry)
	for name, listed := range map[string]fsm.Skips{
		"nothing":          nil,
		"other bytes":      {index: fsm.HashEntry(entry[1:])},
		"another index":    {index + 1: hash, index - 1: hash},
		"neither together": {index: fsm.HashEntry(nil), 1: hash},
	} {
		f := fsm.New()
		f.Guard(fsm.Guard{Skips: listed})
		if p := mustPoison(t, func() { f.ApplyEntries(1, w.entries...) }); p.Index != index {
			t.Errorf("with %s listed it stops at %d, want %d", name, p.Index, index)
		}
	}

	listed := fsm.Skips{index: hash, 1: fsm.HashEntry(nil)}
	skipped := map[uint64]compute.Hash{}
	w.fsm.Guard(fsm.Guard{Skips: listed, Skipped: func(i uint64, h compute.Hash) { skipped[i] = h }})
	before := w.view()
	results := w.fsm.ApplyEntries(index, entry)[0]
	if len(results) != 3 || !maps.Equal(skipped, map[uint64]compute.Hash{index: hash}) {
		t.Errorf("got %d results, skipped %v", len(results), skipped)
	}
	for i, r := range results {
		if r.Refusal == nil || r.Refusal.Code != compute.CodeConflict || r.Refusal.Detail != "entry_skipped" {
			t.Errorf("command %d: got %+v", i+1, r)
		}
	}
	w.index = index
	if v := w.view(); v.Index() != index || v.Now() != before.Now() || len(v.Keys(w.org)) != len(before.Keys(w.org)) {
		t.Errorf("index %d, time %v, keys %v", v.Index(), v.Now(), v.Keys(w.org))
	}
	// It was not decided, so its repeat is decided like a new request.
	if r := w.must(key); r.Repeat {
		t.Error("the request is remembered")
	}

	for name, size := range map[string]int{"one by one": 1, "at once": len(w.entries)} {
		f := fsm.New()
		f.Guard(fsm.Guard{Skips: listed})
		next := uint64(1)
		for batch := range slices.Chunk(w.entries, size) {
			f.ApplyEntries(next, batch...)
			next += uint64(len(batch))
		}
		if f.View().Index() != w.index || f.View().Hash() != w.view().Hash() {
			t.Errorf("%s: a replica differs at index %d", name, f.View().Index())
		}
	}
}

// TestFrames checks that the commands of an entry are reported, even if some
// cannot be decoded.
func TestFrames(t *testing.T) {
	w := newWorld(t)
	key := w.newKey("k")
	entry := w.poison(key)
	frames := command.Frames(append(entry, 1, 1, 0xff))
	if len(frames) != 4 || frames[0].Command != "Clock" || frames[1].Command != "CreateKey" ||
		frames[1].Org != w.org || frames[1].Op != key.Op.ID || frames[2].Command != "" || frames[3].Bytes != 3 {
		t.Errorf("got %+v", frames)
	}
	if got := command.Frames(nil); got != nil {
		t.Errorf("of nothing: %+v", got)
	}
}

// TestNoKeyStopsTheServers creates keys with many names.
func TestNoKeyStopsTheServers(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "poison", "\x00", "ü", strings.Repeat("x", 200)} {
		func() {
			defer func() {
				if v := recover(); v != nil {
					t.Fatalf("the key %q stops every server: %v", name, v)
				}
			}()
			w.must(w.newKey(name))
		}()
	}
}
