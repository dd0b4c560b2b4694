package chart_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/scheduler/selection"
	"berth/scheduler/selection/chart"
)

func done(profile string, d time.Duration, c compute.Credits) compute.Candidate {
	return compute.Candidate{Profile: profile, Runs: []compute.CandidateRun{
		{Status: compute.StatusCompleted, Duration: d, Credits: c},
	}}
}

func TestSelection(t *testing.T) {
	early := compute.Candidate{Profile: "gpu.l4", Runs: []compute.CandidateRun{{
		Status: compute.StatusCancelled, Reason: compute.ReasonStoppedEarly, Price: 200, Predicted: 40 * time.Second,
	}}}
	tests := []struct {
		name       string
		candidates []compute.Candidate
		want       []string
	}{
		{
			"several",
			[]compute.Candidate{
				done("gpu.h100", 6*time.Second, 5400), done("gpu.t4", 50*time.Second, 5000),
				done("gpu.a<b&c", 10*time.Second, 5500), early,
			},
			[]string{">h100<", ">t4<", ">l4<", "a&lt;b&amp;c", "stopped early", "recommended", "Pareto front", "<title", "<desc"},
		},
		{
			"far apart",
			[]compute.Candidate{done("gpu.h100", time.Second, 5), done("gpu.t4", time.Hour, 500_000)},
			[]string{">h100<", ">t4<"},
		},
		{"one", []compute.Candidate{done("gpu.h100", time.Second, 900)}, []string{">h100<"}},
		{"free", []compute.Candidate{done("gpu.h100", time.Second, 0)}, []string{">h100<"}},
		{"none", nil, []string{"nothing has completed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := selection.Judge(compute.ObjectiveBalanced, tt.candidates)
			got, err := chart.Selection(compute.ObjectiveBalanced, tt.candidates, v)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.want {
				if !strings.Contains(string(got), want) {
					t.Errorf("the chart has no %q:\n%s", want, got)
				}
			}
			for _, never := range []string{"http://", "https://", "Liberation", "url("} {
				text := strings.ReplaceAll(string(got), "http://www.w3.org/", "")
				if strings.Contains(text, never) {
					t.Errorf("the chart has %q", never)
				}
			}
			wellFormed(t, got)
			again, err := chart.Selection(compute.ObjectiveBalanced, tt.candidates, v)
			if err != nil || !bytes.Equal(got, again) {
				t.Errorf("another drawing of the same: %v", err)
			}
		})
	}
}

func wellFormed(t *testing.T, svg []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("not well formed: %v\n%s", err, svg)
		}
	}
}
