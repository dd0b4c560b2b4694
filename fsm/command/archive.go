package command

import (
	"berth/compute"
	"berth/fsm/format"
)

type (
	// ArchiveExecutions drops terminal executions, with their attempts and
	// callbacks, that are in a blob on most servers, and stores which blob has them.
	// All have to be due, and unchanged since the blob was made.
	ArchiveExecutions struct {
		Term       uint64       `cbor:"1,keyasint"`
		Blob       compute.Hash `cbor:"2,keyasint"`
		Size       int64        `cbor:"3,keyasint"` // Bytes of the blob.
		Month      int          `cbor:"4,keyasint"` // Month in which all ended, UTC: year × 12 + month − 1.
		Sum        [4]uint64    `cbor:"5,keyasint"` // Sum of the hashes of the records.
		Executions []byte       `cbor:"6,keyasint"` // Their identifiers, concatenated.
	}

	// ArchiveOutputs records that what ended attempts printed is stored among the objects
	// of their organizations.
	ArchiveOutputs struct {
		Outputs []compute.OutputArchive `cbor:"1,keyasint"`
	}

	// TrimOutputs drops the oldest archived outputs until all of them have at most so
	// many bytes.
	TrimOutputs struct {
		Term  uint64 `cbor:"1,keyasint"`
		Bytes int64  `cbor:"2,keyasint,omitempty"`
	}
)

// archiveRows returns the rows of commands about archives of executions and of output.
func archiveRows() []*row {
	return []*row{
		payload[ArchiveExecutions]{
			number: 37, since: format.Trust,
			term: func(c ArchiveExecutions) uint64 { return c.Term },
		}.row(),
		payload[ArchiveOutputs]{
			number: 105, since: format.Output,
		}.row(),
		payload[TrimOutputs]{
			number: 106, since: format.Output, onFullDisk: true,

			term: func(c TrimOutputs) uint64 { return c.Term },
		}.row(),
	}
}
