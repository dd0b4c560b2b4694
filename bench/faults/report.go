package faults

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/bench/faults/check"
)

// Report is the result of a run, one line of JSON.
type Report struct {
	Began time.Time `json:"began"`
	Program
	Seed       uint64            `json:"seed"`
	Nodes      int               `json:"nodes"`
	Seconds    float64           `json:"seconds"` // Duration of faults and load.
	Plant      string            `json:"plant,omitempty"`
	Faults     []Fault           `json:"faults"` // In order of injection.
	Cells      []Cell            `json:"cells"`  // By nemesis and workload.
	Objects    int               `json:"objects"`
	Checked    int               `json:"checked,omitempty"` // Operations in searched histories, the final ones included.
	Executions int               `json:"executions"`        // Includes those that wait forever.
	Charged    int               `json:"charged,omitempty"` // Executions that ended with a charge, in searched accounts.
	Starts     int               `json:"starts"`            // Starts of code, counted by the code itself.
	States     int               `json:"states"`            // Comparisons of two replicas at an equal index.
	Refusals   map[string]int    `json:"oddities,omitempty"`
	Moves      []Move            `json:"moves,omitempty"` // Attempts that were lost after their code began.
	Violations []check.Violation `json:"violations"`
	// Unfinished is why a run did not reach its end; "" if it did.
	Unfinished string `json:"unfinished,omitempty"`
}

// Program identifies the program of the nodes.
type Program struct {
	Version  string `json:"version,omitempty"`
	Revision string `json:"revision,omitempty"` // The source revision; "" if unknown.
	Binary   string `json:"binary,omitempty"`   // The first 64 bits of the SHA-256 of its file.
}

// Fault is one injected fault.
type Fault struct {
	Nemesis string  `json:"nemesis"`
	At      float64 `json:"at_s"`             // Since the run began.
	Held    float64 `json:"held_s"`           // Until the repair.
	Node    string  `json:"leader,omitempty"` // The leader before the fault.
	Note    string  `json:"note,omitempty"`
	// On lists the affected nodes. It is empty for a fault that affects more
	// than nodes, and in older runs.
	On []string `json:"on,omitempty"`

	// Missed reports that nothing reached the injected fault, so that nothing
	// broke. Older runs do not record it.
	Missed bool `json:"missed,omitempty"`
	// Write is the time from the fault until the cluster accepted a write that
	// was sent after the fault had taken hold.
	Write float64 `json:"write_s"`
	// Whole is the time from the repair until every node answered and saw all
	// others up.
	Whole float64 `json:"whole_s"`
	// Elections is the number of terms from the fault until Whole.
	Elections int `json:"elections"`
	// NoSpace is the number of tries refused for a full disk during the fault.
	NoSpace int `json:"no_space,omitempty"`
	// Gossip is the time from the repair until the gossip of each node saw all
	// others. It is 0 after short faults.
	Gossip float64 `json:"gossip_s,omitempty"`
	// Latency is the write latency; nil for no writes. Older runs do not record
	// it.
	Latency *Latency `json:"latency,omitempty"`

	from, over int64 // In the run's time; over is 0 during the fault.
}

// summary returns a summary of the fault without its times.
func (f *Fault) summary() string {
	text := f.Note
	if f.NoSpace > 0 {
		text = fmt.Sprintf("%s; %d tries were answered 507", text, f.NoSpace)
	}
	if f.Latency != nil && slices.Contains([]string{leaderSlowDisk, followerSlowDisk}, f.Nemesis) {
		text += "; " + f.Latency.String()
	}
	if f.Gossip > 0 {
		text += fmt.Sprintf("; gossip whole after %.1f s", f.Gossip)
	}
	return strings.TrimPrefix(text, "; ")
}

// Cell counts the operations of one workload under one nemesis.
type Cell struct {
	Nemesis  string `json:"nemesis"` // "none" between faults.
	Workload string `json:"workload"`

	Counts
}

// Operations returns how many tries clients sent, as Counts.Sent counts them.
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
