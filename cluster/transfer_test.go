package cluster_test

import (
	"errors"
	"testing"

	"berth/compute"
)

func TestTransferOnRequest(t *testing.T) {
	f := mustFleet(t, 3, nil)
	first := f.leader()
	other := f.follower(first)
	wantRefusal := func(p *peer, to compute.NodeID, code compute.Code, detail string) {
		t.Helper()
		_, err := p.Transfer(t.Context(), to)
		e, ok := errors.AsType[*compute.Error](err)
		if !ok || e.Code != code || e.Detail != detail {
			t.Errorf("transfer to %s: %v, want %s %s", to, err, code, detail)
		}
	}
	wantRefusal(other, newID(), compute.CodeNotFound, "")
	if now, err := other.Transfer(t.Context(), first.ID()); err != nil || now != first.ID() {
		t.Errorf("to the one that leads: %s, %v", now, err)
	}
	// A follower takes over the leadership.
	now, err := other.Transfer(t.Context(), other.ID())
	if err != nil || now != other.ID() {
		t.Fatalf("got leader %s, %v, want %s", now, err, other.ID())
	}
	eventually(t, "the follower leads", func() bool { return other.IsLeader() })
	first.mustPropose(t, toyCommand{Op: "after", Key: "k", Value: 1})
	// Transfer it back; after that both processes refuse another transfer.
	if now, err = first.Transfer(t.Context(), first.ID()); err != nil || now != first.ID() {
		t.Fatalf("got leader %s, %v, want %s", now, err, first.ID())
	}
	eventually(t, "the first one leads again", func() bool { return first.IsLeader() })
	wantRefusal(other, other.ID(), compute.CodeConflict, "transfer_spent")
	wantRefusal(first, compute.NodeID{}, compute.CodeConflict, "transfer_spent")
	other.mustPropose(t, toyCommand{Op: "last", Key: "k", Value: 2})
}

func TestTransferToWhoeverIsBest(t *testing.T) {
	f := mustFleet(t, 2, nil)
	first := f.leader()
	other := f.follower(first)
	now, err := first.Transfer(t.Context(), compute.NodeID{})
	if err != nil || now != other.ID() {
		t.Fatalf("got leader %s, %v, want %s", now, err, other.ID())
	}
}

func TestTransferNeedsAnotherVoter(t *testing.T) {
	f := mustFleet(t, 1, nil)
	_, err := f.peers[0].Transfer(t.Context(), compute.NodeID{})
	if e, ok := errors.AsType[*compute.Error](err); !ok || e.Detail != "nobody_to_lead" {
		t.Errorf("got %v", err)
	}
}
