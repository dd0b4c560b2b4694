package fsm

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"unique"

	"berth/compute"
	"berth/fsm/store"
)

// objectKey is the place of an object in its bucket.
type objectKey struct {
	org compute.UUID
	key string
}

func byObject(a, b objectKey) int { return cmp.Or(byUUID(a.org, b.org), strings.Compare(a.key, b.key)) }

func objectKeyOf(o *compute.Object) objectKey { return objectKey{o.Org.UUID, o.Key} }

func byUpload(a, b compute.ObjectUploadID) int { return byUUID(a.UUID, b.UUID) }

// objectTables has stored objects and uploads of them.
type objectTables struct {
	buckets       store.Records[compute.OrgID, compute.Bucket]
	objects       store.Records[objectKey, compute.Object]
	objectUploads store.Records[compute.ObjectUploadID, compute.ObjectUpload]
	objectParts   store.Records[numberKey, compute.ObjectPart] // By upload, number.
	uploadsOf     store.Index[pair, compute.ObjectUpload]      // By organization, identifier.
	endingUploads store.Index[timeKey, compute.ObjectUpload]   // By when they expire.
	objectUse     store.Table[pair, compute.ObjectUse]         // By organization, user; zero for all users.
}

func newObjectTables() objectTables {
	return objectTables{
		buckets:       store.NewRecords(byOrg, func(b *compute.Bucket) compute.OrgID { return b.Org }),
		objects:       store.NewRecords(byObject, objectKeyOf),
		objectUploads: store.NewRecords(byUpload, func(u *compute.ObjectUpload) compute.ObjectUploadID { return u.ID }),
		objectParts: store.NewRecords(byNumberKey,
			func(p *compute.ObjectPart) numberKey { return numberKey{p.Upload.UUID, uint64(p.Number)} }),
		uploadsOf: store.NewIndex(byPair,
			func(u *compute.ObjectUpload) pair { return pair{u.Org.UUID, u.ID.UUID} }, always[compute.ObjectUpload]),
		endingUploads: store.NewIndex(byTimeKey,
			func(u *compute.ObjectUpload) timeKey { return timeKeyOf(u.ExpiresAt(), u.ID.UUID) }, always[compute.ObjectUpload]),
		objectUse: store.NewTable[pair, compute.ObjectUse](byPair),
	}
}

// Bucket returns where an organization keeps its objects, nil before the first one.
func (v *objectTables) Bucket(org compute.OrgID) *compute.Bucket {
	b, ok := v.buckets.Get(org)
	if !ok || len(b.Sealed) == 0 {
		return nil
	}
	return b
}

// BucketLimits returns the bucket of an organization with its limits, which may have no
// key yet; nil if nobody has set any.
func (v *objectTables) BucketLimits(org compute.OrgID) *compute.Bucket {
	b, _ := v.buckets.Get(org)
	return b
}

// Object returns an object of an organization.
func (v *objectTables) Object(org compute.OrgID, key string) (*compute.Object, bool) {
	return v.objects.Get(objectKey{org.UUID, key})
}

// Objects yields the objects of an organization from a key on, by key.
func (v *objectTables) Objects(org compute.OrgID, from string) iter.Seq[*compute.Object] {
	return func(yield func(*compute.Object) bool) {
		for k, o := range v.objects.From(objectKey{org.UUID, from}) {
			if k.org != org.UUID || !yield(o) {
				return
			}
		}
	}
}

// ObjectUse returns the objects and bytes of an organization, or those of one user in it.
func (v *objectTables) ObjectUse(org compute.OrgID, user compute.UserID) compute.ObjectUse {
	use, _ := v.objectUse.Get(pair{org.UUID, user.UUID})
	return use
}

// ObjectUpload returns an upload of an organization that is not complete.
func (v *objectTables) ObjectUpload(org compute.OrgID, id compute.ObjectUploadID) (*compute.ObjectUpload, bool) {
	u, ok := v.objectUploads.Get(id)
	if !ok || u.Org != org {
		return nil, false
	}
	return u, true
}

// ObjectUploads yields the uploads of an organization that are not complete.
func (v *objectTables) ObjectUploads(org compute.OrgID) iter.Seq[*compute.ObjectUpload] {
	return func(yield func(*compute.ObjectUpload) bool) {
		for k := range v.uploadsOf.Keys(pair{owner: org.UUID}) {
			if k.owner != org.UUID {
				return
			}
			u, _ := v.objectUploads.Get(compute.ObjectUploadID{UUID: k.id})
			if !yield(u) {
				return
			}
		}
	}
}

// ObjectParts yields the parts of an upload behind a number, by number.
func (v *objectTables) ObjectParts(id compute.ObjectUploadID, after int) iter.Seq[*compute.ObjectPart] {
	return func(yield func(*compute.ObjectPart) bool) {
		for k, p := range v.objectParts.From(numberKey{id.UUID, uint64(after) + 1}) {
			if k.owner != id.UUID || !yield(p) {
				return
			}
		}
	}
}

// ObjectBlobs yields the blobs that objects, parts and archived outputs refer to, and
// whether each is a chunk itself. Others are manifests.
func (v *View) ObjectBlobs() iter.Seq2[compute.Hash, bool] {
	return func(yield func(compute.Hash, bool) bool) {
		for _, o := range v.objects.All() {
			if o.Blob != (compute.Hash{}) && !yield(o.Blob, o.Whole) {
				return
			}
		}
		for _, p := range v.objectParts.All() {
			if p.Blob != (compute.Hash{}) && !yield(p.Blob, p.Whole) {
				return
			}
		}
		for _, a := range v.archivedOutputs.All() {
			if !yield(a.Blob, a.Whole) {
				return
			}
		}
	}
}

// count adds objects and bytes to those of a user.
func (v *objectTables) count(org compute.OrgID, user compute.UserID, objects int, bytes int64) {
	for _, k := range []pair{{owner: org.UUID}, {org.UUID, user.UUID}} {
		use, _ := v.objectUse.Get(k)
		use.Objects, use.Bytes = use.Objects+objects, use.Bytes+bytes
		if use == (compute.ObjectUse{}) {
			v.objectUse.Remove(k)
			continue
		}
		v.objectUse.Set(k, use)
	}
}

// putObject stores o and the data derived from it.
func (v *objectTables) putObject(o *compute.Object) {
	if old := v.objects.Put(o); old != nil {
		v.count(old.Org, old.User, -1, -old.Size)
	}
	v.count(o.Org, o.User, 1, o.Size)
}

// loadObject stores an object of a snapshot. A million objects have a few types.
func (v *objectTables) loadObject(o *compute.Object) {
	o.Type = unique.Make(o.Type).Value()
	v.putObject(o)
}

// dropObject removes an object.
func (v *objectTables) dropObject(k objectKey) {
	if old := v.objects.Drop(k); old != nil {
		v.count(old.Org, old.User, -1, -old.Size)
	}
}

// putObjectUpload stores u and the data derived from it. It comes before its parts.
func (v *objectTables) putObjectUpload(u *compute.ObjectUpload) {
	old := v.objectUploads.Put(u)
	v.uploadsOf.Update(old, u)
	v.endingUploads.Update(old, u)
}

// putObjectPart stores p and the data derived from it.
func (v *objectTables) putObjectPart(p *compute.ObjectPart) {
	u, ok := v.objectUploads.Get(p.Upload)
	old := v.objectParts.Put(p)
	if !ok {
		return // Only in a damaged snapshot, which a check refuses.
	}
	if old != nil {
		v.count(u.Org, u.User, 0, -old.Size)
	}
	v.count(u.Org, u.User, 0, p.Size)
}

// dropObjectUpload removes an upload and its parts.
func (v *objectTables) dropObjectUpload(u *compute.ObjectUpload) {
	for _, p := range slices.Collect(v.ObjectParts(u.ID, 0)) {
		v.objectParts.Drop(numberKey{u.ID.UUID, uint64(p.Number)})
		v.count(u.Org, u.User, 0, -p.Size)
	}
	v.objectUploads.Drop(u.ID)
	v.uploadsOf.Update(u, nil)
	v.endingUploads.Update(u, nil)
}
