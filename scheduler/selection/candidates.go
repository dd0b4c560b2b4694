package selection

import (
	"fmt"
	"slices"
	"strings"

	"berth/compute"
)

// Limits of one GPU selection.
const (
	MaxCandidates = 16
	maxDetail     = 512 // Bytes of the detail.
)

// Candidates returns the hardware profiles that a GPU selection tries, in the
// order of their names: the GPU types in known, which nodes report, or those of
// them that the parent asks for. The detail names the types left out and why.
// It is empty when none was left out.
func Candidates(known []string, parent *compute.Execution) (profiles []string, detail string) {
	asked := known
	if parent.Selection != nil && len(parent.Selection.GPUTypes) > 0 {
		asked = parent.Selection.GPUTypes
	}
	var unknown []string
	for _, name := range asked {
		p, err := compute.ParseProfile(name)
		if err != nil || !p.IsGPU() || !slices.Contains(known, p.Kind()) {
			unknown = append(unknown, name)
			continue
		}
		profiles = append(profiles, p.String())
	}
	if len(asked) == 0 {
		return nil, "No node reports a GPU."
	}
	profiles = distinct(profiles)
	tried := min(len(profiles), MaxCandidates)
	return profiles[:tried], leftOut(profiles[tried:], unknown)
}

// leftOut names the GPU types that are not candidates: those beyond the limit
// and those that no node reports.
func leftOut(beyond, unknown []string) string {
	var parts []string
	if len(beyond) > 0 {
		parts = append(parts, fmt.Sprintf("At most %d are tried, not %s.", MaxCandidates, strings.Join(beyond, ", ")))
	}
	if len(unknown) > 0 {
		parts = append(parts, "No node reports "+strings.Join(distinct(unknown), ", ")+".")
	}
	detail := strings.Join(parts, " ")
	if len(detail) > maxDetail {
		detail = strings.ToValidUTF8(detail[:maxDetail-3], "") + "..."
	}
	return detail
}

// distinct returns the names sorted, each once.
func distinct(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}
