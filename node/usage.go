package node

import (
	"context"
	"math"
	"sync"

	"berth/compute"
	"berth/gpu"
)

// gpuUsages measures what attempts do with their GPUs, for the executor. Its samples
// are lost with the process. For an attempt that outlives the process, mean power,
// peak memory and samples cover the time since the restart, and the energy is unknown.
// Nothing is known about an attempt that ended meanwhile. The use of simulated GPUs
// follows from CPU time, which the supervisor keeps.
type gpuUsages struct {
	sampler *gpu.Sampler

	mu   sync.Mutex
	live map[attemptKey]watched
}

// attemptKey names an attempt.
type attemptKey struct {
	execution compute.ExecutionID
	epoch     uint64
}

// watched is an attempt that is measured.
type watched struct {
	work  compute.Work
	tally *gpu.Tally
}

// Watch begins to measure the GPUs of an attempt.
func (u *gpuUsages) Watch(w compute.Work, from compute.Instant) {
	if len(w.Attempt.GPUs) == 0 {
		return
	}
	tally := u.sampler.Watch(w.Attempt.GPUs, from)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.live[attemptKey{w.Attempt.Execution, w.Attempt.Epoch}] = watched{w, tally}
}

// Measure ends the watch of an attempt and, if its code ran, adds to the
// outcome what its GPUs did. Only sub-executions keep the series of samples.
func (u *gpuUsages) Measure(o *compute.Outcome) {
	key := attemptKey{o.Execution, o.Epoch}
	u.mu.Lock()
	w, ok := u.live[key]
	delete(u.live, key)
	u.mu.Unlock()
	if !ok {
		return
	}
	simulated := anySimulated(w.work.GPUs)
	if o.Ran && !simulated {
		u.sampler.Poll(context.Background())
	}
	seen := u.sampler.Unwatch(w.tally, o.EndedAt)
	if !o.Ran {
		return // Its supervisor was lost: nobody knows until when it ran.
	}
	if simulated {
		seen = simulatedUsage(w.work, o, seen)
	}
	if w.work.Execution.Kind != compute.KindSubSelection {
		seen.Samples = nil
	}
	o.Usage.GPUUtilPercent, o.Usage.GPUMemoryMiB = seen.GPUUtilPercent, seen.GPUMemoryMiB
	o.Usage.PowerMilliW, o.Usage.EnergyMilliJ = seen.PowerMilliW, seen.EnergyMilliJ
	o.Usage.Simulated, o.Usage.Samples = seen.Simulated, seen.Samples
}

func anySimulated(devices []compute.GPU) bool {
	for _, g := range devices {
		if g.Simulated {
			return true
		}
	}
	return false
}

// simulatedUsage returns what simulated GPUs used: by the model, at the mean
// load that the CPU time of the whole attempt gives, which no sampling misses.
// Series and peak are as sampled. If a run is too short for two samples, the mean is
// the second.
func simulatedUsage(w compute.Work, o *compute.Outcome, seen compute.Usage) compute.Usage {
	seen.Simulated, seen.GPUUtilPercent = true, o.Usage.GPUUtilPercent
	load := float64(o.Usage.GPUUtilPercent) / 100
	watt, used := 0.0, int64(0)
	for _, g := range w.GPUs {
		part := float64(shareOf(w.Attempt, g.ID)) / compute.WholeGPU
		used += int64(load * part * float64(g.VRAMMiB))
		if device := gpu.SimulatedWatt(g, load); device < 0 || watt < 0 {
			watt = -1
		} else {
			watt += part * device
		}
	}
	seen.GPUMemoryMiB = max(seen.GPUMemoryMiB, used)
	seen.PowerMilliW, seen.EnergyMilliJ = 0, 0
	if watt >= 0 {
		seen.PowerMilliW = int64(math.Round(watt * 1000))
		seen.EnergyMilliJ = int64(math.Round(watt * 1000 * o.Duration.Seconds()))
	}
	if len(seen.Samples) < 2 {
		seen.Samples = append(seen.Samples, compute.UsageSample{
			AtMs: o.Duration.Milliseconds(), UtilPercent: o.Usage.GPUUtilPercent,
			MemoryMiB: used, PowerWatt: int(math.Round(watt)),
		})
	}
	return seen
}
