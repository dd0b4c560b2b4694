package simulate

import (
	"cmp"
	"maps"
	"slices"

	"berth/bench/fragment"
	"berth/compute"
)

// Report is what a simulation showed. Means and waits are of the window: from
// when a quarter of the executions had arrived until the last one did.
type Report struct {
	Nodes          int            `json:"nodes"`
	GPUs           int            `json:"gpus"`
	Executions     int            `json:"executions"` // Submitted.
	Completed      int            `json:"completed"`
	NeverPlaced    int            `json:"never_placed"`
	Refused        map[string]int `json:"refused,omitempty"` // At submit, by the reason.
	VirtualSeconds float64        `json:"virtual_seconds"`

	Utilisation   float64       `json:"gpu_utilisation_pct"`
	Fragment      Fragment      `json:"fragment_pct"`
	QueueMost     int           `json:"longest_queue"`
	Waits         []Wait        `json:"waits"`
	Fairness      Fairness      `json:"fairness"`
	Interruptions Interruptions `json:"interruptions"`
	// Estimates is nil when none were made.
	Estimates *Estimates `json:"start_estimates,omitempty"`
	Memory    Memory     `json:"memory"`
	Cost      Cost       `json:"cost"`
	Series    []Sample   `json:"series"`
}

// Fragment is how much of the GPUs was free and of no use to the work that
// usually comes for their type, in percent of all GPUs.
type Fragment struct {
	Mean float64 `json:"mean"`
	Most float64 `json:"most"`
}

// Wait is how long executions of one class waited for their place, rounded up
// to the next round. A class without a priority is of all priorities, one
// without a size of all sizes.
type Wait struct {
	Priority *int    `json:"priority,omitempty"`
	Size     string  `json:"size,omitempty"` // "cpu", "share", or the number of GPUs.
	Count    int     `json:"count"`
	Mean     float64 `json:"mean_seconds"`
	P50      float64 `json:"p50_seconds"`
	P90      float64 `json:"p90_seconds"`
	P99      float64 `json:"p99_seconds"`
}

// Fairness compares organizations by Jain's index, (sum x)^2 / (n sum x^2): 1
// when all have the same, 1/n when one has everything.
type Fairness struct {
	// Service compares what part of the GPU time that they asked for in the
	// window organizations had in it.
	Service float64 `json:"jain_service"`
	// Slowdown compares the inverse of organizations' mean slowdowns: how
	// much longer work took, waiting included, than it takes alone.
	Slowdown      float64        `json:"jain_slowdown"`
	Organizations []Organization `json:"organizations"`
}

// Organization is how one organization fared.
type Organization struct {
	Name       string  `json:"name"`
	Executions int     `json:"executions"`
	Asked      float64 `json:"gpu_seconds_asked"`
	Given      float64 `json:"gpu_seconds_given"`
	Slowdown   float64 `json:"mean_slowdown"`
	MeanWait   float64 `json:"mean_wait_seconds"`
	P90Wait    float64 `json:"p90_wait_seconds"`
}

// Estimates is how good the estimates of starts were: how many executions had
// one before they started, and which part of them started by the time that was
// told for one in two and for nine in ten.
type Estimates struct {
	Total      uint64  `json:"executions"`
	CoveredP50 float64 `json:"p50_covered_pct"`
	CoveredP90 float64 `json:"p90_covered_pct"`
}

// estimatesOf returns what the state has counted.
func estimatesOf(c compute.Calibration) *Estimates {
	pct := func(c compute.Coverage) float64 { return 100 * float64(c.Covered) / float64(max(c.Total, 1)) }
	return &Estimates{Total: c.P90.Total, CoveredP50: pct(c.P50), CoveredP90: pct(c.P90)}
}

// Cost is what the simulation took of the machine.
type Cost struct {
	WallSeconds     float64 `json:"wall_seconds"`
	SetupSeconds    float64 `json:"setup_seconds"` // Nodes that join, and weighing.
	EncodeSeconds   float64 `json:"encode_seconds"`
	ApplySeconds    float64 `json:"apply_seconds"`
	PackSeconds     float64 `json:"pack_seconds"`
	EstimateSeconds float64 `json:"estimate_seconds"`
	Commands        int     `json:"commands"`
	Plans           int     `json:"plans"`
	MicrosPerChange float64 `json:"apply_us_per_command"`
	MicrosPerPlan   float64 `json:"pack_us_per_plan"`
}

// report returns what was counted.
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
// both together.
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

// waitOf fills in what the waits say, which it sorts.
func waitOf(w Wait, waits []float64) Wait {
	slices.Sort(waits)
	w.Count, w.Mean = len(waits), mean(waits)
	w.P50, w.P90, w.P99 = quantile(waits, 0.5), quantile(waits, 0.9), quantile(waits, 0.99)
	return w
}

// fairness compares the organizations that did something in the window.
func (s *stats) fairness() Fairness {
	var out Fairness
	var service, speed []float64
	for i := range s.orgs {
		o := &s.orgs[i]
		slices.Sort(o.waits)
		row := Organization{
			Name: orgName(i), Executions: o.executions, Asked: o.asked, Given: o.given,
			Slowdown: mean(o.slowdowns), MeanWait: mean(o.waits), P90Wait: quantile(o.waits, 0.9),
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

// jain returns Jain's fairness index, 1 for nothing to compare.
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

// mean returns the mean, 0 of nothing.
func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(max(len(x), 1))
}

// quantile returns the q-quantile of what is sorted, 0 of nothing.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// sortClasses puts classes into an order that does not depend on a map's.
func sortClasses(classes []fragment.Class) {
	slices.SortFunc(classes, func(a, b fragment.Class) int {
		return cmp.Or(cmp.Compare(a.CPU, b.CPU), cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Milli, b.Milli))
	})
}
