package command

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"berth/fsm/format"
	"berth/fsm/store"
)

// rows is the table of commands: a row for each, in the file of its payload.
func rows() []*row {
	return slices.Concat(
		clusterRows(), sealingRows(), nodeRows(), userRows(), tokenRows(),
		orgRows(), keyRows(), executionRows(), attemptRows(), callbackRows(),
		selectionRows(), serviceRows(), deploymentRows(), modelRows(), moneyRows(),
		archiveRows(), uploadRows(), objectRows(), environmentRows(), variableRows(),
	)
}

// payload is the table's row of the command with payload C.
type payload[C any] struct {
	number uint8  // The first byte of its frame.
	since  uint64 // The format of the state that added it.

	beforeBootstrap bool // It is decided although the cluster is not set up yet.

	// onFullDisk allows it while disks are full: it ends, frees or removes
	// something, the leader needs it to lead, or nobody could sign in to delete
	// something without it. Every other command makes the state grow.
	onFullDisk bool

	op   func(C) Op     // The client's request behind it; nil if there is none.
	term func(C) uint64 // The term of the leader that made it; nil if others make it too.
	uses func(C) uint64 // The format that added a field which is set; nil if none was added.
}

// formatIf returns added for a command that uses an addition of that format.
func formatIf(used bool, added uint64) uint64 {
	if used {
		return added
	}
	return format.First
}

// row is a command of any payload.
type row struct {
	number          uint8
	name            string // That of the type, such as "CreateKey".
	onFullDisk      bool
	beforeBootstrap bool

	is     func(Command) bool
	schema *store.Schema // A payload that it accepts decodes.
	decode func(payload []byte) (Command, error)
	needs  func(Command) uint64 // The format that a replica has to know.
	op     func(Command) Op     // Nil if no request is behind it.
	term   func(Command) uint64 // Nil if others than the leader make it.
}

// row returns the row of p. It panics if something is missing.
func (p payload[C]) row() *row {
	var zero C
	r := &row{
		number: p.number, name: strings.TrimPrefix(fmt.Sprintf("%T", zero), "command."),
		onFullDisk: p.onFullDisk, beforeBootstrap: p.beforeBootstrap,
		is:     func(cmd Command) bool { _, is := cmd.(C); return is },
		schema: store.SchemaOf[C](),
		decode: decoderOf[C](),
		needs: func(cmd Command) uint64 {
			if p.uses == nil {
				return p.since
			}
			return max(p.since, p.uses(cmd.(C)))
		},
	}
	if p.number == 0 || p.since == 0 {
		panic("the row of " + r.name + " lacks its number or its format")
	}
	if p.op != nil {
		r.op = func(cmd Command) Op { return p.op(cmd.(C)) }
	}
	if p.term != nil {
		r.term = func(cmd Command) uint64 { return p.term(cmd.(C)) }
	}
	return r
}

// decoderOf returns what decodes commands C. It decodes where others were decoded before, so
// that a command is allocated once: in the interface.
func decoderOf[C any]() func(payload []byte) (Command, error) {
	var rooms sync.Pool // It has *C values that are zero.
	return func(payload []byte) (cmd Command, err error) {
		room, ok := rooms.Get().(*C)
		if !ok {
			room = new(C)
		}
		if err = store.DecodeZero(payload, room); err == nil {
			cmd = *room
		} else {
			err = fmt.Errorf("decode %T: %w", *room, err)
		}
		*room = *new(C)
		rooms.Put(room)
		return cmd, err
	}
}

// table finds the row of a command. It never changes.
type table struct {
	rows     []*row
	byNumber [256]*row
}

// commands is the table of this program.
var commands = newTable(rows()...) //nolint:gochecknoglobals // Immutable.

// newTable returns a table of rows. It panics where two have one number.
func newTable(rows ...*row) *table {
	t := &table{rows: rows}
	for _, r := range rows {
		if other := t.byNumber[r.number]; other != nil {
			panic(fmt.Sprintf("%s and %s have the number %d", other.name, r.name, r.number))
		}
		t.byNumber[r.number] = r
	}
	return t
}

// rowOf returns the row of a command.
func (t *table) rowOf(cmd Command) (*row, error) {
	for _, r := range t.rows {
		if r.is(cmd) {
			return r, nil
		}
	}
	return nil, fmt.Errorf("%T is not in the table of commands", cmd)
}

// rowOfFrame returns the row of a frame's command, nil for an unknown one.
func (t *table) rowOfFrame(frame []byte) *row {
	if len(frame) == 0 {
		return nil
	}
	return t.byNumber[frame[0]]
}

// Needs returns the format of the state that a replica has to know to apply cmd.
func Needs(cmd Command) (uint64, error) {
	r, err := commands.rowOf(cmd)
	if err != nil {
		return 0, err
	}
	return r.needs(cmd), nil
}

// AllowedOnFullDisk reports whether the command of a frame may be committed
// although disks are full.
func AllowedOnFullDisk(frame []byte) bool {
	r := commands.rowOfFrame(frame)
	return r != nil && r.onFullDisk
}

// All returns an empty command of each type.
func All() []Call {
	out := make([]Call, len(commands.rows))
	for i, r := range commands.rows {
		cmd, err := r.decode([]byte{store.MajorMap << 5})
		if err != nil {
			panic(fmt.Errorf("decode an empty %s: %w", r.name, err))
		}
		out[i] = Call{cmd, r}
	}
	return out
}

// Call is a command of an entry, with what the table says of it.
type Call struct {
	Command Command

	row *row
}

// Number returns the number of the command: the first byte of its frame.
func (c Call) Number() uint8 { return c.row.number }

// Name returns the name of the command's type, such as "CreateKey".
func (c Call) Name() string { return c.row.name }

// BeforeBootstrap reports whether the command is decided although the cluster is not set
// up yet.
func (c Call) BeforeBootstrap() bool { return c.row.beforeBootstrap }

// Op returns the request behind the command, false if there is none.
func (c Call) Op() (op Op, ok bool) {
	if c.row.op == nil {
		return Op{}, false
	}
	return c.row.op(c.Command), true
}

// Term returns the term of the leader that made the command, false if others make it too.
func (c Call) Term() (term uint64, ok bool) {
	if c.row.term == nil {
		return 0, false
	}
	return c.row.term(c.Command), true
}
