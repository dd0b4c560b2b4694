package meter_test

import (
	"context"
	"errors"
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

// cluster is a state that a meter proposes to. Every third answer is lost on its way.
type cluster struct {
	mu sync.Mutex

	state *statetest.State
	calls int
}

func (c *cluster) propose(_ context.Context, cmd command.Command) (command.Result, uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	result := c.state.Must(cmd)
	if c.calls++; c.calls%3 == 0 {
		return command.Result{}, 0, errors.New("the answer is lost")
	}
	return result, c.state.Index, nil
}

func (c *cluster) view(context.Context) (*fsm.View, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Machine.View(), nil
}

// TestMeterSettlesOnce has requests of one payer metered while answers are lost: each is
// charged once, most need no command of their own, and the highest cost must be set aside.
func TestMeterSettlesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{state: statetest.New(t)}
		m := meter.New(meter.Config{
			Node: c.state.Node, Propose: c.propose, Read: c.view, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
			At: func(ctx context.Context, _ uint64) (*fsm.View, error) { return c.view(ctx) },
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running, asking sync.WaitGroup
		running.Go(func() { _ = m.Run(ctx) })
		payer := compute.Payer{Org: c.state.Actor.Org, User: c.state.Actor.User, Key: c.state.Key}
		model := &compute.Model{ID: "chat", Prices: compute.TokenPrices{Prompt: compute.Credit / 3, Completion: compute.Credit}}
		for i := range 50 {
			asking.Go(func() {
				for n := range 20 {
					r, err := m.Reserve(ctx, payer, model, 100, 1000)
					if err != nil {
						t.Error(err)
						return
					}
					if (i+n)%5 == 0 {
						r.Cancel()
						continue
					}
					if err := r.Settle(ctx, 7, 11); err != nil {
						t.Error(err)
					}
					r.Cancel() // It is over.
				}
			})
		}
		asking.Wait()
		view, _ := c.view(ctx)
		total := view.TokenTotals(payer.Org)
		want := model.Prices.Cost(7*800, 11*800)
		if len(total) != 1 || total[0].Requests != 800 || total[0].Charged != want.Whole || total[0].Rest != want.Rest {
			t.Errorf("the total is %+v, want %+v", total, want)
		}
		if c.calls > 300 {
			t.Errorf("%d commands for 1000 requests", c.calls)
		}
		dear := *model
		dear.Prices.Completion = compute.MaxTokenPrice
		var refused *compute.Error
		_, err := m.Reserve(ctx, payer, &dear, 1, 2_000_000)
		if !errors.As(err, &refused) || refused.Detail != "insufficient_quota" {
			t.Errorf("more than there is: %v", err)
		}
		if r, err := m.Reserve(ctx, payer, model, 1, 1); err != nil {
			t.Error(err)
		} else {
			r.Cancel()
		}
		time.Sleep(2 * time.Minute) //nolint:forbidigo // The bubble's clock.
		if view, _ = c.view(ctx); view.TokenHold(c.state.Node, payer) != 0 {
			t.Error("an idle payer's credits stay set aside")
		}
		cancel()
		running.Wait()
		if err := view.Check(); err != nil {
			t.Error(err)
		}
	})
}

// TestRestartedNodeGivesHoldsBack ends a node while credits are set aside for its requests,
// and starts it again without a request that would ask for more. Answers are lost.
func TestRestartedNodeGivesHoldsBack(t *testing.T) {
	for lost := range 3 {
		synctest.Test(t, func(t *testing.T) {
			c := &cluster{state: statetest.New(t), calls: lost}
			payer := compute.Payer{Org: c.state.Actor.Org, User: c.state.Actor.User, Key: c.state.Key}
			model := &compute.Model{ID: "chat", Prices: compute.TokenPrices{Prompt: compute.Credit, Completion: compute.Credit}}
			start := func() (m *meter.Meter, stop func()) {
				m = meter.New(meter.Config{
					Node: c.state.Node, Propose: c.propose, Read: c.view, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
					At: func(ctx context.Context, _ uint64) (*fsm.View, error) { return c.view(ctx) },
				})
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { _ = m.Run(ctx) })
				return m, func() {
					cancel()
					running.Wait()
				}
			}
			m, stop := start()
			if _, err := m.Reserve(t.Context(), payer, model, 100, 1000); err != nil {
				t.Fatal(err)
			}
			stop()
			if view, _ := c.view(t.Context()); view.TokenHold(c.state.Node, payer) == 0 {
				t.Fatal("nothing is set aside")
			}
			m, stop = start()
			defer stop()
			time.Sleep(time.Second) //nolint:forbidigo // The bubble's clock.
			if view, _ := c.view(t.Context()); view.TokenHold(c.state.Node, payer) != 0 {
				t.Errorf("%s stays set aside", view.TokenHold(c.state.Node, payer))
			}
			r, err := m.Reserve(t.Context(), payer, model, 100, 1000)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Settle(t.Context(), 7, 11); err != nil {
				t.Error(err)
			}
			view, _ := c.view(t.Context())
			if total := view.TokenTotals(payer.Org); len(total) != 1 || total[0].Prompt != 7 || total[0].Completion != 11 {
				t.Errorf("the total is %+v", total)
			}
			if err := view.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}
