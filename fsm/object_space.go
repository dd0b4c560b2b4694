package fsm

import (
	"berth/compute"
	"berth/fsm/command"
)

// unlimited is what there is space for without a limit.
const unlimited = int64(1) << 62

// ObjectSpace returns how many bytes an object may have that an actor stores under a key,
// in place of the one that is there. Without a key it is the most that any may have. A
// command may still be refused: others store too.
func (v *objectTables) ObjectSpace(a command.Actor, key string) int64 {
	if key == "" { // It may take the place of all that is there.
		all, own := v.ObjectUse(a.Org, compute.UserID{}).Bytes, v.ObjectUse(a.Org, a.User).Bytes
		return v.objectSpace(a.Org, a.User, all, own)
	}
	var size, ownSize int64
	if known, ok := v.Object(a.Org, key); ok {
		size = known.Size
		if known.User == a.User {
			ownSize = known.Size
		}
	}
	return v.objectSpace(a.Org, a.User, size, ownSize)
}

// ObjectPartSpace is ObjectSpace for a part of an upload, in place of the one with its
// number.
func (v *objectTables) ObjectPartSpace(u *compute.ObjectUpload, number int) int64 {
	var size int64
	if old, ok := v.objectParts.Get(numberKey{u.ID.UUID, uint64(number)}); ok {
		size = old.Size
	}
	return v.objectSpace(u.Org, u.User, size, size)
}

// objectSpace returns how many bytes may take the place of some that are there, ownSize of
// them the user's. As many as before are allowed always.
func (v *objectTables) objectSpace(org compute.OrgID, user compute.UserID, size, ownSize int64) int64 {
	space := unlimited
	b := v.BucketLimits(org)
	if b != nil && b.MaxBytes > 0 {
		space = max(size, b.MaxBytes-v.ObjectUse(org, compute.UserID{}).Bytes+size)
	}
	if b != nil && b.UserMaxBytes > 0 {
		space = min(space, max(ownSize, b.UserMaxBytes-v.ObjectUse(org, user).Bytes+ownSize))
	}
	return space
}

// ErrObjectQuota refuses bytes for which the limits of a bucket leave no space, before they
// are stored.
func ErrObjectQuota() *compute.Error {
	return compute.Errorf(compute.CodeForbidden,
		"The organization or the user may not store as much: delete some files, or ask the operator for more.").
		Named("storage_quota_exceeded")
}
