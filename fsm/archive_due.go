package fsm

import (
	"slices"

	"berth/compute"
	"berth/fsm/archive"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/fsm/store"
)

// Limits of one archive.
const (
	// maxArchiveBytes is the largest size of their records. The sub-executions of
	// one GPU selection stay together even beyond it.
	maxArchiveBytes = 4 << 20

	// maxScanned is how many finished executions are scanned for one archive. The
	// scan includes sub-executions that wait for their parents.
	maxScanned = 20_000

	// The slack is the fraction of the age limit and of the number limit by which
	// finished executions may exceed them, so that archives are not small.
	slackOfAge    = 90
	slackOfNumber = 10
)

// archiver drafts archives of a view.
type archiver struct{ view *View }

// DraftArchive returns the next archive that is due, nil for none. It contains
// terminal executions of one month past their age or number, those that ended
// first. A GPU selection is archived as a whole, together with its parent.
// Executions in stay are left out.
func (v *View) DraftArchive(stay map[compute.ExecutionID]bool) *archive.Draft {
	if v.Format() < format.Trust || v.meta.Settings.Forget {
		return nil
	}
	ids, month := archiver{v}.dueForArchive(stay)
	if len(ids) == 0 {
		return nil
	}
	d := &archive.Draft{Command: command.ArchiveExecutions{Month: month}}
	for _, id := range ids {
		d.Command.Executions = append(d.Command.Executions, id.UUID[:]...)
	}
	d.Blob, d.Command.Blob, d.Command.Sum = archiver{v}.archiveFile(ids, month)
	d.Command.Size = int64(len(d.Blob))
	return d
}

// archiveFile returns the blob of executions, its name, and the sum of the hashes of its
// records.
func (v archiver) archiveFile(ids []compute.ExecutionID, month int) (data []byte, name compute.Hash, s store.Sum) {
	places := make([]archive.Place, 0, len(ids))
	for _, id := range ids {
		e, _ := v.view.executions.Get(id)
		places = append(places, archive.PlaceOf(e))
	}
	return archive.Pack(v.view.meta.Cluster, month, places, v.recordsOf)
}

// dueForArchive returns the executions of the next archive and their month. It
// returns none while a short wait makes the archive larger.
func (v archiver) dueForArchive(stay map[compute.ExecutionID]bool) (ids []compute.ExecutionID, month int) {
	left, scanned, size, full := v.view.finished.Len(), 0, 0, false
	var first compute.Instant
	for m := range v.view.finished.Keys(timeKey{}) {
		if scanned++; scanned > maxScanned || !v.pastRetention(m.at, left-1) {
			break
		}
		if stay[m.execution()] {
			continue
		}
		family := v.familyOf(m.execution())
		if family == nil {
			continue
		}
		if !v.pastRetention(m.at, left-len(family)) {
			break // It is archived once as many more have ended.
		}
		bytes := v.bytesOf(family)
		if len(ids) == 0 {
			month, first = archive.MonthOf(m.at), m.at
		} else if archive.MonthOf(m.at) != month || len(ids)+len(family) > archive.MaxExecutions ||
			size+bytes > maxArchiveBytes {
			full = true
			break
		}
		ids = append(ids, family...)
		size, left = size+bytes, left-len(family)
	}
	if full || len(ids) >= archive.MaxExecutions || v.worthArchiving(first, len(ids)) {
		return ids, month
	}
	return nil, 0
}

// pastRetention reports whether an execution that ended at an instant may leave
// the state when left other ended executions stay.
func (v archiver) pastRetention(at compute.Instant, left int) bool {
	keep, most := v.view.meta.Settings.KeepFinished, v.view.meta.Settings.MaxFinished
	return keep > 0 && at < v.view.meta.Now.Add(-keep) || most > 0 && left >= most
}

// worthArchiving reports whether n executions, the first of which ended at an instant,
// are worth an archive of their own.
func (v archiver) worthArchiving(first compute.Instant, n int) bool {
	keep, most := v.view.meta.Settings.KeepFinished, v.view.meta.Settings.MaxFinished
	return keep > 0 && n > 0 && first < v.view.meta.Now.Add(-keep-keep/slackOfAge) || most > 0 && n > most/slackOfNumber
}

// Overdue returns how many ended executions should be in archives and are not.
// The slack within which executions wait for a larger archive does not count.
func (v *View) Overdue() int {
	keep, most := v.meta.Settings.KeepFinished, v.meta.Settings.MaxFinished
	if v.Format() < format.Trust || v.meta.Settings.Forget {
		return 0
	}
	n := 0
	if most > 0 {
		n = v.finished.Len() - most - most/slackOfNumber
	}
	if keep > 0 {
		n = max(n, v.finished.CountBefore(timeKey{at: v.meta.Now.Add(-keep - keep/slackOfAge)}))
	}
	return max(n, 0)
}

// familyOf returns the execution id and its sub-executions in the state. It
// returns nil for a sub-execution whose parent is in the state, because they
// are archived together.
func (v archiver) familyOf(id compute.ExecutionID) []compute.ExecutionID {
	e, ok := v.view.executions.Get(id)
	if !ok || v.staysWithParent(e) {
		return nil
	}
	return append(v.stateChildren(e), id)
}

// staysWithParent reports whether e is a sub-execution whose parent is in the state
// and names it. A service names only the newest replicas.
func (v archiver) staysWithParent(e *compute.Execution) bool {
	if e.Parent.IsZero() || !v.view.executions.Has(e.Parent) {
		return false
	}
	if e.Kind != compute.KindReplica {
		return true
	}
	parent, _ := v.view.executions.Get(e.Parent)
	return slices.Contains(parent.Children(), e.ID)
}

// stateChildren returns the identifiers of the sub-executions of e that are in the
// state, each once.
func (v archiver) stateChildren(e *compute.Execution) []compute.ExecutionID {
	var out []compute.ExecutionID
	for _, id := range e.Children() {
		if v.view.executions.Has(id) && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// bytesOf returns the size of the records of executions.
func (v archiver) bytesOf(ids []compute.ExecutionID) (n int) {
	for _, id := range ids {
		v.recordsOf(id, func(encoded []byte) { n += len(encoded) })
	}
	return n
}

// recordsOf visits the encodings of an execution, of its attempts and of its
// callbacks, in this order, and returns the numbers of attempts and callbacks.
// The encodings are valid only during the call.
func (v archiver) recordsOf(id compute.ExecutionID, visit func(encoded []byte)) (attempts, callbacks int) {
	e, encoded, ok := v.view.executions.Peek(id, nil)
	if !ok {
		return 0, 0
	}
	if e != nil {
		encoded = store.MustEncode(e)
	}
	visit(encoded)
	return eachOf(v.view.attempts, id.UUID, visit), eachOf(v.view.callbacks, id.UUID, visit)
}

// eachOf visits the encodings of the records of an owner and returns their
// number.
func eachOf[V any](r store.Records[numberKey, V], owner compute.UUID, visit func(encoded []byte)) (n int) {
	r.EachFrom(numberKey{owner: owner}, func(k numberKey, encoded []byte) bool {
		if k.owner != owner {
			return false
		}
		visit(encoded)
		n++
		return true
	})
	return n
}
