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
	reachLimit  = 90 * time.Second // Until the point is reached; some points need a lease and its margin to pass.
	waveLimit   = 5 * time.Second  // For one wave to reach the point, before the next target.
	healLimit   = 2 * time.Minute  // Until the cluster is whole again.
	pollLimit   = 5 * time.Second  // Poll interval for exited nodes.
	pollEvery   = 20 * time.Millisecond
	snapshotsAt = "snapshot_every=40" // In entries: compaction comes within seconds instead of days.

	finishedStay = "20" // Ended executions in the state; older ones go to archives at once.
)

// Config configures a sweep.
type Config struct {
	Dir      string   // For logs and data; created.
	Binary   string   // A berth program built with -tags faults.
	Points   []string // Nil for all.
	Exits    bool     // Omit the trials with errors.
	Progress io.Writer
}

// Trial is a point and its armed action.
type Trial struct {
	Point  string `json:"point"`
	Action string `json:"action"` // In the syntax of BERTH_FAULTS.
}

// Result is the result of a trial.
type Result struct {
	Trial

	Node        string  `json:"node"` // The node that reached the point; "" for none.
	Seconds     float64 `json:"seconds"`
	Submits     int     `json:"submits"`
	Interrupted int     `json:"interrupted"` // Executions that ended as a system failure.
}

// Report is the result of a sweep.
type Report struct {
	Began      time.Time         `json:"began"`
	Seconds    float64           `json:"seconds"`
	Results    []Result          `json:"results"`
	Submits    int               `json:"submits"`
	Starts     int               `json:"starts"` // Starts of code.
	Violations []check.Violation `json:"violations"`
}

// Trials returns a trial with exit for every point, and trials with errors for
// the points that support them.
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

// trials returns the configured trials, or an error for an invalid
// configuration.
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

// Sample returns n points that a busy cluster reaches by itself, chosen by the
// seed.
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

// Run creates a cluster, tries every point and checks. Violations are in the
// report. An error means that the sweep could not continue.
func Run(ctx context.Context, cfg Config) (report Report, err error) {
	trials, err := cfg.trials()
	if err != nil {
		return Report{}, err
	}
	began := time.Now() //nolint:forbidigo // Real processes have real time.
	w, err := world.Open(ctx, world.Config{Dir: cfg.Dir, Binary: cfg.Binary, Nodes: 3})
	if err != nil {
		return Report{}, fmt.Errorf("open world: %w", err)
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

// errGivenUp ends a sweep whose cluster does not recover.
var errGivenUp = errors.New("the cluster does not recover")

// sweep is one run.
type sweep struct {
	cfg       Config
	world     *world.World
	report    Report
	submitter submitter // Generates the load.

	turn int // Counts targets, so that trials do not all pick the first node.
}

// prepare gives every node a rules file and opens the workload.
func (s *sweep) prepare(ctx context.Context) error {
	for i, n := range s.world.Nodes {
		n.Env = []string{
			"BERTH_FAULTS=" + snapshotsAt, "BERTH_FAULTS_FILE=" + s.rules(n), "BERTH_FAULTS_LOG=" + s.hits(n),
			// Each leader has different settings to store in the state.
			fmt.Sprintf("BERTH_LIMITS_CONCURRENT=%d", 1000+i),
			"BERTH_RETENTION_COUNT=" + finishedStay,
		}
		if err := s.restart(ctx, n); err != nil {
			return err
		}
	}
	return s.submitter.open(ctx, s.world)
}

// one runs one trial.
func (s *sweep) one(ctx context.Context, t Trial) error {
	began := time.Now() //nolint:forbidigo // Real processes have real time.
	s.submitter.begin()
	reach, cancel := context.WithTimeout(ctx, reachLimit)
	at, err := scenarioOf(t.Point).reach(reach, s, t)
	cancel()
	if err != nil && ctx.Err() == nil {
		s.violate("not done", t, "%v", err)
	}
	if err = s.heal(ctx); err != nil && ctx.Err() == nil {
		s.violate("not whole", t, "%v", err)
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
		s.violate("not reached", t, "nothing reached the point")
	}
	result.Seconds = time.Since(began).Seconds()
	s.report.Results = append(s.report.Results, result)
	fmt.Fprintf(s.cfg.Progress, "berth: %-32s %-14s %-3s %5.1f s, %d submits, %d interrupted, %d violations\n",
		t.Point, t.Action, at, result.Seconds, result.Submits, result.Interrupted, len(s.report.Violations))
	return nil
}

func (s *sweep) violate(what string, t Trial, format string, args ...any) {
	s.report.Violations = append(s.report.Violations, check.Violation{
		What: what, Object: t.Point + "=" + t.Action, Detail: fmt.Sprintf(format, args...),
	})
}

// heal disarms all nodes, starts those that have exited and waits until the
// cluster is whole. A node that was about to exit may do so during the wait.
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
		poll, stop := context.WithTimeout(ctx, pollLimit)
		err := s.world.WaitWhole(poll)
		stop()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// restart gracefully restarts a node and waits until the cluster is whole.
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
