package archive

import (
	"bytes"
	"slices"
	"sort"
	"time"

	"berth/compute"
)

// Add counts e among those of a.
func (a *Record) Add(e *compute.Execution) {
	if a.First.IsZero() || e.FinishedAt < a.First {
		a.First = e.FinishedAt
	}
	a.Last = max(a.Last, e.FinishedAt)
	if ref := e.Bundle; ref.Size > 0 && len(ref.Inline) == 0 {
		a.Bundles = append(a.Bundles, ref.Hash)
	}
	i := slices.IndexFunc(a.Orgs, func(o Org) bool { return o.Org == e.Org })
	if i < 0 {
		i = len(a.Orgs)
		a.Orgs = append(a.Orgs, Org{
			Org: e.Org, Oldest: e.SubmitIndex, First: e.ID, Last: e.ID, From: e.CreatedAt,
		})
	}
	a.Orgs[i].add(e)
}

// Record is the record of executions that ended long ago and were moved, with
// their attempts and callbacks, to a blob. The blob never changes. Archive and
// blob together replace the records.
type Record struct {
	Number     uint64          `cbor:"1,keyasint"` // From 1; a later archive has a higher one.
	Blob       compute.Hash    `cbor:"2,keyasint"` // Name and SHA-256 of the blob.
	Size       int64           `cbor:"3,keyasint"` // Bytes of the blob.
	Month      int             `cbor:"4,keyasint"` // Month in which they ended, UTC: year × 12 + month − 1.
	Executions int             `cbor:"5,keyasint"`
	First      compute.Instant `cbor:"6,keyasint"` // The earliest and the latest end.
	Last       compute.Instant `cbor:"7,keyasint"`
	Sum        [4]uint64       `cbor:"8,keyasint"` // Sum of the hashes of the records in the blob.
	Orgs       []Org           `cbor:"9,keyasint"` // Their organizations, by identifier.
	Bundles    []compute.Hash  `cbor:"10,keyasint,omitempty"`
	Tails      []byte          `cbor:"11,keyasint,omitempty"` // Ends of identifiers, in order, each once.
}

// TailWidth is how many bytes of an identifier are in Tails. Identifiers begin
// with a time, which executions of many archives share, and end at random. One
// in 65 identifiers that are not in an archive of 1,000 executions has the tail
// of one that is.
const TailWidth = 2

// TailsOf returns the ends of identifiers in the form of Archive.Tails.
func TailsOf(ids []compute.ExecutionID) []byte {
	tails := make([][TailWidth]byte, len(ids))
	for i, id := range ids {
		tails[i] = [TailWidth]byte(id.UUID[len(id.UUID)-TailWidth:])
	}
	slices.SortFunc(tails, func(a, b [TailWidth]byte) int { return bytes.Compare(a[:], b[:]) })
	var out []byte
	for _, tail := range slices.Compact(tails) {
		out = append(out, tail[:]...)
	}
	return out
}

// MayHave reports whether the execution id may be in a. False is always right,
// and true nearly always.
func (a *Record) MayHave(id compute.ExecutionID) bool {
	n := len(a.Tails) / TailWidth
	at := func(i int) []byte { return a.Tails[i*TailWidth:][:TailWidth] }
	tail := id.UUID[len(id.UUID)-TailWidth:]
	i := sort.Search(n, func(i int) bool { return bytes.Compare(at(i), tail) >= 0 })
	return n == 0 || i < n && bytes.Equal(at(i), tail)
}

// Org describes one organization's executions in an archive.
type Org struct {
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

// compareIDs is the order of identifiers.
func compareIDs(a, b compute.UUID) int { return bytes.Compare(a[:], b[:]) }

// MonthOf returns the month of an instant, UTC, in the unit of Archive.Month.
func MonthOf(at compute.Instant) int {
	t := at.Time().UTC()
	return t.Year()*12 + int(t.Month()) - 1
}

// MonthText formats a month as in "2026-03".
func MonthText(month int) string {
	return time.Date(month/12, time.Month(month%12+1), 1, 0, 0, 0, 0, time.UTC).Format("2006-01")
}

// Part returns an organization's part of a.
func (a *Record) Part(org compute.OrgID) (*Org, bool) {
	i, ok := slices.BinarySearchFunc(a.Orgs, org, func(o Org, id compute.OrgID) int {
		return compareIDs(o.Org.UUID, id.UUID)
	})
	if !ok {
		return nil, false
	}
	return &a.Orgs[i], true
}

// Holds reports whether the execution id, or a sub-execution of it, may be in
// o.
func (o *Org) Holds(id compute.ExecutionID) bool {
	return compareIDs(o.First.UUID, id.UUID) <= 0 && compareIDs(id.UUID, o.Last.UUID) <= 0
}

// add counts e in o.
func (o *Org) add(e *compute.Execution) {
	o.Executions++
	o.Oldest, o.Newest = min(o.Oldest, e.SubmitIndex), max(o.Newest, e.SubmitIndex)
	o.From, o.To = min(o.From, e.CreatedAt), max(o.To, e.CreatedAt)
	o.reach(e.ID)
	if !e.Parent.IsZero() {
		o.reach(e.Parent)
	}
	if !e.Kind.IsParent() {
		o.Spent += e.Billed
	}
	cell := int(e.Kind)*compute.Statuses + int(e.Status)
	for len(o.Counts) <= cell {
		o.Counts = append(o.Counts, 0)
	}
	o.Counts[cell]++
}

// reach extends the range of identifiers to id.
func (o *Org) reach(id compute.ExecutionID) {
	if compareIDs(id.UUID, o.First.UUID) < 0 {
		o.First = id
	}
	if compareIDs(id.UUID, o.Last.UUID) > 0 {
		o.Last = id
	}
}

// Count returns how many executions of o have a status and a kind; nil selects
// all.
func (o *Org) Count(status *compute.Status, kind *compute.Kind) (n int) {
	for cell, of := range o.Counts {
		if (status == nil || int(*status) == cell%compute.Statuses) && (kind == nil || int(*kind) == cell/compute.Statuses) {
			n += of
		}
	}
	return n
}
