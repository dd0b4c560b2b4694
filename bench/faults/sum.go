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
	Seconds    float64           `json:"seconds"`
	Faults     int               `json:"faults"`
	Operations int               `json:"operations"`
	Objects    int               `json:"objects"`
	Executions int               `json:"executions"`
	Starts     int               `json:"starts"`
	Rows       []Row             `json:"rows"`
	Violations []check.Violation `json:"violations"`
}

// Row is what came of breaking one thing.
type Row struct {
	Nemesis    string         `json:"nemesis"`
	Times      int            `json:"times"`
	Held       time.Duration  `json:"held_ns"`    // All times together, without what recovery took.
	Operations int            `json:"operations"` // While it was broken.
	Unknown    int            `json:"unknown"`    // Changes without an answer among them.
	Elections  int            `json:"elections"`
	Workloads  map[string]int `json:"workloads"` // Operations by workload.

	// From the fault to the first accepted write, and from the mending until
	// the cluster was whole.
	WriteP50 time.Duration `json:"write_p50_ns"`
	WriteP99 time.Duration `json:"write_p99_ns"`
	WholeP50 time.Duration `json:"whole_p50_ns"`
	WholeP99 time.Duration `json:"whole_p99_ns"`
}

// Sum adds runs up.
func Sum(reports []Report) Totals {
	var t Totals
	rows := map[string]*Row{}
	writes, wholes := map[string][]time.Duration{}, map[string][]time.Duration{}
	row := func(name string) *Row {
		if rows[name] == nil {
			rows[name] = &Row{Nemesis: name, Workloads: map[string]int{}}
		}
		return rows[name]
	}
	for i := range reports {
		r := &reports[i]
		t.Runs++
		t.Seconds += r.Seconds
		t.Faults += len(r.Faults)
		t.Operations += r.Operations()
		t.Objects += r.Objects
		t.Executions += r.Executions
		t.Starts += r.Starts
		t.Violations = append(t.Violations, r.Violations...)
		for _, f := range r.Faults {
			row(f.Nemesis).Times++
			row(f.Nemesis).Held += duration(f.Held)
			row(f.Nemesis).Elections += f.Elections
			writes[f.Nemesis] = append(writes[f.Nemesis], duration(f.Write))
			wholes[f.Nemesis] = append(wholes[f.Nemesis], duration(f.Whole))
		}
		for _, c := range r.Cells {
			one := row(c.Nemesis)
			one.Operations += c.all()
			one.Unknown += c.Unknown
			one.Workloads[c.Workload] += c.all()
		}
	}
	for name, r := range rows {
		r.WriteP50, r.WriteP99 = quantile(writes[name], 0.5), quantile(writes[name], 0.99)
		r.WholeP50, r.WholeP99 = quantile(wholes[name], 0.5), quantile(wholes[name], 0.99)
		t.Rows = append(t.Rows, *r)
	}
	slices.SortFunc(t.Rows, func(a, b Row) int { return cmp.Compare(a.Nemesis, b.Nemesis) })
	return t
}

// duration returns seconds as a duration, to the millisecond.
func duration(seconds float64) time.Duration {
	return time.Duration(seconds*1000) * time.Millisecond
}
