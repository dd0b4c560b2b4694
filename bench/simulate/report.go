package simulate

import (
	"cmp"
	"maps"
	"slices"

	"berth/bench/fragment"
	"berth/bench/quantile"
	"berth/compute"
)

// Report is the result of a simulation. Means and waits cover the window from
// the arrival of a quarter of the executions to the last arrival.
type Report struct {
	Nodes          int            `json:"nodes"`
	GPUs           int            `json:"gpus"`
	Executions     int            `json:"executions"` // Submitted.
	Completed      int            `json:"completed"`
	NeverPlaced    int            `json:"never_placed"`
	Refused        map[string]int `json:"refused,omitempty"` // At submit, by reason.
	VirtualSeconds float64        `json:"virtual_seconds"`

	Utilisation   float64       `json:"gpu_utilisation_pct"`
	Fragment      Fragment      `json:"fragment_pct"`
	QueueMost     int           `json:"longest_queue"`
	Waits         []Wait        `json:"waits"`
	Fairness      Fairness      `json:"fairness"`
	Interruptions Interruptions `json:"interruptions"`
	// Estimates is nil if none were made.
	Estimates *Estimates `json:"start_estimates,omitempty"`
	Memory    Memory     `json:"memory"`
	Cost      Cost       `json:"cost"`
	Series    []Sample   `json:"series"`
}

// Fragment is the share of the GPUs that is free but unusable for the typical
// work of its type, in percent of all GPUs.
type Fragment struct {
	Mean float64 `json:"mean"`
	Most float64 `json:"most"`
}

// Wait is how long executions of one class waited for placement, rounded up to
// the next round. A class without a priority covers all priorities, and one
// without a size all sizes.
type Wait struct {
	Priority *int    `json:"priority,omitempty"`
	Size     string  `json:"size,omitempty"` // "cpu", "share", or the number of GPUs.
	Count    int     `json:"count"`
	Mean     float64 `json:"mean_seconds"`
	P50      float64 `json:"p50_seconds"`
	P90      float64 `json:"p90_seconds"`
	P99      float64 `json:"p99_seconds"`
}

// Fairness compares organizations by Jain's index, (sum x)^2 / (n sum x^2). It
// is 1 if all have the same, and 1/n if one has everything.
type Fairness struct {
	// Service compares the organizations' GPU time in the window as a share of
	// their requests in it.
	Service float64 `json:"jain_service"`
	// Slowdown compares the inverses of organizations' mean slowdowns: the time
	// including waiting, relative to the runtime alone.
	Slowdown      float64        `json:"jain_slowdown"`
	Organizations []Organization `json:"organizations"`
}

// Organization is the result of one organization.
type Organization struct {
	Name       string  `json:"name"`
	Executions int     `json:"executions"`
	Asked      float64 `json:"gpu_seconds_asked"`
	Given      float64 `json:"gpu_seconds_given"`
	Slowdown   float64 `json:"mean_slowdown"`
	MeanWait   float64 `json:"mean_wait_seconds"`
	P90Wait    float64 `json:"p90_wait_seconds"`
}

// Estimates is the accuracy of start estimates: the number of executions that
// had one before they started, and the shares that started by the estimated p50
// and p90 times.
type Estimates struct {
	Total      uint64  `json:"executions"`
	CoveredP50 float64 `json:"p50_covered_pct"`
	CoveredP90 float64 `json:"p90_covered_pct"`
}

// estimatesOf returns the counts of the state.
func estimatesOf(c compute.Calibration) *Estimates {
	pct := func(c compute.Coverage) float64 { return 100 * float64(c.Covered) / float64(max(c.Total, 1)) }
	return &Estimates{Total: c.P90.Total, CoveredP50: pct(c.P50), CoveredP90: pct(c.P90)}
}

// Cost is the cost of the simulation on this machine.
type Cost struct {
	WallSeconds     float64 `json:"wall_seconds"`
	SetupSeconds    float64 `json:"setup_seconds"` // Joining nodes, and measuring memory.
	EncodeSeconds   float64 `json:"encode_seconds"`
	ApplySeconds    float64 `json:"apply_seconds"`
	PackSeconds     float64 `json:"pack_seconds"`
	EstimateSeconds float64 `json:"estimate_seconds"`
	Commands        int     `json:"commands"`
	Plans           int     `json:"plans"`
	MicrosPerChange float64 `json:"apply_us_per_command"`
	MicrosPerPlan   float64 `json:"pack_us_per_plan"`
}

// report returns the report of the counts.
func (s *stats) report(sim *simulation) *Report {
	w := sim.world
	out := &Report{
		Nodes: len(sim.fleet.nodes), GPUs: sim.fleet.gpus, Executions: s.executions, Completed: s.completed,
		NeverPlaced: len(sim.waiting), Refused: s.refused, VirtualSeconds: w.now.Sub(began).Seconds(),
		QueueMost: s.queueMost, Waits: s.waitReport(), Fairness: s.fairness(), Series: s.series,
		Interruptions: s.interruptions,
		Cost: Cost{
			EncodeSeconds: w.coding.Seconds(), ApplySeconds: w.apply.Seconds(), PackSeconds: sim.packing.Seconds(),
			EstimateSeconds: sim.estimating.Seconds(),
			Commands:        w.count, Plans: s.plans,
			MicrosPerChange: 1e6 * w.apply.Seconds() / float64(max(w.count, 1)),
			MicrosPerPlan:   1e6 * sim.packing.Seconds() / float64(max(s.plans, 1)),
		},
	}
	if s.window > 0 {
		out.Utilisation = s.percent(compute.WholeGPU * s.gpuTime / s.window.Seconds())
	}
	if sim.config.Estimates > 0 {
		out.Estimates = estimatesOf(w.machine.View().Calibration())
	}
	warm := s.series[int(warmUp*float64(len(s.series))):]
	for _, sample := range warm {
		out.Fragment.Mean += sample.Fragment / float64(len(warm))
		out.Fragment.Most = max(out.Fragment.Most, sample.Fragment)
	}
	return out
}

// waitReport returns the waits of all, of each priority, of each size and of
// each combination.
func (s *stats) waitReport() []Wait {
	var all []float64
	byPriority, bySize := map[int][]float64{}, map[string][]float64{}
	for c, waits := range s.waits {
		byPriority[c.priority] = append(byPriority[c.priority], waits...)
		bySize[c.size] = append(bySize[c.size], waits...)
		all = append(all, waits...)
	}
	out := []Wait{waitOf(Wait{}, all)}
	priorities := slices.Sorted(maps.Keys(byPriority))
	slices.Reverse(priorities)
	for _, p := range priorities {
		out = append(out, waitOf(Wait{Priority: new(p)}, byPriority[p]))
	}
	for _, size := range sizes() {
		if waits := bySize[size]; len(waits) > 0 {
			out = append(out, waitOf(Wait{Size: size}, waits))
		}
	}
	for _, p := range priorities {
		for _, size := range sizes() {
			if waits := s.waits[class{p, size}]; len(waits) > 0 {
				out = append(out, waitOf(Wait{Priority: new(p), Size: size}, waits))
			}
		}
	}
	return out
}

// waitOf summarizes the waits into w. It sorts them.
func waitOf(w Wait, waits []float64) Wait {
	slices.Sort(waits)
	w.Count, w.Mean = len(waits), mean(waits)
	w.P50, w.P90, w.P99 = quantile.At(waits, 0.5), quantile.At(waits, 0.9), quantile.At(waits, 0.99)
	return w
}

// fairness compares the organizations that were active in the window.
func (s *stats) fairness() Fairness {
	var out Fairness
	var service, speed []float64
	for i := range s.orgs {
		o := &s.orgs[i]
		slices.Sort(o.waits)
		row := Organization{
			Name: orgName(i), Executions: o.executions, Asked: o.asked, Given: o.given,
			Slowdown: mean(o.slowdowns), MeanWait: mean(o.waits), P90Wait: quantile.At(o.waits, 0.9),
		}
		out.Organizations = append(out.Organizations, row)
		if o.asked > 0 {
			service = append(service, o.given/o.asked)
		}
		if row.Slowdown > 0 {
			speed = append(speed, 1/row.Slowdown)
		}
	}
	out.Service, out.Slowdown = jain(service), jain(speed)
	return out
}

// jain returns Jain's fairness index, 1 for no values.
func jain(x []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range x {
		sum += v
		squares += v * v
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(x)) * squares)
}

// mean returns the mean, 0 for no values.
func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(max(len(x), 1))
}

// sortClasses sorts classes deterministically: they come from a map.
func sortClasses(classes []fragment.Class) {
	slices.SortFunc(classes, func(a, b fragment.Class) int {
		return cmp.Or(cmp.Compare(a.CPU, b.CPU), cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Milli, b.Milli))
	})
}
