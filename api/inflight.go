package api

import (
	"sync"
	"time"

	"berth/compute"
	"berth/fsm"
)

// inflight are the requests with an Idempotency-Key about which this node
// waits for the state's decision. A repeat that comes meanwhile is told so at
// once, instead of waiting for an answer that may be slow in coming. On another
// node the state decides about both copies, and gives both the same answer.
type inflight struct {
	mu   sync.Mutex
	live map[compute.OpID]compute.Hash // The request behind each operation.
}

func newInflight() *inflight { return &inflight{live: make(map[compute.OpID]compute.Hash)} }

// begin notes that op is on its way until end is called, or refuses it when it
// is on its way already.
func (f *inflight) begin(op fsm.Op) (end func(), err error) {
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
