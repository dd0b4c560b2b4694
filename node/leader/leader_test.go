package leader

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"berth/attempt"
	"berth/cluster/raftconf"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/node/progress"
	"berth/node/statetest"
)

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

// TestProgressOf holds that nodes are asked for no more runs at once than a call may
// ask for, and that all that do not answer cost one wait together.
func TestProgressOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := func(n byte) compute.NodeID { return compute.NodeID{UUID: compute.UUID{n}} }
		const runs = 2*progress.MaxRuns + 1
		questions := map[compute.NodeID][]progress.Run{id(1): nil, id(2): {{}}, id(3): {{}}}
		for i := range runs {
			execution := compute.ExecutionID{UUID: compute.UUID{1, byte(i >> 8), byte(i)}}
			questions[id(1)] = append(questions[id(1)], progress.Run{Execution: execution})
		}
		l := &Leader{Logger: slog.New(slog.DiscardHandler)}
		l.Progress = func(ctx context.Context, node compute.NodeID, asked []progress.Run) ([]progress.Run, error) {
			if len(asked) > progress.MaxRuns {
				t.Errorf("asked for %d runs at once", len(asked))
			}
			if node != id(1) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return asked, nil
		}
		start := time.Now()
		if got := l.progressOf(t.Context(), questions); len(got) != runs {
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

// TestUnknownServer holds that the format of the state waits for a server that
// was removed and still has a replica: nobody knows what that can apply.
func TestUnknownServer(t *testing.T) {
	l := statetest.New(t)
	known, removed := raftconf.Server{ID: l.Node, Voter: true}, raftconf.Server{ID: compute.NodeID{UUID: compute.UUID{77}}}
	for _, test := range []struct {
		name    string
		servers []raftconf.Server
		want    bool
	}{
		{"all are registered", []raftconf.Server{known}, false},
		{"one was removed and is still there", []raftconf.Server{known, removed}, true},
	} {
		if got := unknownServer(l.Machine.View(), test.servers); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestUntilCaughtUp has the state go through a day in which nobody led.
func TestUntilCaughtUp(t *testing.T) {
	const day = 24 * time.Hour
	for _, test := range []struct {
		name  string
		away  time.Duration
		moves bool
		ticks int
	}{
		{"not for long", stateLag - time.Millisecond, true, 0},
		{"an hour", time.Hour, true, 12},
		{"a day", day, true, 288},
		{"back", -day, true, 0},
		{"the state does not move", day, false, 1},
	} {
		l := statetest.New(t)
		now, ticks := l.Machine.View().Now().Add(test.away), 0
		behind := func() time.Duration { return now.Sub(l.Machine.View().Now()) }
		err := untilCaughtUp(behind, func() error {
			if ticks++; test.moves {
				l.Must(command.Clock{At: now, Term: 1})
			}
			return nil
		})
		if err != nil || ticks != test.ticks || test.moves && behind() >= stateLag {
			t.Errorf("%s: %d ticks, want %d; %s behind, %v", test.name, ticks, test.ticks, behind(), err)
		}
	}
	failed := errors.New("no quorum")
	if err := untilCaughtUp(func() time.Duration { return day }, func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("it says %v, want %v", err, failed)
	}
}

// TestRest is how long a leader places nothing that follows another one in a life
// of the cluster, whatever its clock says.
func TestRest(t *testing.T) {
	const rest = attempt.Lease + attempt.Margin
	l := statetest.New(t)
	if got := restFor(l.Machine.View(), 0); got != 0 {
		t.Errorf("in the first life it waits for %s", got)
	}
	if got := restFor(l.Machine.View(), 1); got != rest {
		t.Errorf("in the life that it began it waits for %s, want %s", got, rest)
	}
	for _, test := range []struct {
		name   string
		step   time.Duration // Step of the state's clock.
		placed bool
		want   time.Duration
	}{
		{"the next one", 0, false, rest},
		{"its clock is ahead", 5 * time.Minute, false, rest},
		{"the life is old", 2 * time.Hour, false, 0},
		{"the one before has placed something", 0, true, 0},
	} {
		l := statetest.New(t)
		l.Must(command.RaiseEpoch{Term: 1, Epoch: 1, Cause: command.CauseRecovered, At: l.Machine.View().Now()})
		for end := l.Machine.View().Now().Add(test.step); l.Machine.View().Now() < end; {
			l.Must(command.Clock{At: end, Term: 1})
		}
		if test.placed {
			l.Must(command.SetNodeState{Term: 1, Node: l.Node, State: compute.NodeUp})
			l.Must(command.CommitPlan{Term: 1, Plan: compute.Plan{Assignments: []compute.Assignment{{
				Execution: l.Waiting[0], Node: l.Node, GPUs: []compute.GPUShare{{GPU: "A", Milli: compute.WholeGPU}},
			}}}})
		}
		if got := restFor(l.Machine.View(), 1); got != test.want {
			t.Errorf("%s: it waits for %s, want %s", test.name, got, test.want)
		}
	}
}
