package meter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
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

// ending is a meter that is about to end.
type ending struct {
	*cluster

	meter   *meter.Meter
	payer   compute.Payer
	metrics *prometheus.Registry
	end     func() // Ends Run's context.
	ran     sync.WaitGroup
}

// newEnding starts a meter whose proposals fail as block says.
func newEnding(t *testing.T, block func(context.Context, command.Command) error) *ending {
	t.Helper()
	e := &ending{cluster: &cluster{state: statetest.New(t)}, metrics: prometheus.NewRegistry()}
	e.meter = meter.New(meter.Config{
		Node: e.state.Node, Read: e.view, Now: time.Now, Logger: slog.New(slog.DiscardHandler), Metrics: e.metrics,
		At: func(ctx context.Context, _ uint64) (*fsm.View, error) { return e.view(ctx) },
		Propose: func(ctx context.Context, cmd command.Command) (command.Result, uint64, error) {
			if err := block(ctx, cmd); err != nil {
				return command.Result{}, 0, err
			}
			if err := ctx.Err(); err != nil {
				return command.Result{}, 0, err
			}
			return e.state.Must(cmd), e.state.Index, nil
		},
	})
	var ctx context.Context
	ctx, e.end = context.WithCancel(t.Context())
	e.ran.Go(func() { _ = e.meter.Run(ctx) })
	e.payer = compute.Payer{Org: e.state.Actor.Org, User: e.state.Actor.User, Key: e.state.Key}
	return e
}

// reserve begins a request.
func (e *ending) reserve(t *testing.T) *meter.Reservation {
	t.Helper()
	return e.reserveOf(t, "chat")
}

// reserveOf begins a request to a model.
func (e *ending) reserveOf(t *testing.T, id string) *meter.Reservation {
	t.Helper()
	model := &compute.Model{ID: id, Prices: compute.TokenPrices{Prompt: compute.Credit, Completion: compute.Credit}}
	r, err := e.meter.Reserve(t.Context(), e.payer, model, 100, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// leave settles a request for a client that has left.
func leave(r *meter.Reservation) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.Settle(gone, 7, 11)
}

// charged returns the tokens that were charged.
func (e *ending) charged() (n int64) {
	for _, total := range e.state.Machine.View().TokenTotals(e.payer.Org) {
		n += total.Prompt + total.Completion
	}
	return n
}

// TestLastBatch ends a meter while a batch is under way, whose first answer is lost, and right
// after the usage of another client that left was settled: both are charged once.
func TestLastBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e *ending
		var second *meter.Reservation
		lost := false
		e = newEnding(t, func(_ context.Context, cmd command.Command) error {
			if settle, ok := cmd.(command.SettleTokens); !ok || len(settle.Usage) == 0 || lost {
				return nil
			}
			lost = true
			leave(second)
			e.end()
			e.state.Must(cmd)
			return errors.New("the answer is lost")
		})
		first := e.reserve(t)
		second = e.reserve(t)
		leave(first)
		if e.ran.Wait(); e.charged() != 36 || !lost {
			t.Errorf("%d tokens are charged, want 36", e.charged())
		}
	})
}

// TestLastBatches ends a meter with more rows of usage than fit into a command: all are
// charged.
func TestLastBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rows = 2001
		var e *ending
		var others []*meter.Reservation
		e = newEnding(t, func(_ context.Context, cmd command.Command) error {
			if settle, ok := cmd.(command.SettleTokens); ok && len(settle.Usage) > 0 {
				for _, r := range others {
					leave(r)
				}
				others = nil
				e.end()
			}
			return nil
		})
		first := e.reserve(t)
		for i := range rows {
			others = append(others, e.reserveOf(t, fmt.Sprintf("model %0*d", compute.MaxModelID-6, i)))
		}
		leave(first)
		if e.ran.Wait(); e.charged() != (rows+1)*18 {
			t.Errorf("%d tokens are charged, want %d", e.charged(), (rows+1)*18)
		}
	})
}

// TestBatchesAnswerTheirOwn settles more rows than fit into a command while the second batch is
// held up: those of the first are answered, and what the others used stays set aside.
func TestBatchesAnswerTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rows = 501
		begin, release := make(chan struct{}), make(chan struct{})
		var reserved []*meter.Reservation
		var answered atomic.Int64
		batches := 0
		e := newEnding(t, func(_ context.Context, cmd command.Command) error {
			if settle, ok := cmd.(command.SettleTokens); ok && len(settle.Usage) > 0 {
				if batches++; batches == 1 {
					<-begin
				} else {
					<-release
				}
			}
			return nil
		})
		for i := range rows + 1 {
			reserved = append(reserved, e.reserveOf(t, fmt.Sprint("model-", i)))
		}
		var settling sync.WaitGroup
		for _, r := range reserved {
			settling.Go(func() {
				if r.Settle(t.Context(), 7, 11) == nil {
					answered.Add(1)
				}
			})
			if r == reserved[0] {
				synctest.Wait() // It is a batch of its own, while which the others come.
			}
		}
		synctest.Wait()
		close(begin)
		synctest.Wait()
		if n := answered.Load(); n != 1 {
			t.Errorf("%d are answered before their batch", n)
		}
		left := e.meter.Reserved(e.payer) // For the one beyond the second batch.
		release <- struct{}{}
		synctest.Wait()
		if n := answered.Load(); n != rows {
			t.Errorf("%d are answered once the first %d are committed", n, rows)
		}
		close(release)
		settling.Wait()
		if left == 0 || e.meter.Reserved(e.payer) != 0 {
			t.Errorf("%s are set aside for what is in no batch, and %s at the end", left, e.meter.Reserved(e.payer))
		}
		e.end()
		e.ran.Wait()
	})
}

// TestManyPayers has more payers ask at once than a command has room for. All are admitted,
// and their holds are released when they ask nothing more.
func TestManyPayers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const payers = 1201
		e := newEnding(t, func(context.Context, command.Command) error { return nil })
		held := func() compute.Credits { return e.state.Machine.View().Account(e.payer.Org).Held }
		before := held() // For executions.
		model := &compute.Model{ID: "chat", Prices: compute.TokenPrices{Prompt: 1, Completion: 1}}
		var asking sync.WaitGroup
		for i := range payers {
			payer := e.payer
			payer.Key = compute.KeyID{UUID: compute.UUID{1, byte(i >> 8), byte(i)}}
			asking.Go(func() {
				r, err := e.meter.Reserve(t.Context(), payer, model, 100, 100)
				if err != nil {
					t.Error(err)
					return
				}
				r.Cancel()
			})
		}
		began := time.Now()
		asking.Wait()
		if time.Since(began) != 0 {
			t.Errorf("some are admitted after %s", time.Since(began))
		}
		if held() < before+payers {
			t.Error("nothing is set aside")
		}
		time.Sleep(time.Minute) //nolint:forbidigo // The bubble's clock.
		if synctest.Wait(); held() != before {
			t.Errorf("%s stay set aside", held()-before)
		}
		e.end()
		e.ran.Wait()
	})
}

// TestLastBatchIsBounded ends a meter that reaches no cluster: it gives the usage up after
// two seconds, and counts it as lost.
func TestLastBatchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnding(t, func(ctx context.Context, cmd command.Command) error {
			if settle, ok := cmd.(command.SettleTokens); ok && len(settle.Usage) > 0 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		leave(e.reserve(t))
		synctest.Wait() // The batch is under way.
		began := time.Now()
		e.end()
		if e.ran.Wait(); time.Since(began) != 2*time.Second {
			t.Errorf("it ends after %s", time.Since(began))
		}
		if lost := counter(t, e.metrics, "berth_inference_tokens_lost_total"); lost != 18 || e.charged() != 0 {
			t.Errorf("%v tokens are lost and %d charged, want 18 and none", lost, e.charged())
		}
	})
}
