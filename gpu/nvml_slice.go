//go:build linux && cgo

package gpu

import (
	"cmp"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"berth/compute"
)

// findSlices describes the MIG slices of a device, in the order of their
// instances. A slice that does not answer, because it is being created or
// removed, is left out. The health of a slice is that of its device.
func (s *nvmlSource) findSlices(parent compute.GPU, device nvml.Device) []compute.GPU {
	places, ret := device.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return nil
	}
	var found []compute.GPU
	inside := make(map[int]int64) // Slices by GPU instance.
	for i := range places {
		slice, ret := device.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // Not every position has a slice.
		}
		g, ok := describeSlice(parent, slice)
		if !ok {
			continue
		}
		s.mu.Lock()
		s.handles[g.ID] = handle{Device: slice, slice: true}
		s.mu.Unlock()
		inside[g.Instance]++
		found = append(found, g)
	}
	for i := range found {
		// The driver reports the memory of all compute instances for each.
		found[i].VRAMMiB /= inside[found[i].Instance]
	}
	slices.SortFunc(found, func(a, b compute.GPU) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.ComputeInstance, b.ComputeInstance))
	})
	return found
}

// describeSlice reads the properties of a slice.
func describeSlice(parent compute.GPU, slice nvml.Device) (compute.GPU, bool) {
	uuid, ret := slice.GetUUID()
	if ret != nvml.SUCCESS {
		return compute.GPU{}, false
	}
	model, ret := slice.GetName()
	if ret != nvml.SUCCESS {
		return compute.GPU{}, false
	}
	memory, ret := slice.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return compute.GPU{}, false
	}
	instance, ret := slice.GetGpuInstanceId()
	if ret != nvml.SUCCESS {
		return compute.GPU{}, false
	}
	inner, ret := slice.GetComputeInstanceId()
	if ret != nvml.SUCCESS {
		return compute.GPU{}, false
	}
	g := parent
	g.ID, g.Parent, g.Model = compute.GPUID(uuid), parent.ID, model
	g.MIG = compute.MIGName(model[strings.LastIndexByte(model, ' ')+1:])
	g.VRAMMiB, g.Island = int64(memory.Total>>20), 0
	g.Instance, g.ComputeInstance = instance, inner
	_, err := compute.ParseMIG(g.MIG)
	return g, err == nil
}
