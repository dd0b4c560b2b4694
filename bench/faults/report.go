package faults

import (
	"cmp"
	"slices"
	"time"

	"berth/bench/faults/check"
)

// Report is what a run found, as one line of JSON.
type Report struct {
	Began      time.Time         `json:"began"`
	Version    string            `json:"version,omitempty"`
	Seed       uint64            `json:"seed"`
	Nodes      int               `json:"nodes"`
	Seconds    float64           `json:"seconds"` // With faults and load.
	Plant      string            `json:"plant,omitempty"`
	Faults     []Fault           `json:"faults"` // In the order in which they came.
	Cells      []Cell            `json:"cells"`  // By nemesis and workload.
	Objects    int               `json:"objects"`
	Executions int               `json:"executions"`
	Starts     int               `json:"starts"` // Of code, as the code itself told.
	States     int               `json:"states"` // Hashes of replicas that were compared.
	Oddities   map[string]int    `json:"oddities,omitempty"`
	Violations []check.Violation `json:"violations"`
}

// Fault is one thing that was broken.
type Fault struct {
	Nemesis string  `json:"nemesis"`
	At      float64 `json:"at_s"`             // Since the run began.
	Held    float64 `json:"held_s"`           // Until it was mended.
	Node    string  `json:"leader,omitempty"` // That led before.
	Note    string  `json:"note,omitempty"`

	// Write is how long it was from the fault until a write that was asked for
	// after it was accepted.
	Write float64 `json:"write_s"`
	// Whole is how long it was from the mending until every node answered and
	// knew all others to be up.
	Whole float64 `json:"whole_s"`
	// Elections is how many terms passed from the fault until then.
	Elections int `json:"elections"`
}

// Cell is what one workload did under one nemesis.
type Cell struct {
	Nemesis  string `json:"nemesis"` // "none" between faults.
	Workload string `json:"workload"`

	Counts
}

// Operations returns how many tries clients made.
func (r *Report) Operations() int {
	n := 0
	for _, c := range r.Cells {
		n += c.all()
	}
	return n
}

// cells returns the counts, sorted.
func (t *tally) cells() []Cell {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Cell
	for at, counts := range t.counts {
		out = append(out, Cell{at.nemesis, at.workload, *counts})
	}
	slices.SortFunc(out, func(a, b Cell) int {
		return cmp.Or(cmp.Compare(a.Nemesis, b.Nemesis), cmp.Compare(a.Workload, b.Workload))
	})
	return out
}
