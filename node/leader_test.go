package node

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"berth/compute"
	"berth/fsm"
)

func TestOverdueIsGraceAndMargin(t *testing.T) {
	work := func(grace time.Duration) compute.Work {
		return compute.Work{
			Attempt:   &compute.Attempt{Epoch: uint64(grace / time.Second)},
			Execution: &compute.Execution{DisconnectGrace: grace},
		}
	}
	all := []compute.Work{work(time.Second), work(10 * time.Minute)} // A second counts as the least grace.
	tests := []struct {
		name   string
		silent time.Duration
		want   []uint64 // Epochs, which are the graces in seconds.
	}{
		{"within the margin of the shortest", 25 * time.Second, nil},
		{"past the shortest", 26 * time.Second, []uint64{1}},
		{"at the longest grace", 10 * time.Minute, []uint64{1}},
		{"past all", 11 * time.Minute, []uint64{1, 600}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := overdue(all, test.silent)
			if len(got) != len(test.want) {
				t.Fatalf("got %v, want epochs %v", got, test.want)
			}
			for i, ref := range got {
				if ref.Epoch != test.want[i] {
					t.Errorf("got epoch %d, want %d", ref.Epoch, test.want[i])
				}
			}
		})
	}
}

func TestRootTokenIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	first, err := rootToken(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := rootToken(dir)
	if err != nil || again != first || len(first) < 40 {
		t.Errorf("got %q and %q (%v), want one long token", first, again, err)
	}
	other, err := rootToken(t.TempDir())
	if err != nil || other == first {
		t.Errorf("two clusters have the token %q (%v)", other, err)
	}
}

// TestPaces holds that nodes are asked for no more runs at once than a call may
// ask for, and that all that do not answer cost one wait together.
func TestPaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := func(n byte) compute.NodeID { return compute.NodeID{UUID: compute.UUID{n}} }
		const runs = 2*progressRuns + 1
		questions := map[compute.NodeID][]progressRun{id(1): nil, id(2): {{}}, id(3): {{}}}
		for i := range runs {
			execution := compute.ExecutionID{UUID: compute.UUID{1, byte(i >> 8), byte(i)}}
			questions[id(1)] = append(questions[id(1)], progressRun{Execution: execution})
		}
		l := &leader{logger: slog.New(slog.DiscardHandler)}
		l.progress = func(ctx context.Context, node compute.NodeID, asked []progressRun) ([]progressRun, error) {
			if len(asked) > progressRuns {
				t.Errorf("asked for %d runs at once", len(asked))
			}
			if node != id(1) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return asked, nil
		}
		start := time.Now()
		if got := l.paces(t.Context(), questions); len(got) != runs {
			t.Errorf("%d runs are known, want %d", len(got), runs)
		}
		if waited := time.Since(start); waited != progressWait {
			t.Errorf("two silent nodes cost %v, want %v", waited, progressWait)
		}
	})
}

func TestTicksUntilSwept(t *testing.T) {
	forgotten := []int{fsm.RetirePerTick, fsm.RetirePerTick, 7}
	calls := 0
	err := untilSwept(func() (int, error) { calls++; return forgotten[calls-1], nil })
	if err != nil || calls != len(forgotten) {
		t.Errorf("%d ticks, %v; want %d", calls, err, len(forgotten))
	}
	lost := errors.New("no leader")
	if err := untilSwept(func() (int, error) { return 0, lost }); !errors.Is(err, lost) {
		t.Errorf("got %v, want %v", err, lost)
	}
}
