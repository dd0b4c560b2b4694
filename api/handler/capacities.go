package handler

import (
	"berth/compute"
	"berth/compute/capacity"
	"berth/fsm"
)

// Capacities are the nodes of a view, as they are and as if nothing ran on them.
type Capacities struct {
	kinds       *capacity.Kinds
	free, empty []capacity.Node
}

// CapacitiesOf returns the capacities of a view.
func CapacitiesOf(view *fsm.View) *Capacities {
	c := &Capacities{kinds: capacity.NewKinds()}
	for n := range view.Nodes() {
		var free, empty capacity.Node
		free.Load(n, c.kinds)
		empty.CopyFrom(&free)
		empty.Clear()
		c.free, c.empty = append(c.free, free), append(c.empty, empty)
	}
	return c
}

// Count returns how many requests the nodes hold when they are empty, and how
// many more they hold now.
func (c *Capacities) Count(q compute.Request) (total, available int) {
	shape := c.kinds.Shape(&q)
	for i := range c.free {
		total += c.empty[i].Holds(&shape)
		if c.free[i].Open {
			available += c.free[i].Holds(&shape)
		}
	}
	return total, available
}

// Opens reports whether a node that takes new work would hold the request if nothing ran on it.
func (c *Capacities) Opens(q compute.Request) bool {
	shape := c.kinds.Shape(&q)
	for i := range c.free {
		if c.free[i].Open && c.empty[i].Holds(&shape) > 0 {
			return true
		}
	}
	return false
}
