package compute

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// ProgressMark begins a line by which code says how far it is, such as
// BERTH_PROGRESS 37/100.
const ProgressMark = "BERTH_PROGRESS "

// maxSteps is what a count of steps stays below; infinity does not.
const maxSteps = 1e15

// ProgressPoint is one such line of a run's output.
type ProgressPoint struct {
	Part float64       `cbor:"1,keyasint"` // Of the work that was done, 0 to 1.
	At   time.Duration `cbor:"2,keyasint"` // Since the code started.
}

// ParseProgress returns how much of its work, 0 to 1, a line of output says to
// be done.
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

// ThinProgress returns every other point while there are more than limit, the
// last one always.
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
