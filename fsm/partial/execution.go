package partial

import (
	"time"

	"berth/compute"
	"berth/fsm/store"
)

// Where an execution has its parent, its bundle, and that its code.
const (
	parentField = 5
	bundleField = 12
	codeField   = 3
	seriesField = 72
	leanRoom    = 64 // Bytes of where it is, without the code.
)

// executionSchema and attemptSchema are the schemas of executions and attempts. They never
// change.
//
//nolint:gochecknoglobals // Immutable.
var (
	executionSchema = store.SchemaOf[compute.Execution]()
	attemptSchema   = store.SchemaOf[compute.Attempt]()
)

// Execution decodes the part of an execution that indexes, counts, checks,
// filters and estimates need: identity, status and most numbers. That takes a
// small part of the time of a whole decode. An execution with a list or a record
// that checks need is decoded whole. It reports false for data that the schema
// does not accept.
func Execution(data []byte, e *compute.Execution) bool {
	profile, more := e.Profile, false
	*e = compute.Execution{}
	f := executionSchema.FieldsOf(data)
	for key, item, ok := f.Next(); ok; key, item, ok = f.Next() {
		n, _ := store.Number(item)
		switch key {
		case 1:
			e.ID.UUID = store.ID(item)
		case 2:
			e.Org.UUID = store.ID(item)
		case 5:
			e.Parent.UUID = store.ID(item)
		case 6:
			e.Kind = compute.Kind(n)
		case 7:
			e.Status = compute.Status(n)
		case 8:
			e.Reason = compute.Reason(n)
		case 9:
			_, _, size := store.Head(item)
			e.Detail = string(item[size:])
		case 10:
			_, _, size := store.Head(item)
			if e.Profile = profile; string(item[size:]) != profile {
				e.Profile = string(item[size:]) // Most have that of the one before.
			}
		case 16:
			e.Timeout = time.Duration(n)
		case 22:
			e.MaxCredits = compute.Credits(n)
		case 24:
			e.Held = compute.Credits(n)
		case 25:
			e.Billed = compute.Credits(n)
		case 26:
			e.Epoch = uint64(n)
		case 28:
			e.SubmitIndex = uint64(n)
		case 29:
			e.CreatedAt = compute.Instant(n)
		case 30:
			e.PlacedAt = compute.Instant(n)
		case 32:
			e.StartedAt = compute.Instant(n)
		case 34:
			e.FinishedAt = compute.Instant(n)
		case 37:
			e.Duration = time.Duration(n)
		case 35:
			e.Ran = true // It is not written otherwise.
		case 40:
			e.Deleted = true
		case 45:
			e.Preemptible = true
		case 46:
			e.MaxRetries = int(n)
		case 47:
			e.Retries = int(n)
		case 50:
			e.Owed = time.Duration(n)
		case 39, 49, 59:
			more = true
		}
	}
	if !f.Complete() || !more {
		return f.Complete()
	}
	return store.DecodeRecord(data, e) == nil
}

// Bundle decodes the bundle reference of an execution.
func Bundle(data []byte) (ref compute.BundleRef) {
	f, _ := store.FieldsOf(data)
	for key, item, ok := f.Next(); ok && key <= bundleField; key, item, ok = f.Next() {
		if key != bundleField {
			continue
		}
		inner, _ := store.FieldsOf(item)
		for key, value, ok := inner.Next(); ok; key, value, ok = inner.Next() {
			_, n, size := store.Head(value)
			switch key {
			case 1:
				copy(ref.Hash[:], value[size:])
			case 2:
				ref.Size = int64(n)
			case codeField:
				ref.Inline = value[size:]
			}
		}
	}
	return ref
}

// Series decodes the blobs with the metrics of an execution. The result aliases
// data.
func Series(data []byte) []byte {
	f, _ := store.FieldsOf(data)
	for key, item, ok := f.Next(); ok && key <= seriesField; key, item, ok = f.Next() {
		if key == seriesField {
			_, _, size := store.Head(item)
			return item[size:]
		}
	}
	return nil
}

// Parent decodes the parent of an execution.
func Parent(data []byte) (parent compute.ExecutionID) {
	f, _ := store.FieldsOf(data)
	for key, item, ok := f.Next(); ok && key <= parentField; key, item, ok = f.Next() {
		if key == parentField {
			parent.UUID = store.ID(item)
		}
	}
	return parent
}
