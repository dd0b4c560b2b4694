package trace

import (
	"math"
	"os"
	"strings"
	"time"
)

// Limits of one row. A value beyond them is a mistake.
const (
	MaxGPUs      = 64            // Devices of a node.
	MaxCPUMilli  = math.MaxInt32 // Two million vCPUs.
	MaxMemoryMiB = math.MaxInt32 // Two PiB.
	WholeGPU     = 1000          // Thousandths of a device.
	MaxPriority  = 100           // The highest.
)

// Node is one machine of a cluster.
type Node struct {
	Name      string // "sn".
	CPUMilli  int64  // "cpu_milli": thousandths of a vCPU.
	MemoryMiB int64  // "memory_mib".
	GPUs      int    // "gpu": devices; 0 for a machine without GPUs.
	Model     string // "model" of its devices, upper case; "" without GPUs.
}

// Pod is one request of a workload.
type Pod struct {
	Name      string
	CPUMilli  int64    // "cpu_milli".
	MemoryMiB int64    // "memory_mib".
	GPUs      int      // "num_gpu": devices.
	GPUMilli  int      // "gpu_milli" of each device; below WholeGPU only for a single one.
	Models    []string // "gpu_spec": the acceptable models, upper case; empty for any.

	// From columns that a trace may lack; then zero.
	Created  time.Duration // "creation_time", seconds since the trace began.
	Duration time.Duration // "deletion_time" less "scheduled_time", or less "creation_time".
	QoS      string        // "qos".
	Org      string        // "org": the organization.
	Priority int           // "priority": 0 to MaxPriority.
}

// Demand returns the requested thousandths of GPU.
func (p *Pod) Demand() int64 { return int64(p.GPUs) * int64(p.GPUMilli) }

// ReadNodes returns the nodes in a file.
func ReadNodes(path string) ([]Node, error) {
	var out []Node
	names := map[string]int{}
	err := read(path, []string{"sn", "cpu_milli", "memory_mib", "gpu"}, func(r *row) {
		n := Node{
			Name:      r.text("sn"),
			CPUMilli:  r.number("cpu_milli", 0, MaxCPUMilli),
			MemoryMiB: r.number("memory_mib", 0, MaxMemoryMiB),
			GPUs:      int(r.number("gpu", 0, MaxGPUs)),
			Model:     strings.ToUpper(r.text("model")),
		}
		if n.Name == "" {
			r.refuse("sn", "a node needs a name")
		}
		if line, twice := names[n.Name]; twice {
			r.refuse("sn", "%q is in line %d already; names of nodes are unique", n.Name, line)
		}
		names[n.Name] = r.line("sn")
		if n.GPUs == 0 {
			n.Model = ""
		}
		out = append(out, n)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// ReadPods returns the pods in a file, in its order.
func ReadPods(path string) ([]Pod, error) {
	var out []Pod
	err := read(path, []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}, func(r *row) {
		p := Pod{
			Name:      r.text("name"),
			CPUMilli:  r.number("cpu_milli", 0, MaxCPUMilli),
			MemoryMiB: r.number("memory_mib", 0, MaxMemoryMiB),
			GPUs:      int(r.number("num_gpu", 0, MaxGPUs)),
			GPUMilli:  int(r.number("gpu_milli", 0, WholeGPU)),
			Models:    models(r.text("gpu_spec")),
			QoS:       r.text("qos"),
			Org:       r.text("org"),
			Priority:  int(r.optional("priority", 0, MaxPriority)),
			Created:   r.seconds("creation_time"),
		}
		switch {
		case p.GPUs == 0 && p.GPUMilli != 0:
			r.refuse("gpu_milli", "%d without a GPU; with num_gpu 0 it is 0", p.GPUMilli)
		case p.GPUs > 0 && p.GPUMilli == 0:
			r.refuse("gpu_milli", "0 of each of %d GPUs; a whole GPU is %d", p.GPUs, WholeGPU)
		case p.GPUs > 1 && p.GPUMilli != WholeGPU:
			r.refuse("gpu_milli", "%d of each of %d GPUs; only a single GPU can be shared", p.GPUMilli, p.GPUs)
		}
		p.Duration = lived(r, p.Created)
		out = append(out, p)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// lived returns the runtime of the pod of r, 0 if its trace has none.
func lived(r *row, created time.Duration) time.Duration {
	if r.text("deletion_time") == "" {
		return 0
	}
	began := created
	if r.text("scheduled_time") != "" {
		began = r.seconds("scheduled_time")
	}
	ended := r.seconds("deletion_time")
	if ended < began {
		r.refuse("deletion_time", "it ended %v before it began", began-ended)
	}
	return ended - began
}

// models returns the models of "A|B", upper case.
func models(spec string) []string {
	var out []string
	for model := range strings.SplitSeq(strings.ToUpper(spec), "|") {
		if model = strings.TrimSpace(model); model != "" {
			out = append(out, model)
		}
	}
	return out
}

// read passes the rows of a CSV file to use in order, and returns the first
// error.
func read(path string, needed []string, use func(*row)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return rows(f, path, needed, use)
}
