package scheduler

import "berth/compute"

// Explanation is why an execution waits, node by node.
type Explanation struct {
	Reason   compute.Reason // As recorded.
	Position int            // In the queue, from 1; 0 when it does not wait.
	Nodes    int            // Known nodes.
	Fits     int            // Nodes with room for it now: work before it goes first.
	Refused  []Refused      // The other nodes by reason, in the order of the reasons.
}

// Refused counts the nodes that refuse an execution for one reason.
type Refused struct {
	Reason compute.Reason
	Nodes  int
}

// Explain returns why the execution waits in v. It counts what is free in v,
// before any execution of the queue is placed.
func Explain(v View, id compute.ExecutionID) Explanation {
	position := 0
	for e := range v.Queue() {
		position++
		if e.ID == id {
			return explain(v, e, position)
		}
	}
	return Explanation{}
}

// explain asks every node.
func explain(v View, e *compute.Execution, position int) Explanation {
	out := Explanation{Reason: e.Reason, Position: position}
	t := newTypes()
	q := t.shape(&e.Request)
	var counts [compute.ReasonOrgConcurrency]int
	var s slot
	for n := range v.Nodes() {
		s.load(n, t)
		counts[s.standing(&q)]++
		out.Nodes++
	}
	for reason, n := range counts {
		switch {
		case n == 0:
		case compute.Reason(reason) == compute.ReasonNone:
			out.Fits = n
		default:
			out.Refused = append(out.Refused, Refused{compute.Reason(reason), n})
		}
	}
	return out
}
