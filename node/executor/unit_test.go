package executor

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"berth/compute"
	"berth/node/executor/journal"
	"berth/node/executor/live"
	"berth/node/executor/prepare"
	"berth/node/executor/supervise"
)

func TestSurplus(t *testing.T) {
	now := time.Now()
	old := func(age time.Duration, bytes int64) endedAttempt {
		return endedAttempt{ended: now.Add(-age), bytes: bytes}
	}
	most := Retain{Age: DefaultRetainAge, Bytes: DefaultRetainBytes}
	many := make([]endedAttempt, retainCount+10)
	for i := range many {
		many[i] = old(retainLeast+time.Duration(i+1)*time.Second, 1)
	}
	for _, test := range []struct {
		name string
		all  []endedAttempt
		want int
	}{
		{"few", []endedAttempt{old(time.Hour, 1), old(2*time.Hour, 1)}, 0},
		{"old", []endedAttempt{old(most.Age+time.Hour, 1), old(time.Hour, 1)}, 1},
		{"large", []endedAttempt{old(time.Hour, most.Bytes), old(2*time.Hour, 1)}, 1},
		{"large but just ended", []endedAttempt{old(time.Second, most.Bytes+1), old(2*time.Second, most.Bytes)}, 0},
		{"many", many, 10},
	} {
		got := surplus(test.all, most, retainCount, now)
		if len(got) != test.want {
			t.Errorf("%s: %d go, want %d", test.name, len(got), test.want)
		}
		for _, r := range got {
			if now.Sub(r.ended) <= retainLeast {
				t.Errorf("%s: one that ended just now goes", test.name)
			}
		}
	}
}

// TestCutOffStart checks how an attempt ends that was cut off before its start.
func TestCutOffStart(t *testing.T) {
	a := live.NewAttempt(live.Key{Epoch: 1}, 0, time.Now(), 0)
	e := &Executor{cfg: Config{Config: prepare.Config{Now: time.Now}}}
	if o := e.failedStart(a, live.ErrCutOff); o.Reason != compute.ReasonNodeLost || o.Ran {
		t.Errorf("it ends for %s, ran %v", o.Reason, o.Ran)
	}
}

func TestOutboxSurvives(t *testing.T) {
	dir := t.TempDir()
	logger := slog.New(slog.DiscardHandler)
	box, err := openOutbox(dir, logger)
	if err != nil {
		t.Fatal(err)
	}
	o := compute.Outcome{
		Execution: compute.ExecutionID{UUID: compute.UUID{9}}, Epoch: 3, Status: compute.StatusFailed,
		Reason: compute.ReasonTimeout, Detail: "time limit\nreached", Ran: true, ExitCode: 143,
		ExecletAt: 1, StartedAt: 2, EndedAt: 3, Duration: 4,
		Usage: compute.Usage{
			CPUTime: 5, PeakMemoryMiB: 6, GPUUtilPercent: 7, GPUMemoryMiB: 8, OutputBytes: 9, OutputLines: 10,
			PowerMilliW: 11, EnergyMilliJ: 12, Simulated: true, Samples: []compute.UsageSample{{AtMs: 13, UtilPercent: 14, MemoryMiB: 15, PowerWatt: 16}},
		},
	}
	second := o
	second.Status = compute.StatusCompleted
	for _, outcome := range []compute.Outcome{o, second} {
		if err := box.put(outcome, false); err != nil {
			t.Fatal(err)
		}
	}
	// A file of an interrupted write.
	if err := os.WriteFile(filepath.Join(dir, "x"+newSuffix), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	// And a corrupt file. The attempt's journal has its outcome.
	bad, err := journal.Encode(second)
	if err != nil {
		t.Fatal(err)
	}
	bad[len(bad)/2] ^= 1
	if err := os.WriteFile(filepath.Join(dir, "y"), bad, 0o600); err != nil {
		t.Fatal(err)
	}
	if box, err = openOutbox(dir, logger); err != nil {
		t.Fatal(err)
	}
	list, waiting := box.waiting(nil, 10)
	if waiting != 1 || len(list) != 1 || !reflect.DeepEqual(list[0], o) {
		t.Fatalf("the outbox has %+v, want %+v alone", list, o)
	}
	if err := box.remove(live.Key{Execution: o.Execution, Epoch: o.Epoch}); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || entries[0].Name() != "y"+badSuffix {
		t.Errorf("left are %v, %v; want the corrupt file", entries, err)
	}
}

// TestOutcomeIsSentWhenDiskIsFull checks that an outcome is sent even if it cannot be
// written to disk.
func TestOutcomeIsSentWhenDiskIsFull(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "outbox")
	box, err := openOutbox(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	o := compute.Outcome{Execution: compute.ExecutionID{UUID: compute.UUID{9}}, Epoch: 3}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := box.put(o, false); err == nil {
		t.Error("the error is missing")
	}
	if list, _ := box.waiting(nil, 10); len(list) != 1 {
		t.Errorf("%d outcomes wait to be sent, want 1", len(list))
	}
	if err := box.remove(live.Key{Execution: o.Execution, Epoch: o.Epoch}); err != nil {
		t.Errorf("the outcome is not removed: %v", err)
	}
}

// TestEndedAttemptDoesNotRestart checks that an attempt whose outcome is in the
// outbox does not count as new, even if a power failure removed its directory.
func TestEndedAttemptDoesNotRestart(t *testing.T) {
	dir := t.TempDir()
	box, err := openOutbox(filepath.Join(dir, outboxDir), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	o := compute.Outcome{Execution: compute.ExecutionID{UUID: compute.UUID{9}}, Epoch: 3}
	if err := box.put(o, false); err != nil {
		t.Fatal(err)
	}
	e := &Executor{cfg: Config{Config: prepare.Config{Now: time.Now}}, outbox: box, dirs: live.NewDirs(dir, nil)}
	if err := os.Mkdir(e.dirs.Root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := e.adoptAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	k := live.Key{Execution: o.Execution, Epoch: o.Epoch}
	if e.dirs.IsNew(k) || !box.has(k) {
		t.Errorf("it is new: %v; its outcome waits: %v", e.dirs.IsNew(k), box.has(k))
	}
}

// TestEarlierEpochIsEnded checks that an attempt that is missing in a state from
// before its placement keeps running, unless the state is of a later epoch of the
// cluster. A restore or a recovery may lower the index.
func TestEarlierEpochIsEnded(t *testing.T) {
	const placed = 100
	for _, test := range []struct {
		name  string
		epoch uint64 // Epoch of the attempt, with the cluster's in its high half.
		state Assigned
		want  compute.Stop
	}{
		{"an older state", 3, Assigned{Index: placed - 1}, compute.StopNone},
		{"a newer state", 3, Assigned{Index: placed}, compute.StopHard},
		{"an older state of the next epoch", 3, Assigned{Index: placed - 1, Life: 1}, compute.StopHard},
		{"an older state of the same later epoch", 1<<32 + 1, Assigned{Index: placed - 1, Life: 1}, compute.StopNone},
		{"a state of the previous epoch", 1<<32 + 1, Assigned{Index: placed - 1}, compute.StopNone},
	} {
		a := live.NewAttempt(live.Key{Execution: compute.ExecutionID{UUID: compute.UUID{1}}, Epoch: test.epoch}, placed, time.Now(), 0)
		e := &Executor{live: live.NewAttempts(newMetrics(nil).live)}
		e.live.Add(a)
		e.match(t.Context(), test.state)
		if a.Stopped() != test.want {
			t.Errorf("%s: it is stopped %v, want %v", test.name, a.Stopped(), test.want)
		}
	}
}

// TestOnlyAnnouncedEndsCountAsJournaled checks that the line of a journal stands for a
// file of the outbox only if its supervisor said that it is on disk, and if code ran.
func TestOnlyAnnouncedEndsCountAsJournaled(t *testing.T) {
	for _, test := range []struct {
		name                 string
		announced, ran, want bool
	}{
		{name: "announced", announced: true, ran: true, want: true},
		{name: "not announced", ran: true},
		{name: "never started", announced: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := &Executor{dirs: live.NewDirs(t.TempDir(), slog.New(slog.DiscardHandler))}
			k := live.Key{Execution: compute.ExecutionID{UUID: compute.UUID{9}}, Epoch: 1}
			name := e.dirs.File(k, supervise.JournalFile)
			if err := os.MkdirAll(e.dirs.Dir(k), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := journal.Create(name); err != nil {
				t.Fatal(err)
			}
			j, err := journal.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			if err := j.Ended(compute.Outcome{Execution: k.Execution, Epoch: k.Epoch, Ran: test.ran}); err != nil {
				t.Fatal(err)
			}
			_, end := e.settle(t.Context(), live.NewAttempt(k, 0, time.Now(), 0), test.announced)
			if end == nil || end.Ran != test.ran || end.journaled != test.want {
				t.Errorf("it ended as %+v, want journaled %v", end, test.want)
			}
		})
	}
}
