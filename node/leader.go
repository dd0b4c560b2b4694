package node

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"berth/cluster"
	"berth/compute"
	"berth/fsm"
	"berth/node/executor"
	"berth/node/secrets"
	"berth/scheduler"
)

// Times of the leader's duties.
const (
	nodeTTL       = 15 * time.Second    // A node that was not heard for so long is down.
	lossMargin    = 10 * time.Second    // Between a supervisor's kill and the leader's word that the attempt is lost.
	watchPeriod   = time.Second         // How often nodes are looked at.
	tickPeriod    = 30 * time.Second    // How often time passes for expiries and holds.
	signingKeyAge = 30 * 24 * time.Hour // A signing key is replaced at this age.
	proposeWait   = 10 * time.Second    // Longest wait for one of the leader's own commands.
)

// leader does what only the leader does. All of it is level-triggered: each
// round reads the whole view and does what is missing, so that a new leader
// needs no hand-over.
type leader struct {
	machine  *fsm.FSM
	cluster  *cluster.Cluster
	propose  proposer
	schedule *scheduler.Loop
	secrets  *secrets.Master
	settings fsm.Settings
	self     func() compute.Node
	found    func() (fsm.Bootstrap, error) // Makes the first command of a new cluster.
	now      func() time.Time
	progress func(context.Context, compute.NodeID, []progressRun) ([]progressRun, error)
	logger   *slog.Logger
}

// lead works until ctx, the term, ends.
func (l *leader) lead(ctx context.Context, term uint64) error {
	l.logger.Info("leading", "term", term)
	if !l.established(ctx, term) {
		return nil
	}
	var duties sync.WaitGroup
	duties.Go(func() {
		if err := l.schedule.Run(ctx, term); err != nil && ctx.Err() == nil {
			l.logger.Error("scheduler ended", "err", err)
		}
	})
	duties.Go(func() { every(ctx, watchPeriod, l.cluster.Changed, func() { l.commitInventories(ctx, term) }) })
	duties.Go(func() { every(ctx, watchPeriod, nil, func() { l.watchNodes(ctx, term) }) })
	duties.Go(func() { every(ctx, watchPeriod, nil, func() { l.raiseFormat(ctx, term) }) })
	duties.Go(func() { l.estimate(ctx, term) })
	duties.Go(func() { every(ctx, racePeriod, nil, func() { l.watchRaces(ctx, term) }) })
	duties.Go(func() { every(ctx, tickPeriod, nil, func() { l.tick(ctx, term) }) })
	duties.Wait()
	l.logger.Info("no longer leading", "term", term)
	return nil
}

// established repeats establish until it succeeds or the term ends.
func (l *leader) established(ctx context.Context, term uint64) bool {
	ticker := time.NewTicker(watchPeriod)
	defer ticker.Stop()
	for {
		err := l.establish(ctx, term)
		if err == nil || ctx.Err() != nil {
			return err == nil
		}
		l.logger.Warn("term not established yet", "term", term, "err", err)
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
}

// establish makes the state of a new cluster, and puts into it what the
// configuration of this leader says.
func (l *leader) establish(ctx context.Context, term uint64) error {
	if !l.machine.View().Bootstrapped() {
		cmd, err := l.found()
		if err != nil {
			return err
		}
		if _, err := l.do(ctx, cmd); err != nil {
			return err
		}
		index, err := l.do(ctx, fsm.RegisterNode{Node: l.self(), First: true})
		if err != nil {
			return err
		}
		if _, err := l.machine.Wait(ctx, index); err != nil {
			return err
		}
		l.logger.Info("cluster made")
	}
	l.raiseFormat(ctx, term)
	if l.machine.View().Settings() != l.settings {
		_, err := l.do(ctx, fsm.SetSettings{Term: term, Settings: l.settings})
		return err
	}
	return nil
}

// raiseFormat allows what a newer version of the program brought, once every
// server knows it.
func (l *leader) raiseFormat(ctx context.Context, term uint64) {
	view := l.machine.View()
	common := min(view.CommonFormat(), fsm.Format)
	if common <= view.Format() {
		return
	}
	index, err := l.do(ctx, fsm.SetFormat{Term: term, Format: common})
	if err == nil {
		_, err = l.machine.Wait(ctx, index)
	}
	switch {
	case err == nil:
		l.logger.Info("every server knows a newer format of the state", "status", common)
	case ctx.Err() == nil:
		l.logger.Warn("format of the state not raised", "err", err)
	}
}

// do proposes one command within the leader's own time limit.
func (l *leader) do(ctx context.Context, cmd fsm.Command) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, proposeWait)
	defer cancel()
	return l.propose.do(ctx, cmd)
}

// commitInventories records the inventories that gossip says have changed,
// each pulled from its own node over the authenticated channel.
func (l *leader) commitInventories(ctx context.Context, term uint64) {
	view := l.machine.View()
	for _, member := range l.cluster.Members() {
		record, ok := view.Node(member.ID)
		if !ok || !member.Alive || member.InventoryVersion <= record.InventoryVersion {
			continue
		}
		inventory, err := l.cluster.PullInventory(ctx, member.ID)
		if err == nil {
			_, err = l.do(ctx, fsm.SetInventory{Term: term, Inventory: inventory})
		}
		if err != nil && ctx.Err() == nil {
			l.logger.Warn("inventory not recorded", "node", member.ID, "err", err)
		}
	}
}

// watchNodes records which nodes are heard, and ends the attempts of those
// that were silent for longer than their executions' grace.
func (l *leader) watchNodes(ctx context.Context, term uint64) {
	view := l.machine.View()
	for node := range view.Nodes() {
		heard, ok := l.cluster.Heard(node.ID)
		if !ok {
			continue
		}
		silent := l.now().Sub(heard)
		state := compute.NodeUp
		if silent > nodeTTL {
			state = compute.NodeDown
		}
		if state != node.State {
			l.logger.Warn("node changed", "node", node.ID, "status", state, "took", silent)
			if _, err := l.do(ctx, fsm.SetNodeState{Term: term, Node: node.ID, State: state}); err != nil && ctx.Err() == nil {
				l.logger.Warn("node state not recorded", "node", node.ID, "err", err)
			}
		}
		if state == compute.NodeDown {
			l.loseAttempts(ctx, term, node.ID, overdue(view.Work(node.ID), silent))
		}
	}
}

// overdue returns the attempts whose supervisors have killed them for certain,
// when their node was silent for so long.
func overdue(work []compute.Work, silent time.Duration) []fsm.AttemptRef {
	var lost []fsm.AttemptRef
	for _, w := range work {
		grace := max(w.Execution.DisconnectGrace, executor.MinDisconnectGrace)
		if silent > grace+lossMargin {
			lost = append(lost, fsm.AttemptRef{Execution: w.Attempt.Execution, Epoch: w.Attempt.Epoch})
		}
	}
	return lost
}

func (l *leader) loseAttempts(ctx context.Context, term uint64, node compute.NodeID, lost []fsm.AttemptRef) {
	if len(lost) == 0 {
		return
	}
	if _, err := l.do(ctx, fsm.LoseAttempts{Term: term, Node: node, Attempts: lost}); err != nil && ctx.Err() == nil {
		l.logger.Warn("lost attempts not recorded", "node", node, "err", err)
	}
}

// tick lets time pass in the state and replaces an old signing key.
func (l *leader) tick(ctx context.Context, term uint64) {
	err := untilSwept(func() (int, error) {
		ctx, cancel := context.WithTimeout(ctx, proposeWait)
		defer cancel()
		result, _, err := l.propose.Propose(ctx, fsm.Tick{Term: term})
		return result.Count, err
	})
	if err != nil && ctx.Err() == nil {
		l.logger.Warn("tick not recorded", "err", err)
	}
	keys := l.machine.View().SigningKeys()
	if len(keys) > 0 && l.now().Sub(keys[0].CreatedAt.Time()) < signingKeyAge {
		return
	}
	key, err := newSigningKey(l.secrets, l.now())
	if err == nil {
		_, err = l.do(ctx, fsm.AddSigningKey{Term: term, Key: key})
	}
	if err != nil && ctx.Err() == nil {
		l.logger.Warn("signing key not replaced", "err", err)
	}
}

// untilSwept calls tick, which returns how many executions it forgot, until
// there are no more to forget: however fast they end, the state keeps up.
func untilSwept(tick func() (int, error)) error {
	for {
		if n, err := tick(); err != nil || n < fsm.RetirePerTick {
			return err
		}
	}
}
