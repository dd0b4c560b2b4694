package partial

import (
	"berth/compute"
	"berth/fsm/store"
)

// Attempt decodes the part of an attempt that checks need.
func Attempt(data []byte) (a compute.Attempt, ok bool) {
	f := attemptSchema.FieldsOf(data)
	for key, item, ok := f.Next(); ok; key, item, ok = f.Next() {
		n, _ := store.Number(item)
		switch key {
		case 1:
			a.Execution.UUID = store.ID(item)
		case 2:
			a.Epoch = uint64(n)
		case 8:
			a.Ended = true // It is not written otherwise.
		case 9:
			a.Status = compute.Status(n)
		case 14:
			a.PreemptAt = compute.Instant(n)
		case 16:
			a.ForOwn = true // As above.
		}
	}
	return a, f.Complete()
}
