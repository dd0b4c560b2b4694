package compute

import "time"

// Unlimited is the time limit of an execution that has none: a hundred years,
// which no attempt reaches and every calculation with time limits holds.
const Unlimited = 100 * 365 * 24 * time.Hour

// Limits of a service.
const (
	MaxReplicas = 64
	MaxPort     = 65535
)

// The times of a service, unless an operator sets others.
const (
	DefaultReadinessTimeout = 10 * time.Minute
	MaxReadinessTimeout     = 24 * time.Hour
	DefaultBackoffFirst     = 10 * time.Second
	DefaultBackoffMost      = 5 * time.Minute
	DefaultBackoffReset     = 10 * time.Minute
)

// Restart says when a replica of a service starts again after it ended by itself.
type Restart uint8

// The restart policies. Values are written to disk: append only.
const (
	RestartAlways    Restart = iota // It starts again.
	RestartOnFailure                // It starts again unless it completed.
	RestartNever                    // It stays ended.
)

var restartNames = names{"always", "on-failure", "never"}

// String returns the policy as clients spell it.
func (r Restart) String() string { return restartNames.text(uint8(r)) }

// MarshalText returns what String returns.
func (r Restart) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText accepts what String returns.
func (r *Restart) UnmarshalText(text []byte) error {
	v, err := restartNames.value("restart", text)
	*r = Restart(v)
	return err
}

// Again reports whether a replica that ended with a status starts again.
func (r Restart) Again(s Status) bool {
	return r == RestartAlways || r == RestartOnFailure && s != StatusCompleted
}

// Serving says where a program answers requests, and how it is known to be ready. The
// parent has it, and each replica a copy.
type Serving struct {
	Port             int           `cbor:"1,keyasint"`
	HealthPath       string        `cbor:"2,keyasint,omitempty"` // "" for a TCP connection.
	ReadinessTimeout time.Duration `cbor:"3,keyasint,omitempty"` // From the start; then the attempt fails.
}

// Service is the part of a record that only the parent of a service has.
type Service struct {
	Replicas int     `cbor:"1,keyasint"` // How many are wanted.
	Restart  Restart `cbor:"2,keyasint,omitempty"`
	Slots    []Slot  `cbor:"3,keyasint,omitempty"` // By number. Those beyond Replicas are on their way out.
	Live     int     `cbor:"4,keyasint,omitempty"` // Replicas that have not ended.

	// Times of the crash back-off, fixed at the submit.
	BackoffFirst time.Duration `cbor:"5,keyasint,omitempty"`
	BackoffMost  time.Duration `cbor:"6,keyasint,omitempty"`
	BackoffReset time.Duration `cbor:"7,keyasint,omitempty"`

	// Surge is whether it has one replica more than are wanted, in the slot after
	// them. Once it is ready, it takes the place of an outdated one.
	Surge    bool   `cbor:"8,keyasint,omitempty"`
	Revision uint64 `cbor:"9,keyasint,omitempty"` // The update that its record is of.
}

// Places returns how many slots are to have a replica.
func (s *Service) Places() int {
	if s.Surge {
		return s.Replicas + 1
	}
	return s.Replicas
}

// Slot is the place of one replica of a service. One execution after the other is
// in it.
type Slot struct {
	Number   int         `cbor:"1,keyasint"`           // From 1.
	Replica  ExecutionID `cbor:"2,keyasint,omitempty"` // The newest; zero before the first.
	Before   ExecutionID `cbor:"3,keyasint,omitempty"` // The one before it; zero for none.
	Live     bool        `cbor:"4,keyasint,omitempty"` // Replica has not ended.
	Done     bool        `cbor:"5,keyasint,omitempty"` // Replica ended and stays ended.
	Crashes  int         `cbor:"6,keyasint,omitempty"` // Ends in a row after less than BackoffReset.
	Restarts int         `cbor:"7,keyasint,omitempty"` // Replicas that were started after the first.
	NextAt   Instant     `cbor:"8,keyasint,omitempty"` // When the next replica may start.
	Revision uint64      `cbor:"9,keyasint,omitempty"` // The update that Replica is of.
}

// Backoff returns how long a slot waits after so many ends in a row: the first
// delay, doubled with each of them up to the longest one.
func (s *Service) Backoff(crashes int) time.Duration {
	wait := s.BackoffFirst
	for range crashes - 1 {
		if wait *= 2; wait >= s.BackoffMost {
			return s.BackoffMost
		}
	}
	return min(wait, s.BackoffMost)
}

// Slot returns the slot that a replica is in, nil for none.
func (s *Service) Slot(replica ExecutionID) *Slot {
	for i := range s.Slots {
		if s.Slots[i].Replica == replica {
			return &s.Slots[i]
		}
	}
	return nil
}

// Missing returns the numbers of the slots that need a replica at an instant, and
// when the next of the others will, zero for never.
func (s *Service) Missing(now Instant) (numbers []int, next Instant) {
	for n := 1; n <= s.Places(); n++ {
		at := Instant(0)
		if n <= len(s.Slots) {
			slot := &s.Slots[n-1]
			if slot.Live || slot.Done {
				continue
			}
			at = slot.NextAt
		}
		switch {
		case at <= now:
			numbers = append(numbers, n)
		case next.IsZero() || at < next:
			next = at
		}
	}
	return numbers, next
}

// IsParent reports whether executions of the kind execute nothing themselves: their
// sub-executions do.
func (k Kind) IsParent() bool { return k == KindSelection || k == KindService }

// Drains reports whether an execution that is to stop may first finish the requests that
// it has, as replicas may unless they are aborted, or their credits or the drain of their
// node are over.
func (e *Execution) Drains() bool {
	return e.Kind == KindReplica && e.Stop == StopGraceful && e.Reason != ReasonCredits && e.Reason != ReasonDrained
}

// Children returns the sub-executions that the record of a parent names.
func (e *Execution) Children() []ExecutionID {
	switch {
	case e.Selection != nil:
		return e.Selection.Children
	case e.Service == nil:
		return nil
	}
	var ids []ExecutionID
	for _, slot := range e.Service.Slots {
		for _, id := range []ExecutionID{slot.Replica, slot.Before} {
			if !id.IsZero() {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// Readiness is the report of a node on whether the code of an attempt is ready.
type Readiness struct {
	Execution ExecutionID `cbor:"1,keyasint"`
	Epoch     uint64      `cbor:"2,keyasint"`
	Ready     bool        `cbor:"3,keyasint,omitempty"`
}
