package fsm

import (
	"fmt"
	"iter"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/store"
)

// Limits of uploaded bundles. Beyond them an organization loses those that were
// touched longest ago; executions keep the files that they were submitted with.
const (
	maxUploads     = 256      // Bundles of one organization.
	maxUploadBytes = 32 << 30 // Bytes of all files in them together.
	maxUploadSweep = 1_000    // The most that one Tick drops.
)

// uploadTables has uploaded bundles.
type uploadTables struct {
	uploads         store.Records[compute.BundleID, compute.Upload]
	orgUploads      store.Index[pair, compute.Upload]             // By organization, identifier.
	expiringUploads store.Index[timeKey, compute.Upload]          // By when they expire.
	outputs         store.PackedIndex[timeKey, compute.Execution] // Ended executions with outputs, by the end.
}

func newUploadTables() uploadTables {
	return uploadTables{
		uploads: store.NewRecords(byBundle, func(u *compute.Upload) compute.BundleID { return u.ID }),
		orgUploads: store.NewIndex(byPair,
			func(u *compute.Upload) pair { return pair{u.Org.UUID, u.ID.UUID} }, always[compute.Upload]),
		expiringUploads: store.NewIndex(byTimeKey,
			func(u *compute.Upload) timeKey { return timeKeyOf(u.ExpiresAt(), u.ID.UUID) }, always[compute.Upload]),
		outputs: store.NewPackedIndex(endKeyWidth, endKeyBytes, endKeyFrom,
			func(e *compute.Execution) timeKey { return timeKeyOf(e.FinishedAt, e.ID.UUID) },
			leftOutputs),
	}
}

// leftOutputs reports whether e has ended and left outputs.
func leftOutputs(e *compute.Execution) bool {
	return e.Status.Terminal() && e.Outputs != nil && e.Outputs.Manifest != (compute.Hash{})
}

// Upload returns an uploaded bundle of an organization.
func (v *uploadTables) Upload(org compute.OrgID, id compute.BundleID) (*compute.Upload, bool) {
	u, ok := v.uploads.Get(id)
	if !ok || u.Org != org {
		return nil, false
	}
	return u, true
}

// Uploads yields the uploaded bundles of an organization.
func (v *uploadTables) Uploads(org compute.OrgID) iter.Seq[*compute.Upload] {
	return func(yield func(*compute.Upload) bool) {
		for k := range v.orgUploads.Keys(pair{owner: org.UUID}) {
			if k.owner != org.UUID {
				return
			}
			u, _ := v.uploads.Get(compute.BundleID{UUID: k.id})
			if !yield(u) {
				return
			}
		}
	}
}

// Trees yields the manifests of the trees that are kept, some more than once:
// those of uploaded bundles, of the files of executions that have not ended, and
// of outputs. Manifests and the chunks that they name are live blobs.
func (v *View) Trees() iter.Seq[compute.Hash] {
	return func(yield func(compute.Hash) bool) {
		for u := range v.uploads.Values() {
			if !yield(u.Manifest) {
				return
			}
		}
		for k := range v.live.All() {
			e, _ := v.executions.Get(k.ID)
			if e.Files != nil && !yield(e.Files.Manifest) {
				return
			}
		}
		for k := range v.outputs.Keys(timeKey{at: v.meta.Now.Add(-compute.OutputsKept)}) {
			e, _ := v.executions.Get(k.execution())
			if e.HasOutputs(v.meta.Now) && !yield(e.Outputs.Manifest) {
				return
			}
		}
	}
}

// put stores u and all data derived from it.
func (s *upload) put(u *compute.Upload) { s.view.follow(s.view.uploads.Put(u), u) }

// drop removes a bundle.
func (s *upload) drop(id compute.BundleID) { s.view.follow(s.view.uploads.Drop(id), nil) }

// follow updates the indexes of uploads from before to after.
func (v *uploadTables) follow(before, after *compute.Upload) {
	v.orgUploads.Update(before, after)
	v.expiringUploads.Update(before, after)
}

// createUpload records a bundle whose chunks follow. A bundle of the same files
// is continued instead.
func (s *upload) createUpload(c command.CreateUpload) command.Result {
	if refusal := s.access.admit(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	u := c.Upload
	if refusal := s.checkUpload(c, &u); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	for known := range s.view.Uploads(c.Actor.Org) {
		if known.Manifest != u.Manifest || known.Chunks != u.Chunks {
			continue
		}
		again := *known
		again.TouchedAt = s.view.meta.Now
		if !known.Committed {
			again.Have = merged(known.Have, u.Have)
		}
		s.put(&again)
		return command.Result{ID: known.ID.UUID}
	}
	s.put(&compute.Upload{
		ID: u.ID, Org: c.Actor.Org, User: c.Actor.User, Manifest: u.Manifest, Bytes: u.Bytes, Files: u.Files,
		Chunks: u.Chunks, Have: u.Have, CreatedAt: s.view.meta.Now, TouchedAt: s.view.meta.Now,
	})
	s.evict(c.Actor.Org, u.ID)
	return command.Result{ID: u.ID.UUID}
}

// checkUpload refuses bundles that no state could accept, and chunks that the
// organization no longer has.
func (s *upload) checkUpload(c command.CreateUpload, u *compute.Upload) *compute.Error {
	most := compute.MaxTreeEntries + int(maxUploadBytes/compute.MaxChunk)
	switch {
	case c.Actor.Root || c.Actor.Org.IsZero():
		return compute.Errorf(compute.CodeForbidden, "a bundle belongs to an organization's member").Named("no_org")
	case u.ID.IsZero() || u.Manifest == (compute.Hash{}) || u.Bytes < 0 || u.Files < 0 || u.Chunks < 0 ||
		u.Chunks > most || u.Bytes > maxUploadBytes || u.Files > compute.MaxTreeEntries || len(u.Have) != (u.Chunks+7)/8:
		return compute.Errorf(compute.CodeInvalid, "a bundle needs an identifier, a manifest and sizes").Named("bundle")
	case s.view.uploads.Has(u.ID):
		return compute.Errorf(compute.CodeConflict, "a bundle with this identifier exists").Named("bundle_exists")
	}
	for _, id := range c.Sources {
		if _, ok := s.view.Upload(c.Actor.Org, id); !ok {
			return compute.Errorf(compute.CodeConflict, "a bundle that has some of the files expired").Named("bundle_gone")
		}
	}
	return nil
}

// merged returns the bits that are set in a or b, which have the same length.
func merged(a, b []byte) []byte {
	out := make([]byte, max(len(a), len(b)))
	copy(out, a)
	for i := range b {
		out[i] |= b[i]
	}
	return out
}

// evict drops the bundles of an organization over its limits, except one.
func (s *upload) evict(org compute.OrgID, except compute.BundleID) {
	for {
		var count int
		var bytes int64
		var oldest *compute.Upload
		for u := range s.view.Uploads(org) {
			count, bytes = count+1, bytes+u.Bytes
			if u.ID != except && (oldest == nil || u.TouchedAt < oldest.TouchedAt) {
				oldest = u
			}
		}
		if oldest == nil || count <= maxUploads && bytes <= maxUploadBytes {
			return
		}
		s.drop(oldest.ID)
	}
}

// receiveChunks records that chunks of a bundle are durable.
func (s *upload) receiveChunks(c command.ReceiveChunks) command.Result {
	known, refusal := s.find(c.Actor, c.Bundle)
	if refusal != nil {
		return command.Result{Refusal: refusal}
	}
	for _, i := range c.Chunks {
		if i < 0 || i >= known.Chunks {
			return refuse(compute.CodeInvalid, "bundle_chunk", "the bundle has no chunk %d", i)
		}
	}
	u := *known
	u.TouchedAt = s.view.meta.Now
	if !u.Committed {
		u.Have = known.With(c.Chunks)
	}
	s.put(&u)
	return command.Result{ID: u.ID.UUID}
}

// commitUpload makes a bundle usable. All of its chunks have to be there.
func (s *upload) commitUpload(c command.CommitUpload) command.Result {
	known, refusal := s.find(c.Actor, c.Bundle)
	if refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if missing := known.Missing(); missing > 0 {
		return refuse(compute.CodeConflict, "blobs_missing",
			"%d of %d blobs of the bundle are missing: send what POST /bundles lists, and commit again",
			missing, known.Chunks)
	}
	u := *known
	u.Committed, u.Have, u.TouchedAt = true, nil, s.view.meta.Now
	s.put(&u)
	return command.Result{ID: u.ID.UUID}
}

// find returns a bundle of the actor's organization.
func (s *upload) find(a command.Actor, id compute.BundleID) (*compute.Upload, *compute.Error) {
	if refusal := s.access.admit(a); refusal != nil {
		return nil, refusal
	}
	u, ok := s.view.Upload(a.Org, id)
	if !ok {
		return nil, noBundle()
	}
	return u, nil
}

// noBundle refuses a bundle that does not exist, or is another organization's.
func noBundle() *compute.Error {
	return compute.Errorf(compute.CodeNotFound,
		"There is no such bundle: it may have expired. Send it again.").Named("bundle_not_found")
}

// attach gives e the files of the bundle that the client names.
func (s *upload) attach(e *compute.Execution, named *compute.Files) *compute.Error {
	if named == nil {
		return nil
	}
	u, ok := s.view.Upload(e.Org, named.Bundle)
	switch {
	case !ok:
		return noBundle()
	case !u.Committed:
		return compute.Errorf(compute.CodeConflict,
			"The bundle is not complete: commit it first.").Named("bundle_not_committed")
	}
	e.Files = &compute.Files{Bundle: u.ID, Manifest: u.Manifest, Bytes: u.Bytes, Count: u.Files}
	return nil
}

// use records that an execution uses a bundle.
func (s *upload) use(files *compute.Files) {
	if files == nil {
		return
	}
	if known, ok := s.view.uploads.Get(files.Bundle); ok {
		u := *known
		u.Used, u.TouchedAt = true, s.view.meta.Now
		s.put(&u)
	}
}

// expire drops bundles in which nothing has happened for long.
func (s *upload) expire() {
	for range maxUploadSweep {
		var due compute.BundleID
		for k := range s.view.expiringUploads.All() {
			if k.at <= s.view.meta.Now {
				copy(due.UUID[:], k.id[:])
			}
			break
		}
		if due.IsZero() {
			return
		}
		s.drop(due)
	}
}

// checkUploads checks that bundles have their organization, and that the bits
// of their chunks fit.
func (v checker) checkUploads() error {
	for u := range v.view.uploads.Values() {
		if _, ok := v.view.orgs.Get(u.Org); !ok || u.Committed && len(u.Have) > 0 ||
			!u.Committed && len(u.Have) != (u.Chunks+7)/8 {
			return fmt.Errorf("bundle %s: of no organization, or %d bytes for %d chunks", u.ID, len(u.Have), u.Chunks)
		}
	}
	return nil
}
