package faults

import (
	"errors"
	"net/http"
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
)

// TestOutcomes checks the outcome of each answer to a try.
func TestOutcomes(t *testing.T) {
	tests := []struct {
		name string
		err  error
		sent bool
		want outcome
	}{
		{"an answer", nil, true, done},
		{"a full disk", &client.Error{Status: http.StatusInsufficientStorage, Code: noSpace}, true, full},
		{"another 507", &client.Error{Status: http.StatusInsufficientStorage, Code: "outcome_unknown"}, true, unknown},
		{"no leader", &client.Error{Status: http.StatusServiceUnavailable}, true, unknown},
		{"a rule", &client.Error{Status: http.StatusBadRequest}, true, refused},
		{"nobody listened", errors.New("connection refused"), false, unsent},
		{"no answer", errors.New("connection reset"), true, unknown},
	}
	for _, tt := range tests {
		if got := outcomeOf(tt.err, tt.sent); got != tt.want {
			t.Errorf("%s: outcome %d, want %d", tt.name, got, tt.want)
		}
	}
	counts := newTally()
	for _, tt := range tests {
		counts.count("register", tt.want)
	}
	if c := counts.cells()[0]; c.Sent() != 6 || counts.noSpace() != 1 {
		t.Errorf("%d sent, %d without space", c.Sent(), counts.noSpace())
	}
}

// TestOutboxIsCounted checks that a missing outbox row is found although
// another row belongs to an unacknowledged submit.
func TestOutboxIsCounted(t *testing.T) {
	s := &session{final: map[string]*finalState{}}
	w := &executionLoad{session: s, hooks: map[string]bool{"a": true, "b": true, "never submitted": true}}
	b := &finalState{executions: map[string]wire.ExecutionSummary{}}
	for _, tag := range []string{"a", "b", "c"} {
		id := compute.ExecutionID{UUID: compute.UUID{tag[0]}}
		b.executions[tag] = wire.ExecutionSummary{ExecutionID: id, Metadata: &wire.Metadata{Tags: []string{markedTag, tag}}}
	}
	for rows, wrong := range []int{1, 1, 0, 1} {
		s.callbacks = rows
		if got := w.outbox(b); len(got) != wrong {
			t.Errorf("%d rows for 2 executions: %v", rows, got)
		}
	}
}

// TestFaultSummary checks the summary of a fault with full disks.
func TestFaultSummary(t *testing.T) {
	if got := (&Fault{Note: "n1", NoSpace: 3}).summary(); got != "n1; 3 tries were answered 507" {
		t.Errorf("got %q", got)
	}
	if got := (&Fault{Note: "n1"}).summary(); got != "n1" {
		t.Errorf("got %q", got)
	}
	if got := (&Fault{Note: "n1", Gossip: 12.34}).summary(); got != "n1; gossip whole after 12.3 s" {
		t.Errorf("got %q", got)
	}
	slow := &Latency{Before: Spread{P50: 0.01, P99: 0.05}, During: Spread{P50: 0.02, P99: 0.09}}
	if got := (&Fault{Nemesis: "leader-kill", Latency: slow}).summary(); got != "" {
		t.Errorf("got %q", got)
	}
	slow.Elsewhere = &Spread{P50: 0.01, P99: 0.06}
	got := (&Fault{Nemesis: followerSlowDisk, Latency: slow}).summary()
	if got != "writes p50 0.02, p99 0.09 s; at other nodes 0.01, 0.06 s; before 0.01, 0.05 s" {
		t.Errorf("got %q", got)
	}
}

// TestQuorum checks how many nodes may exit while all disks hang.
func TestQuorum(t *testing.T) {
	for all, mayEnd := range map[int]int{3: 1, 4: 1, 5: 2, 9: 4} {
		if !quorum(all-mayEnd, all) || quorum(all-mayEnd-1, all) {
			t.Errorf("of %d nodes not exactly %d may end", all, mayEnd)
		}
	}
}
