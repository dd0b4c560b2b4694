package fsm_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

func TestWaitAndChanged(t *testing.T) {
	w := newWorld(t)
	now := w.index
	if v, err := w.fsm.Wait(t.Context(), now); err != nil || v.Index() != now {
		t.Fatalf("waiting for what is there: %v", err)
	}
	select {
	case <-w.fsm.Changed(now - 1):
	default:
		t.Error("a change that has happened is not said")
	}
	next, later := w.fsm.Changed(now), w.fsm.Changed(now+1)
	if w.fsm.Changed(now) != next {
		t.Error("asking again makes another channel")
	}
	select {
	case <-next:
		t.Error("a change is said that has not happened")
	default:
	}
	got := make(chan uint64)
	go func() {
		v, err := w.fsm.Wait(t.Context(), now+2)
		if err != nil {
			t.Error(err)
		}
		got <- v.Index()
	}()
	w.do()
	<-next
	select {
	case <-later:
		t.Error("a change is said that has not happened")
	default:
	}
	w.do()
	<-later
	if index := <-got; index != now+2 {
		t.Errorf("waited for %d, got %d", now+2, index)
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("the client went away")
	cancel(reason)
	if _, err := w.fsm.Wait(ctx, now+100); !errors.Is(err, reason) {
		t.Errorf("a wait that was given up: %v", err)
	}
}

func TestConfigurationEntriesAdvanceTheIndex(t *testing.T) {
	f := fsm.New()
	changed := f.Changed(4)
	f.StoreConfiguration(5, raft.Configuration{})
	<-changed
	if f.View().Index() != 5 {
		t.Errorf("index is %d", f.View().Index())
	}
	changed = f.Changed(5)
	out := f.ApplyBatch([]*raft.Log{{Index: 6, Type: raft.LogConfiguration}})
	<-changed
	if f.View().Index() != 6 || len(out) != 1 || out[0] != nil {
		t.Errorf("index is %d, responses %v", f.View().Index(), out)
	}
}

// TestReadersNeverDisturb reads everything while commands are applied. Under
// -race it proves that a view shares nothing that is written.
func TestReadersNeverDisturb(t *testing.T) {
	h := newHistorian(t, 7)
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for ctx.Err() == nil {
				v := h.view()
				if err := v.Check(); err != nil {
					t.Error(err)
					return
				}
				if err := v.WriteSnapshot(io.Discard); err != nil {
					t.Error(err)
				}
				v.Profiles()
				for range v.Live(h.org) {
				}
				for range v.Queue() {
				}
				if _, err := h.fsm.Wait(ctx, v.Index()+1); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	for range 300 {
		h.step()
	}
	cancel()
	readers.Wait()
}

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	reg := prometheus.NewPedanticRegistry()
	if err := w.fsm.Register(reg); err != nil {
		t.Fatal(err)
	}
	if err := w.fsm.Register(reg); err == nil {
		t.Error("registered twice")
	}
	w.complete(w.submit("t4"), "n3", time.Second)
	busy := w.submit("h100")
	w.submit("cpu")
	w.must(command.CommitPlan{Term: 1, Plan: compute.Plan{
		Waiting: []compute.Waiting{{Execution: busy, Reason: compute.ReasonGPUsBusy}},
	}})
	count, err := testutil.GatherAndCount(reg)
	if want := compute.Statuses*7 + 19 + 1 + 10 + 1 + 3 + 2; err != nil || count != want {
		t.Errorf("%d series, want %d: %v", count, want, err)
	}
	got := series(t, reg)
	for name, want := range map[string]float64{
		"berth_executions python completed": 1,
		"berth_executions python queued":    2,
		"berth_executions python failed":    0,
		"berth_queue_pending gpus_busy":     1,
		"berth_queue_pending scheduling":    1,
		"berth_queue_pending nodes_down":    0,
		"berth_ledger_held_microcredits":    60*900 + 60*15,
		"berth_state_format":                1,
		"berth_archives":                    0,
		"berth_archived_executions":         0,
		"berth_archives_overdue_executions": 0,
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s is %v, want %v", name, value, want)
		}
	}
}

// series returns the values of all series of reg, by name and label values in
// the order of the labels.
func series(t testing.TB, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return got
}

// TestUnderRaft drives the machine through a real raft of one voter: the
// commands, a snapshot, and a second process that starts from it.
func TestUnderRaft(t *testing.T) {
	logs, stable, snapshots := raft.NewInmemStore(), raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	start := func(f *fsm.FSM) *raft.Raft {
		t.Helper()
		conf := raft.DefaultConfig()
		conf.LocalID, conf.LogOutput, conf.TrailingLogs = "a", io.Discard, 0
		conf.HeartbeatTimeout = 50 * time.Millisecond
		conf.ElectionTimeout, conf.LeaderLeaseTimeout = conf.HeartbeatTimeout, conf.HeartbeatTimeout
		_, transport := raft.NewInmemTransport("a")
		if ok, _ := raft.HasExistingState(logs, stable, snapshots); !ok {
			voters := raft.Configuration{Servers: []raft.Server{{ID: "a", Address: "a"}}}
			if err := raft.BootstrapCluster(conf, logs, stable, snapshots, transport, voters); err != nil {
				t.Fatal(err)
			}
		}
		r, err := raft.NewRaft(conf, f, logs, stable, snapshots, transport)
		if err != nil {
			t.Fatal(err)
		}
		for leads := range r.LeaderCh() {
			if leads {
				break
			}
		}
		if err := r.Barrier(0).Error(); err != nil { // The first entry is in the log.
			t.Fatal(err)
		}
		return r
	}
	f := fsm.New()
	r := start(f)
	w := full(t)
	for _, entry := range w.entries {
		if err := r.Apply(entry, 0).Error(); err != nil {
			t.Fatal(err)
		}
	}
	want, err := f.Wait(t.Context(), r.LastIndex())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	if err := r.Shutdown().Error(); err != nil {
		t.Fatal(err)
	}
	again := fsm.New()
	r = start(again)
	defer func() { _ = r.Shutdown().Error() }()
	if again.View().Hash() != want.Hash() {
		t.Error("the state that was restored is another one")
	}
	if first, _ := logs.FirstIndex(); first <= uint64(len(w.entries)) {
		t.Errorf("the log still begins at %d: nothing was restored", first)
	}
}

// sink is a snapshot destination that fails.
type sink struct {
	failWriter
	cancelled, closed bool
}

func (s *sink) ID() string    { return "x" }
func (s *sink) Cancel() error { s.cancelled = true; return nil }
func (s *sink) Close() error  { s.closed = true; return nil }

func TestFailedSnapshotIsCancelled(t *testing.T) {
	w := full(t)
	snapshot, err := w.fsm.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Release()
	bad := &sink{failWriter: failWriter{n: 10}}
	if err := snapshot.Persist(bad); err == nil || !strings.Contains(err.Error(), "write snapshot") ||
		!bad.cancelled || bad.closed {
		t.Errorf("persist to a full disk: %v, %+v", err, bad)
	}
	good := &sink{failWriter: failWriter{n: 1 << 20}}
	if err := snapshot.Persist(good); err != nil || good.cancelled || !good.closed {
		t.Errorf("persist: %v, %+v", err, good)
	}
}
