package membership

import (
	"slices"

	"berth/compute"
)

// Removal is the reason why a server must not be removed now.
type Removal struct {
	// Voters is how many would vote without it, 0 when it is the last one.
	// Answering is how many of them answer, and Silent are those that do not.
	Voters, Answering int
	Silent            []compute.NodeID
}

// Foresee makes all planned changes and returns why the server would still vote,
// nil when it would leave.
func (p *Plan) Foresee(id compute.NodeID) *Removal {
	for range 4 * (len(p.Members) + 1) { // An upper bound: each server is promoted, demoted and removed at most once.
		step, obstacles := p.Next()
		if step.Action == None {
			at := slices.IndexFunc(obstacles, func(o Obstacle) bool { return o.Server == id })
			if at < 0 {
				return nil
			}
			o := obstacles[at]
			return &Removal{Voters: o.Voters, Answering: o.Current, Silent: o.Silent}
		}
		p = p.With(step)
		if p.At(id) < 0 {
			return nil
		}
	}
	return nil
}
