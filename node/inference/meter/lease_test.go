package meter_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// TestHoldsAreLeases cuts a meter off that has credits set aside: it admits requests for a while,
// and none once the cluster may have released the hold. Then it goes on where the cluster answers.
func TestHoldsAreLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cut atomic.Bool
		e := newEnding(t, func(context.Context, command.Command) error {
			if cut.Load() {
				return errors.New("no leader")
			}
			return nil
		})
		defer e.ran.Wait()
		defer e.end()
		model := &compute.Model{ID: "chat", Prices: compute.TokenPrices{Prompt: compute.Credit, Completion: compute.Credit}}
		ask := func(prompt int64) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			r, err := e.meter.Reserve(ctx, e.payer, model, prompt, 0)
			if err == nil {
				r.Cancel()
			}
			return err
		}
		held := e.reserve(t) // It is under way all the time.
		defer held.Cancel()
		cut.Store(true)
		time.Sleep(time.Minute) //nolint:forbidigo // The bubble's clock.
		if err := ask(100); err != nil {
			t.Errorf("a minute after the hold was made: %v", err)
		}
		time.Sleep(time.Minute) //nolint:forbidigo // The bubble's clock.
		if err := ask(100); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("when the lease has ended: %v", err)
		}
		if err := ask(0); err != nil {
			t.Errorf("a request that costs nothing: %v", err)
		}
		cut.Store(false)
		if err := ask(100); err != nil {
			t.Errorf("when the cluster answers again: %v", err)
		}
	})
}

// TestUnchargedUse has the use of a request pass what its payer has: the node counts the rest.
func TestUnchargedUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnding(t, func(context.Context, command.Command) error { return nil })
		n, _ := e.state.Machine.View().Node(e.state.Node)
		known := *n
		known.Format = format.Newest
		e.state.Must(command.RegisterNode{Node: known})
		e.state.Must(command.SetFormat{Term: 1, Format: format.Newest})
		const dear = 1000 * compute.Credit
		model := &compute.Model{ID: "chat", Prices: compute.TokenPrices{Prompt: dear}}
		free := e.state.Machine.View().Account(e.payer.Org).Available()
		r, err := e.meter.Reserve(t.Context(), e.payer, model, 100, 0)
		if err != nil {
			t.Fatal(err)
		}
		more := (free + compute.Credit) / 1000 // Tokens, for a credit more than there is.
		if err := r.Settle(t.Context(), int64(more), 0); err != nil {
			t.Fatal(err)
		}
		e.end()
		e.ran.Wait()
		if got := counter(t, e.metrics, "berth_inference_credits_uncharged_total"); got != 1 {
			t.Errorf("%v credits are not charged, want 1", got)
		}
	})
}
