package faults

import "berth/bench/faults/check"

// FoundAs returns the result of a control that counts the given kinds and had
// the given violations.
func FoundAs(shows []string, wrong ...check.Violation) Found {
	return Found{Report: Report{Violations: wrong}, shows: shows}
}
