package fsm

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"berth/compute"
	"berth/fsm/archive"
)

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

// totalsOf returns the contribution of o to the totals of its organization.
func totalsOf(o *archive.Org) *totals {
	t := &totals{executions: o.Executions, spent: o.Spent}
	for cell, n := range o.Counts {
		t.byStatus[cell%compute.Statuses] += n
	}
	return t
}

// Archives yields all archives, the oldest first.
func (v *archiveTables) Archives() iter.Seq[*archive.Record] { return v.archives.Values() }

// Archived returns the number of archives and of the executions in them.
func (v *View) Archived() (archives, executions int) {
	return v.archives.Len(), v.counts.archived
}

// ArchivesWith returns the archives that may contain an organization's
// execution, the newest first. A zero org stands for all organizations. If an
// archive contains the execution it is among them; few others are.
func (v *archiveTables) ArchivesWith(org compute.OrgID, id compute.ExecutionID) []*archive.Record {
	var out []*archive.Record
	for _, a := range v.archives.Descend(math.MaxUint64) {
		if !a.MayHave(id) {
			continue
		}
		if !org.IsZero() {
			if o, ok := a.Part(org); ok && o.Holds(id) {
				out = append(out, a)
			}
			continue
		}
		if slices.ContainsFunc(a.Orgs, func(o archive.Org) bool { return o.Holds(id) }) {
			out = append(out, a)
		}
	}
	return out
}

// putArchive stores a and all data derived from it.
func (s *retention) putArchive(a *archive.Record) {
	s.view.archives.Put(a)
	s.view.archiveBlobs.Set(a.Blob, struct{}{})
	s.view.counts.archived += a.Executions
	for i := range a.Orgs {
		o := &a.Orgs[i]
		s.view.archivePlaces.Set(archivePlace{o.Org, o.Newest, a.Number}, struct{}{})
		t, _ := s.view.archivedTotals.Get(o.Org)
		t.merge(totalsOf(o))
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
