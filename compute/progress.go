package compute

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// ProgressMark starts a line in which code reports its progress, such as
// BERTH_PROGRESS 37/100.
const ProgressMark = "BERTH_PROGRESS "

// maxSteps is the exclusive upper bound of a count of steps. It excludes
// infinity.
const maxSteps = 1e15

// ProgressPoint is one reported progress in a run's output.
type ProgressPoint struct {
	Part float64       `cbor:"1,keyasint"` // Fraction of the work done, 0 to 1.
	At   time.Duration `cbor:"2,keyasint"` // Since the code started.
}

// ParseProgress returns the fraction of the work, 0 to 1, that a line of output
// reports as done.
func ParseProgress(line string) (part float64, ok bool) {
	text, found := strings.CutPrefix(strings.TrimSpace(line), ProgressMark)
	done, all, cut := strings.Cut(strings.TrimSpace(text), "/")
	if !found || !cut {
		return 0, false
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(done), 64)
	m, err2 := strconv.ParseFloat(strings.TrimSpace(all), 64)
	if err != nil || err2 != nil || !(n >= 0 && n <= m && m > 0 && m < maxSteps) {
		return 0, false
	}
	return n / m, true
}

// ThinProgress drops every other point while there are more than limit. It
// keeps the last one.
func ThinProgress(points []ProgressPoint, limit int) []ProgressPoint {
	for len(points) > max(limit, 1) {
		thin := make([]ProgressPoint, 0, len(points)/2+1)
		for i := 1; i < len(points); i += 2 {
			thin = append(thin, points[i])
		}
		if len(points)%2 == 1 {
			thin = append(thin, points[len(points)-1])
		}
		if len(thin) == len(points) {
			break
		}
		points = thin
	}
	return slices.Clip(points)
}
