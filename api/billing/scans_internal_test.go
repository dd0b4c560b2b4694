package billing

import (
	"context"
	"errors"
	"testing"

	"berth/api/edge"
	"berth/api/edge/answer"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/loop"
)

// TestScansShareTheProcessors checks that an organization computes one answer from
// many records at a time: while it does, its next one waits and uses no processor.
func TestScansShareTheProcessors(t *testing.T) {
	org := compute.OrgID{UUID: compute.UUID{1}}
	g := &billing{&handler.Core{Scans: loop.NewFairLimiter[compute.OrgID](2)}}
	ask := func(ctx context.Context) (verified, listed error) {
		r := &edge.Request{Ctx: ctx, View: fsm.New().View(), Query: &wire.HistoryQuery{Limit: 1}}
		r.Caller.Actor.Org = org
		_, verified = g.verifyLedger(r)
		history, err := g.history(r)
		if err != nil {
			t.Fatal(err)
		}
		done, listed := history.(answer.List).Scan(ctx)
		if listed == nil {
			done()
		}
		return verified, listed
	}
	done, err := g.Scans.Take(t.Context(), org)
	if err != nil {
		t.Fatal(err)
	}
	other, err := g.Scans.Take(t.Context(), compute.OrgID{})
	if err != nil {
		t.Fatalf("another organization waits: %v", err)
	}
	other()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if verified, listed := ask(ended); !errors.Is(verified, context.Canceled) || !errors.Is(listed, context.Canceled) {
		t.Errorf("beside another scan of the organization: %v, %v", verified, listed)
	}
	done()
	if verified, listed := ask(t.Context()); verified != nil || listed != nil {
		t.Errorf("alone: %v, %v", verified, listed)
	}
}
