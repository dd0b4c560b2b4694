package fsm

import (
	"crypto/sha256"
	"fmt"
	"runtime/debug"

	"berth/compute"
	"berth/fsm/command"
)

// An entry at which Apply panics stops every replica, at each start again. The
// log has the entry for good, and a replica that continued from a half-changed
// state would diverge. The remedies are a program that can apply the entry, or
// an agreement of all replicas to skip it (docs/adr/0005-entries-left-out.md).

// Skips are entries that all replicas skip on an operator's request: by index,
// with the SHA-256 of their bytes. A different entry at such an index is
// applied.
type Skips map[uint64]compute.Hash

// HashEntry returns the hash that identifies an entry in Skips.
func HashEntry(entry []byte) compute.Hash { return sha256.Sum256(entry) }

// PoisonError is the panic value of a state machine at an entry that it cannot
// apply. From then on the machine publishes nothing and makes no snapshot,
// because the state may be half changed.
type PoisonError struct {
	Index   uint64
	Hash    compute.Hash // Hash of the entry's bytes.
	Frame   int          // The number of the command in the entry, from 1.
	Frames  int
	Command string // "command.CreateKey"; "" where it cannot be decoded.
	Reason  any    // The value of the panic.
	Stack   []byte
}

// shortHash is how many digits of a hash people need to tell entries apart.
const shortHash = 12

// Error reports which command of which entry cannot be applied, and why.
func (p *PoisonError) Error() string {
	hash := fmt.Sprintf("%x", p.Hash)
	command := p.Command
	if command == "" {
		command = "unreadable"
	}
	return fmt.Sprintf("entry %d (%s) cannot be applied: command %d of %d, %s: %v; the SHA-256 of its bytes is %s",
		p.Index, hash[:shortHash], p.Frame, p.Frames, command, p.Reason, hash)
}

// Guard configures skipped entries and the handling of poisonous ones.
type Guard struct {
	Skips    Skips                                 // The entries to skip.
	Skipped  func(index uint64, hash compute.Hash) // Called for each skipped entry, unless nil.
	Poisoned func(*PoisonError)                    // Called before the panic, unless nil; may end the process.
}

// Guard sets the guard. It must be called before the first entry is applied.
func (f *FSM) Guard(g Guard) { f.guard = g }

// stage is the current position of Apply in an entry.
type stage struct {
	frame   int
	command string // Its name; "" while it is decoded.
}

// apply applies or skips one entry. The changes of an entry that panics are
// never seen, because the machine stays unusable.
func (f *FSM) apply(index uint64, entry []byte) []command.Result {
	f.mustBeWhole()
	if hash, listed := f.guard.Skips[index]; listed && hash == HashEntry(entry) {
		return f.skip(index, entry)
	}
	var at stage
	defer func() {
		if v := recover(); v != nil {
			f.poison = &PoisonError{
				Index: index, Hash: HashEntry(entry), Frame: at.frame, Frames: len(command.Frames(entry)),
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

// mustBeWhole panics if an entry has left the state half changed.
func (f *FSM) mustBeWhole() {
	if f.poison != nil {
		panic(f.poison)
	}
}

// skip advances over an entry and refuses everything in it. It remembers no
// answers, so that a repeated request is decided like a new one.
func (f *FSM) skip(index uint64, entry []byte) []command.Result {
	f.state.view.meta.Index = index
	if f.guard.Skipped != nil {
		f.guard.Skipped(index, HashEntry(entry))
	}
	results := make([]command.Result, len(command.Frames(entry)))
	for i := range results {
		results[i] = refuse(compute.CodeConflict, "entry_skipped",
			"nothing of it took effect: an operator had the servers leave out the entry it was in, at which they stopped; "+
				"do not repeat it as it is")
	}
	return results
}
