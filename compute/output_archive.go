package compute

// MaxOutputArchive bounds OutputArchive.Size: no output that a node keeps is larger.
const MaxOutputArchive = 512 << 20

// OutputArchive is the record of what an ended attempt printed, once it is kept as an
// encrypted object of the organization and no longer on the disk of a node. Execution,
// Epoch and what Content says come from the node that stored it; the rest is the state's.
type OutputArchive struct {
	Execution ExecutionID `cbor:"1,keyasint"`
	Epoch     uint64      `cbor:"2,keyasint"`
	Org       OrgID       `cbor:"3,keyasint"`
	At        Instant     `cbor:"4,keyasint"` // When it was archived.

	Blob    Hash  `cbor:"5,keyasint"` // As that of an Object.
	Whole   bool  `cbor:"6,keyasint,omitempty"`
	Size    int64 `cbor:"7,keyasint"`           // Bytes of the compressed output.
	Partial bool  `cbor:"8,keyasint,omitempty"` // Its end may be missing: its node was lost before all was copied.
}

// Object returns the output as what package objects reads.
func (o *OutputArchive) Object() *Object {
	return &Object{Org: o.Org, Key: o.Execution.String(), Blob: o.Blob, Whole: o.Whole, Size: o.Size}
}
