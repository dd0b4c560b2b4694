package limit

import (
	"sync"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// Inflight has the requests with an Idempotency-Key that this node has proposed
// and not answered. A repeat that arrives meanwhile is refused at once instead
// of waiting. If it arrives at another node, both copies are proposed and get
// the same answer.
type Inflight struct {
	mu   sync.Mutex
	live map[compute.OpID]compute.Hash // The request behind each operation.
}

// NewInflight returns an Inflight without requests.
func NewInflight() *Inflight { return &Inflight{live: make(map[compute.OpID]compute.Hash)} }

// Begin marks op as in flight until end is called, or refuses it if it is in
// flight already.
func (f *Inflight) Begin(op command.Op) (end func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch request, known := f.live[op.ID]; {
	case known && request != op.Request:
		return nil, compute.Errorf(compute.CodeConflict,
			"This idempotency key was used with another request.").Named("idempotency_key_reused")
	case known:
		return nil, compute.Errorf(compute.CodeConflict,
			"The first request with this Idempotency-Key is still in flight: repeat it for its answer.").
			Named("idempotency_in_flight").Retry(time.Second)
	}
	f.live[op.ID] = op.Request
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.live, op.ID)
	}, nil
}
