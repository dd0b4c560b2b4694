package command

import (
	"berth/compute"
	"berth/fsm/format"
)

// MaxObjectDeletes is how many objects one command deletes at most.
const MaxObjectDeletes = 1_000

type (
	// CreateBucket makes the bucket of the actor's organization. The first one stays.
	CreateBucket struct {
		Actor  Actor          `cbor:"1,keyasint"`
		Bucket compute.Bucket `cbor:"2,keyasint"`
	}

	// PutObject publishes an object whose bytes are durable.
	PutObject struct {
		Op     Op             `cbor:"1,keyasint"`
		Actor  Actor          `cbor:"2,keyasint"`
		Object compute.Object `cbor:"3,keyasint"`

		// The upload that has its parts, and the revision that was read. It ends.
		Upload   compute.ObjectUploadID `cbor:"4,keyasint,omitempty"`
		Revision uint64                 `cbor:"5,keyasint,omitempty"`

		Absent bool   `cbor:"6,keyasint,omitempty"` // Only if no object has the key.
		Match  string `cbor:"7,keyasint,omitempty"` // Only if the object with the key has this tag; * for any.

		// The key of the object of which it is a copy, and that one's blob.
		From     string       `cbor:"8,keyasint,omitempty"`
		FromBlob compute.Hash `cbor:"9,keyasint,omitzero"`
	}

	// DeleteObjects removes objects by key, or up to MaxObjectDeletes whose keys have a
	// prefix.
	DeleteObjects struct {
		Op     Op       `cbor:"1,keyasint"`
		Actor  Actor    `cbor:"2,keyasint"`
		Keys   []string `cbor:"3,keyasint,omitempty"`
		Prefix string   `cbor:"4,keyasint,omitempty"`
		Match  string   `cbor:"5,keyasint,omitempty"` // Only those with this tag.
	}

	// StartObjectUpload begins an upload of an object in parts.
	StartObjectUpload struct {
		Op     Op                   `cbor:"1,keyasint"`
		Actor  Actor                `cbor:"2,keyasint"`
		Upload compute.ObjectUpload `cbor:"3,keyasint"`
	}

	// PutObjectPart records a part of an upload whose bytes are durable.
	PutObjectPart struct {
		Op    Op                 `cbor:"1,keyasint"`
		Actor Actor              `cbor:"2,keyasint"`
		Part  compute.ObjectPart `cbor:"3,keyasint"`
	}

	// AbortObjectUpload ends an upload. Its parts are lost.
	AbortObjectUpload struct {
		Op     Op                     `cbor:"1,keyasint"`
		Actor  Actor                  `cbor:"2,keyasint"`
		Upload compute.ObjectUploadID `cbor:"3,keyasint"`
	}

	// SetBucketLimits sets the limits of an organization's bucket; 0 for no limit.
	SetBucketLimits struct {
		Op           Op            `cbor:"1,keyasint"`
		Actor        Actor         `cbor:"2,keyasint"`
		Org          compute.OrgID `cbor:"3,keyasint"`
		MaxBytes     int64         `cbor:"4,keyasint,omitempty"`
		MaxObjects   int           `cbor:"5,keyasint,omitempty"`
		UserMaxBytes int64         `cbor:"6,keyasint,omitempty"`
	}
)

// objectRows returns the rows of commands about stored objects.
func objectRows() []*row {
	return []*row{
		payload[CreateBucket]{
			number: 66, since: format.Containers,
		}.row(),
		payload[PutObject]{
			number: 67, since: format.Containers,

			op: func(c PutObject) Op { return c.Op },
		}.row(),
		payload[DeleteObjects]{
			number: 68, since: format.Containers, onFullDisk: true,

			op: func(c DeleteObjects) Op { return c.Op },
		}.row(),
		payload[StartObjectUpload]{
			number: 69, since: format.Containers,

			op: func(c StartObjectUpload) Op { return c.Op },
		}.row(),
		payload[PutObjectPart]{
			number: 70, since: format.Containers,

			op: func(c PutObjectPart) Op { return c.Op },
		}.row(),
		payload[AbortObjectUpload]{
			number: 71, since: format.Containers, onFullDisk: true,

			op: func(c AbortObjectUpload) Op { return c.Op },
		}.row(),
		payload[SetBucketLimits]{
			number: 72, since: format.Containers,

			op: func(c SetBucketLimits) Op { return c.Op },
		}.row(),
	}
}
