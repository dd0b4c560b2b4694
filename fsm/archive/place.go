package archive

import (
	"cmp"

	"berth/compute"
)

// Place is an execution's place in its organization's history.
type Place struct {
	Org   compute.OrgID
	Index uint64
	ID    compute.ExecutionID
}

// ByPlace is the order of places: by organization, then by age. It is called for every
// level of a tree: it compares the second part of a key only where the first parts are equal.
func ByPlace(a, b Place) int {
	if c := compareIDs(a.Org.UUID, b.Org.UUID); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Index, b.Index); c != 0 {
		return c
	}
	return compareIDs(a.ID.UUID, b.ID.UUID)
}

// PlaceOf returns the place of e.
func PlaceOf(e *compute.Execution) Place { return Place{e.Org, e.SubmitIndex, e.ID} }
