package sweep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/bench/faults/check"
	"berth/bench/faults/world"
	"berth/fault"
)

// Limits of a trial.
const (
	reachLimit  = 90 * time.Second // For the point to be reached; some take a lease and its margin.
	turnLimit   = 5 * time.Second  // For one wave to reach it, before the next target is tried.
	healLimit   = 2 * time.Minute  // For the cluster to be whole again.
	lookLimit   = 5 * time.Second  // Between looks for nodes that have ended while all are waited for.
	pollEvery   = 20 * time.Millisecond
	snapshotsAt = "snapshot_every=40" // Entries: compaction comes within seconds in place of days.

	finishedStay = "20" // Executions that ended stay in the state, the others are in archives at once.
)

// Config says what is swept.
type Config struct {
	Dir      string   // For logs and data; made.
	Binary   string   // A berth program built with -tags faults.
	Points   []string // nil for all.
	Exits    bool     // Leave out the trials with errors.
	Progress io.Writer
}

// Trial is a point with what is armed there.
type Trial struct {
	Point  string `json:"point"`
	Action string `json:"action"` // As in BERTH_FAULTS.
}

// Result is what came of a trial.
type Result struct {
	Trial

	Node        string  `json:"node"` // Where the point was reached; "" if it was not.
	Seconds     float64 `json:"seconds"`
	Submits     int     `json:"submits"`
	Interrupted int     `json:"interrupted"` // Executions that ended as a system failure.
}

// Report is what a sweep found.
type Report struct {
	Began      time.Time         `json:"began"`
	Seconds    float64           `json:"seconds"`
	Results    []Result          `json:"results"`
	Submits    int               `json:"submits"`
	Starts     int               `json:"starts"` // Of code.
	Violations []check.Violation `json:"violations"`
}

// Trials returns every point with exit, and those that can fail with errors
// too.
func Trials() []Trial {
	var all []Trial
	for _, p := range fault.Points() {
		all = append(all, Trial{p.Name, "exit@1"})
		if !p.Fails {
			continue
		}
		all = append(all, Trial{p.Name, "error:ENOSPC@1"})
		if strings.HasPrefix(p.Name, "disk.") {
			all = append(all, Trial{p.Name, "error:EIO@1"})
		}
	}
	return all
}

// trials returns those of the configuration, or what is wrong with it.
func (c Config) trials() ([]Trial, error) {
	known := Trials()
	for _, name := range c.Points {
		if !slices.ContainsFunc(known, func(t Trial) bool { return t.Point == name }) {
			return nil, fmt.Errorf("there is no point %q", name)
		}
	}
	return slices.DeleteFunc(known, func(t Trial) bool {
		return len(c.Points) > 0 && !slices.Contains(c.Points, t.Point) || c.Exits && t.Action != "exit@1"
	}), nil
}

// Sample returns n points of those that a busy cluster reaches by itself, as
// the seed has it.
func Sample(seed uint64, n int) []string {
	var quick []string
	for _, p := range fault.Points() {
		if scenarioOf(p.Name).quick {
			quick = append(quick, p.Name)
		}
	}
	rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // A seed must repeat it.
	rng.Shuffle(len(quick), func(i, j int) { quick[i], quick[j] = quick[j], quick[i] })
	return quick[:min(n, len(quick))]
}

// Run makes a cluster, tries every point and checks. Violations are in the
// report, not in the error: an error means that the sweep itself could not go on.
func Run(ctx context.Context, cfg Config) (report Report, err error) {
	trials, err := cfg.trials()
	if err != nil {
		return Report{}, err
	}
	began := time.Now() //nolint:forbidigo // Real processes have real time.
	w, err := world.Open(ctx, world.Config{Dir: cfg.Dir, Binary: cfg.Binary, Nodes: 3})
	if err != nil {
		return Report{}, fmt.Errorf("make world: %w", err)
	}
	defer func() { err = errors.Join(err, w.Close(context.WithoutCancel(ctx))) }()
	s := &sweep{cfg: cfg, world: w, report: Report{Began: began.UTC(), Violations: []check.Violation{}}}
	if err := s.prepare(ctx); err != nil {
		return s.report, err
	}
	for _, t := range trials {
		switch err := s.one(ctx, t); {
		case errors.Is(err, errGivenUp):
			return s.report, nil
		case err != nil:
			return s.report, fmt.Errorf("%s=%s: %w", t.Point, t.Action, err)
		}
	}
	err = s.finish(ctx)
	s.report.Seconds = time.Since(began).Seconds()
	return s.report, err
}

// errGivenUp ends a sweep whose cluster does not come back.
var errGivenUp = errors.New("the cluster does not come back")

// sweep is one run.
type sweep struct {
	cfg    Config
	world  *world.World
	report Report
	bench  bench // What works on the cluster.

	turn int // Counts targets, so that trials do not all pick the first node.
}

// prepare gives every node rules of its own, and makes who works.
func (s *sweep) prepare(ctx context.Context) error {
	for i, n := range s.world.Nodes {
		n.Env = []string{
			"BERTH_FAULTS=" + snapshotsAt, "BERTH_FAULTS_FILE=" + s.rules(n), "BERTH_FAULTS_LOG=" + s.hits(n),
			// Each leader has settings of its own to put into the state.
			fmt.Sprintf("BERTH_LIMITS_CONCURRENT=%d", 1000+i),
			"BERTH_RETENTION_COUNT=" + finishedStay,
		}
		if err := s.restart(ctx, n); err != nil {
			return err
		}
	}
	return s.bench.open(ctx, s.world)
}

// one tries one point.
func (s *sweep) one(ctx context.Context, t Trial) error {
	began := time.Now() //nolint:forbidigo // Real processes have real time.
	s.bench.begin()
	reach, cancel := context.WithTimeout(ctx, reachLimit)
	at, err := scenarioOf(t.Point).reach(reach, s, t)
	cancel()
	if err != nil && ctx.Err() == nil {
		s.wrong("not done", t, "%v", err)
	}
	if err = s.heal(ctx); err != nil && ctx.Err() == nil {
		s.wrong("not whole", t, "%v", err)
		return errGivenUp
	}
	result := Result{Trial: t, Node: at}
	if err == nil {
		result.Submits, result.Interrupted, err = s.verify(ctx, t)
	}
	if err != nil {
		return err
	}
	if at == "" {
		s.wrong("not reached", t, "nothing came to the point")
	}
	result.Seconds = time.Since(began).Seconds()
	s.report.Results = append(s.report.Results, result)
	fmt.Fprintf(s.cfg.Progress, "berth: %-32s %-14s %-3s %5.1f s, %d submits, %d interrupted, %d violations\n",
		t.Point, t.Action, at, result.Seconds, result.Submits, result.Interrupted, len(s.report.Violations))
	return nil
}

func (s *sweep) wrong(what string, t Trial, format string, args ...any) {
	s.report.Violations = append(s.report.Violations, check.Violation{
		What: what, Object: t.Point + "=" + t.Action, Detail: fmt.Sprintf(format, args...),
	})
}

// heal disarms everything, starts what has ended and waits until the cluster is
// whole. A node that was about to end may do so while it is waited for.
func (s *sweep) heal(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healLimit)
	defer cancel()
	for {
		if err := s.disarm(); err != nil {
			return err
		}
		for _, n := range s.world.Nodes {
			if err := n.Start(ctx); err != nil {
				return err
			}
		}
		look, stop := context.WithTimeout(ctx, lookLimit)
		err := s.world.WaitWhole(look)
		stop()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// restart ends a node gracefully and starts it again, and waits until the
// cluster is whole.
func (s *sweep) restart(ctx context.Context, n *world.Node) error {
	ctx, cancel := context.WithTimeout(ctx, healLimit)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		return err
	}
	if err := n.Start(ctx); err != nil {
		return err
	}
	return s.world.WaitWhole(ctx)
}

func (s *sweep) rules(n *world.Node) string { return filepath.Join(s.cfg.Dir, n.Name+".rules") }

func (s *sweep) hits(n *world.Node) string { return filepath.Join(s.cfg.Dir, n.Name+".hits") }
