package faults

import (
	"cmp"
	"slices"
	"time"

	"berth/bench/faults/check"
	"berth/bench/quantile"
)

// Totals are sums over runs.
type Totals struct {
	Faulty     Sums              `json:"with_faults"` // Runs with a fault that counts.
	Calm       Sums              `json:"calm"`        // Runs without one.
	Programs   []Programs        `json:"programs"`
	Moved      Moved             `json:"moved"`
	Rows       []Row             `json:"rows"`
	Uncounted  []Uncounted       `json:"uncounted"`
	Violations []check.Violation `json:"violations"`
}

// Sums are sums over a set of runs.
type Sums struct {
	Runs       int     `json:"runs"`
	Unfinished int     `json:"unfinished"` // Runs that did not reach their end.
	Seconds    float64 `json:"seconds"`
	Faults     int     `json:"faults"`     // Excludes faults that broke nothing.
	Operations int     `json:"operations"` // Sent tries.
	While      int     `json:"while"`      // Tries sent during a fault.
	Checked    Since   `json:"checked"`    // Operations in searched histories.
	Objects    int     `json:"objects"`
	Executions int     `json:"executions"`
	Charged    int     `json:"charged"` // Ends with a charge, in searched accounts; older runs do not record them.
	Starts     int     `json:"starts"`
	Violations int     `json:"violations"`
}

// Since is a sum over the runs that record a value. Older runs do not.
type Since struct {
	Sum  int        `json:"sum"`
	Runs int        `json:"runs"`
	From *time.Time `json:"from"` // When the first of them began; nil for none.
}

// Programs is the number of runs of one program.
type Programs struct {
	Program

	Runs int `json:"runs"`
}

// Row sums up one kind of fault.
type Row struct {
	Nemesis string `json:"nemesis"`
	Runs    int    `json:"runs"`   // Runs that injected it.
	Times   int    `json:"times"`  // Faults that count.
	Missed  int    `json:"missed"` // Faults that do not count.
	// Violations are those of its runs. A violation belongs to a whole run, so
	// it is in the row of each of the run's faults.
	Violations int             `json:"violations"`
	Held       time.Duration   `json:"held_ns"`    // Total duration, without recovery.
	Operations int             `json:"operations"` // Sent during the faults, counted or not.
	Unknown    int             `json:"unknown"`    // Changes without an answer among them.
	NoSpace    int             `json:"no_space"`   // Tries refused for a full disk.
	Elections  int             `json:"elections"`
	Workloads  map[string]Work `json:"workloads"`

	// From the fault to the first accepted write, and from the repair until the
	// cluster was whole.
	WriteP50 time.Duration `json:"write_p50_ns"`
	WriteP99 time.Duration `json:"write_p99_ns"`
	WholeP50 time.Duration `json:"whole_p50_ns"`
	WholeP99 time.Duration `json:"whole_p99_ns"`

	writes, wholes []time.Duration
}

// Work counts the operations of one workload during one kind of fault.
type Work struct {
	Operations int `json:"operations"` // Sent tries.
	Unknown    int `json:"unknown"`    // Changes without an answer among them.
}

// Sum adds up runs.
func Sum(reports []Report) Totals {
	t := Totals{Moved: movedOf(reports)}
	rows := map[string]*Row{}
	programs := map[Program]int{}
	not := map[Uncounted]int{}
	for i := range reports {
		r := &reports[i]
		if r.calm() {
			t.Calm.add(r)
		} else {
			t.Faulty.add(r)
		}
		t.Violations = append(t.Violations, r.Violations...)
		for j := range r.Faults {
			if why := r.uncounted(&r.Faults[j]); why != "" {
				not[Uncounted{Nemesis: r.Faults[j].Nemesis, Why: why}]++
			}
		}
		programs[r.Program]++
		for _, name := range r.nemeses() {
			if rows[name] == nil {
				rows[name] = &Row{Nemesis: name, Workloads: map[string]Work{}}
			}
			rows[name].add(r)
		}
	}
	for _, r := range rows {
		r.WriteP50, r.WriteP99 = quantile.At(r.writes, 0.5), quantile.At(r.writes, 0.99)
		r.WholeP50, r.WholeP99 = quantile.At(r.wholes, 0.5), quantile.At(r.wholes, 0.99)
		t.Rows = append(t.Rows, *r)
	}
	slices.SortFunc(t.Rows, func(a, b Row) int { return cmp.Compare(a.Nemesis, b.Nemesis) })
	for u, times := range not {
		u.Times = times
		t.Uncounted = append(t.Uncounted, u)
	}
	slices.SortFunc(t.Uncounted, func(a, b Uncounted) int {
		return cmp.Or(cmp.Compare(a.Nemesis, b.Nemesis), cmp.Compare(a.Why, b.Why))
	})
	for p, runs := range programs {
		t.Programs = append(t.Programs, Programs{p, runs})
	}
	slices.SortFunc(t.Programs, func(a, b Programs) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Binary, b.Binary))
	})
	return t
}

func (t *Sums) add(r *Report) {
	t.Runs++
	if r.Unfinished != "" {
		t.Unfinished++
	}
	t.Seconds += r.Seconds
	for i := range r.Faults {
		if f := &r.Faults[i]; f.Nemesis != calmNemesis && r.uncounted(f) == "" {
			t.Faults++
		}
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		t.Operations += c.Sent()
		if r.hasFault(c.Nemesis) {
			t.While += c.Sent()
		}
	}
	if r.Checked > 0 {
		t.Checked.Runs++
		t.Checked.Sum += r.Checked
		if t.Checked.From == nil || r.Began.Before(*t.Checked.From) {
			t.Checked.From = &r.Began
		}
	}
	t.Objects += r.Objects
	t.Executions += r.Executions
	t.Charged += r.Charged
	t.Starts += r.Starts
	t.Violations += len(r.Violations)
}

// nemeses returns the names of all rows that include the run.
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

// add adds a run that has a part in the row.
func (w *Row) add(r *Report) {
	w.Runs++
	w.Violations += len(r.Violations)
	for i := range r.Faults {
		f := &r.Faults[i]
		if f.Nemesis != w.Nemesis {
			continue
		}
		if r.uncounted(f) != "" {
			w.Missed++
			continue
		}
		w.Times++
		w.Held += duration(f.Held)
		w.Elections += f.Elections
		if f.Write > 0 { // Otherwise the cluster did not recover, which is a violation.
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

// duration converts seconds to a duration, to the millisecond.
func duration(seconds float64) time.Duration {
	return time.Duration(seconds*1000) * time.Millisecond
}
