package compute

import "time"

// How long uploaded bundles are kept in which nothing happens. An execution
// keeps its files until it has ended, whatever becomes of the bundle.
const (
	KeepUnused = 24 * time.Hour     // Since the last byte arrived, if nothing has used it.
	KeepUsed   = 7 * 24 * time.Hour // Since the last submit that used it.
)

// OutputsKept is how long the outputs of an execution are kept after its end.
const OutputsKept = 30 * 24 * time.Hour

// Upload is the record of an uploaded bundle: a tree of files for the work
// directories of its organization's executions. Which chunks of it the
// organization has sent, or had before, is in Have: to know the hash of a chunk
// gives nobody its bytes.
type Upload struct {
	ID       BundleID `cbor:"1,keyasint"`
	Org      OrgID    `cbor:"2,keyasint"`
	User     UserID   `cbor:"3,keyasint"`
	Manifest Hash     `cbor:"4,keyasint"`           // The blob of its Tree.
	Bytes    int64    `cbor:"5,keyasint,omitempty"` // Bytes of all its files together.
	Files    int      `cbor:"6,keyasint,omitempty"` // Entries of its Tree.
	Chunks   int      `cbor:"7,keyasint,omitempty"` // In the order of Tree.Chunks.
	Have     []byte   `cbor:"8,keyasint,omitempty"` // A bit for each chunk; empty once it is committed.

	Committed bool    `cbor:"9,keyasint,omitempty"`
	CreatedAt Instant `cbor:"10,keyasint"`
	TouchedAt Instant `cbor:"11,keyasint"` // The last chunk, commit or use.
	Used      bool    `cbor:"12,keyasint,omitempty"`
}

// Has reports whether the organization has sent the chunk with a number.
func (u *Upload) Has(chunk int) bool {
	if u.Committed {
		return true
	}
	return chunk>>3 < len(u.Have) && u.Have[chunk>>3]&(1<<(chunk&7)) != 0
}

// Missing returns how many chunks have not been sent.
func (u *Upload) Missing() (n int) {
	for i := range u.Chunks {
		if !u.Has(i) {
			n++
		}
	}
	return n
}

// With returns Have with some chunks added. It changes nothing.
func (u *Upload) With(chunks []int) []byte {
	have := make([]byte, (u.Chunks+7)/8)
	copy(have, u.Have)
	for _, i := range chunks {
		have[i>>3] |= 1 << (i & 7)
	}
	return have
}

// ExpiresAt returns when the record is dropped unless it is used before.
func (u *Upload) ExpiresAt() Instant {
	if u.Used {
		return u.TouchedAt.Add(KeepUsed)
	}
	return u.TouchedAt.Add(KeepUnused)
}

// Files is the uploaded bundle of an execution.
type Files struct {
	Bundle   BundleID `cbor:"1,keyasint"`
	Manifest Hash     `cbor:"2,keyasint"`
	Bytes    int64    `cbor:"3,keyasint,omitempty"`
	Count    int      `cbor:"4,keyasint,omitempty"`
}

// Outputs describes the files that an execution left in the directory outputs of its work
// directory.
type Outputs struct {
	Manifest Hash   `cbor:"1,keyasint"` // The blob of its Tree; zero for none.
	Count    int    `cbor:"2,keyasint,omitempty"`
	Bytes    int64  `cbor:"3,keyasint,omitempty"`
	Warning  string `cbor:"4,keyasint,omitempty"` // Files that are not in it, and why; at most MaxOutputWarning bytes.
}

// Limits of outputs.
const (
	MaxOutputs       = 10_000  // Files.
	MaxOutputBytes   = 4 << 30 // Bytes of all files together.
	MaxOutputWarning = 1 << 10
)

// HasOutputs reports whether outputs of e are kept at an instant.
func (e *Execution) HasOutputs(now Instant) bool {
	return e.Outputs != nil && e.Outputs.Manifest != (Hash{}) && !e.Deleted &&
		!e.FinishedAt.IsZero() && now < e.FinishedAt.Add(OutputsKept)
}
