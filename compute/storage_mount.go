package compute

import "strings"

// StorageMount is how the code of an execution sees the bucket of its organization.
type StorageMount struct {
	Path string `cbor:"1,keyasint"` // Absolute, in the sandbox or the container.

	// Optional: the execution is placed where no node can mount, too.
	Optional bool `cbor:"2,keyasint,omitempty"`
}

// MountOffer is the offer of a node that can mount buckets.
const MountOffer = Offer("storage:mount")

// StorageAccess is how a mount reaches the bucket.
type StorageAccess struct {
	Bucket string `cbor:"1,keyasint" json:"bucket"`
	Region string `cbor:"2,keyasint" json:"region"`
	Access string `cbor:"3,keyasint" json:"access"`
	Secret string `cbor:"4,keyasint" json:"secret"`
	Token  string `cbor:"5,keyasint" json:"token"`
}

// PathsOverlap reports whether one of two clean paths is the other, or below it.
func PathsOverlap(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}
