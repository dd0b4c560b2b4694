package faults

import "berth/bench/faults/check"

// FoundAs returns a control that counts what shows as these, and had these
// violations.
func FoundAs(shows []string, wrong ...check.Violation) Found {
	return Found{Report: Report{Violations: wrong}, shows: shows}
}
