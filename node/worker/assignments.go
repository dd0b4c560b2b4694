package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"berth/attempt"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/node/executor"
)

// Assignments is a worker's work, by long polls of a server. It never gets older:
// a poll names the newest index seen and is not answered from an older state.
type Assignments struct {
	up    Upstream
	codec rpc.Codec

	mu     sync.Mutex
	work   []compute.Work
	index  uint64
	digest compute.Hash
	recent recency
}

// NewAssignments returns the work of the worker that up connects.
func NewAssignments(up Upstream) *Assignments {
	return &Assignments{up: up, codec: rpc.NewCodec()}
}

// Work is executor.Source: it returns at the latest when a poll was held for
// as long as servers hold them.
func (a *Assignments) Work(ctx context.Context, _ uint64) (executor.Assigned, error) {
	contact := a.up.ContactAt()
	a.mu.Lock()
	req := pollRequest{After: a.index, Digest: a.digest, Fresh: a.recent.behind(contact)}
	a.mu.Unlock()
	if req.Fresh {
		req.Digest = compute.Hash{} // To be answered at once.
	}
	data, err := ask(ctx, a.up, pollHold+pollMargin, methodPoll, a.codec.Marshal(req))
	if err != nil {
		return executor.Assigned{}, err
	}
	var answer pollAnswer
	if err := a.codec.Unmarshal(data, &answer); err != nil {
		return executor.Assigned{}, fmt.Errorf("read own attempts: %w", err)
	}
	work := make([]compute.Work, len(answer.Work))
	for i, w := range answer.Work {
		if w.Attempt == nil || w.Execution == nil {
			return executor.Assigned{}, fmt.Errorf("read own attempts: an attempt is missing in the answer")
		}
		work[i] = compute.Work(w)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.work, a.index, a.digest = work, answer.Index, answer.Digest
	if req.Fresh {
		a.recent.caughtUp(contact)
	}
	return executor.Assigned{
		Work: work, Index: answer.Index, Life: answer.Life, Contact: contactOver(contact, a.up.ContactAt()),
	}, nil
}

// maxReadGap is the longest time between two contacts in which no attempt can be
// given up: the least wait of the leader, less the way of a heartbeat.
const maxReadGap = attempt.Lease + attempt.Margin/2

// contactOver returns the contact from which leases of what was read between two
// of them count: the second, unless attempts may have been given up before it.
// Then, and without a first one, it is 0, and all is to be read again.
func contactOver(before, after time.Duration) time.Duration {
	if before == 0 || after-before > maxReadGap {
		return 0
	}
	return after
}

// Current returns the newest work that is known, and the index of its state,
// 0 before the first.
func (a *Assignments) Current() ([]compute.Work, uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.work, a.index
}

// Held returns how many thousandths of a device attempts hold.
func (a *Assignments) Held(id compute.GPUID) int {
	work, _ := a.Current()
	total := 0
	for _, w := range work {
		for _, share := range w.Attempt.GPUs {
			if share.GPU == id {
				total += share.Milli
			}
		}
	}
	return total
}

// Ready returns an error until a server has answered the first poll.
func (a *Assignments) Ready() error {
	if _, index := a.Current(); index == 0 {
		return errNotPolled
	}
	return nil
}

// errNotPolled is why a worker is not ready yet.
var errNotPolled = compute.Errorf(compute.CodeUnavailable, "no server has sent this node its assignments yet")

var _ executor.Source = (*Assignments)(nil)
