package meter_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/node/inference/meter"
	"berth/node/statetest"
)

// TestShortRequestsRenewTheHold has a payer ask a short request now and then, so that nothing
// is reserved when the meter sweeps: its hold is asked for again all the same, and stays.
func TestShortRequestsRenewTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := statetest.New(t)
		c := &cluster{state: state}
		var mu sync.Mutex
		asked := 0
		m := meter.New(meter.Config{
			Node: state.Node, Read: c.view, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
			At: func(ctx context.Context, _ uint64) (*fsm.View, error) { return c.view(ctx) },
			Propose: func(_ context.Context, cmd command.Command) (command.Result, uint64, error) {
				mu.Lock()
				defer mu.Unlock()
				if settle, ok := cmd.(command.SettleTokens); ok {
					asked += len(settle.Holds)
				}
				return state.Must(cmd), state.Index, nil
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = m.Run(ctx) })
		payer := compute.Payer{Org: state.Actor.Org, User: state.Actor.User, Key: state.Key}
		model := &compute.Model{ID: "chat", Prices: compute.TokenPrices{Prompt: compute.Credit, Completion: compute.Credit}}
		for range 60 { // Ten minutes.
			r, err := m.Reserve(ctx, payer, model, 100, 1000)
			if err != nil {
				t.Fatal(err)
			}
			r.Cancel()
			time.Sleep(10 * time.Second) //nolint:forbidigo // The bubble's clock.
		}
		cancel()
		running.Wait()
		view, _ := c.view(t.Context())
		if asked < 5 || view.TokenHold(state.Node, payer) == 0 {
			t.Errorf("the hold was asked for %d times in ten minutes, and is %s", asked, view.TokenHold(state.Node, payer))
		}
	})
}
