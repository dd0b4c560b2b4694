package fsm

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"runtime/debug"

	"berth/compute"
)

// An entry at which Apply panics stops every replica, again at each start: the
// log has it for good, and a replica that went on from a state half changed would
// differ. What remains is a program that can apply it, or that all replicas leave
// it out (docs/adr/0005-entries-left-out.md).

// Skips are entries that an operator has every replica leave out: by index, with
// the SHA-256 of their bytes. Another entry at such an index is applied.
type Skips map[uint64]compute.Hash

// HashEntry returns the hash by which an entry is named in Skips.
func HashEntry(entry []byte) compute.Hash { return sha256.Sum256(entry) }

// PoisonError is what a state machine panics with at an entry that it cannot apply.
// From then on it publishes nothing and makes no snapshot: the state may be half
// changed.
type PoisonError struct {
	Index   uint64
	Hash    compute.Hash // Of the entry's bytes.
	Frame   int          // Which command of the entry, from 1.
	Frames  int
	Command string // "CreateKey"; "" where it cannot be decoded.
	Reason  any    // What the panic said.
	Stack   []byte
}

// shortHash is how many digits tell entries apart to people.
const shortHash = 12

// Error says which command of which entry cannot be applied, and why.
func (p *PoisonError) Error() string {
	hash := fmt.Sprintf("%x", p.Hash)
	command := p.Command
	if command == "" {
		command = "unreadable"
	}
	return fmt.Sprintf("entry %d (%s) cannot be applied: command %d of %d, %s: %v; the SHA-256 of its bytes is %s",
		p.Index, hash[:shortHash], p.Frame, p.Frames, command, p.Reason, hash)
}

// Guard is what surrounds the entries that a state machine applies.
type Guard struct {
	Skips    Skips                                 // These it leaves out.
	LeftOut  func(index uint64, hash compute.Hash) // Told of each that was; nil for nobody.
	Poisoned func(*PoisonError)                    // Told before the panic, and may end the process; nil for nobody.
}

// Guard puts g in force. It is called before the first entry is applied.
func (f *FSM) Guard(g Guard) { f.guard = g }

// stage is where in an entry Apply is.
type stage struct {
	frame   int
	command string // Its name; "" while it is decoded.
}

// apply applies one entry, or leaves it out. What a panic leaves behind is never
// seen: the machine is of no use from then on.
func (f *FSM) apply(index uint64, entry []byte) []Result {
	f.mustBeWhole()
	if hash, listed := f.guard.Skips[index]; listed && hash == HashEntry(entry) {
		return f.leaveOut(index, entry)
	}
	var at stage
	defer func() {
		if v := recover(); v != nil {
			f.poison = &PoisonError{
				Index: index, Hash: HashEntry(entry), Frame: at.frame, Frames: len(Frames(entry)),
				Command: at.command, Reason: v, Stack: debug.Stack(),
			}
			if f.guard.Poisoned != nil {
				f.guard.Poisoned(f.poison)
			}
			panic(f.poison)
		}
	}()
	return f.state.applyEntry(index, entry, &at)
}

// mustBeWhole panics where an entry has left the state half changed.
func (f *FSM) mustBeWhole() {
	if f.poison != nil {
		panic(f.poison)
	}
}

// leaveOut advances over an entry, and refuses everything in it. Nothing of it is
// remembered, so that a repeat of a request is decided like a new one.
func (f *FSM) leaveOut(index uint64, entry []byte) []Result {
	f.state.meta.Index = index
	if f.guard.LeftOut != nil {
		f.guard.LeftOut(index, HashEntry(entry))
	}
	results := make([]Result, len(Frames(entry)))
	for i := range results {
		results[i] = refuse(compute.CodeConflict, "entry_skipped",
			"nothing of it took effect: an operator had the servers leave out the entry it was in, at which they stopped; "+
				"do not repeat it as it is")
	}
	return results
}

// Frame is one command of an entry, for people.
type Frame struct {
	Command string        `json:"command"`         // "CreateKey"; "" where this program cannot read it.
	Org     compute.OrgID `json:"org_id,omitzero"` // Whose request it is, if it is one.
	Op      compute.OpID  `json:"op_id,omitzero"`
	Bytes   int           `json:"bytes"`
}

// Frames returns what is in an entry. What cannot be split any more is one frame.
func Frames(entry []byte) []Frame {
	var out []Frame
	for len(entry) > 0 {
		size := uint64(len(entry))
		if len(entry) >= frameHeader {
			size = min(size, frameHeader+uint64(binary.BigEndian.Uint32(entry[2:])))
		}
		f := Frame{Bytes: int(size)}
		if c, _, err := commands.decode(entry[:size]); err == nil {
			f.Command = c.name
			if c.op != nil {
				op := c.op(c.cmd)
				f.Org, f.Op = op.Org, op.ID
			}
		}
		out = append(out, f)
		entry = entry[size:]
	}
	return out
}
