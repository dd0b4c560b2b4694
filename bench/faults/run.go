package faults

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"berth/bench/faults/check"
	"berth/bench/faults/world"
	"berth/boottime"
	"berth/compute"
	"berth/loop"
)

// Limits of a run.
const (
	checkLimit   = 60 * time.Second // For each object.
	recoverLimit = 120 * time.Second
	finishLimit  = 5 * time.Minute
	firstGap     = 1 * time.Second // The shortest and the longest pause between faults.
	lastGap      = 4 * time.Second
)

// Run runs one seed and returns its report, with all violations. An
// error means that the run could not finish; the report then covers the time
// before. The report is empty, without a start time, if no cluster came up.
func Run(ctx context.Context, cfg Config) (report Report, err error) {
	if err := cfg.Validate(); err != nil {
		return Report{}, err
	}
	cfg = cfg.withDefaults()
	binary, err := digest(cfg.Binary)
	if err != nil {
		return Report{}, err
	}
	w, err := world.Open(ctx, world.Config{
		Dir: filepath.Join(cfg.Dir, fmt.Sprintf("seed-%d", cfg.Seed)), Binary: cfg.Binary, Nodes: cfg.Nodes,
		Workers: cfg.Workers, Plant: cfg.Plant, Points: cfg.Points,
	})
	if err != nil {
		return Report{}, fmt.Errorf("open world: %w", err)
	}
	defer func() { err = errors.Join(err, w.Close(context.WithoutCancel(ctx))) }()
	s := &session{
		cfg: cfg, world: w, tally: newTally(), refusals: map[string]int{}, final: map[string]*finalState{},
		begun: time.Now(), //nolint:forbidigo // Real processes have real time.
		boot:  int64(boottime.Now()), stopped: map[compute.ExecutionID]bool{},
	}
	s.history = check.NewHistory(s.now)
	defer s.close()
	if s.admin, err = patient(w, w.RootToken); err != nil {
		return Report{}, err
	}
	if err := s.createOrg(ctx, probeOrg); err != nil {
		return Report{}, err
	}
	report, err = s.run(ctx)
	report.Binary = binary
	return report, err
}

// digest identifies a program: the first 64 bits of the SHA-256 of its file.
func digest(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// run prepares, injects faults, repairs them and checks. A cluster that does
// not recover is a violation. After an error the report covers the time before.
func (s *session) run(ctx context.Context) (Report, error) {
	report := Report{
		Began: s.begun.UTC(), Seed: s.cfg.Seed, Nodes: s.cfg.Nodes, Plant: s.cfg.Plant,
		Violations: []check.Violation{},
	}
	err := s.injectAndCheck(ctx, &report)
	s.mu.Lock()
	defer s.mu.Unlock()
	report.Cells, report.Refusals = s.tally.cells(), s.refusals
	report.Violations = append(report.Violations, s.wrong...)
	return report, report.conclude(ctx, err)
}

// conclude records the error with which a run ended. A cluster that does not
// recover is a violation. Any other error is the reason why the run is
// unfinished. After the end of ctx it is neither.
func (r *Report) conclude(ctx context.Context, err error) error {
	if liveness, ok := errors.AsType[stuck](err); ok && ctx.Err() == nil {
		r.Violations = append(r.Violations, check.Violation{
			What: "recovery", Object: "cluster", Detail: liveness.Error(),
		})
		return nil
	}
	if err != nil {
		r.Unfinished = err.Error()
	}
	return err
}

// injectAndCheck injects the faults and checks the result. The error is stuck
// if the cluster does not recover.
func (s *session) injectAndCheck(ctx context.Context, report *Report) error {
	var all []workload
	for _, name := range s.cfg.Workloads {
		one := makers()[name](s)
		if err := one.prepare(ctx); err != nil {
			return fmt.Errorf("prepare workload %s: %w", name, err)
		}
		all = append(all, one)
	}
	if err := s.world.Flush(); err != nil {
		return err
	}
	begun := s.now()
	stop, err := s.load(ctx, all)
	if err != nil {
		return err
	}
	report.Faults, err = s.injectFaults(ctx)
	stop()
	report.Seconds = time.Duration(s.now() - begun).Seconds()
	if err != nil {
		return err
	}
	return s.finish(ctx, all, report)
}

// load starts the clients. stop ends them.
func (s *session) load(ctx context.Context, all []workload) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var clients sync.WaitGroup
	id := 0
	for _, w := range all {
		for range w.clients() {
			c, err := s.newCaller(id)
			if err != nil {
				cancel()
				return nil, err
			}
			id++
			clients.Go(func() { w.run(ctx, c) })
		}
	}
	return func() { cancel(); clients.Wait() }, nil
}

// injectFaults injects one fault after another until the time is over.
func (s *session) injectFaults(ctx context.Context) ([]Fault, error) {
	var chosen []nemesis
	for _, n := range nemeses() {
		for _, name := range s.cfg.Nemeses {
			if n.name == name {
				chosen = append(chosen, n)
			}
		}
	}
	rng := s.random("schedule", 0)
	plan := newSchedule(rng, chosen)
	var faults []Fault
	begun := s.now()
	until := begun + int64(s.cfg.Duration)
	for s.now() < until && (s.cfg.Count == 0 || len(faults) < s.cfg.Count) {
		n, gap := plan.next(time.Duration(s.now()-begun)), between(rng, firstGap, lastGap)
		hold := between(rng, n.hold[0], n.hold[1])
		own := rand.New(rand.NewPCG(rng.Uint64(), 0)) //nolint:gosec // A seed must repeat it.
		if s.cfg.Hold > 0 {
			hold = s.cfg.Hold
		}
		if !loop.Sleep(ctx, gap) {
			return faults, ctx.Err()
		}
		f, err := s.injectOne(ctx, n, own, hold)
		if _, ok := errors.AsType[stuck](err); ok {
			return append(faults, f), err
		}
		if err != nil {
			return faults, fmt.Errorf("nemesis %s: %w", n.name, err)
		}
		faults = append(faults, f)
		fmt.Fprintf(s.cfg.Progress, "berth: %6.1f s: %-18s %s held %.1f s, first write after %.2f s, whole after %.1f s %s\n",
			f.At, f.Nemesis, f.Node, f.Held, f.Write, f.Whole, f.summary())
	}
	return faults, nil
}

// between returns a random duration in a range.
func between(rng *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(rng.Int64N(int64(to-from)+1))
}

// injectOne injects one fault, holds it, repairs it and waits until the cluster
// is whole and accepts writes.
func (s *session) injectOne(ctx context.Context, n nemesis, rng *rand.Rand, hold time.Duration) (Fault, error) {
	b := &breaker{world: s.world, rng: rng, leader: s.world.Leader(ctx), hold: hold}
	if b.leader == nil {
		b.leader = s.world.Nodes[0]
	}
	if n.isLong() {
		if err := b.aim(ctx); err != nil {
			return Fault{Nemesis: n.name}, err
		}
	}
	f := Fault{Nemesis: n.name, At: time.Duration(s.now()).Seconds(), Node: b.leader.Name}
	begun := s.now()
	term, known := s.world.Term(ctx)
	ended := s.tally.begin(n.name)
	defer ended()
	broken, full := s.now(), s.tally.noSpace()
	f.from = broken
	repair, err := n.inject(ctx, b)
	f.On = b.on
	if err != nil {
		return f, err
	}
	defer func() { s.violate(b.wrong) }()
	// A write sent during the injection does not show the fault's effect.
	held := s.now()
	first := s.tally.watch(broken, held)
	defer s.probing(ctx, first)()
	if !loop.Sleep(ctx, hold) {
		return f, errors.Join(ctx.Err(), repair(context.WithoutCancel(ctx)))
	}
	f.Latency = s.tally.latency(begun, held, s.now(), b.slow)
	err = repair(ctx)
	repaired := s.now()
	f.Held, f.Note, f.Missed = time.Duration(repaired-begun).Seconds(), b.note, b.missed
	f.NoSpace = s.tally.noSpace() - full
	if err != nil {
		return f, err
	}
	if b.recover != nil {
		err = b.recover(ctx)
		f.Note = b.note
		if err != nil {
			return f, err
		}
	}
	waiting, cancel := context.WithTimeout(ctx, recoverLimit*time.Duration(s.cfg.Slow))
	defer cancel()
	if err := s.world.WaitWhole(waiting); err != nil {
		return f, stuck{fmt.Errorf("after %s %s: %w", n.name, b.note, err)}
	}
	f.Whole = time.Duration(s.now() - repaired).Seconds()
	if err := s.takesWrites(waiting); err != nil {
		return f, stuck{fmt.Errorf("after %s %s: %w", n.name, b.note, err)}
	}
	took, _ := first.took() // Set by the write above at the latest.
	f.Write = took.Seconds()
	if now, still := s.world.Term(ctx); known && still {
		f.Elections = int(now - term) //nolint:gosec // Terms are few.
	}
	if hold >= gossipSplit {
		f.Gossip = s.gossipMeets(ctx, repaired).Seconds()
	}
	s.tally.forgetWrites(s.now())
	f.over = s.now()
	return f, nil
}

// stuck is a violation of liveness: the cluster does not recover after a
// repair, or does not finish its work at the end.
type stuck struct{ error }

// finish checks everything after the clients have ended. The error is stuck if
// the cluster does not answer, or executions do not end.
func (s *session) finish(ctx context.Context, all []workload, report *Report) error {
	ctx, cancel := context.WithTimeout(ctx, finishLimit*time.Duration(s.cfg.Slow))
	defer cancel()
	if err := s.world.WaitWhole(ctx); err != nil {
		return stuck{fmt.Errorf("at the end: %w", err)}
	}
	s.gossipMeets(ctx, s.now())
	for _, step := range []func() ([]check.Violation, error){
		func() ([]check.Violation, error) { return s.checkLedgers(ctx, report) },
		func() ([]check.Violation, error) { return s.checkStates(ctx, report) },
		func() ([]check.Violation, error) { return s.checkMarks(ctx, report) },
	} {
		wrong, err := step()
		report.Violations = append(report.Violations, wrong...)
		if err != nil {
			return err
		}
	}
	for _, w := range all {
		report.Violations = append(report.Violations, w.finish(ctx)...)
	}
	for _, name := range s.tally.idle(s.cfg.Workloads) {
		report.Violations = append(report.Violations, check.Violation{
			What: "vacuous", Object: "workload " + name, Detail: "no operation of its clients was completed",
		})
	}
	searched, wrong := s.history.Check(checkLimit)
	report.Objects, report.Checked = searched.Objects, searched.Operations
	if err := s.dump(wrong); err != nil {
		return err
	}
	report.Violations = append(report.Violations, wrong...)
	return nil
}

// dump writes the histories of objects with violations beside the nodes' data.
func (s *session) dump(wrong []check.Violation) error {
	for _, v := range wrong {
		text := v.String() + "\n\n" + s.history.Text(v.Object)
		path := filepath.Join(s.cfg.Dir, "history of "+v.Object)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
