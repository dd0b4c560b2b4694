package meter_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/node/inference/meter"
	"berth/node/statetest"
)

// TestMeterKeepsRefusedUsage refuses the first batch with usage: it is repeated if that can
// pass and cannot count twice, and counted as lost otherwise.
func TestMeterKeepsRefusedUsage(t *testing.T) {
	for _, test := range []struct {
		name     string
		refusals []error
		kept     bool
	}{
		{"another session", []error{compute.Errorf(compute.CodeConflict, "x")}, true},
		{"rate", []error{compute.Errorf(compute.CodeRateLimited, "x")}, true},
		{"disk", []error{compute.Errorf(compute.CodeNoSpace, "x")}, true},
		{"lost answer, then another session", []error{errors.New("x"), compute.Errorf(compute.CodeConflict, "x")}, false},
		{"bad rows", []error{compute.Errorf(compute.CodeInvalid, "x")}, false},
		{"removed", []error{compute.Errorf(compute.CodeNotFound, "x")}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkRefused(t, test.refusals, test.kept) })
		})
	}
}

func checkRefused(t *testing.T, refusals []error, kept bool) {
	c := &cluster{state: statetest.New(t)}
	metrics := prometheus.NewRegistry()
	propose := func(_ context.Context, cmd command.Command) (command.Result, uint64, error) {
		if settle, ok := cmd.(command.SettleTokens); ok && len(settle.Usage) > 0 && len(refusals) > 0 {
			err := refusals[0]
			refusals = refusals[1:]
			return command.Result{}, 0, err
		}
		return c.state.Must(cmd), c.state.Index, nil
	}
	m := meter.New(meter.Config{
		Node: c.state.Node, Propose: propose, Read: c.view, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		At:      func(ctx context.Context, _ uint64) (*fsm.View, error) { return c.view(ctx) },
		Metrics: metrics,
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = m.Run(ctx) })
	payer := compute.Payer{Org: c.state.Actor.Org, User: c.state.Actor.User, Key: c.state.Key}
	model := &compute.Model{ID: "chat", Prices: compute.TokenPrices{Prompt: compute.Credit, Completion: compute.Credit}}
	r, err := m.Reserve(ctx, payer, model, 100, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Settle(ctx, 7, 11); err != nil {
		t.Fatal(err)
	}
	cancel()
	running.Wait()
	used, lost := int64(0), 18.0
	if kept {
		used, lost = 18, 0
	}
	var got int64
	for _, total := range c.state.Machine.View().TokenTotals(payer.Org) {
		got += total.Prompt + total.Completion
	}
	if counted := counter(t, metrics, "berth_inference_tokens_lost_total"); got != used || counted != lost {
		t.Errorf("%d tokens are charged and %v lost, want %d and %v", got, counted, used, lost)
	}
}

// counter returns the value of a counter.
func counter(t *testing.T, metrics prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
