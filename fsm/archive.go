package fsm

import (
	"bytes"
	"cmp"
	"iter"
	"math"
	"slices"
	"sort"
	"time"

	"berth/compute"
)

// Archive is the record of executions that ended long ago and were moved, with
// their attempts and callbacks, to a blob. The blob never changes. Archive and
// blob together replace the records.
type Archive struct {
	Number     uint64          `cbor:"1,keyasint"` // From 1; a later archive has a higher one.
	Blob       compute.Hash    `cbor:"2,keyasint"` // Name and SHA-256 of the blob.
	Size       int64           `cbor:"3,keyasint"` // Bytes of the blob.
	Month      int             `cbor:"4,keyasint"` // Month in which they ended, UTC: year × 12 + month − 1.
	Executions int             `cbor:"5,keyasint"`
	First      compute.Instant `cbor:"6,keyasint"` // The earliest and the latest end.
	Last       compute.Instant `cbor:"7,keyasint"`
	Sum        [4]uint64       `cbor:"8,keyasint"` // Sum of the hashes of the records in the blob.
	Orgs       []ArchivedOrg   `cbor:"9,keyasint"` // Their organizations, by identifier.
	Bundles    []compute.Hash  `cbor:"10,keyasint,omitempty"`
	Tails      []byte          `cbor:"11,keyasint,omitempty"` // Ends of identifiers, in order, each once.
}

// tailWidth is how many bytes of an identifier are in Tails. Identifiers begin
// with a time, which executions of many archives share, and end at random. One
// in 65 identifiers that are not in an archive of 1,000 executions has the tail
// of one that is.
const tailWidth = 2

// tailsOf returns the ends of identifiers in the form of Archive.Tails.
func tailsOf(ids []compute.ExecutionID) []byte {
	tails := make([][tailWidth]byte, len(ids))
	for i, id := range ids {
		tails[i] = [tailWidth]byte(id.UUID[len(id.UUID)-tailWidth:])
	}
	slices.SortFunc(tails, func(a, b [tailWidth]byte) int { return bytes.Compare(a[:], b[:]) })
	var out []byte
	for _, tail := range slices.Compact(tails) {
		out = append(out, tail[:]...)
	}
	return out
}

// mayHave reports whether the execution id may be in a. False is always right,
// and true nearly always.
func (a *Archive) mayHave(id compute.ExecutionID) bool {
	n := len(a.Tails) / tailWidth
	at := func(i int) []byte { return a.Tails[i*tailWidth:][:tailWidth] }
	tail := id.UUID[len(id.UUID)-tailWidth:]
	i := sort.Search(n, func(i int) bool { return bytes.Compare(at(i), tail) >= 0 })
	return n == 0 || i < n && bytes.Equal(at(i), tail)
}

// ArchivedOrg describes one organization's executions in an archive.
type ArchivedOrg struct {
	Org        compute.OrgID       `cbor:"1,keyasint"`
	Executions int                 `cbor:"2,keyasint"`
	Oldest     uint64              `cbor:"3,keyasint"` // The range of SubmitIndex.
	Newest     uint64              `cbor:"4,keyasint"`
	First      compute.ExecutionID `cbor:"5,keyasint"` // The range of identifiers, those of parents too.
	Last       compute.ExecutionID `cbor:"6,keyasint"`
	From       compute.Instant     `cbor:"7,keyasint"` // The range of CreatedAt.
	To         compute.Instant     `cbor:"8,keyasint"`
	Spent      compute.Credits     `cbor:"9,keyasint"`
	Counts     []int               `cbor:"10,keyasint"` // By kind, then by status, up to the last that occurs.
}

// archivePlace is the position of an organization's part of an archive: behind
// all older parts.
type archivePlace struct {
	org    compute.OrgID
	newest uint64
	number uint64
}

func byArchivePlace(a, b archivePlace) int {
	return cmp.Or(byOrg(a.org, b.org), cmp.Compare(a.newest, b.newest), cmp.Compare(a.number, b.number))
}

// MonthOf returns the month of an instant, UTC, in the unit of Archive.Month.
func MonthOf(at compute.Instant) int {
	t := at.Time().UTC()
	return t.Year()*12 + int(t.Month()) - 1
}

// MonthText formats a month as in "2026-03".
func MonthText(month int) string {
	return time.Date(month/12, time.Month(month%12+1), 1, 0, 0, 0, 0, time.UTC).Format("2006-01")
}

// of returns an organization's part of a.
func (a *Archive) of(org compute.OrgID) (*ArchivedOrg, bool) {
	i, ok := slices.BinarySearchFunc(a.Orgs, org, func(o ArchivedOrg, id compute.OrgID) int { return byOrg(o.Org, id) })
	if !ok {
		return nil, false
	}
	return &a.Orgs[i], true
}

// holds reports whether the execution id, or a sub-execution of it, may be in
// o.
func (o *ArchivedOrg) holds(id compute.ExecutionID) bool {
	return byExecution(o.First, id) <= 0 && byExecution(id, o.Last) <= 0
}

// add counts e in o.
func (o *ArchivedOrg) add(e *compute.Execution) {
	o.Executions++
	o.Oldest, o.Newest = min(o.Oldest, e.SubmitIndex), max(o.Newest, e.SubmitIndex)
	o.From, o.To = min(o.From, e.CreatedAt), max(o.To, e.CreatedAt)
	o.reach(e.ID)
	if !e.Parent.IsZero() {
		o.reach(e.Parent)
	}
	var t totals
	t.add(e, 1)
	o.Spent += t.spent
	cell := int(e.Kind)*compute.Statuses + int(e.Status)
	for len(o.Counts) <= cell {
		o.Counts = append(o.Counts, 0)
	}
	o.Counts[cell]++
}

// reach extends the range of identifiers to id.
func (o *ArchivedOrg) reach(id compute.ExecutionID) {
	if byExecution(id, o.First) < 0 {
		o.First = id
	}
	if byExecution(id, o.Last) > 0 {
		o.Last = id
	}
}

// totals returns the contribution of o to the totals of its organization.
func (o *ArchivedOrg) totals() *totals {
	t := &totals{executions: o.Executions, spent: o.Spent}
	for cell, n := range o.Counts {
		t.byStatus[cell%compute.Statuses] += n
	}
	return t
}

// count returns how many executions of o have a status and a kind; nil selects
// all.
func (o *ArchivedOrg) count(status *compute.Status, kind *compute.Kind) (n int) {
	for cell, of := range o.Counts {
		if (status == nil || int(*status) == cell%compute.Statuses) && (kind == nil || int(*kind) == cell/compute.Statuses) {
			n += of
		}
	}
	return n
}

// Archives yields all archives, the oldest first.
func (v *archiveTables) Archives() iter.Seq[*Archive] { return v.archives.Values() }

// Archived returns the number of archives and of the executions in them.
func (v *View) Archived() (archives, executions int) {
	return v.archives.Len(), v.counts.archived
}

// ArchivesWith returns the archives that may contain an organization's
// execution, the newest first. A zero org stands for all organizations. If an
// archive contains the execution it is among them; few others are.
func (v *archiveTables) ArchivesWith(org compute.OrgID, id compute.ExecutionID) []*Archive {
	var out []*Archive
	for _, a := range v.archives.Descend(math.MaxUint64) {
		if !a.mayHave(id) {
			continue
		}
		if !org.IsZero() {
			if o, ok := a.of(org); ok && o.holds(id) {
				out = append(out, a)
			}
			continue
		}
		if slices.ContainsFunc(a.Orgs, func(o ArchivedOrg) bool { return o.holds(id) }) {
			out = append(out, a)
		}
	}
	return out
}

// putArchive stores a and all data derived from it.
func (s *retention) putArchive(a *Archive) {
	s.view.archives.Put(a)
	s.view.archiveBlobs.Set(a.Blob, struct{}{})
	s.view.counts.archived += a.Executions
	for i := range a.Orgs {
		o := &a.Orgs[i]
		s.view.archivePlaces.Set(archivePlace{o.Org, o.Newest, a.Number}, struct{}{})
		t, _ := s.view.archivedTotals.Get(o.Org)
		t.merge(o.totals())
		s.view.archivedTotals.Set(o.Org, t)
	}
}

// nextArchive returns the number of the next archive.
func (v *archiveTables) nextArchive() uint64 {
	for number := range v.archives.Descend(math.MaxUint64) {
		return number + 1
	}
	return 1
}
