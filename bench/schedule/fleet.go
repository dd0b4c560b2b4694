package schedule

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/cluster"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/scheduler"
)

// peers is the number of replicas.
const peers = 3

// fleet is the three peers of a measurement.
type fleet struct {
	cfg   Config
	load  *load
	peers []*peer
	meter *meter
	stop  func() // Ends the loops; nil without loops.
}

// peer is one replica and its cluster member.
type peer struct {
	cluster *cluster.Cluster
	machine *fsm.FSM
	cancel  context.CancelFunc
	ended   chan error
}

// openFleet creates a cluster of three voters, as berth node does.
func openFleet(ctx context.Context, cfg Config) (_ *fleet, err error) {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	f := &fleet{cfg: cfg, load: newLoad(cfg), meter: newMeter(cfg.Now)}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	first, err := f.open(ctx, cluster.Config{Bootstrap: true})
	if err != nil {
		return nil, err
	}
	for _, cmd := range f.load.founding(first.cluster.ID()) {
		if _, _, err := command.Propose(ctx, first.cluster, cmd); err != nil {
			return nil, err
		}
	}
	token, err := first.cluster.NewJoinToken()
	if err != nil {
		return nil, err
	}
	known := f.load.token(token.ID, token.SecretHash(), peers)
	if _, _, err := command.Propose(ctx, first.cluster, known); err != nil {
		return nil, err
	}
	for len(f.peers) < peers {
		if _, err := f.open(ctx, cluster.Config{
			JoinHosts: []string{first.cluster.RPCAddress()}, JoinToken: token.String(),
		}); err != nil {
			return nil, err
		}
	}
	return f, f.awaitVoters(ctx)
}

// open starts another peer.
func (f *fleet) open(ctx context.Context, cfg cluster.Config) (*peer, error) {
	p := &peer{machine: fsm.New(), ended: make(chan error, 1)}
	cfg.Name = fmt.Sprintf("peer%d", len(f.peers)+1)
	cfg.DataDir = filepath.Join(f.cfg.Dir, cfg.Name)
	cfg.Listen, cfg.GossipListen = "127.0.0.1:0", "127.0.0.1:0"
	cfg.API, cfg.Version = "http://127.0.0.1:1", "bench"
	cfg.PromoteAfter = time.Millisecond
	cfg.Profile = cluster.ProfileDefault
	cfg.FSM = p.machine
	cfg.Preamble = func(term uint64, _ time.Time) []byte { return f.load.clock(term) }
	cfg.Registry = registry{p}
	cfg.Logger = f.cfg.Logger.With("node", cfg.Name)
	cfg.Fatal = func(err error) { p.cancel() } // Run returns the error.
	var runCtx context.Context
	runCtx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	var err error
	if p.cluster, err = cluster.Open(ctx, cfg); err != nil {
		p.cancel()
		return nil, err
	}
	f.peers = append(f.peers, p)
	go func() { p.ended <- p.cluster.Run(runCtx) }()
	return p, nil
}

// registry admits peers with the command that consumes their token.
type registry struct{ peer *peer }

// Admit records the peer that asks to join, or refuses it.
func (r registry) Admit(ctx context.Context, a cluster.Admission) error {
	cmd := command.RegisterNode{Node: a.Node, TokenID: a.TokenID, TokenHash: a.SecretHash}
	_, _, err := command.Propose(ctx, r.peer.cluster, cmd)
	return err
}

// awaitVoters waits until all peers vote.
func (f *fleet) awaitVoters(ctx context.Context) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		voters := 0
		for _, s := range f.peers[0].cluster.Servers() {
			if s.Voter {
				voters++
			}
		}
		if voters == peers {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %d voters, have %d: %w", peers, voters, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// leader returns the leading peer.
func (f *fleet) leader() (*peer, error) {
	i := slices.IndexFunc(f.peers, func(p *peer) bool { return p.cluster.IsLeader() })
	if i < 0 {
		return nil, errors.New("no peer leads")
	}
	return f.peers[i], nil
}

// schedule runs the loop on the leading peer until close.
func (f *fleet) schedule(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var loops sync.WaitGroup
	for _, p := range f.peers {
		loop := scheduler.New(scheduler.Config{
			Views: func() scheduler.View { return p.machine.View() },
			Changed: func(ctx context.Context, after uint64) error {
				_, err := p.machine.Wait(ctx, after+1)
				return err
			},
			Committer:  committer{p, f.meter},
			Logger:     f.cfg.Logger,
			Registerer: prometheus.NewRegistry(),
			Now:        f.cfg.Now,
		})
		// Its error is that of ctx.
		loops.Go(func() { _ = p.cluster.WhileLeader(ctx, loop.Run) })
	}
	f.stop = func() {
		cancel()
		loops.Wait()
	}
}

// close stops the peers.
func (f *fleet) close() error {
	if f.stop != nil {
		f.stop()
	}
	var errs []error
	for _, p := range slices.Backward(f.peers) {
		p.cancel()
		errs = append(errs, <-p.ended, p.cluster.Close())
	}
	return errors.Join(errs...)
}

// committer commits the loop's decisions and measures the commits.
type committer struct {
	peer  *peer
	meter *meter
}

// CommitPlan proposes a plan and returns the index of its entry.
func (c committer) CommitPlan(ctx context.Context, term, viewIndex uint64, plan compute.Plan) (uint64, error) {
	start := c.meter.now()
	commit := command.CommitPlan{Term: term, ViewIndex: viewIndex, Plan: plan}
	result, index, err := command.Propose(ctx, c.peer.cluster, commit)
	if err != nil {
		return 0, err
	}
	c.meter.committed(start, c.placed(plan, result.Count))
	return index, nil
}

// placed returns the executions of a plan that the state has placed. count is
// their number, as the state reports it.
func (c committer) placed(plan compute.Plan, count int) []compute.ExecutionID {
	view := c.peer.machine.View()
	ids := make([]compute.ExecutionID, 0, count)
	for _, a := range plan.Assignments {
		e, ok := view.AnyExecution(a.Execution)
		if count == len(plan.Assignments) || ok && e.Status != compute.StatusQueued {
			ids = append(ids, a.Execution)
		}
	}
	return ids
}

// TakeSelection is never called: there is no GPU selection.
func (c committer) TakeSelection(context.Context, uint64, *compute.Execution, []string, string) (uint64, error) {
	return 0, errors.New("no GPU selection was submitted")
}
