package membership

import (
	"time"

	"berth/compute"
)

// Observations are the measurements of the servers by a leader in its term.
type Observations struct {
	At      time.Time // When the last measurement was made.
	Others  int       // Servers that were asked.
	Steady  map[compute.NodeID]time.Duration
	Silent  map[compute.NodeID]time.Duration
	Demoted map[compute.NodeID]bool   // Servers demoted for silence that have not answered since.
	Logged  map[compute.NodeID]string // The reason why each stays a voter, as logged.
}

// NewObservations returns observations of no server.
func NewObservations() *Observations {
	return &Observations{
		Steady:  make(map[compute.NodeID]time.Duration),
		Silent:  make(map[compute.NodeID]time.Duration),
		Demoted: make(map[compute.NodeID]bool),
		Logged:  make(map[compute.NodeID]string),
	}
}

// Note adds one measurement: whether the server answered, and whether it keeps
// up. It counts for the time since the one before, at least a nanosecond.
func (o *Observations) Note(id compute.NodeID, took time.Duration, answered, keepsUp bool) {
	took = max(took, 1)
	if answered {
		delete(o.Silent, id)
		delete(o.Demoted, id)
	} else {
		o.Silent[id] += took
	}
	if keepsUp {
		o.Steady[id] += took
	} else {
		delete(o.Steady, id)
	}
}
