package simulate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"berth/bench/trace"
	"berth/compute"
)

// fleet is the simulated hardware.
type fleet struct {
	nodes []machine
	types []gpuType // By name.
	gpus  int       // Devices of all types.
}

// machine is one node.
type machine struct {
	name      string
	vcpuMilli int64
	memoryMiB int64
	gpuType   string // "" without GPUs.
	gpus      int
}

// gpuType summarizes the fleet's GPUs of one type.
type gpuType struct {
	name string
	gpus int // In all.
	most int // On one node at most.
}

// synthetic returns the twenty nodes of a cloud that has grown over some years;
// a synthetic fleet repeats them.
func synthetic() []machine {
	of := func(n int, m machine) []machine { return slices.Repeat([]machine{m}, n) }
	return slices.Concat(
		of(4, machine{vcpuMilli: 192_000, memoryMiB: 2 << 20, gpuType: "h100", gpus: 8}),
		of(5, machine{vcpuMilli: 128_000, memoryMiB: 1 << 20, gpuType: "a100", gpus: 8}),
		of(5, machine{vcpuMilli: 64_000, memoryMiB: 512 << 10, gpuType: "l40s", gpus: 4}),
		of(4, machine{vcpuMilli: 48_000, memoryMiB: 192 << 10, gpuType: "t4", gpus: 4}),
		of(2, machine{vcpuMilli: 128_000, memoryMiB: 512 << 10}),
	)
}

// newFleet returns the nodes of spec: a number of synthetic ones, or a file.
func newFleet(spec string) (*fleet, error) {
	f := &fleet{}
	if n, err := strconv.Atoi(spec); err == nil {
		kinds := synthetic()
		for i := range n {
			m := kinds[i*7%len(kinds)] // 7 and 20 are coprime: even a few nodes are of all kinds.
			m.name = fmt.Sprintf("n%06d", i)
			f.nodes = append(f.nodes, m)
		}
	} else {
		nodes, err := trace.ReadNodes(spec)
		if err != nil {
			return nil, err
		}
		for i := range nodes {
			n := &nodes[i]
			f.nodes = append(f.nodes, machine{
				name: n.Name, vcpuMilli: n.CPUMilli, memoryMiB: n.MemoryMiB, gpuType: typeName(n), gpus: n.GPUs,
			})
		}
	}
	byName := map[string]*gpuType{}
	for _, m := range f.nodes {
		if m.gpus == 0 {
			continue
		}
		t := byName[m.gpuType]
		if t == nil {
			t = &gpuType{name: m.gpuType}
			byName[m.gpuType] = t
		}
		t.gpus += m.gpus
		t.most = max(t.most, m.gpus)
		f.gpus += m.gpus
	}
	if f.gpus == 0 {
		return nil, errors.New("no node has a GPU; this simulation is about GPUs")
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		f.types = append(f.types, *byName[name])
	}
	return f, nil
}

// typeName returns the GPU type in profile syntax.
func typeName(n *trace.Node) string {
	switch {
	case n.GPUs == 0:
		return ""
	case n.Model == "":
		return "gpu_unnamed"
	}
	return modelName(n.Model)
}

// modelName returns a model's name in profile syntax: lower-case letters,
// digits and underscores.
func modelName(model string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(model))
}

// inventory returns the inventory that the machine reports.
func (m *machine) inventory(id compute.NodeID) compute.Inventory {
	out := compute.Inventory{Node: id, Version: 1, VCPUMilli: m.vcpuMilli, MemoryMiB: m.memoryMiB}
	for i := range m.gpus {
		out.GPUs = append(out.GPUs, compute.GPU{
			ID: compute.GPUID(fmt.Sprintf("SIM-%s-%d", m.name, i)), Index: i, Type: m.gpuType,
			Model: m.gpuType + " (simulated)", VRAMMiB: 16 << 10, Simulated: true,
		})
	}
	return out
}
