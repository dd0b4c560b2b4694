package simulate

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"berth/bench/trace"
	"berth/compute"
)

// arrival is one execution to submit.
type arrival struct {
	after    time.Duration // Since the simulation began.
	org      int
	profile  compute.Profile
	priority int
	lasts    time.Duration
	timeout  time.Duration // The requested time limit.

	preemptible bool
}

// gpuMilli returns the requested thousandths of GPU.
func (a *arrival) gpuMilli() int64 {
	if !a.profile.IsGPU() {
		return 0
	}
	return int64(a.profile.Count) * int64(a.profile.MilliGPU)
}

// Times of synthetic executions: log-normal, as in job traces.
const (
	medianLife = 10 * time.Minute
	lifeSigma  = 1.2
	shortest   = 5 * time.Second
	longest    = 24 * time.Hour
)

// timeoutMax is the longest time limit that the simulated cluster allows.
const timeoutMax = 14 * 24 * time.Hour

// source generates executions in order of arrival.
type source struct {
	fleet  *fleet
	seed   uint64
	random *rand.Rand
	orgs   []float64 // Cumulative shares of the organizations.

	pods  []trace.Pod // Pods of a trace, by time; empty for the synthetic mix.
	named map[string]int
	next  int
	lap   time.Duration // Duration of the trace.

	mean      time.Duration // Mean time between random arrivals; 0 for the trace's times.
	timeScale float64       // Multiplies the trace's times.

	preemptible float64 // Share of priority 0 that is preemptible.
	at          time.Duration
}

// newSource returns the workload of c.
func newSource(c *Config, f *fleet) (*source, error) {
	s := &source{
		fleet: f, seed: c.Seed, random: rand.New(rand.NewPCG(c.Seed, 1)), timeScale: 1, preemptible: c.Preemptible,
	}
	sum := 0.0
	for i := range c.Organizations {
		sum += 1 / float64(i+1) // Zipf's law: the first has the most.
		s.orgs = append(s.orgs, sum)
	}
	if c.Trace != "" {
		if err := s.load(c.Trace); err != nil {
			return nil, err
		}
	}
	recorded := len(s.pods) > 0 && s.lap > 0
	if c.Load == 0 {
		if !recorded {
			return nil, errors.New("the trace has no creation_time to keep; give a load, as 0.95")
		}
		return s, nil
	}
	each := s.demand()
	if each == 0 {
		return nil, errors.New("no execution requests a GPU; this simulation is about GPUs")
	}
	s.mean = time.Duration(each / (c.Load * float64(f.gpus) * compute.WholeGPU))
	if recorded {
		s.timeScale = float64(s.mean) * float64(len(s.pods)) / float64(s.lap)
		s.mean = 0
	}
	return s, nil
}

// load reads a trace.
func (s *source) load(path string) error {
	pods, err := trace.ReadPods(path)
	if err != nil {
		return err
	}
	slices.SortStableFunc(pods, func(a, b trace.Pod) int { return cmp.Compare(a.Created, b.Created) })
	first := pods[0].Created
	s.named = map[string]int{}
	for i := range pods {
		pods[i].Created -= first
		if org := pods[i].Org; org != "" {
			if _, known := s.named[org]; !known {
				s.named[org] = len(s.named)
			}
		}
	}
	if len(s.named) > MaxOrganizations {
		return errors.New("the trace has more organizations than a simulation: " + path)
	}
	s.pods = pods
	if last := pods[len(pods)-1].Created; last > 0 {
		s.lap = last * time.Duration(len(pods)) / time.Duration(len(pods)-1)
	}
	return nil
}

// organizations returns the number of organizations in the work.
func (s *source) organizations() int { return max(len(s.orgs), len(s.named)) }

// demand returns the mean thousandths of GPU times the nanoseconds they are
// held: over all pods of a trace, or over draws.
func (s *source) demand() float64 {
	draws := 50_000
	if len(s.pods) > 0 {
		draws = len(s.pods)
	}
	probe := s.copied(2)
	probe.mean = 0
	sum := 0.0
	for range draws {
		a := probe.take()
		sum += float64(a.gpuMilli()) * float64(a.lasts)
	}
	return sum / float64(draws)
}

// copied returns a source of the same work from its beginning, with separate
// randomness.
func (s *source) copied(purpose uint64) *source {
	out := *s
	out.random, out.next, out.at = rand.New(rand.NewPCG(s.seed, purpose)), 0, 0
	return &out
}

// take returns the next execution.
func (s *source) take() arrival {
	var a arrival
	if len(s.pods) > 0 {
		a = s.replay()
	} else {
		a = s.draw()
	}
	if s.mean > 0 {
		s.at += time.Duration(s.random.ExpFloat64() * float64(s.mean))
		a.after = s.at
	}
	// Users request more time than they need, in whole minutes.
	asked := time.Duration(float64(a.lasts) * (1 + 4*s.random.Float64()))
	a.timeout = min(asked.Truncate(time.Minute)+time.Minute, timeoutMax)
	if a.priority == 0 && s.preemptible > 0 {
		a.preemptible = s.random.Float64() < s.preemptible
	}
	return a
}

// replay returns the next pod of the trace as an execution, and wraps around at
// the end. A pod that names no model gets a random one, weighted by its number
// of GPUs. Numbers of GPUs are rounded up to the next one that profiles offer.
func (s *source) replay() arrival {
	lap, i := s.next/len(s.pods), s.next%len(s.pods)
	s.next++
	p := &s.pods[i]
	a := arrival{
		after:    time.Duration(s.timeScale * float64(p.Created+time.Duration(lap)*s.lap)),
		priority: p.Priority, lasts: p.Duration, org: s.organization(),
	}
	if org, named := s.named[p.Org]; named {
		a.org = org
	}
	if a.lasts <= 0 {
		a.lasts = s.life(1)
	}
	a.lasts = min(max(a.lasts, time.Millisecond), timeoutMax)
	if p.GPUs == 0 {
		a.profile = compute.Profile{Count: max(int((p.CPUMilli+999)/1000), 1)}
		return a
	}
	t := s.anyType()
	for _, model := range p.Models {
		named := slices.IndexFunc(s.fleet.types, func(t gpuType) bool { return t.name == modelName(model) })
		if named >= 0 {
			t = &s.fleet.types[named]
			break
		}
	}
	count := 1
	for count < p.GPUs && count < 8 {
		count *= 2
	}
	a.profile = compute.Profile{GPUType: t.name, Count: count, MilliGPU: p.GPUMilli}
	return a
}

// draw returns an execution of the synthetic mix. Three in ten share a GPU,
// most of the others request one, and few request up to eight. One in seven
// requests none.
func (s *source) draw() arrival {
	a := arrival{org: s.organization(), priority: s.priority()}
	if s.random.IntN(7) == 0 {
		a.profile = compute.Profile{Count: 1 << s.random.IntN(4)}
		a.lasts = s.life(1)
		return a
	}
	t := s.anyType()
	a.profile = compute.Profile{GPUType: t.name, Count: 1, MilliGPU: compute.WholeGPU}
	switch roll := s.random.IntN(100); {
	case roll < 30:
		a.profile.MilliGPU = []int{125, 250, 250, 330, 500, 500, 750, 810}[s.random.IntN(8)]
	case roll < 80:
	case roll < 90:
		a.profile.Count = 2
	case roll < 96:
		a.profile.Count = 4
	default:
		a.profile.Count = 8
	}
	for a.profile.Count > t.most {
		a.profile.Count /= 2
	}
	a.lasts = s.life(a.profile.Count)
	return a
}

// life returns the runtime of an execution: more GPUs, longer work.
func (s *source) life(gpus int) time.Duration {
	d := float64(medianLife) * math.Sqrt(float64(gpus)) * math.Exp(lifeSigma*s.random.NormFloat64())
	return min(max(time.Duration(d).Truncate(time.Millisecond), shortest), longest)
}

// priority returns the priority of an execution: seven in ten have none.
func (s *source) priority() int {
	switch roll := s.random.IntN(100); {
	case roll < 70:
		return 0
	case roll < 95:
		return 50
	}
	return 90
}

// organization returns the organization of an execution.
func (s *source) organization() int {
	roll := s.random.Float64() * s.orgs[len(s.orgs)-1]
	i, _ := slices.BinarySearch(s.orgs, roll)
	return min(i, len(s.orgs)-1)
}

// anyType returns a random GPU type, weighted by its number of GPUs.
func (s *source) anyType() *gpuType {
	roll := s.random.IntN(s.fleet.gpus)
	for i := range s.fleet.types {
		if roll -= s.fleet.types[i].gpus; roll < 0 {
			return &s.fleet.types[i]
		}
	}
	return &s.fleet.types[len(s.fleet.types)-1]
}
