package sweep

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/bench/faults/world"
	"berth/compute"
	"berth/loop"
)

// scenario is a way to reach a point.
type scenario struct {
	quick bool // A busy cluster reaches it by itself within seconds.
	// reach arms the trial, triggers its point and returns the name of the node
	// where that happened. It returns "" if ctx ended before.
	reach func(ctx context.Context, s *sweep, t Trial) (string, error)
}

// scenarios returns the scenarios by prefix of the point's name. The longest
// matching prefix applies.
func scenarios() map[string]scenario {
	return map[string]scenario{
		"":                        {true, work(roundRobin, loadQuick)},
		"executor.":               {true, work(everywhere, loadQuick)},
		"supervisor.":             {true, work(everywhere, loadQuick)},
		"cluster.propose.":        {true, work(leads, loadQuick)},
		"cluster.propose.forward": {true, work(follows, loadQuick)},
		"scheduler.":              {true, work(leads, loadQuick)},
		"scheduler.take.":         {true, work(leads, loadSelection)},
		"leader.races.":           {false, work(leads, loadSelection)},
		"leader.tick.":            {false, work(leads, loadQuick)},
		"leader.archive.":         {false, work(leads, loadQuick)},
		"series.":                 {false, work(everywhere, loadSelection)},
		"copies.":                 {true, work(everywhere, loadQuick)},
		"storage.spread.":         {false, work(leads, loadQuick)},
		"storage.write.":          {true, work(roundRobin, loadBlob)},
		"storage.placed":          {true, work(roundRobin, loadBlob)},
		"fsm.snapshot.":           {false, work(everywhere, loadQuick)},
		"disk.delete.":            {false, work(everywhere, loadQuick)},
		"disk.ballast.":           {false, rejoining(false)},
		"disk.set.":               {true, election},
		"cluster.term.":           {true, election},
		"leader.settings.":        {true, election},
		"leader.inventory.":       {true, returning},
		"leader.node_state.":      {false, silence},
		"leader.lose.":            {false, silence},
		"fsm.restore.":            {false, restarting(false)},
		"output.":                 {false, pruning},
		"executor.adopt.":         {true, restarting(false)},
		"executor.adopt.buried":   {true, restarting(true)},
		"executor.adopt.discard":  {false, unspawned},
		"cluster.join.":           {false, rejoining(false)},
		"cluster.join.ad":         {false, rejoining(true)}, // The three points on the leader.
		"cluster.member.":         {false, rejoining(true)},
		"cluster.member.demote":   {false, fewerVoters},
		"leader.found.":           {false, bootstrapping},
		"leader.format.":          {false, bootstrapping},
	}
}

func scenarioOf(point string) scenario {
	all := scenarios()
	best := ""
	for prefix := range all {
		if strings.HasPrefix(point, prefix) && len(prefix) > len(best) {
			best = prefix
		}
	}
	return all[best]
}

// target picks the nodes to arm.
type target func(ctx context.Context, s *sweep) []*world.Node

func everywhere(_ context.Context, s *sweep) []*world.Node { return s.world.Nodes }

// roundRobin picks the next node in turn.
func roundRobin(_ context.Context, s *sweep) []*world.Node {
	s.turn++
	return s.world.Nodes[s.turn%len(s.world.Nodes):][:1]
}

func leads(ctx context.Context, s *sweep) []*world.Node {
	if leader := s.world.Leader(ctx); leader != nil {
		return []*world.Node{leader}
	}
	return nil
}

func follows(ctx context.Context, s *sweep) []*world.Node {
	leader := s.world.Leader(ctx)
	others := slices.DeleteFunc(slices.Clone(s.world.Nodes), func(n *world.Node) bool { return n == leader })
	s.turn++
	return others[s.turn%len(others):][:1]
}

// work arms the targets and submits until one reaches the point.
func work(pick target, what load) func(context.Context, *sweep, Trial) (string, error) {
	return func(ctx context.Context, s *sweep, t Trial) (string, error) {
		logSizes := s.logSizes()
		for ctx.Err() == nil {
			if err := s.disarm(); err != nil {
				return "", err
			}
			for _, n := range pick(ctx, s) {
				if err := s.arm(n, t); err != nil {
					return "", err
				}
			}
			s.submitter.wave(context.WithoutCancel(ctx), what)
			if at, err := s.await(ctx, t, logSizes, waveLimit); at != "" || err != nil {
				return at, err
			}
		}
		return "", nil
	}
}

// election arms all nodes but the leader, and kills the leader.
func election(ctx context.Context, s *sweep, t Trial) (string, error) {
	logSizes := s.logSizes()
	for ctx.Err() == nil {
		leader := s.world.Leader(ctx)
		if leader == nil {
			continue
		}
		for _, n := range s.world.Nodes {
			if n != leader {
				if err := s.arm(n, t); err != nil {
					return "", err
				}
			}
		}
		s.submitter.wave(context.WithoutCancel(ctx), loadQuick)
		if err := leader.Kill(ctx); err != nil {
			return "", err
		}
		if at, err := s.await(ctx, t, logSizes, waveLimit); at != "" || err != nil {
			return at, err
		}
		if err := s.heal(ctx); err != nil {
			return "", err
		}
	}
	return "", nil
}

// returning arms the leader and restarts another node.
func returning(ctx context.Context, s *sweep, t Trial) (string, error) {
	logSizes := s.logSizes()
	for ctx.Err() == nil {
		n := follows(ctx, s)[0]
		for _, leader := range leads(ctx, s) {
			if err := s.arm(leader, t); err != nil {
				return "", err
			}
		}
		if err := errors.Join(n.Kill(ctx), n.Start(ctx)); err != nil {
			return "", err
		}
		s.submitter.wave(context.WithoutCancel(ctx), loadQuick)
		if at, err := s.await(ctx, t, logSizes, waveLimit); at != "" || err != nil {
			return at, err
		}
	}
	return "", nil
}

// silence arms all nodes but one. That one stays down with its executions until
// the point is reached.
func silence(ctx context.Context, s *sweep, t Trial) (string, error) {
	logSizes := s.logSizes()
	gone := follows(ctx, s)[0]
	if strings.HasPrefix(t.Point, "leader.lose.") {
		s.submitter.wave(context.WithoutCancel(ctx), loadLost)
		s.submitter.waves.Wait()
		for n := s.busiest(); ctx.Err() == nil; n = s.busiest() { // They have started.
			if n != nil {
				gone = n
				break
			}
			<-time.After(pollEvery)
		}
	}
	for _, n := range s.world.Nodes {
		if n != gone {
			if err := s.arm(n, t); err != nil {
				return "", err
			}
		}
	}
	if err := gone.Crash(ctx); err != nil {
		return "", err
	}
	return s.await(ctx, t, logSizes, reachLimit)
}

// busiest returns the node with the most executions in this trial: the one with
// the most attempts on its disk.
func (s *sweep) busiest() *world.Node { return s.most("spec*") }

// most returns the node with the most attempts that have a file whose name matches.
func (s *sweep) most(name string) *world.Node {
	var best *world.Node
	most := 0
	for _, n := range s.world.Nodes {
		files, err := filepath.Glob(filepath.Join(n.Data(), "attempts", "*", "*", name))
		if err == nil && len(files) > most {
			best, most = n, len(files)
		}
	}
	return best
}

// restarting kills a node while it executes, together with its executions if
// crash is set, and starts it armed.
func restarting(crash bool) func(context.Context, *sweep, Trial) (string, error) {
	return func(ctx context.Context, s *sweep, t Trial) (string, error) {
		logSizes := s.logSizes()
		for ctx.Err() == nil {
			s.submitter.wave(context.WithoutCancel(ctx), loadLong)
			s.submitter.waves.Wait()
			n := s.busiest()
			if n == nil {
				n = roundRobin(ctx, s)[0]
			}
			end := n.Kill
			if crash {
				end = n.Crash
			}
			if err := errors.Join(end(ctx), s.arm(n, t), n.Start(ctx)); err != nil {
				return "", err
			}
			if at, err := s.await(ctx, t, logSizes, waveLimit); at != "" || err != nil {
				return at, err
			}
		}
		return "", nil
	}
}

// pruning makes the ended attempts on the disk of a node old, and starts the node armed: it
// archives their output before it removes them.
func pruning(ctx context.Context, s *sweep, t Trial) (string, error) {
	logSizes := s.logSizes()
	for ctx.Err() == nil {
		s.submitter.wave(context.WithoutCancel(ctx), loadPrinting)
		s.submitter.waves.Wait()
		if !loop.Sleep(ctx, waveLimit) { // They end, and their ends are reported.
			break
		}
		n := s.most("reported")
		if n == nil {
			continue
		}
		if err := errors.Join(n.Kill(ctx), ageAttempts(n), s.arm(n, t), n.Start(ctx)); err != nil {
			return "", err
		}
		if at, err := s.await(ctx, t, logSizes, pruneLimit); at != "" || err != nil {
			return at, err
		}
	}
	return "", nil
}

// pruneLimit is for a node that started to know a leader and to prune.
const pruneLimit = 30 * time.Second

// ageAttempts makes the attempts whose ends a node has reported older than it keeps output.
func ageAttempts(n *world.Node) error {
	reported, err := filepath.Glob(filepath.Join(n.Data(), "attempts", "*", "*", "reported"))
	errs := []error{err}
	then := time.Now().Add(-30 * 24 * time.Hour) //nolint:forbidigo // The time of files.
	for _, path := range reported {
		errs = append(errs, os.Chtimes(path, then, then))
	}
	return errors.Join(errs...)
}

// unspawned kills a node between the journal record of an attempt and the start
// of its supervisor, and starts the node armed.
func unspawned(ctx context.Context, s *sweep, t Trial) (string, error) {
	logSizes := s.logSizes()
	first := Trial{"executor.spawn.before", "exit@1"}
	at, err := work(everywhere, loadQuick)(ctx, s, first)
	if at == "" || err != nil {
		return "", err
	}
	if err := s.disarm(); err != nil {
		return "", err
	}
	for _, n := range s.world.Nodes {
		if n.Name != at {
			continue
		}
		if err := errors.Join(n.Kill(ctx), s.arm(n, t), n.Start(ctx)); err != nil {
			return "", err
		}
	}
	return s.await(ctx, t, logSizes, waveLimit)
}

// rejoining removes a node from the cluster and lets it join as a new one.
// Either the leader is armed from the beginning, or the node when it joins.
func rejoining(leaderArmed bool) func(context.Context, *sweep, Trial) (string, error) {
	return func(ctx context.Context, s *sweep, t Trial) (string, error) { return s.rejoin(ctx, t, leaderArmed) }
}

// rejoin is the scenario of rejoining.
func (s *sweep) rejoin(ctx context.Context, t Trial, leaderArmed bool) (string, error) {
	leader := s.world.Leader(ctx)
	if leader == nil {
		return "", errors.New("no node leads")
	}
	n := s.world.Nodes[1] // The first node bootstrapped the cluster, and joins none.
	if n == leader {
		n = s.world.Nodes[2]
	}
	logSizes := s.logSizes()
	if leaderArmed {
		if err := s.arm(leader, t); err != nil {
			return "", err
		}
	}
	if err := s.expel(ctx, n); err != nil {
		return "", err
	}
	if !leaderArmed {
		if err := s.arm(n, t); err != nil {
			return "", err
		}
	}
	if err := n.Start(ctx); err != nil {
		return "", err
	}
	at, err := s.await(ctx, t, logSizes, reachLimit)
	if err == nil {
		err = s.heal(ctx)
	}
	if err != nil {
		return at, err
	}
	return at, s.learnID(ctx, n)
}

// remove removes a node once the others have copies of everything only it had.
// The error is the last refusal if they never have.
func (s *sweep) remove(ctx context.Context, id compute.NodeID) error {
	ctx, cancel := context.WithTimeout(ctx, healLimit)
	defer cancel()
	var refusal error
	for {
		err := s.submitter.admin.RemoveNode(ctx, id)
		e, ok := errors.AsType[*client.Error](err)
		switch {
		case ok && e.Code == "copies_missing":
			refusal = err
		case err != nil && refusal != nil && ctx.Err() != nil:
			return refusal
		default:
			return err
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return refusal
		}
	}
}

// expel removes a node and erases its disk. Nodes that exit meanwhile are
// started again.
func (s *sweep) expel(ctx context.Context, n *world.Node) error {
	removed := make(chan error, 1)
	go func() { removed <- s.remove(ctx, n.ID) }()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for pending := true; pending; {
		select {
		case err := <-removed:
			if err != nil {
				return err
			}
			pending = false
		case <-ticker.C:
			if err := s.startOthers(ctx, n); err != nil {
				return err
			}
		}
	}
	for gone, _ := n.Ended(); !gone && ctx.Err() == nil; gone, _ = n.Ended() {
		<-ticker.C
		if err := s.startOthers(ctx, n); err != nil {
			return err
		}
	}
	if err := n.Crash(ctx); err != nil {
		return err
	}
	token, err := s.submitter.admin.CreateJoinToken(ctx, wire.NewJoinToken{
		Role: compute.RoleServer.String(), TTL: 3600, Uses: 9,
	})
	if err != nil {
		return err
	}
	errs := []error{os.WriteFile(filepath.Join(s.cfg.Dir, "token"), []byte(token.Token), 0o600)}
	entries, err := os.ReadDir(n.Data())
	for _, entry := range entries {
		if entry.Name() != "lost+found" {
			errs = append(errs, os.RemoveAll(filepath.Join(n.Data(), entry.Name())))
		}
	}
	return errors.Join(append(errs, err)...)
}

// startOthers starts every node that has exited, except one, without rules.
func (s *sweep) startOthers(ctx context.Context, but *world.Node) error {
	for _, n := range s.world.Nodes {
		if ended, _ := n.Ended(); n == but || !ended {
			continue
		}
		if err := errors.Join(s.write(n, ""), n.Start(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// learnID sets the id of a node that has joined as a new one.
func (s *sweep) learnID(ctx context.Context, n *world.Node) error {
	all, err := s.submitter.admin.Nodes(ctx)
	for _, known := range all {
		if known.Name == n.Name {
			n.ID = known.ID
		}
	}
	return err
}

// fewerVoters makes the leader remove the votes of the others and restore them.
func fewerVoters(ctx context.Context, s *sweep, t Trial) (string, error) {
	logSizes := s.logSizes()
	again := func(change func(*world.Node)) error {
		var errs []error
		for _, n := range s.world.Nodes {
			change(n)
			errs = append(errs, n.Kill(ctx), n.Start(ctx))
		}
		return errors.Join(errs...)
	}
	err := again(func(n *world.Node) {
		n.Env = append(n.Env, "BERTH_VOTERS=1")
		err := s.arm(n, t)
		_ = err // A failure shows as a point that is not reached.
	})
	if err != nil {
		return "", err
	}
	at, err := s.await(ctx, t, logSizes, reachLimit)
	if err == nil {
		err = s.disarm()
	}
	return at, errors.Join(err, again(func(n *world.Node) { n.Env = n.Env[:len(n.Env)-1] }))
}
