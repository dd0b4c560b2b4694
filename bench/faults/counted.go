package faults

import "strings"

// Older runs recorded less. Their lines stay as written; this file decides
// which of their faults count.
const (
	// clockSince is when nodes began to read the shifted clock.
	clockSince = "2026-11-22T13:30"
	// hitSince is when runs began to check whether strace intercepted a sync.
	// The last run of an older program began at 17:15.
	hitSince = "2026-11-22T17:30"
)

// since reports whether the run began at an instant in UTC or later.
func (r *Report) since(instant string) bool {
	return r.Began.UTC().Format("2006-01-02T15:04") >= instant
}

// Uncounted counts recorded faults that do not count as faults.
type Uncounted struct {
	Nemesis string `json:"nemesis"`
	Why     string `json:"why"`
	Times   int    `json:"times"`
}

// uncounted returns why a fault is not counted: nothing was broken, or its line
// does not show whether something was. It is "" for a fault that counts.
func (r *Report) uncounted(f *Fault) string {
	switch f.Nemesis {
	case "clock":
		if !r.since(clockSince) {
			return "no part of a node read the shifted clock"
		}
	case "failpoint":
		if !f.Missed && !strings.HasSuffix(f.Note, ": reached") && !strings.HasSuffix(f.Note, notReached) {
			return "the run did not record whether the point was reached"
		}
	case "out-of-memory":
		if !f.Missed && !strings.HasSuffix(f.Note, killed) {
			return "the run killed the node without checking whether the kernel had done so"
		}
	case "slow-disk", "slow-disks", "hanging-disk", "follower-hanging-disk":
		// The other faults end a node or its leadership, and their times show
		// it.
		if !r.since(hitSince) {
			return "the run did not check whether a sync was held up, and nothing else in its line shows it"
		}
	}
	if f.Missed || strings.HasSuffix(f.Note, notReached) {
		return "nothing reached the injected fault"
	}
	return ""
}

// hasFault reports whether the run has a fault of this kind that counts.
func (r *Report) hasFault(nemesis string) bool {
	for i := range r.Faults {
		if f := &r.Faults[i]; f.Nemesis == nemesis && nemesis != calmNemesis && r.uncounted(f) == "" {
			return true
		}
	}
	return false
}

// calm reports whether the run has no fault that counts.
func (r *Report) calm() bool {
	for i := range r.Faults {
		if r.hasFault(r.Faults[i].Nemesis) {
			return false
		}
	}
	return true
}

// Excluded is a set of runs that are kept out of the results because the
// harness caused their violations.
type Excluded struct {
	Runs int    `json:"runs"`
	Why  string `json:"why"`
}
