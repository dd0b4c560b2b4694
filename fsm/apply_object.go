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

// Limits of one command about objects.
const (
	// MaxObjectDeletes is how many objects one command deletes at most.
	MaxObjectDeletes = 1_000
	maxObjectSweep   = 10_000 // The most that one Tick drops.
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
		for k, o := range v.objects.Table.From(objectKey{org.UUID, from}) {
			if k.org != org.UUID || !yield(o) {
				return
			}
		}
	}
}

// ObjectUse returns what an organization stores, or of it what a user has stored.
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
		for k, p := range v.objectParts.Table.From(numberKey{id.UUID, uint64(after) + 1}) {
			if k.owner != id.UUID || !yield(p) {
				return
			}
		}
	}
}

// ObjectBlobs yields the blobs that objects and parts refer to, and whether each is a
// chunk itself. Others are manifests.
func (v *objectTables) ObjectBlobs() iter.Seq2[compute.Hash, bool] {
	return func(yield func(compute.Hash, bool) bool) {
		for _, o := range v.objects.Table.All() {
			if o.Blob != (compute.Hash{}) && !yield(o.Blob, o.Whole) {
				return
			}
		}
		for _, p := range v.objectParts.Table.All() {
			if p.Blob != (compute.Hash{}) && !yield(p.Blob, p.Whole) {
				return
			}
		}
	}
}

// count adds what is stored by a user.
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

// putObject stores o and what is derived from it.
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

// putObjectUpload stores u and what is derived from it. It comes before its parts.
func (v *objectTables) putObjectUpload(u *compute.ObjectUpload) {
	old := v.objectUploads.Put(u)
	v.uploadsOf.Update(old, u)
	v.endingUploads.Update(old, u)
}

// putObjectPart stores p and what is derived from it.
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

// createBucket makes the bucket of the actor's organization, unless it has one.
func (s *object) createBucket(c CreateBucket) Result {
	if refusal := s.admit(c.Actor); refusal != nil {
		return Result{Refusal: refusal}
	}
	if len(c.Bucket.Sealed) == 0 {
		return refuse(compute.CodeInvalid, "bucket", "a bucket needs a key")
	}
	known, ok := s.buckets.Get(c.Actor.Org)
	if ok && len(known.Sealed) > 0 {
		return Result{Repeat: true}
	}
	b := compute.Bucket{Org: c.Actor.Org, Sealed: c.Bucket.Sealed, CreatedAt: s.meta.Now}
	if ok { // An operator has set limits before.
		b.MaxBytes, b.MaxObjects, b.UserMaxBytes = known.MaxBytes, known.MaxObjects, known.UserMaxBytes
	}
	s.buckets.Put(&b)
	return Result{}
}

// admit refuses actors that store nothing.
func (s *object) admit(a Actor) *compute.Error {
	if a.Root || a.Org.IsZero() {
		return compute.Errorf(compute.CodeForbidden, "objects belong to an organization's member").Named("no_org")
	}
	return s.access.admit(a)
}

// put publishes an object, in place of the one with its key.
func (s *object) put(c PutObject) Result {
	if refusal := s.admit(c.Actor); refusal != nil {
		return Result{Refusal: refusal}
	}
	o := c.Object
	o.Org, o.User, o.At, o.Type = c.Actor.Org, c.Actor.User, s.meta.Now, unique.Make(o.Type).Value()
	known, _ := s.objects.Get(objectKeyOf(&o))
	if refusal := s.checkObject(&c, &o, known); refusal != nil {
		return Result{Refusal: refusal}
	}
	var upload *compute.ObjectUpload
	if !c.Upload.IsZero() {
		var ok bool
		if upload, ok = s.ObjectUpload(c.Actor.Org, c.Upload); !ok {
			return refuse(compute.CodeNotFound, "upload_not_found", "There is no such upload: it was completed, aborted or has expired.")
		}
		if upload.Revision != c.Revision {
			return refuse(compute.CodeConflict, "upload_changed", "A part of the upload was replaced: complete it again.")
		}
	}
	if refusal := s.checkCapacity(&o, known, upload); refusal != nil {
		return Result{Refusal: refusal}
	}
	if upload != nil {
		s.dropObjectUpload(upload)
	}
	s.putObject(&o)
	return Result{}
}

// checkObject refuses objects that no state could have, and those whose conditions do
// not hold. Known is the object with the key, nil for none.
func (s *object) checkObject(c *PutObject, o, known *compute.Object) *compute.Error {
	if bad := compute.BadObjectKey(o.Key); bad != "" || o.Size < 0 || o.Size > compute.MaxObjectSize ||
		o.Size > 0 && o.Blob == (compute.Hash{}) || o.Whole && o.Blob == (compute.Hash{}) ||
		o.Whole && o.Size > compute.MaxChunk || len(o.Type) > compute.MaxObjectType || o.Parts < 0 {
		return compute.Errorf(compute.CodeInvalid, "the object %.200q is not well formed: %s", o.Key, bad).Named("object")
	}
	if s.Bucket(o.Org) == nil {
		return compute.Errorf(compute.CodeConflict, "the organization has no bucket yet").Named("no_bucket")
	}
	if c.From != "" { // Its blobs are only kept while it is there.
		if from, ok := s.Object(o.Org, c.From); !ok || from.Blob != c.FromBlob {
			return compute.Errorf(compute.CodeNotFound, "There is no such file any more.").Named("file_not_found")
		}
	}
	switch {
	case c.Absent && known != nil:
		return errPrecondition("there is a file with this key")
	case c.Match != "" && (known == nil || c.Match != "*" && known.Tag() != c.Match):
		return errPrecondition("the file with this key is another one")
	}
	return nil
}

func errPrecondition(why string) *compute.Error {
	return compute.Errorf(compute.CodeConflict, "The condition of the request does not hold: %s.", why).
		Named("precondition_failed")
}

// checkCapacity refuses an object for which the bucket has no capacity left.
func (s *object) checkCapacity(o, known *compute.Object, upload *compute.ObjectUpload) *compute.Error {
	b, all, own := s.Bucket(o.Org), s.ObjectUse(o.Org, compute.UserID{}), s.ObjectUse(o.Org, o.User)
	more, ownMore, count := o.Size, o.Size, 1
	if known != nil {
		more, count = more-known.Size, 0
		if known.User == o.User {
			ownMore -= known.Size
		}
	}
	if upload != nil { // Its parts are counted already.
		for p := range s.ObjectParts(upload.ID, 0) {
			more -= p.Size
			if upload.User == o.User {
				ownMore -= p.Size
			}
		}
	}
	if all.Objects+count > b.ObjectLimit() {
		return compute.Errorf(compute.CodeForbidden,
			"The organization has %d files, which is the most: delete some.", all.Objects).Named("storage_quota_exceeded")
	}
	return s.checkBytes(b, all.Bytes+more, more, own.Bytes+ownMore, ownMore)
}

// checkBytes refuses bytes beyond the limits of a bucket. Less than before is allowed
// always.
func (s *object) checkBytes(b *compute.Bucket, all, more, own, ownMore int64) *compute.Error {
	switch {
	case more > 0 && b.MaxBytes > 0 && all > b.MaxBytes:
		return compute.Errorf(compute.CodeForbidden,
			"The organization may store %d bytes, and would have %d: delete some files, or ask the operator for more.",
			b.MaxBytes, all).Named("storage_quota_exceeded")
	case ownMore > 0 && b.UserMaxBytes > 0 && own > b.UserMaxBytes:
		return compute.Errorf(compute.CodeForbidden,
			"You may store %d bytes, and would have %d: delete some files, or ask the operator for more.",
			b.UserMaxBytes, own).Named("storage_quota_exceeded")
	}
	return nil
}

// remove deletes objects by key, or the first ones below a prefix.
func (s *object) remove(c DeleteObjects) Result {
	if refusal := s.admit(c.Actor); refusal != nil {
		return Result{Refusal: refusal}
	}
	if len(c.Keys) > MaxObjectDeletes || len(c.Keys) == 0 && c.Prefix == "" {
		return refuse(compute.CodeInvalid, "object_keys", "name 1 to %d keys, or a prefix", MaxObjectDeletes)
	}
	keys := c.Keys
	if c.Prefix != "" {
		for o := range s.Objects(c.Actor.Org, c.Prefix) {
			if len(keys) == MaxObjectDeletes || !strings.HasPrefix(o.Key, c.Prefix) {
				break
			}
			keys = append(keys, o.Key)
		}
	}
	removed := 0
	for _, key := range keys {
		k := objectKey{c.Actor.Org.UUID, key}
		if known, ok := s.objects.Get(k); ok && (c.Match == "" || known.Tag() == c.Match) {
			s.dropObject(k)
			removed++
		}
	}
	return Result{Count: removed}
}

// start begins an upload in parts.
func (s *object) start(c StartObjectUpload) Result {
	if refusal := s.admit(c.Actor); refusal != nil {
		return Result{Refusal: refusal}
	}
	u := c.Upload
	bad := ""
	if u.Key != "" {
		bad = compute.BadObjectKey(u.Key)
	}
	if bad != "" || u.ID.IsZero() || s.objectUploads.Has(u.ID) || len(u.Meta) > compute.MaxObjectMeta {
		return refuse(compute.CodeInvalid, "object_upload", "the upload of %.200q is not well formed: %s", u.Key, bad)
	}
	if s.Bucket(c.Actor.Org) == nil {
		return refuse(compute.CodeConflict, "no_bucket", "the organization has no bucket yet")
	}
	count := 0
	for range s.ObjectUploads(c.Actor.Org) {
		count++
	}
	if count >= compute.MaxObjectUploads {
		return refuse(compute.CodeForbidden, "too_many_uploads",
			"The organization has %d uploads in parts, which is the most: complete or abort some.", count)
	}
	s.putObjectUpload(&compute.ObjectUpload{
		ID: u.ID, Org: c.Actor.Org, User: c.Actor.User, Key: u.Key, Meta: u.Meta,
		CreatedAt: s.meta.Now, TouchedAt: s.meta.Now,
	})
	return Result{ID: u.ID.UUID}
}

// putPart records a part of an upload, in place of the one with its number.
func (s *object) putPart(c PutObjectPart) Result {
	if refusal := s.admit(c.Actor); refusal != nil {
		return Result{Refusal: refusal}
	}
	known, ok := s.ObjectUpload(c.Actor.Org, c.Part.Upload)
	if !ok {
		return refuse(compute.CodeNotFound, "upload_not_found", "There is no such upload: it was completed, aborted or has expired.")
	}
	p := c.Part
	if p.Number < 1 || p.Number > compute.MaxObjectParts || p.Size < 0 || p.Size > compute.MaxObjectSize ||
		p.Size > 0 && p.Blob == (compute.Hash{}) {
		return refuse(compute.CodeInvalid, "object_part", "part %d of %d bytes is not well formed: numbers are 1 to %d",
			p.Number, p.Size, compute.MaxObjectParts)
	}
	more := p.Size
	if old, ok := s.objectParts.Get(numberKey{p.Upload.UUID, uint64(p.Number)}); ok {
		more -= old.Size
	}
	all, own := s.ObjectUse(known.Org, compute.UserID{}), s.ObjectUse(known.Org, known.User)
	if b := s.Bucket(known.Org); b != nil {
		if refusal := s.checkBytes(b, all.Bytes+more, more, own.Bytes+more, more); refusal != nil {
			return Result{Refusal: refusal}
		}
	}
	p.At = s.meta.Now
	s.putObjectPart(&p)
	u := *known
	u.TouchedAt, u.Revision = s.meta.Now, u.Revision+1
	s.putObjectUpload(&u)
	return Result{ID: u.ID.UUID, Count: int(u.Revision)}
}

// abort ends an upload. What came of it is lost.
func (s *object) abort(c AbortObjectUpload) Result {
	if refusal := s.admit(c.Actor); refusal != nil {
		return Result{Refusal: refusal}
	}
	u, ok := s.ObjectUpload(c.Actor.Org, c.Upload)
	if !ok {
		return refuse(compute.CodeNotFound, "upload_not_found", "There is no such upload: it was completed, aborted or has expired.")
	}
	s.dropObjectUpload(u)
	return Result{ID: u.ID.UUID}
}

// setLimits sets what an organization may store.
func (s *object) setLimits(c SetBucketLimits) Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return Result{Refusal: refusal}
	}
	o, ok := s.orgs.Get(c.Org)
	if !ok || !o.DeletedAt.IsZero() {
		return refuse(compute.CodeNotFound, "org_not_found", "There is no such organization.")
	}
	if c.MaxBytes < 0 || c.MaxObjects < 0 || c.UserMaxBytes < 0 {
		return refuse(compute.CodeInvalid, "storage_limit", "A limit is at least 0, which is none.")
	}
	b := compute.Bucket{Org: c.Org, CreatedAt: s.meta.Now}
	if known, ok := s.buckets.Get(c.Org); ok {
		b = *known
	}
	b.MaxBytes, b.MaxObjects, b.UserMaxBytes = c.MaxBytes, c.MaxObjects, c.UserMaxBytes
	s.buckets.Put(&b)
	return Result{}
}

// endBucket makes the objects of an organization unreadable. Tick removes them.
func (s *object) endBucket(org compute.OrgID) {
	if known, ok := s.buckets.Get(org); ok {
		b := *known
		b.Sealed = nil
		s.buckets.Put(&b)
	}
}

// expire drops uploads in which nothing has happened for long, and what is left of
// organizations that have ended.
func (s *object) expire() {
	for range maxUploadSweep {
		var due compute.ObjectUploadID
		for k := range s.endingUploads.All() {
			if k.at <= s.meta.Now {
				copy(due.UUID[:], k.id[:])
			}
			break
		}
		if due.IsZero() {
			break
		}
		u, _ := s.objectUploads.Get(due)
		s.dropObjectUpload(u)
	}
	left := maxObjectSweep
	for _, b := range slices.Collect(s.buckets.Values()) {
		if o, ok := s.orgs.Get(b.Org); ok && !o.DeletedAt.IsZero() {
			left = s.drain(b.Org, left)
		}
	}
}

// drain removes up to left records of an organization that has ended, and its bucket
// when there are no more. It returns how many more may be removed.
func (s *object) drain(org compute.OrgID, left int) int {
	for _, u := range slices.Collect(s.ObjectUploads(org)) {
		s.dropObjectUpload(u)
	}
	var keys []objectKey
	for o := range s.Objects(org, "") {
		if len(keys) == left {
			break
		}
		keys = append(keys, objectKeyOf(o))
	}
	for _, k := range keys {
		s.dropObject(k)
	}
	if s.ObjectUse(org, compute.UserID{}) == (compute.ObjectUse{}) {
		s.buckets.Drop(org)
	}
	return left - len(keys)
}
