package leader

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"berth/attempt"
	"berth/cluster"
	"berth/cluster/raftconf"
	"berth/compute"
	"berth/fault"
	"berth/fsm"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/loop"
	"berth/node/progress"
	"berth/node/secrets"
	"berth/scheduler"
)

// Times of the leader's duties.
const (
	watchPeriod   = time.Second         // How often nodes are checked.
	archivePeriod = 5 * time.Second     // How often the leader checks whether an archive is due.
	tickPeriod    = 30 * time.Second    // How often time passes for expiries and holds.
	signingKeyAge = 30 * 24 * time.Hour // A signing key is replaced at this age.
	proposeWait   = 10 * time.Second    // Longest wait for one of the leader's own commands.
)

// Propose proposes a command. It returns the result of the state and the index
// of the entry; a refusal is the error.
type Propose func(ctx context.Context, cmd command.Command) (command.Result, uint64, error)

// Leader does what only the leader does. All of it is level-triggered: each
// round reads the whole view and does what is missing, so that a new leader
// needs no hand-over.
type Leader struct {
	Machine  *fsm.FSM
	Cluster  *cluster.Cluster
	Propose  Propose
	Schedule *scheduler.Loop
	Secrets  *secrets.Master
	Settings command.Settings         // The billing mode counts for a new cluster only.
	Prices   map[string]compute.Price // Prices of a new cluster, beside or in place of the built-in ones.
	DataDir  string                   // For the root token of a new cluster.
	Self     func() compute.Node
	Now      func() time.Time                             // The cluster's time.
	Spread   func(ctx context.Context, blob []byte) error // Makes a blob durable on most servers.
	Progress func(context.Context, compute.NodeID, []progress.Run) ([]progress.Run, error)
	NewID    func() compute.UUID
	Logger   *slog.Logger
}

// Lead works until ctx, the term, ends.
func (l *Leader) Lead(ctx context.Context, term uint64) error {
	l.Logger.Info("leading", "term", term)
	l.Cluster.Clock().Await(ctx)
	began := l.Machine.View()
	if !l.established(ctx, term) {
		return nil
	}
	var duties sync.WaitGroup
	duties.Go(func() {
		l.rest(ctx, began)
		if err := l.Schedule.Run(ctx, term); err != nil && ctx.Err() == nil {
			l.Logger.Error("scheduler ended", "err", err)
		}
	})
	duties.Go(func() {
		loop.OnChange(ctx, watchPeriod, l.Cluster.Gossip().Changed, func() { l.commitInventories(ctx, term) })
	})
	l.catchUp(ctx, term)
	watch := l.newWatch()
	duties.Go(func() { loop.Every(ctx, watchPeriod, watch.scan) })
	duties.Go(func() { loop.Every(ctx, watchPeriod, func() { watch.act(ctx, term) }) })
	duties.Go(func() { loop.Every(ctx, watchPeriod, func() { l.raiseFormat(ctx, term) }) })
	duties.Go(func() { loop.Every(ctx, watchPeriod, func() { l.endDrains(ctx, term) }) })
	duties.Go(func() { l.estimate(ctx, term) })
	duties.Go(func() { loop.Every(ctx, selectionPeriod, func() { l.watchSelections(ctx, term) }) })
	duties.Go(func() { loop.Every(ctx, servicePeriod, func() { l.startReplicas(ctx, term) }) })
	duties.Go(func() { loop.Every(ctx, tickPeriod, func() { l.tick(ctx, term) }) })
	duties.Go(func() {
		archiver := l.newArchiver(term)
		loop.Every(ctx, archivePeriod, func() { archiver.Scan(ctx) })
	})
	duties.Wait()
	l.Logger.Info("no longer leading", "term", term)
	return nil
}

// established repeats establish until it succeeds or the term ends.
func (l *Leader) established(ctx context.Context, term uint64) bool {
	err := loop.Until(ctx, watchPeriod, func() bool {
		err := l.establish(ctx, term)
		if err != nil && ctx.Err() == nil {
			l.Logger.Warn("term not established yet", "term", term, "err", err)
		}
		return err == nil
	})
	return err == nil
}

// establish makes the state of a new cluster, and puts into it what the
// configuration of this leader says.
func (l *Leader) establish(ctx context.Context, term uint64) error {
	if err := l.bootstrapCluster(ctx); err != nil {
		return err
	}
	l.raiseFormat(ctx, term)
	if err := l.raiseEpoch(ctx, term); err != nil {
		return err
	}
	view := l.Machine.View()
	settings := view.Settable(l.Settings)
	settings.Meter = view.Settings().Meter // Operators change it through the API.
	if view.Settings() != settings {
		fault.Point("leader.settings.before")
		_, err := l.do(ctx, command.SetSettings{Term: term, Settings: settings})
		fault.Point("leader.settings.after")
		return err
	}
	return nil
}

// bootstrapCluster creates the state of a new cluster and registers this node. A
// node may have crashed between the two, so that each is checked by itself.
func (l *Leader) bootstrapCluster(ctx context.Context) error {
	view := l.Machine.View()
	if !view.Bootstrapped() {
		cmd, err := l.bootstrap()
		if err != nil {
			return err
		}
		fault.Point("leader.found.bootstrap")
		if _, err := l.do(ctx, cmd); err != nil {
			return err
		}
		fault.Point("leader.found.register")
	}
	for range view.Nodes() {
		return nil
	}
	index, err := l.do(ctx, command.RegisterNode{Node: l.Self(), First: true})
	if err != nil {
		return err
	}
	if _, err := l.Machine.Wait(ctx, index); err != nil {
		return err
	}
	fault.Point("leader.found.registered")
	l.Logger.Info("cluster bootstrapped")
	return nil
}

// raiseFormat allows what a newer version of the program brought, once every
// server knows it.
func (l *Leader) raiseFormat(ctx context.Context, term uint64) {
	view := l.Machine.View()
	common := min(view.CommonFormat(), format.Newest)
	if common <= view.Format() || unknownServer(view, l.Cluster.Servers()) {
		return
	}
	fault.Point("leader.format.before")
	index, err := l.do(ctx, command.SetFormat{Term: term, Format: common})
	if err == nil {
		fault.Point("leader.format.after")
		_, err = l.Machine.Wait(ctx, index)
	}
	switch {
	case err == nil:
		l.Logger.Info("state format raised", "status", common)
	case ctx.Err() == nil:
		l.Logger.Warn("state format not raised", "err", err)
	}
}

// unknownServer reports whether a server has a replica and no record. A removed
// server stays in the configuration, and may vote, until the others are a quorum.
// Its newest format is unknown, and it would stop at a newer one.
func unknownServer(view *fsm.View, servers []raftconf.Server) bool {
	return slices.ContainsFunc(servers, func(s raftconf.Server) bool {
		_, known := view.Node(s.ID)
		return !known
	})
}

// raiseEpoch starts the epoch of the cluster that this server was recovered into,
// before any other command of the term.
func (l *Leader) raiseEpoch(ctx context.Context, term uint64) error {
	epoch := l.Cluster.Epoch()
	if epoch <= l.Machine.View().ClusterEpoch() {
		return nil
	}
	index, err := l.do(ctx, command.RaiseEpoch{
		Term: term, Epoch: epoch, Cause: command.CauseRecovered,
		At: compute.InstantOf(l.Now()), // However long nobody led: rest counts from it.
	})
	if err == nil {
		_, err = l.Machine.Wait(ctx, index)
	}
	if err != nil {
		return err
	}
	l.Logger.Warn("cluster recovered without a quorum: live attempts ended, credentials revoked",
		"term", term, "index", index, "status", epoch)
	return nil
}

// rest pauses scheduling in a new epoch of the cluster until the leases of the
// epoch before have expired, so that no code executes twice at once. The leader
// counts the time on its own stopwatch.
func (l *Leader) rest(ctx context.Context, began *fsm.View) {
	wait := restFor(began, l.Machine.View().ClusterEpoch())
	if wait <= 0 {
		return
	}
	l.Logger.Info("scheduling paused until old leases expire", "took", wait)
	loop.Sleep(ctx, wait)
}

// restDoubt is how far past the end of the pause the state's time must be to prove
// that the pause is over. The state's time may run ahead: the cluster's time jumps
// to the clocks of the voters where no leader has set it before, and otherwise
// approaches them a tenth faster than real time.
const restDoubt = time.Hour

// restFor returns how long a leader that began with the view v pauses scheduling
// in an epoch of the cluster. It pauses for the whole time, unless the epoch is
// old, or an earlier leader has placed something in it and so has waited.
func restFor(v *fsm.View, life uint64) time.Duration {
	const rest = attempt.Lease + attempt.Margin
	switch {
	case v.ClusterEpoch() < life:
		return rest // It began with this leader.
	case v.PausedUntil().IsZero() || v.Now().Sub(v.PausedUntil()) > restDoubt:
		return 0
	}
	for n := range v.Nodes() {
		for _, w := range v.Work(n.ID) {
			if attempt.LifeOf(w.Attempt.Epoch) == life {
				return 0
			}
		}
	}
	return rest
}

// do proposes one command within the leader's own time limit.
func (l *Leader) do(ctx context.Context, cmd command.Command) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, proposeWait)
	defer cancel()
	_, index, err := l.Propose(ctx, cmd)
	return index, err
}

// commitInventories records the inventories that gossip says have changed,
// each pulled from its own node over the authenticated channel.
func (l *Leader) commitInventories(ctx context.Context, term uint64) {
	view := l.Machine.View()
	for _, member := range l.Cluster.Gossip().Members() {
		record, ok := view.Node(member.ID)
		if !ok || !member.Alive || member.InventoryVersion <= record.InventoryVersion {
			continue
		}
		inventory, err := l.Cluster.PullInventory(ctx, member.ID)
		if err == nil {
			fault.Point("leader.inventory.before")
			_, err = l.do(ctx, command.SetInventory{Term: term, Inventory: view.Recordable(inventory)})
			fault.Point("leader.inventory.after")
		}
		if err != nil && ctx.Err() == nil {
			l.Logger.Warn("inventory not recorded", "node", member.ID, "err", err)
		}
	}
}

// tick advances the state's time and replaces an old signing key.
func (l *Leader) tick(ctx context.Context, term uint64) {
	fault.Point("leader.tick.before")
	err := untilSwept(func() (int, error) {
		ctx, cancel := context.WithTimeout(ctx, proposeWait)
		defer cancel()
		result, _, err := l.Propose(ctx, command.Tick{Term: term})
		return result.Count, err
	})
	if err != nil && ctx.Err() == nil {
		l.Logger.Warn("tick not recorded", "err", err)
	}
	fault.Point("leader.tick.after")
	keys := l.Machine.View().SigningKeys()
	if len(keys) > 0 && l.Now().Sub(keys[0].CreatedAt.Time()) < signingKeyAge {
		return
	}
	key, err := newSigningKey(l.Secrets, l.Now())
	if err == nil {
		_, err = l.do(ctx, command.AddSigningKey{Term: term, Key: key})
	}
	if err != nil && ctx.Err() == nil {
		l.Logger.Warn("signing key not replaced", "err", err)
	}
}

// stateLag is by how much the state's time may be behind the cluster's while
// nothing happens: by the time between two ticks, and some more.
const stateLag = 2 * tickPeriod

// catchUp advances the state's time over a period without a leader. One entry
// advances it by minutes at most. If the state stayed behind, drains that begin
// meanwhile would end early, and nodes that vanish together would seem to vanish
// one after the other.
func (l *Leader) catchUp(ctx context.Context, term uint64) {
	behind := func() time.Duration { return compute.InstantOf(l.Now()).Sub(l.Machine.View().Now()) }
	err := untilCaughtUp(behind, func() error {
		index, err := l.do(ctx, command.Tick{Term: term})
		if err == nil {
			_, err = l.Machine.Wait(ctx, index)
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		l.Logger.Warn("state time not caught up", "err", err)
	}
}

// untilCaughtUp calls tick until the state is nearly not behind, or a tick does not
// help.
func untilCaughtUp(behind func() time.Duration, tick func() error) error {
	for left := behind(); left >= stateLag; {
		if err := tick(); err != nil {
			return err
		}
		now := behind()
		if now >= left {
			return nil
		}
		left = now
	}
	return nil
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
