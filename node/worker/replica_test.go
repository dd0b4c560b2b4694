package worker

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"berth/attempt"
	"berth/boottime"
	"berth/compute"
	"berth/fsm"
	"berth/node/executor"
)

// quietPeer is a peer whose leader was last reached some time ago.
type quietPeer struct {
	never bool          // There was no contact yet.
	ago   time.Duration // Else it was so long ago.
	lost  error         // Error of reads of the index.
	reads int
}

func (p *quietPeer) ID() compute.NodeID { return compute.NodeID{} }

func (p *quietPeer) ReadIndex(context.Context) (uint64, error) {
	p.reads++
	return 0, p.lost
}

func (p *quietPeer) Epoch() uint64 { return 0 }

func (p *quietPeer) ContactAt() time.Duration {
	if p.never {
		return 0
	}
	return boottime.Now() - p.ago
}

// TestAttemptsAreReadFresh holds that a node reads its attempts afresh before
// it starts any, if it has just started or was cut off for longer than the
// cluster waits for it. It may start any only after a contact.
func TestAttemptsAreReadFresh(t *testing.T) {
	p := &quietPeer{}
	s := &ReplicaSource{machine: fsm.New(), peer: p}
	work := func() (executor.Assigned, error) {
		return s.Work(t.Context(), math.MaxUint64) // The next index is 0: there at once.
	}
	steps := []struct {
		name  string
		never bool          // There was no contact.
		ago   time.Duration // Time since the last contact.
		gap   time.Duration // Before it.
		lost  error
		reads int // In all.
	}{
		{name: "at the start", never: true, reads: 1},
		{name: "still without contact", never: true, reads: 2},
		{name: "the first contact", reads: 3},
		{name: "in contact", reads: 3},
		{name: "a heartbeat was late", ago: attempt.NodeTTL - time.Second, reads: 3},
		{name: "cut off", ago: attempt.NodeTTL + time.Second, reads: 4},
		{name: "still cut off, nobody answers", ago: 2 * attempt.NodeTTL, lost: errors.New("no leader"), reads: 5},
		{name: "in contact again", reads: 6},
		{name: "and on", reads: 6},
		{name: "was cut off in between", gap: attempt.NodeTTL + time.Second, reads: 7},
		{name: "once", reads: 7},
	}
	for _, step := range steps {
		p.never, p.ago, p.lost = step.never, step.ago, step.lost
		s.recent.seen -= step.gap
		got, err := work()
		if !errors.Is(err, step.lost) || p.reads != step.reads {
			t.Fatalf("%s: %d reads, %v; want %d, %v", step.name, p.reads, err, step.reads, step.lost)
		}
		if begins := got.Contact != 0; err == nil && begins == step.never {
			t.Errorf("%s: what was read may begin: %v", step.name, begins)
		}
	}
}
