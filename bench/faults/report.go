package faults

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/bench/faults/check"
)

// Report is what a run found, as one line of JSON.
type Report struct {
	Began time.Time `json:"began"`
	Program
	Seed       uint64            `json:"seed"`
	Nodes      int               `json:"nodes"`
	Seconds    float64           `json:"seconds"` // With faults and load.
	Plant      string            `json:"plant,omitempty"`
	Faults     []Fault           `json:"faults"` // In the order in which they came.
	Cells      []Cell            `json:"cells"`  // By nemesis and workload.
	Objects    int               `json:"objects"`
	Checked    int               `json:"checked,omitempty"` // Operations in searched histories, those of the end too.
	Executions int               `json:"executions"`        // Those that wait for ever among them.
	Charged    int               `json:"charged,omitempty"` // Those that ended with a charge, in searched accounts.
	Starts     int               `json:"starts"`            // Of code, as the code itself told.
	States     int               `json:"states"`            // Comparisons of two replicas at an equal index.
	Oddities   map[string]int    `json:"oddities,omitempty"`
	Moves      []Move            `json:"moves,omitempty"` // Of what had begun and began anew.
	Violations []check.Violation `json:"violations"`
	// Unfinished is why a run could not be done to its end; "" when it was.
	Unfinished string `json:"unfinished,omitempty"`
}

// Program is what the nodes executed.
type Program struct {
	Version  string `json:"version,omitempty"`
	Revision string `json:"revision,omitempty"` // Of the source; "" where it is not known.
	Binary   string `json:"binary,omitempty"`   // The first 64 bits of the SHA-256 of its file.
}

// Fault is one thing that was broken.
type Fault struct {
	Nemesis string  `json:"nemesis"`
	At      float64 `json:"at_s"`             // Since the run began.
	Held    float64 `json:"held_s"`           // Until it was mended.
	Node    string  `json:"leader,omitempty"` // That led before.
	Note    string  `json:"note,omitempty"`
	// On are the nodes that it hit; none where it was more than they, and in
	// older runs.
	On []string `json:"on,omitempty"`

	// Missed is whether nothing came to where it was broken, so that nothing
	// was. Older runs do not tell.
	Missed bool `json:"missed,omitempty"`
	// Write is how long it was from the fault until a write that was asked for
	// once it had taken hold was accepted.
	Write float64 `json:"write_s"`
	// Whole is how long it was from the mending until every node answered and
	// knew all others to be up.
	Whole float64 `json:"whole_s"`
	// Elections is how many terms passed from the fault until then.
	Elections int `json:"elections"`
	// NoSpace is how many tries were answered meanwhile that a disk is full.
	NoSpace int `json:"no_space,omitempty"`
	// Gossip is how long it was from the mending until the gossip of each node saw
	// all others, after a fault that lasted for long; 0 after others.
	Gossip float64 `json:"gossip_s,omitempty"`
	// Latency is how long writes took; nil where there were none. Older runs do
	// not tell.
	Latency *Latency `json:"latency,omitempty"`

	from, over int64 // As the run counts time; over is 0 while it is not.
}

// told returns what there is to say of the fault besides its times.
func (f *Fault) told() string {
	told := f.Note
	if f.NoSpace > 0 {
		told = fmt.Sprintf("%s; %d tries were answered 507", told, f.NoSpace)
	}
	if f.Latency != nil && slices.Contains([]string{leaderSlowDisk, followerSlowDisk}, f.Nemesis) {
		told += "; " + f.Latency.String()
	}
	if f.Gossip > 0 {
		told += fmt.Sprintf("; gossip whole after %.1f s", f.Gossip)
	}
	return strings.TrimPrefix(told, "; ")
}

// Cell is what one workload did under one nemesis.
type Cell struct {
	Nemesis  string `json:"nemesis"` // "none" between faults.
	Workload string `json:"workload"`

	Counts
}

// Operations returns how many tries of clients were sent, as Counts has it.
func (r *Report) Operations() int {
	n := 0
	for _, c := range r.Cells {
		n += c.Sent()
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
