package cluster_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/replica"
)

// The toy's frames: kind u8, version u8, length u32, payload.
const (
	toyPreamble = 1
	toyOp       = 2
)

// toyCommand is the payload of an operation: it sets Key to Value once per Op.
type toyCommand struct {
	Op    string
	Key   string
	Value int64
	Pad   []byte `json:",omitempty"`
}

func toyFrame(kind byte, payload []byte) []byte {
	frame := append([]byte{kind, 1}, 0, 0, 0, 0)
	binary.BigEndian.PutUint32(frame[2:], uint32(len(payload)))
	return append(frame, payload...)
}

func opFrame(c toyCommand) []byte {
	payload, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return toyFrame(toyOp, payload)
}

func termFrame(term uint64, _ time.Time) []byte {
	return toyFrame(toyPreamble, binary.BigEndian.AppendUint64(nil, term))
}

// toyState is the toy's state, and its snapshot.
type toyState struct {
	Values  map[string]int64
	Ops     map[string]int64 // From Op to the count of its first application.
	Applied int64            // Operations with an effect.
	Index   uint64
	Term    uint64
}

// toyFSM is a state machine that recognizes repeats by their op.
type toyFSM struct {
	mu      sync.Mutex
	state   toyState
	moved   chan struct{}
	entries int
	served  int // Restores.

	refuse  func(toyState) error // Checks states in Restore; nil for none.
	marking bool                 // Whether to take marks, after every toyMarkEvery-th entry.
	marks   []replica.StateMark
}

const toyMarkEvery = 32

// stateMarks returns the marks taken so far.
func (f *toyFSM) stateMarks() []replica.StateMark {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.marks)
}

// mark takes a mark. The caller holds mu.
func (f *toyFSM) mark() {
	if !f.marking || f.state.Index%toyMarkEvery != 0 {
		return
	}
	text, err := json.Marshal(f.state) // Maps are encoded in the order of their keys.
	if err != nil {
		panic(err)
	}
	f.marks = append(f.marks, replica.StateMark{Index: f.state.Index, Hash: sha256.Sum256(text)})
}

func newToyFSM() *toyFSM {
	return &toyFSM{
		state: toyState{Values: map[string]int64{}, Ops: map[string]int64{}},
		moved: make(chan struct{}),
	}
}

func (f *toyFSM) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

func (f *toyFSM) ApplyBatch(logs []*raft.Log) []any {
	f.mu.Lock()
	defer f.mu.Unlock()
	answers := make([]any, len(logs))
	for i, l := range logs {
		if l.Type == raft.LogCommand {
			answers[i] = f.applyEntry(l.Data)
		}
		f.state.Index = l.Index
		f.mark()
	}
	close(f.moved)
	f.moved = make(chan struct{})
	return answers
}

func (f *toyFSM) applyEntry(data []byte) [][]byte {
	f.entries++
	results := [][]byte{}
	for len(data) > 0 {
		n := 6 + int(binary.BigEndian.Uint32(data[2:]))
		kind, payload := data[0], data[6:n]
		data = data[n:]
		if kind == toyPreamble {
			f.state.Term = max(f.state.Term, binary.BigEndian.Uint64(payload))
			results = append(results, nil)
			continue
		}
		var c toyCommand
		if err := json.Unmarshal(payload, &c); err != nil {
			panic(err)
		}
		count, seen := f.state.Ops[c.Op]
		if !seen {
			f.state.Applied++
			count = f.state.Applied
			f.state.Ops[c.Op] = count
			f.state.Values[c.Key] = c.Value
		}
		results = append(results, fmt.Appendf(nil, "%s:%d", c.Op, count))
	}
	return results
}

func (f *toyFSM) Snapshot() (raft.FSMSnapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, err := json.Marshal(f.state)
	sum := sha256.Sum256(data)
	return toySnapshot(append(data, sum[:]...)), err
}

func (f *toyFSM) Restore(r io.ReadCloser) error {
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	end := max(len(text)-sha256.Size, 0)
	var state toyState
	if err := json.Unmarshal(text[:end], &state); err != nil {
		return err
	}
	if f.refuse != nil {
		if err := f.refuse(state); err != nil {
			return err
		}
	}
	if sum := sha256.Sum256(text[:end]); !bytes.Equal(sum[:], text[end:]) {
		return errors.New("the snapshot has a wrong checksum")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = state
	f.served++
	close(f.moved)
	f.moved = make(chan struct{})
	return nil
}

func (f *toyFSM) StoreConfiguration(uint64, raft.Configuration) {}

func (f *toyFSM) get(key string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Values[key]
}

func (f *toyFSM) applied() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Applied
}

// reached returns a channel that is closed when the state includes index.
func (f *toyFSM) reached(index uint64) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			f.mu.Lock()
			moved, at := f.moved, f.state.Index
			f.mu.Unlock()
			if at >= index {
				return
			}
			<-moved
		}
	}()
	return done
}

type toySnapshot []byte

func (s toySnapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(s); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func (toySnapshot) Release() {}
