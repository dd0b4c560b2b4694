package fsm

import (
	"errors"
	"fmt"

	"berth/compute"
)

// checkObjects checks that objects and parts have their buckets and uploads, archived
// output its attempt, and that nobody can read those of organizations that have ended.
func (v checker) checkObjects() error {
	for _, b := range v.view.buckets.All() {
		o, ok := v.view.orgs.Get(b.Org)
		if !ok || !o.DeletedAt.IsZero() && len(b.Sealed) > 0 {
			return fmt.Errorf("bucket of %s: the organization does not exist, or has ended and left the key", b.Org)
		}
	}
	for k, o := range v.view.objects.All() {
		if !v.view.buckets.Has(o.Org) || compute.BadObjectKey(k.key) != "" || o.Size > 0 && o.Blob == (compute.Hash{}) {
			return fmt.Errorf("object %q: it has no bucket, no content or a bad key", k.key)
		}
	}
	for _, u := range v.view.objectUploads.All() {
		if !v.view.buckets.Has(u.Org) {
			return fmt.Errorf("upload %s: it has no bucket", u.ID)
		}
	}
	for _, o := range v.view.archivedOutputs.All() {
		e, _ := v.view.executions.Get(o.Execution)
		a, ok := v.view.attempts.Get(outputPlace(o))
		if !ok || !a.Ended || e == nil || e.Deleted || e.Org != o.Org || o.Size <= 0 || o.Blob == (compute.Hash{}) {
			return fmt.Errorf("archived output of attempt %d of %s: no such attempt has ended, or it has no content",
				o.Epoch, o.Execution)
		}
	}
	for _, p := range v.view.objectParts.All() {
		if !v.view.objectUploads.Has(p.Upload) {
			return fmt.Errorf("part %d of upload %s: there is no such upload", p.Number, p.Upload)
		}
	}
	return nil
}

// checkObjectsDerived compares the data derived from objects.
func (v checker) checkObjectsDerived(fresh *state) error {
	return errors.Join(
		differ("uploads of objects", v.view.uploadsOf.Table(), fresh.view.uploadsOf.Table()),
		differ("ending uploads of objects", v.view.endingUploads.Table(), fresh.view.endingUploads.Table()),
		differ("use of buckets", v.view.objectUse, fresh.view.objectUse),
	)
}
