package faults

import (
	"cmp"
	"slices"
	"time"

	"berth/bench/faults/check"
)

// Totals are the sums over runs.
type Totals struct {
	Runs       int               `json:"runs"`
	Unfinished int               `json:"unfinished"` // Runs that could not be done to their end.
	Seconds    float64           `json:"seconds"`
	Faults     int               `json:"faults"`     // Without those that broke nothing.
	Operations int               `json:"operations"` // That were sent.
	Checked    Since             `json:"checked"`    // Operations in histories that were searched.
	Objects    int               `json:"objects"`
	Executions int               `json:"executions"`
	Starts     int               `json:"starts"`
	Programs   []Programs        `json:"programs"`
	Rows       []Row             `json:"rows"`
	Violations []check.Violation `json:"violations"`
}

// Since is a sum over the runs that count something, which older ones do not.
type Since struct {
	Sum  int        `json:"sum"`
	Runs int        `json:"runs"`
	From *time.Time `json:"from"` // When the first of them began; nil for none.
}

// Programs is how many runs one program had.
type Programs struct {
	Program

	Runs int `json:"runs"`
}

// Row is what came of breaking one thing.
type Row struct {
	Nemesis string `json:"nemesis"`
	Runs    int    `json:"runs"`  // In which it was broken.
	Times   int    `json:"times"` // Without those that were missed.
	// Violations are those of its runs: one is of a whole run, whatever was
	// broken in it, so it is in the row of each.
	Violations int             `json:"violations"`
	Held       time.Duration   `json:"held_ns"`    // All times together, without what recovery took.
	Operations int             `json:"operations"` // That were sent while it was broken.
	Unknown    int             `json:"unknown"`    // Changes without an answer among them.
	NoSpace    int             `json:"no_space"`   // Tries that were answered that a disk is full.
	Elections  int             `json:"elections"`
	Workloads  map[string]Work `json:"workloads"`

	// From the fault to the first accepted write, and from the mending until
	// the cluster was whole.
	WriteP50 time.Duration `json:"write_p50_ns"`
	WriteP99 time.Duration `json:"write_p99_ns"`
	WholeP50 time.Duration `json:"whole_p50_ns"`
	WholeP99 time.Duration `json:"whole_p99_ns"`

	writes, wholes []time.Duration
}

// Work is what the clients of one workload did while one thing was broken.
type Work struct {
	Operations int `json:"operations"` // That were sent.
	Unknown    int `json:"unknown"`    // Changes without an answer among them.
}

// Sum adds runs up.
func Sum(reports []Report) Totals {
	var t Totals
	rows := map[string]*Row{}
	programs := map[Program]int{}
	for i := range reports {
		r := &reports[i]
		t.add(r)
		programs[r.Program]++
		for _, name := range r.nemeses() {
			if rows[name] == nil {
				rows[name] = &Row{Nemesis: name, Workloads: map[string]Work{}}
			}
			rows[name].add(r)
		}
	}
	for _, r := range rows {
		r.WriteP50, r.WriteP99 = quantile(r.writes, 0.5), quantile(r.writes, 0.99)
		r.WholeP50, r.WholeP99 = quantile(r.wholes, 0.5), quantile(r.wholes, 0.99)
		t.Rows = append(t.Rows, *r)
	}
	slices.SortFunc(t.Rows, func(a, b Row) int { return cmp.Compare(a.Nemesis, b.Nemesis) })
	for p, runs := range programs {
		t.Programs = append(t.Programs, Programs{p, runs})
	}
	slices.SortFunc(t.Programs, func(a, b Programs) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Binary, b.Binary))
	})
	return t
}

func (t *Totals) add(r *Report) {
	t.Runs++
	if r.Unfinished != "" {
		t.Unfinished++
	}
	t.Seconds += r.Seconds
	for _, f := range r.Faults {
		if f.Nemesis != calmNemesis && !f.Missed {
			t.Faults++
		}
	}
	t.Operations += r.Operations()
	if r.Checked > 0 {
		t.Checked.Runs++
		t.Checked.Sum += r.Checked
		if t.Checked.From == nil || r.Began.Before(*t.Checked.From) {
			t.Checked.From = &r.Began
		}
	}
	t.Objects += r.Objects
	t.Executions += r.Executions
	t.Starts += r.Starts
	t.Violations = append(t.Violations, r.Violations...)
}

// nemeses returns the names of all rows that the run adds to.
func (r *Report) nemeses() []string {
	var names []string
	for _, f := range r.Faults {
		names = append(names, f.Nemesis)
	}
	for _, c := range r.Cells {
		names = append(names, c.Nemesis)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// add adds a run that has something of the row.
func (w *Row) add(r *Report) {
	w.Runs++
	w.Violations += len(r.Violations)
	for _, f := range r.Faults {
		if f.Nemesis != w.Nemesis || f.Missed {
			continue
		}
		w.Times++
		w.Held += duration(f.Held)
		w.Elections += f.Elections
		if f.Write > 0 { // Else the cluster did not recover, which is a violation.
			w.writes = append(w.writes, duration(f.Write))
		}
		if f.Whole > 0 {
			w.wholes = append(w.wholes, duration(f.Whole))
		}
	}
	for _, c := range r.Cells {
		if c.Nemesis != w.Nemesis {
			continue
		}
		w.Operations += c.Sent()
		w.Unknown += c.Unknown
		w.NoSpace += c.NoSpace
		one := w.Workloads[c.Workload]
		w.Workloads[c.Workload] = Work{one.Operations + c.Sent(), one.Unknown + c.Unknown}
	}
}

// duration returns seconds as a duration, to the millisecond.
func duration(seconds float64) time.Duration {
	return time.Duration(seconds*1000) * time.Millisecond
}
