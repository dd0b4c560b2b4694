package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"berth/compute"
)

// Limits of what one GPU selection becomes.
const (
	MaxCandidates = 16
	maxDetail     = 512 // Bytes of the detail.
)

// Candidates returns the hardware profiles that a GPU selection tries, in the
// order of their names: the GPU types that exist, or those asked for that
// exist, as far as allowed. The detail names those left out and why; it is
// empty when none was.
func Candidates(v View, parent *compute.Execution, allowed func(profile string) bool,
) (profiles []string, detail string) {
	known := v.GPUTypes()
	asked := known
	if parent.Selection != nil && len(parent.Selection.GPUTypes) > 0 {
		asked = parent.Selection.GPUTypes
	}
	var unknown, forbidden []string
	for _, name := range asked {
		p, err := compute.ParseProfile(name)
		switch {
		case err != nil || !p.IsGPU() || !slices.Contains(known, p.Kind()):
			unknown = append(unknown, name)
		case !allowed(p.String()):
			forbidden = append(forbidden, name)
		default:
			profiles = append(profiles, p.String())
		}
	}
	if len(asked) == 0 {
		return nil, "No node reports a GPU."
	}
	profiles = distinct(profiles)
	tried := min(len(profiles), MaxCandidates)
	return profiles[:tried], leftOut(profiles[tried:], unknown, forbidden)
}

// leftOut says which GPU types are no candidates: those beyond the limit, those
// that no node reports, those that are not allowed.
func leftOut(beyond, unknown, forbidden []string) string {
	var parts []string
	if len(beyond) > 0 {
		parts = append(parts, fmt.Sprintf("At most %d are tried, not %s.", MaxCandidates, strings.Join(beyond, ", ")))
	}
	if len(unknown) > 0 {
		parts = append(parts, "No node reports "+strings.Join(distinct(unknown), ", ")+".")
	}
	if len(forbidden) > 0 {
		parts = append(parts, "Not allowed: "+strings.Join(distinct(forbidden), ", ")+".")
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
