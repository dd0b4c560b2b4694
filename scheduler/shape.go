package scheduler

import "berth/compute"

// shape is what an execution needs of a node. Executions of one shape are one
// question, so its answer is remembered under it.
type shape struct {
	gpuType int // Interned; noType for CPU-only work.
	gpus    int
	milli   int // Of each GPU.
	mig     string
	vcpu    int64 // Thousandths.
	memory  int64 // MiB.
}

// noType is the GPU type of CPU-only work.
const noType = 0

// types numbers the names of GPU types, so that comparing two is cheap.
type types map[string]int

// id returns the number of a type, a new one for a new name.
func (t types) id(name string) int {
	if name == "" {
		return noType
	}
	if _, known := t[name]; !known {
		t[name] = len(t) + 1
	}
	return t[name]
}

// shape returns the shape of a request.
func (t types) shape(r *compute.Request) shape {
	s := shape{vcpu: r.VCPUMilli, memory: r.MemoryMiB}
	if r.GPUType != "" {
		s.gpuType, s.mig = t.id(r.GPUType), r.MIG
		s.gpus, s.milli = max(r.GPUs, 1), r.MilliGPU
		if s.milli <= 0 {
			s.milli = compute.WholeGPU
		}
	}
	return s
}
