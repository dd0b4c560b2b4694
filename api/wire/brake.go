//nolint:lll // A field and its rules are one line.
package wire

import "berth/compute"

// NewBrake is the body of POST /admin/brake.
type NewBrake struct {
	Share   *int `json:"share_percent" min:"0" max:"100" doc:"More than so many of a hundred nodes that vanish at once are too many to be given up; 0 for a third, 100 for never. Left as it is when absent."`
	Release bool `json:"release" default:"false" doc:"The nodes that have vanished by now are gone indeed: what they executed is given up."`
}

// Check holds the rules that tags cannot say.
func (b *NewBrake) Check(f *Faults) {
	if b.Share == nil && !b.Release && len(f.Detail) == 0 {
		f.Value("nothing to change: name share_percent or release", "body")
	}
}

// Brake answers /admin/brake.
type Brake struct {
	Holds      bool             `json:"holds" doc:"Whether the brake holds: too many nodes were lost at once, so no attempt is given up."`
	Since      *compute.Instant `json:"since" doc:"When the first of them fell silent; null while it does not hold."`
	Share      int              `json:"share_percent" doc:"Percentage of nodes lost at once above which the brake holds; 0 for a third, 100 for never."`
	ReleasedAt *compute.Instant `json:"released_at" doc:"When an operator last released the brake."`
	Vanished   []VanishedNode   `json:"vanished" doc:"The nodes for which the brake holds, until they are heard, drained, or it is released."`
}

// VanishedNode is one of the nodes that vanished at once.
type VanishedNode struct {
	ID       compute.NodeID  `json:"id"`
	Name     string          `json:"name"`
	DownAt   compute.Instant `json:"down_at" doc:"When it was recorded as down."`
	LiveWork int             `json:"live_attempts" doc:"Attempts that it may still execute."`
}
