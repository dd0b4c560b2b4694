package archive

import (
	"fmt"
	"slices"

	"berth/compute"
	"berth/fsm/command"
)

// MaxExecutions is the largest number of executions that one command moves.
const MaxExecutions = 1_000

// Draft is an archive that has been built but not proposed. Blob must be
// durable on most servers before Command is proposed.
type Draft struct {
	Blob    []byte
	Command command.ArchiveExecutions
}

// IDs returns the executions of the draft.
func (d *Draft) IDs() (ids []compute.ExecutionID) {
	for text := range slices.Chunk(d.Command.Executions, len(compute.UUID{})) {
		ids = append(ids, compute.ExecutionID{UUID: compute.UUID(text)})
	}
	return ids
}

// Verify reads the draft in the way of later readers: executions that could not
// be read must not leave the state.
func (d *Draft) Verify() (err error) {
	f, err := Read(&Record{
		Blob: d.Command.Blob, Month: d.Command.Month, Sum: d.Command.Sum,
		Executions: len(d.Command.Executions) / len(compute.UUID{}),
	}, d.Blob)
	if err != nil {
		return err
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %v", errDamaged, v)
		}
	}()
	for i := range f.rows {
		f.rows[i].Decode()
	}
	return nil
}
