package fsm

import (
	"errors"
	"fmt"

	"berth/compute"
)

// checkObjects checks that objects and parts have their buckets and uploads, archived
// output its attempt, and that nobody can read those of organizations that have ended.
func (v checker) checkObjects() error {
	for _, b := range v.buckets.All() {
		o, ok := v.orgs.Get(b.Org)
		if !ok || !o.DeletedAt.IsZero() && len(b.Sealed) > 0 {
			return fmt.Errorf("bucket of %s: the organization does not exist, or has ended and left the key", b.Org)
		}
	}
	for k, o := range v.objects.All() {
		if !v.buckets.Has(o.Org) || compute.BadObjectKey(k.key) != "" || o.Size > 0 && o.Blob == (compute.Hash{}) {
			return fmt.Errorf("object %q: it has no bucket, no content or a bad key", k.key)
		}
	}
	for _, u := range v.objectUploads.All() {
		if !v.buckets.Has(u.Org) {
			return fmt.Errorf("upload %s: it has no bucket", u.ID)
		}
	}
	for _, o := range v.archivedOutputs.All() {
		e, _ := v.executions.Get(o.Execution)
		a, ok := v.attempts.Get(outputPlace(o))
		if !ok || !a.Ended || e == nil || e.Deleted || e.Org != o.Org || o.Size <= 0 || o.Blob == (compute.Hash{}) {
			return fmt.Errorf("archived output of attempt %d of %s: no such attempt has ended, or it has no content",
				o.Epoch, o.Execution)
		}
	}
	for _, p := range v.objectParts.All() {
		if !v.objectUploads.Has(p.Upload) {
			return fmt.Errorf("part %d of upload %s: there is no such upload", p.Number, p.Upload)
		}
	}
	return nil
}

// checkObjectsDerived compares the data derived from objects.
func (v checker) checkObjectsDerived(fresh *state) error {
	return errors.Join(
		differ("uploads of objects", v.uploadsOf.Table(), fresh.uploadsOf.Table()),
		differ("ending uploads of objects", v.endingUploads.Table(), fresh.endingUploads.Table()),
		differ("use of buckets", v.objectUse, fresh.objectUse),
	)
}
