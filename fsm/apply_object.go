package fsm

import (
	"slices"
	"strings"
	"unique"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// maxObjectSweep is the most that one Tick drops.
const maxObjectSweep = 10_000

// createBucket makes the bucket of the actor's organization, unless it has one.
func (s *object) createBucket(c command.CreateBucket) command.Result {
	if refusal := s.admit(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if len(c.Bucket.Sealed) == 0 {
		return refuse(compute.CodeInvalid, "bucket", "a bucket needs a key")
	}
	known, ok := s.view.buckets.Get(c.Actor.Org)
	if ok && len(known.Sealed) > 0 {
		return command.Result{Repeat: true}
	}
	if refusal := s.view.admitSealed(c.Bucket.Sealed); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	b := compute.Bucket{Org: c.Actor.Org, Sealed: c.Bucket.Sealed, CreatedAt: s.view.meta.Now}
	if ok { // An operator has set limits before.
		b.MaxBytes, b.MaxObjects, b.UserMaxBytes = known.MaxBytes, known.MaxObjects, known.UserMaxBytes
	}
	s.view.buckets.Put(&b)
	return command.Result{}
}

// admit refuses actors that store nothing.
func (s *object) admit(a command.Actor) *compute.Error {
	if a.Root || a.Org.IsZero() {
		return compute.Errorf(compute.CodeForbidden, "objects belong to an organization's member").Named("no_org")
	}
	return s.access.admit(a)
}

// put publishes an object, in place of the one with its key.
func (s *object) put(c command.PutObject) command.Result {
	if refusal := s.admit(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	o := c.Object
	o.Org, o.User, o.At, o.Type = c.Actor.Org, c.Actor.User, s.view.meta.Now, unique.Make(o.Type).Value()
	known, _ := s.view.objects.Get(objectKeyOf(&o))
	if refusal := s.checkObject(&c, &o, known); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	var upload *compute.ObjectUpload
	if !c.Upload.IsZero() {
		var ok bool
		if upload, ok = s.view.ObjectUpload(c.Actor.Org, c.Upload); !ok {
			return noObjectUpload()
		}
		if upload.Revision != c.Revision {
			return refuse(compute.CodeConflict, "upload_changed", "A part of the upload was replaced: complete it again.")
		}
	}
	if refusal := s.checkCapacity(&o, known, upload); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if upload != nil {
		s.view.dropObjectUpload(upload)
	}
	s.view.putObject(&o)
	return command.Result{}
}

// checkObject refuses objects that no state could have, and those whose conditions do
// not hold. Known is the object with the key, nil for none.
func (s *object) checkObject(c *command.PutObject, o, known *compute.Object) *compute.Error {
	if bad := compute.BadObjectKey(o.Key); bad != "" || o.Size < 0 || o.Size > compute.MaxObjectSize ||
		o.Size > 0 && o.Blob == (compute.Hash{}) || o.Whole && o.Blob == (compute.Hash{}) ||
		o.Whole && o.Size > compute.MaxChunk || len(o.Type) > compute.MaxObjectType || o.Parts < 0 {
		return compute.Errorf(compute.CodeInvalid, "the object %.200q is not well formed: %s", o.Key, bad).Named("object")
	}
	if s.view.Bucket(o.Org) == nil {
		return compute.Errorf(compute.CodeConflict, "the organization has no bucket yet").Named("no_bucket")
	}
	if c.From != "" { // Its blobs are only kept while it is there.
		if from, ok := s.view.Object(o.Org, c.From); !ok || from.Blob != c.FromBlob {
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
	b, all, own := s.view.Bucket(o.Org), s.view.ObjectUse(o.Org, compute.UserID{}), s.view.ObjectUse(o.Org, o.User)
	more, ownMore, count := o.Size, o.Size, 1
	if known != nil {
		more, count = more-known.Size, 0
		if known.User == o.User {
			ownMore -= known.Size
		}
	}
	if upload != nil { // Its parts are counted already.
		for p := range s.view.ObjectParts(upload.ID, 0) {
			more -= p.Size
			if upload.User == o.User {
				ownMore -= p.Size
			}
		}
	}
	replaces := count == 0 && s.view.Format() >= format.Rotation // Allowed also beyond a limit that was lowered.
	if all.Objects+count > b.ObjectLimit() && !replaces {
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
func (s *object) remove(c command.DeleteObjects) command.Result {
	if refusal := s.admit(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if len(c.Keys) > command.MaxObjectDeletes || len(c.Keys) == 0 && c.Prefix == "" {
		return refuse(compute.CodeInvalid, "object_keys", "name 1 to %d keys, or a prefix", command.MaxObjectDeletes)
	}
	keys := c.Keys
	if c.Prefix != "" {
		for o := range s.view.Objects(c.Actor.Org, c.Prefix) {
			if len(keys) == command.MaxObjectDeletes || !strings.HasPrefix(o.Key, c.Prefix) {
				break
			}
			keys = append(keys, o.Key)
		}
	}
	removed := 0
	for _, key := range keys {
		k := objectKey{c.Actor.Org.UUID, key}
		if known, ok := s.view.objects.Get(k); ok && (c.Match == "" || known.Tag() == c.Match) {
			s.view.dropObject(k)
			removed++
		}
	}
	return command.Result{Count: removed}
}

// start begins an upload in parts.
func (s *object) start(c command.StartObjectUpload) command.Result {
	if refusal := s.admit(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	u := c.Upload
	bad := ""
	if u.Key != "" {
		bad = compute.BadObjectKey(u.Key)
	}
	if bad != "" || u.ID.IsZero() || s.view.objectUploads.Has(u.ID) || len(u.Meta) > compute.MaxObjectMeta {
		return refuse(compute.CodeInvalid, "object_upload", "the upload of %.200q is not well formed: %s", u.Key, bad)
	}
	if s.view.Bucket(c.Actor.Org) == nil {
		return refuse(compute.CodeConflict, "no_bucket", "the organization has no bucket yet")
	}
	count := 0
	for range s.view.ObjectUploads(c.Actor.Org) {
		count++
	}
	if count >= compute.MaxObjectUploads {
		return refuse(compute.CodeForbidden, "too_many_uploads",
			"The organization has %d uploads in parts, which is the most: complete or abort some.", count)
	}
	s.view.putObjectUpload(&compute.ObjectUpload{
		ID: u.ID, Org: c.Actor.Org, User: c.Actor.User, Key: u.Key, Meta: u.Meta,
		CreatedAt: s.view.meta.Now, TouchedAt: s.view.meta.Now,
	})
	return command.Result{ID: u.ID.UUID}
}

// putPart records a part of an upload, in place of the one with its number.
func (s *object) putPart(c command.PutObjectPart) command.Result {
	if refusal := s.admit(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	known, ok := s.view.ObjectUpload(c.Actor.Org, c.Part.Upload)
	if !ok {
		return noObjectUpload()
	}
	p := c.Part
	if p.Number < 1 || p.Number > compute.MaxObjectParts || p.Size < 0 || p.Size > compute.MaxObjectSize ||
		p.Size > 0 && p.Blob == (compute.Hash{}) {
		return refuse(compute.CodeInvalid, "object_part", "part %d of %d bytes is not well formed: numbers are 1 to %d",
			p.Number, p.Size, compute.MaxObjectParts)
	}
	more := p.Size
	if old, ok := s.view.objectParts.Get(numberKey{p.Upload.UUID, uint64(p.Number)}); ok {
		more -= old.Size
	}
	all, own := s.view.ObjectUse(known.Org, compute.UserID{}), s.view.ObjectUse(known.Org, known.User)
	if b := s.view.Bucket(known.Org); b != nil {
		if refusal := s.checkBytes(b, all.Bytes+more, more, own.Bytes+more, more); refusal != nil {
			return command.Result{Refusal: refusal}
		}
	}
	p.At = s.view.meta.Now
	s.view.putObjectPart(&p)
	u := *known
	u.TouchedAt, u.Revision = s.view.meta.Now, u.Revision+1
	s.view.putObjectUpload(&u)
	return command.Result{ID: u.ID.UUID, Count: int(u.Revision)}
}

// noObjectUpload refuses an upload that does not exist, or is another organization's.
func noObjectUpload() command.Result {
	return refuse(compute.CodeNotFound, "upload_not_found",
		"There is no such upload: it was completed, aborted or has expired.")
}

// abort ends an upload and discards its parts.
func (s *object) abort(c command.AbortObjectUpload) command.Result {
	if refusal := s.admit(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	u, ok := s.view.ObjectUpload(c.Actor.Org, c.Upload)
	if !ok {
		return noObjectUpload()
	}
	s.view.dropObjectUpload(u)
	return command.Result{ID: u.ID.UUID}
}

// setLimits sets the limits of an organization's bucket.
func (s *object) setLimits(c command.SetBucketLimits) command.Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	o, ok := s.view.orgs.Get(c.Org)
	if !ok || !o.DeletedAt.IsZero() {
		return refuse(compute.CodeNotFound, "org_not_found", "There is no such organization.")
	}
	if c.MaxBytes < 0 || c.MaxObjects < 0 || c.UserMaxBytes < 0 {
		return refuse(compute.CodeInvalid, "storage_limit", "A limit is at least 0, which is none.")
	}
	b := compute.Bucket{Org: c.Org, CreatedAt: s.view.meta.Now}
	if known, ok := s.view.buckets.Get(c.Org); ok {
		b = *known
	}
	b.MaxBytes, b.MaxObjects, b.UserMaxBytes = c.MaxBytes, c.MaxObjects, c.UserMaxBytes
	s.view.buckets.Put(&b)
	return command.Result{}
}

// endBucket makes the objects of an organization unreadable. Tick removes them.
func (s *object) endBucket(org compute.OrgID) {
	if known, ok := s.view.buckets.Get(org); ok {
		b := *known
		b.Sealed = nil
		s.view.buckets.Put(&b)
	}
}

// expire drops uploads in which nothing has happened for long, and the rest of
// organizations that have ended.
func (s *object) expire() {
	for range maxUploadSweep {
		var due compute.ObjectUploadID
		for k := range s.view.endingUploads.All() {
			if k.at <= s.view.meta.Now {
				copy(due.UUID[:], k.id[:])
			}
			break
		}
		if due.IsZero() {
			break
		}
		u, _ := s.view.objectUploads.Get(due)
		s.view.dropObjectUpload(u)
	}
	left := maxObjectSweep
	for _, b := range slices.Collect(s.view.buckets.Values()) {
		if o, ok := s.view.orgs.Get(b.Org); ok && !o.DeletedAt.IsZero() {
			left = s.drain(b.Org, left)
		}
	}
}

// drain removes up to left records of an organization that has ended, and its bucket
// when there are no more. It returns how many more may be removed.
func (s *object) drain(org compute.OrgID, left int) int {
	for _, u := range slices.Collect(s.view.ObjectUploads(org)) {
		s.view.dropObjectUpload(u)
	}
	var keys []objectKey
	for o := range s.view.Objects(org, "") {
		if len(keys) == left {
			break
		}
		keys = append(keys, objectKeyOf(o))
	}
	for _, k := range keys {
		s.view.dropObject(k)
	}
	if s.view.ObjectUse(org, compute.UserID{}) == (compute.ObjectUse{}) {
		s.view.buckets.Drop(org)
	}
	return left - len(keys)
}
