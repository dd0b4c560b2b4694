package faults

import "strings"

// What runs told is not the same at all times. Their lines stay as they were
// written; what counts of them is decided here.
const (
	// clockSince is when nodes began to ask for the clock that is shifted.
	clockSince = "2026-11-22T13:30"
	// hitSince is when runs began to look whether strace met a sync. The last run
	// of a program from before began at 17:15.
	hitSince = "2026-11-22T17:30"
)

// since reports whether the run began at an instant of UTC or later.
func (r *Report) since(instant string) bool {
	return r.Began.UTC().Format("2006-01-02T15:04") >= instant
}

// Uncounted is how many times something is in the lines of runs and is not
// counted as a fault.
type Uncounted struct {
	Nemesis string `json:"nemesis"`
	Why     string `json:"why"`
	Times   int    `json:"times"`
}

// uncounted returns why a fault is not counted: nothing was broken, or its line
// does not tell and something may not have been. It is "" for one that counts.
func (r *Report) uncounted(f *Fault) string {
	switch f.Nemesis {
	case "clock":
		if !r.since(clockSince) {
			return "no part of a node asked for the clock that was shifted"
		}
	case "failpoint":
		if !f.Missed && !strings.HasSuffix(f.Note, ": reached") && !strings.HasSuffix(f.Note, notReached) {
			return "the run did not tell whether the point was reached"
		}
	case "out-of-memory":
		if !f.Missed && !strings.HasSuffix(f.Note, killed) {
			return "the run did not look whether the kernel had killed the node, before it killed it itself"
		}
	case "slow-disk", "slow-disks", "hanging-disk", "follower-hanging-disk":
		// The others end a node or its leadership, which their times show.
		if !r.since(hitSince) {
			return "the run did not look whether a sync was held up, and nothing else in its line shows it"
		}
	}
	if f.Missed || strings.HasSuffix(f.Note, notReached) {
		return "nothing came to what was broken"
	}
	return ""
}

// broke reports whether the run broke something in this way that counts.
func (r *Report) broke(nemesis string) bool {
	for i := range r.Faults {
		if f := &r.Faults[i]; f.Nemesis == nemesis && nemesis != calmNemesis && r.uncounted(f) == "" {
			return true
		}
	}
	return false
}

// calm reports whether the run broke nothing that counts.
func (r *Report) calm() bool {
	for i := range r.Faults {
		if r.broke(r.Faults[i].Nemesis) {
			return false
		}
	}
	return true
}

// Excluded is runs whose lines were taken out of the others, or never put
// there, because what was wrong in them was the harness.
type Excluded struct {
	Runs int    `json:"runs"`
	Why  string `json:"why"`
}
