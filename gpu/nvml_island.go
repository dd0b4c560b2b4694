//go:build linux && cgo

package gpu

import (
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"berth/compute"
)

// islands groups the devices of a machine that are linked. It is cached until
// the devices change, because it takes a call for each pair of them.
type islands struct {
	of      string // The devices, joined.
	numbers map[compute.GPUID]int
}

// assignIslands writes to each device the number of its island. A device in MIG
// mode has none, because its links are off.
func (s *nvmlSource) assignIslands(devices []compute.GPU) {
	var whole []compute.GPU
	var names []string
	for _, g := range devices {
		if g.Parent == "" && !g.Sliced() {
			whole = append(whole, g)
			names = append(names, string(g.ID))
		}
	}
	if of := strings.Join(names, ","); of != s.islands.of {
		s.islands = islands{of, s.findIslands(whole)}
	}
	for i := range devices {
		devices[i].Island = s.islands.numbers[devices[i].ID]
	}
}

// findIslands finds the islands of whole devices: devices that NVLink joins,
// directly or through a switch, and devices without NVLink that only PCIe
// switches separate. The number of an island is the index of its first device,
// plus 1. A device about which the driver reports nothing has no number.
func (s *nvmlSource) findIslands(devices []compute.GPU) map[compute.GPUID]int {
	handles := make([]nvml.Device, len(devices))
	s.mu.Lock()
	for i, g := range devices {
		handles[i] = s.handles[g.ID].Device
	}
	s.mu.Unlock()
	joins := newJoins(len(devices))
	joins.scan(func(i, j int) (bool, bool) {
		status, ret := handles[i].GetP2PStatus(handles[j], nvml.P2P_CAPS_INDEX_NVLINK)
		return status == nvml.P2P_STATUS_OK, ret == nvml.SUCCESS
	})
	linked := slices.Clone(joins.joined)
	joins.scan(func(i, j int) (bool, bool) {
		if linked[i] || linked[j] {
			return false, false
		}
		level, ret := handles[i].GetTopologyCommonAncestor(handles[j])
		return level <= nvml.TOPOLOGY_MULTIPLE, ret == nvml.SUCCESS
	})
	numbers := make(map[compute.GPUID]int, len(devices))
	for i, g := range devices {
		if joins.known[i] {
			numbers[g.ID] = devices[joins.first[i]].Index + 1
		}
	}
	return numbers
}

// joins records which devices are linked, by position.
type joins struct {
	first  []int  // The first device of each one's island.
	joined []bool // Linked to another device.
	known  []bool // The driver reported something about it.
}

func newJoins(n int) *joins {
	j := &joins{first: make([]int, n), joined: make([]bool, n), known: make([]bool, n)}
	for i := range n {
		j.first[i] = i
	}
	return j
}

// scan asks about each pair whether it is linked, and whether that is known.
func (j *joins) scan(ask func(a, b int) (joined, known bool)) {
	for a := range j.first {
		for b := a + 1; b < len(j.first); b++ {
			joined, known := ask(a, b)
			if !known {
				continue
			}
			j.known[a], j.known[b] = true, true
			if joined {
				j.join(a, b)
			}
		}
	}
}

// join merges the islands of a and b.
func (j *joins) join(a, b int) {
	j.joined[a], j.joined[b] = true, true
	keep, drop := min(j.first[a], j.first[b]), max(j.first[a], j.first[b])
	for i, first := range j.first {
		if first == drop {
			j.first[i] = keep
		}
	}
}
