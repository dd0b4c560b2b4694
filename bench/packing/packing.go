package packing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/bench/fragment"
	"berth/bench/trace"
)

// Names of the policies.
const (
	Berth      = "berth"
	Random     = "random"
	DotProduct = "dot-product"
	Clustering = "clustering"
	Packing    = "packing"
	BestFit    = "best-fit"
	FGD        = "fgd"
)

// Policies returns the names of all policies.
func Policies() []string {
	return []string{Random, DotProduct, Clustering, Packing, BestFit, FGD, Berth}
}

// Config configures a measurement.
type Config struct {
	NodesFile, PodsFile string
	Policy              string
	Vary                string // A change of the pods in the syntax of Variants; "" for none.
	Oracle              bool   // Berth knows the trace's mix from the first pod on.
	Seeds               []uint64
	Churn               []float64 // Offered loads, as shares of the cluster's GPUs; none for no churn.
	Arrivals            int       // In each run of churn.
	Parallel            int       // Concurrent runs; a decision always runs on one core.

	Now      func() time.Time
	Progress func(done, all int, what string) // Calls are serialized; nil for none.
}

// validate returns an error that lists the invalid fields of c.
func (c *Config) validate() error {
	switch {
	case !slices.Contains(Policies(), c.Policy):
		return fmt.Errorf("no policy %q; there are %s", c.Policy, strings.Join(Policies(), ", "))
	case len(c.Seeds) == 0:
		return errors.New("no seeds")
	case c.Parallel < 1:
		return fmt.Errorf("%d runs at once; at least 1", c.Parallel)
	case len(c.Churn) > 0 && c.Arrivals < 1:
		return fmt.Errorf("%d arrivals of churn; at least 1", c.Arrivals)
	}
	for _, load := range c.Churn {
		if !(load > 0 && load <= 10) {
			return fmt.Errorf("an offered load of %g; it is a share of the GPUs, as 0.95", load)
		}
	}
	return nil
}

// Report is the result of one policy on one trace.
type Report struct {
	Policy      string     `json:"policy"`
	Vary        string     `json:"vary,omitempty"`
	Oracle      bool       `json:"oracle,omitempty"`
	Nodes       int        `json:"nodes"`
	GPUs        int64      `json:"gpus"`
	Pods        int        `json:"pods"` // In the trace.
	Unplaceable int        `json:"pods_no_node_could_host"`
	Seeds       []Seed     `json:"seeds"`
	Mean        Mean       `json:"mean"`
	Published   *Published `json:"published"` // Nil for a trace without published results.
	Churn       []Churn    `json:"churn,omitempty"`
}

// Mean is the mean of the seeds.
type Mean struct {
	Alloc100     float64  `json:"alloc_100_pct"`
	Alloc100SD   float64  `json:"alloc_100_sd"` // Standard deviation.
	Alloc130     float64  `json:"alloc_130_pct"`
	FirstRefusal *float64 `json:"first_refusal_pct"` // Nil unless every seed has one.
	Frag100      float64  `json:"frag_100_pct"`
	DecisionUS   Decision `json:"decision_us"`
}

// Churn is the refused share when pods come and go.
type Churn struct {
	Load       float64     `json:"load"`
	RefusedPct float64     `json:"refused_pct"` // Mean over the seeds.
	Seeds      []ChurnSeed `json:"seeds"`
}

// ChurnSeed is one run of churn.
type ChurnSeed struct {
	Seed       uint64  `json:"seed"`
	RefusedPct float64 `json:"refused_pct"`
}

// Run measures one policy on one trace.
func Run(ctx context.Context, c Config) (Report, error) {
	if err := c.validate(); err != nil {
		return Report{}, err
	}
	nodes, err := trace.ReadNodes(c.NodesFile)
	if err != nil {
		return Report{}, err
	}
	pods, err := trace.ReadPods(c.PodsFile)
	if err != nil {
		return Report{}, err
	}
	if pods, err = vary(nodes, pods, c.Vary); err != nil {
		return Report{}, fmt.Errorf("vary: %w", err)
	}
	w, err := newWorkload(nodes, pods)
	if err != nil {
		return Report{}, fmt.Errorf("%s, %s: %w", c.NodesFile, c.PodsFile, err)
	}
	m := &measurement{config: &c, workload: w, classes: target(w)}
	out := Report{
		Policy: c.Policy, Vary: c.Vary, Oracle: c.Oracle && c.Policy == Berth,
		Nodes: len(nodes), GPUs: w.capacity / trace.WholeGPU, Pods: len(pods),
		Unplaceable: w.unplaceable,
	}
	if c.Vary == "" {
		out.Published = published(c.PodsFile, nodes)
	}
	if err := m.run(ctx, &out); err != nil {
		return Report{}, err
	}
	out.Mean = meanOf(out.Seeds)
	for i := range out.Churn {
		out.Churn[i].RefusedPct = mean(out.Churn[i].Seeds, func(s *ChurnSeed) float64 { return s.RefusedPct })
	}
	return out, nil
}

// meanOf returns the mean of the seeds.
func meanOf(seeds []Seed) Mean {
	alloc100 := func(s *Seed) float64 { return s.Alloc100 }
	out := Mean{
		Alloc100:   mean(seeds, alloc100),
		Alloc100SD: deviation(seeds, alloc100),
		Alloc130:   mean(seeds, func(s *Seed) float64 { return s.Alloc130 }),
		Frag100:    mean(seeds, func(s *Seed) float64 { return s.Frag100 }),
		DecisionUS: Decision{
			P50:  mean(seeds, func(s *Seed) float64 { return s.DecisionUS.P50 }),
			P99:  mean(seeds, func(s *Seed) float64 { return s.DecisionUS.P99 }),
			Mean: mean(seeds, func(s *Seed) float64 { return s.DecisionUS.Mean }),
		},
	}
	if !slices.ContainsFunc(seeds, func(s Seed) bool { return s.FirstRefusal == nil }) {
		out.FirstRefusal = new(mean(seeds, func(s *Seed) float64 { return *s.FirstRefusal }))
	}
	return out
}

// measurement is all runs of one policy on one trace.
type measurement struct {
	config   *Config
	workload *workload
	classes  []fragment.Class

	mu   sync.Mutex
	done int
}

// run measures all seeds, and churn if configured.
func (m *measurement) run(ctx context.Context, out *Report) error {
	c := m.config
	all := len(c.Seeds) * (1 + len(c.Churn))
	out.Seeds = make([]Seed, len(c.Seeds))
	for _, load := range c.Churn {
		out.Churn = append(out.Churn, Churn{Load: load, Seeds: make([]ChurnSeed, len(c.Seeds))})
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(c.Parallel)
	for i, seed := range c.Seeds {
		group.Go(func() (err error) {
			out.Seeds[i], err = m.prepare(seed).fill(ctx, seed, m.classes)
			m.report(all, err, "seed %d: %.2f %% at 100 %% arrived", seed, out.Seeds[i].Alloc100)
			return err
		})
	}
	for j, load := range c.Churn {
		for i, seed := range c.Seeds {
			group.Go(func() error {
				refused, err := m.prepare(seed).churn(ctx, seed, load, c.Arrivals)
				out.Churn[j].Seeds[i] = ChurnSeed{Seed: seed, RefusedPct: refused}
				m.report(all, err, "seed %d: %.2f %% refused at a load of %.2f", seed, refused, load)
				return err
			})
		}
	}
	return group.Wait()
}

// report reports the end of one run.
func (m *measurement) report(all int, err error, format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done++
	if m.config.Progress != nil && err == nil {
		m.config.Progress(m.done, all, m.config.Policy+", "+fmt.Sprintf(format, args...))
	}
}

// prepare returns a policy on an empty cluster with the seed's order of nodes.
func (m *measurement) prepare(seed uint64) *run {
	w := m.workload
	order := w.order(source(seed, forNodes))
	return &run{
		workload: w, board: newBoard(w, order), now: m.config.Now,
		policy: m.policy(seed, order), arrivals: w.inflate(source(seed, forPods), Inflation),
	}
}

// policy returns the configured policy on an empty cluster.
func (m *measurement) policy(seed uint64, order []int) chooser {
	w := m.workload
	if m.config.Policy == Berth {
		return newOwn(w, order, m.config.Oracle)
	}
	p := ranked{board: newBoard(w, order), shapes: w.shapes, rows: make([][]remembered, len(w.shapes))}
	switch m.config.Policy {
	case Random:
		p.score = scoreEqual
		return &drawn{ranked: p, random: source(seed, forPolicy)}
	case DotProduct:
		p.score = scoreDotProduct
	case Clustering:
		p.score = scoreClustering
	case Packing:
		p.score = scorePacking
	case BestFit:
		p.score = scoreBestFit
	default:
		p.score = newGradient(m.classes, len(order)).score
	}
	return &p
}
