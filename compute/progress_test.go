package compute_test

import (
	"testing"

	"berth/compute"
)

func TestParseProgress(t *testing.T) {
	tests := []struct {
		line string
		want float64
		ok   bool
	}{
		{"BERTH_PROGRESS 37/100", 0.37, true},
		{"  BERTH_PROGRESS 1 / 4 \r", 0.25, true},
		{"BERTH_PROGRESS 0.5/1", 0.5, true},
		{"BERTH_PROGRESS 3/3", 1, true},
		{"BERTH_PROGRESS 0/7", 0, true},
		{"BERTH_PROGRESS 5/4", 0, false},
		{"BERTH_PROGRESS 5/0", 0, false},
		{"BERTH_PROGRESS -1/4", 0, false},
		{"BERTH_PROGRESS NaN/4", 0, false},
		{"BERTH_PROGRESS 1/Inf", 0, false},
		{"BERTH_PROGRESS 37", 0, false},
		{"BERTH_PROGRESS", 0, false},
		{"said BERTH_PROGRESS 1/2", 0, false},
		{"", 0, false},
	}
	for _, tt := range tests {
		if got, ok := compute.ParseProgress(tt.line); got != tt.want || ok != tt.ok {
			t.Errorf("%q: got %v, %v; want %v, %v", tt.line, got, ok, tt.want, tt.ok)
		}
	}
}

func TestThinProgress(t *testing.T) {
	for n := range 200 {
		points := make([]compute.ProgressPoint, n)
		for i := range points {
			points[i].Part = float64(i+1) / float64(n)
		}
		got := compute.ThinProgress(points, 16)
		if len(got) > 16 || n <= 16 && len(got) != n || n > 16 && len(got) < 8 {
			t.Errorf("%d of %d points are left", len(got), n)
		}
		if n > 0 && got[len(got)-1] != points[n-1] {
			t.Errorf("of %d points the last is lost", n)
		}
		for i := 1; i < len(got); i++ {
			if got[i].Part <= got[i-1].Part {
				t.Errorf("of %d points the order is lost", n)
			}
		}
	}
}
