package simulate

import (
	"fmt"
	"runtime"
	"strconv"
	"time"

	"berth/bench/fragment"
	"berth/compute"
)

const (
	// samples is the number of samples of the whole cluster.
	samples = 400

	// warmUp is the share of the arrivals that fills the empty cluster. The
	// window of the means is from then until the last arrival.
	warmUp = 0.25

	// classDraws is the number of executions drawn to learn the workload's
	// classes.
	classDraws = 4096

	// shortJob is the minimum runtime for slowdowns, so that very short work
	// does not dominate the mean.
	shortJob = 10 * time.Second
)

// class is a group of executions with common wait statistics.
type class struct {
	priority int
	size     string
}

// sizes returns the size classes, the smallest first.
func sizes() []string { return []string{"cpu", "share", "1", "2", "4", "8"} }

// sizeOf returns the size class of a profile.
func sizeOf(p *compute.Profile) string {
	switch {
	case !p.IsGPU():
		return "cpu"
	case p.MilliGPU < compute.WholeGPU:
		return "share"
	}
	return strconv.Itoa(p.Count)
}

// organization holds the counts of one organization.
type organization struct {
	executions int
	inUse      int64     // Thousandths of GPU, currently.
	asked      float64   // Requested GPU seconds of the arrivals in the window.
	given      float64   // GPU seconds used in the window.
	slowdowns  []float64 // Slowdowns of arrivals in the window.
	waits      []float64 // Waits of the same arrivals, in seconds.
}

// stats holds the counts of a simulation.
type stats struct {
	executions int
	arrivals   int
	completed  int
	refused    map[string]int // By reason.
	plans      int
	queueMost  int

	window  time.Duration
	gpuTime float64 // GPU seconds used in the window.
	inUse   int64   // Thousandths of GPU, currently.
	gpus    int64   // Thousandths of GPU of the fleet.
	waits   map[class][]float64
	orgs    []organization

	interruptions Interruptions

	classes  map[string][]fragment.Class // By GPU type.
	series   []Sample
	devices  []int // Scratch.
	reported int
	peakHeap uint64
}

// begin initializes the counts.
func (s *stats) begin(sim *simulation) error {
	s.executions = sim.config.Executions
	s.refused, s.waits = map[string]int{}, map[class][]float64{}
	s.orgs = make([]organization, sim.source.organizations())
	s.gpus = int64(sim.fleet.gpus) * compute.WholeGPU
	return s.learn(sim)
}

// learn draws from the work to find the classes of each GPU type.
func (s *stats) learn(sim *simulation) error {
	view := sim.world.machine.View()
	from := sim.source.copied(4)
	counts := map[string]map[fragment.Class]int{}
	for range classDraws {
		a := from.take()
		if !a.profile.IsGPU() {
			continue
		}
		_, r, _, err := view.Resolve(a.profile.String())
		if err != nil {
			continue // Its submit is refused, and counted then.
		}
		if counts[r.GPUType] == nil {
			counts[r.GPUType] = map[fragment.Class]int{}
		}
		counts[r.GPUType][fragment.Class{CPU: r.VCPUMilli, GPUs: r.GPUs, Milli: r.MilliGPU, Models: 1}]++
	}
	s.classes = map[string][]fragment.Class{}
	for name, classes := range counts {
		all := 0
		for _, n := range classes {
			all += n
		}
		for c, n := range classes {
			c.Share = float64(n) / float64(all)
			s.classes[name] = append(s.classes[name], c)
		}
		sortClasses(s.classes[name])
	}
	if len(s.classes) == 0 {
		return fmt.Errorf("none of %d draws from the work fits the nodes", classDraws)
	}
	return nil
}

// counting reports whether arrivals are currently within the window.
func (s *stats) counting() bool {
	return s.arrivals >= int(warmUp*float64(s.executions)) && s.arrivals < s.executions
}

// arrived counts a submitted execution.
func (s *stats) arrived(j *job, refusal *compute.Error) {
	j.counted = s.counting()
	s.arrivals++
	if refusal != nil {
		s.refused[refusal.Detail]++
		return
	}
	org := &s.orgs[j.org]
	org.executions++
	if j.counted {
		org.asked += gpuSeconds(j.gpuMilli(), j.lasts)
	}
}

// placed counts a placed execution.
func (s *stats) placed(j *job) {
	s.inUse += j.gpuMilli()
	org := &s.orgs[j.org]
	org.inUse += j.gpuMilli()
	if !j.counted || j.again {
		return
	}
	wait := j.started.Sub(j.submitted)
	c := class{j.priority, sizeOf(&j.profile)}
	s.waits[c] = append(s.waits[c], wait.Seconds())
	org.waits = append(org.waits, wait.Seconds())
	org.slowdowns = append(org.slowdowns, float64(wait+j.lasts)/float64(max(j.lasts, shortJob)))
}

// finished counts an ended execution.
func (s *stats) finished(j *job) {
	s.completed++
	s.left(j)
}

// left counts an execution that has released its place.
func (s *stats) left(j *job) {
	s.inUse -= j.gpuMilli()
	s.orgs[j.org].inUse -= j.gpuMilli()
}

// pass counts the time until the next round.
func (s *stats) pass(d time.Duration) {
	if !s.counting() {
		return
	}
	s.window += d
	s.gpuTime += gpuSeconds(s.inUse, d)
	for i := range s.orgs {
		s.orgs[i].given += gpuSeconds(s.orgs[i].inUse, d)
	}
}

// gpuSeconds converts thousandths of GPU over a time to GPU seconds.
func gpuSeconds(milli int64, d time.Duration) float64 {
	return float64(milli) / compute.WholeGPU * d.Seconds()
}

// round takes a sample when it is due, and reports progress.
func (s *stats) round(sim *simulation) {
	s.queueMost = max(s.queueMost, len(sim.waiting))
	if len(s.series) < samples && s.arrivals*samples >= (len(s.series)+1)*s.executions {
		s.series = append(s.series, s.sample(sim))
	}
	ended := s.completed + s.interruptions.Lost
	if done := ended * reports / s.executions; done > s.reported && sim.config.Progress != nil {
		s.reported = done
		sim.config.Progress(ended, s.executions, fmt.Sprintf(
			"executions ended; %s have passed, %d wait, %.1f %% of the GPUs are in use",
			sim.world.now.Sub(began).Truncate(time.Second), len(sim.waiting), s.percent(float64(s.inUse))))
	}
}

// percent converts thousandths of GPU to percent of all.
func (s *stats) percent(milli float64) float64 { return 100 * milli / float64(s.gpus) }

// Sample is the state of the cluster at one time.
type Sample struct {
	Seconds     float64 `json:"seconds"` // Virtual time.
	Utilisation float64 `json:"gpu_utilisation_pct"`
	VCPU        float64 `json:"vcpu_utilisation_pct"`
	Fragment    float64 `json:"fragment_pct"` // In percent of all GPUs; see Report.
	Queued      int     `json:"queued"`
	Heap        uint64  `json:"heap_bytes"`
}

// sample takes a sample of the cluster.
func (s *stats) sample(sim *simulation) Sample {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s.peakHeap = max(s.peakHeap, m.HeapAlloc)
	lost := 0.0
	var vcpu, used int64
	for n := range sim.world.machine.View().Nodes() {
		vcpu, used = vcpu+n.VCPUMilli, used+n.UsedVCPUMilli
		if len(n.GPUs) == 0 {
			continue
		}
		s.devices = s.devices[:0]
		for i := range n.GPUs {
			s.devices = append(s.devices, compute.WholeGPU-n.GPUs[i].UsedMilli)
		}
		lost += fragment.Expected(n.VCPUMilli-n.UsedVCPUMilli, 0, s.devices, s.classes[n.GPUs[0].Type])
	}
	return Sample{
		Seconds: sim.world.now.Sub(began).Seconds(), Utilisation: s.percent(float64(s.inUse)),
		VCPU: 100 * float64(used) / float64(max(vcpu, 1)), Fragment: s.percent(lost),
		Queued: len(sim.waiting), Heap: m.HeapAlloc,
	}
}
