package node

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
)

// quietPeer is a peer whose leader was last reached some time ago.
type quietPeer struct {
	ago   time.Duration
	lost  error // Of read indexes.
	reads int
}

func (p *quietPeer) ID() compute.NodeID { return compute.NodeID{} }

func (p *quietPeer) ReadIndex(context.Context) (uint64, error) {
	p.reads++
	return 0, p.lost
}

func (p *quietPeer) Epoch() uint64 { return 0 }

func (p *quietPeer) ContactAt() time.Duration { return boottime.Now() - p.ago }

// TestAttemptsAreReadFresh holds that a node which starts, or was cut off for
// longer than the cluster waits for it, learns what became of its attempts
// before it starts any.
func TestAttemptsAreReadFresh(t *testing.T) {
	p := &quietPeer{}
	s := &attemptSource{machine: fsm.New(), peer: p}
	work := func() error {
		_, err := s.Work(t.Context(), math.MaxUint64) // The next index is 0: there at once.
		return err
	}
	steps := []struct {
		name  string
		ago   time.Duration // Of the last contact.
		gap   time.Duration // Before it.
		lost  error
		reads int // In all.
	}{
		{name: "at the start", reads: 1},
		{name: "in contact", reads: 1},
		{name: "a heartbeat was late", ago: attempt.NodeTTL - time.Second, reads: 1},
		{name: "cut off", ago: attempt.NodeTTL + time.Second, reads: 2},
		{name: "still cut off, nobody answers", ago: 2 * attempt.NodeTTL, lost: errors.New("no leader"), reads: 3},
		{name: "in contact again", reads: 4},
		{name: "and on", reads: 4},
		{name: "was cut off in between", gap: attempt.NodeTTL + time.Second, reads: 5},
		{name: "once", reads: 5},
	}
	for _, step := range steps {
		p.ago, p.lost = step.ago, step.lost
		s.recent.seen -= step.gap
		if err := work(); !errors.Is(err, step.lost) || p.reads != step.reads {
			t.Fatalf("%s: %d reads, %v; want %d, %v", step.name, p.reads, err, step.reads, step.lost)
		}
	}
}
