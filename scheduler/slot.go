package scheduler

import (
	"berth/compute"
	"berth/compute/capacity"
)

// slot is one node of a board: its free capacity, less the capacity that this pass has
// given away or reserved.
type slot struct {
	capacity.Node

	stale    bool // It differs from the record.
	hardware int  // Number of its hardware when idle.

	rest   int64 // The result of value.rest.
	usable int64 // The part of GPUFree that could be given as whole GPUs.
}

// load sets s to the node's record.
func (s *slot) load(n *compute.Node, t *capacity.Kinds) {
	s.Load(n, t)
	s.stale = false
}
