package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestStuckTransfer checks that a leader ends if it refuses all entries for too
// long because of a transfer. One that accepts an entry, or no longer leads,
// continues.
func TestStuckTransfer(t *testing.T) {
	stuck := raft.ErrLeadershipTransferInProgress
	type look struct {
		after time.Duration // Since the previous one.
		leads bool
		probe error // Raft's answer to another entry.
	}
	tests := []struct {
		name  string
		first error // The result of the first entry.
		looks []look
		ends  bool
	}{
		{"nothing refused", nil, []look{{time.Hour, true, stuck}}, false},
		{"another error", raft.ErrNotLeader, []look{{time.Hour, true, stuck}}, false},
		{"for a moment", stuck, []look{{9 * time.Second, true, stuck}}, false},
		{"for too long", stuck, []look{{5 * time.Second, true, stuck}, {6 * time.Second, true, stuck}}, true},
		{"it took one", stuck, []look{{5 * time.Second, true, nil}, {time.Hour, true, stuck}}, false},
		{"the process stood still", stuck, []look{{time.Hour, true, nil}}, false},
		{"somebody else leads", stuck, []look{{5 * time.Second, false, stuck}, {6 * time.Second, true, stuck}}, false},
		{"leadership was lost", stuck, []look{{11 * time.Second, true, raft.ErrLeadershipLost}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var r refusals
			now := time.Unix(1, 0)
			r.note(now, tt.first)
			var err error
			for _, l := range tt.looks {
				now = now.Add(l.after)
				err = r.check(l.leads, func() time.Time { return now }, func() error { return l.probe })
			}
			if ends := errors.Is(err, stuck); ends != tt.ends {
				t.Errorf("the process ends: %t (%v), want %t", ends, err, tt.ends)
			}
		})
	}
}
