package command

import (
	"berth/compute"
	"berth/fsm/format"
)

type (
	// CreateUpload records an uploaded bundle whose chunks follow, or continues
	// one of the same files.
	CreateUpload struct {
		Op      Op                 `cbor:"1,keyasint"`
		Actor   Actor              `cbor:"2,keyasint"`
		Upload  compute.Upload     `cbor:"3,keyasint"`           // Have: chunks that the organization has already.
		Sources []compute.BundleID `cbor:"4,keyasint,omitempty"` // The bundles that have it.
	}

	// ReceiveChunks records that chunks of a bundle, which the organization has
	// sent, are durable.
	ReceiveChunks struct {
		Actor  Actor            `cbor:"1,keyasint"`
		Bundle compute.BundleID `cbor:"2,keyasint"`
		Chunks []int            `cbor:"3,keyasint"` // In the order of Tree.Chunks.
	}

	// CommitUpload makes a bundle usable whose chunks are all there.
	CommitUpload struct {
		Op     Op               `cbor:"1,keyasint"`
		Actor  Actor            `cbor:"2,keyasint"`
		Bundle compute.BundleID `cbor:"3,keyasint"`
	}
)

// uploadRows returns the rows of commands about uploaded bundles.
func uploadRows() []*row {
	return []*row{
		payload[CreateUpload]{
			number: 40, since: format.Lab,
			op: func(c CreateUpload) Op { return c.Op },
		}.row(),
		payload[ReceiveChunks]{
			number: 41, since: format.Lab,
		}.row(),
		payload[CommitUpload]{
			number: 42, since: format.Lab,
			op: func(c CommitUpload) Op { return c.Op },
		}.row(),
	}
}
