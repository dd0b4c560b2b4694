package node

import (
	"context"
	"math"
	"time"

	"github.com/fxamacker/cbor/v2"

	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/loop"
	"berth/node/inference/autoscale"
	"berth/node/router"
)

// methodLoads is the call by which the leader learns how often models are asked
// through a server.
const methodLoads = "inference.loads"

// Times of scaling.
const (
	scalePeriod  = 5 * time.Second
	scaleTimeout = 2 * time.Second // For all servers to answer.
)

// modelLoads is how often models are asked through the servers: the leader scales by it,
// and servers share the places of replicas by it.
type modelLoads struct{ node *Node }

// serve answers the leader.
func (l modelLoads) serve() {
	l.node.cluster.Handle(methodLoads, cluster.Servers, func(context.Context, rpc.Peer, []byte) ([]byte, error) {
		return cbor.Marshal(l.node.routes.Loads())
	})
}

// scale scales deployments of models while this node leads.
func (l modelLoads) scale(ctx context.Context) error {
	err := l.node.cluster.WhileLeader(ctx, func(ctx context.Context, term uint64) error {
		pause := l.node.cfg.Inference.IdlePause
		s := autoscale.New(pause)
		loop.Every(ctx, min(scalePeriod, max(pause/4, time.Second)), func() { l.scaleOnce(ctx, s, term) })
		return nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // The end of ctx.
	}
	return err
}

// scaleOnce decides for every deployment. While a server does not answer, nothing is
// decided: it may be the one that is asked.
func (l modelLoads) scaleOnce(ctx context.Context, s *autoscale.Scaler, term uint64) {
	view := l.node.machine.View()
	live := make(map[compute.ExecutionID]bool)
	for e := range view.Deployments {
		live[e.ID] = true
	}
	s.Keep(func(id compute.ExecutionID) bool { return live[id] })
	if len(live) == 0 {
		return
	}
	counts, ok := l.ask(ctx, view)
	if !ok {
		return
	}
	places := l.node.modelQueues().Concurrency
	for e := range view.Deployments {
		want := s.Replicas(e, readyReplicas(view, e), places(e.Inference), counts[e.ID], l.node.opts.Now())
		cmd := command.ScaleDeployment{Term: term, Deployment: e.ID, Replicas: want, Since: e.Deployment.ChangedAt}
		if e.Deployment.State != compute.DeploymentActive || want == e.Service.Replicas || view.Allows(cmd) != nil {
			continue
		}
		if _, _, err := l.node.proposer().Propose(ctx, cmd); err != nil && ctx.Err() == nil {
			l.node.logger.Warn("deployment not scaled", "execution", e.ID, "err", err)
		}
	}
}

// ask returns the counts of all servers that are up, and whether all answered.
func (l modelLoads) ask(ctx context.Context, view *fsm.View) (map[compute.ExecutionID]autoscale.Counts, bool) {
	ctx, cancel := context.WithTimeout(ctx, scaleTimeout)
	defer cancel()
	var all []serverLoads
	down := false
	for server := range view.Nodes() {
		switch {
		case server.Role != compute.RoleServer:
			continue
		case server.State != compute.NodeUp:
			down = true
			continue
		}
		loads := l.node.routes.Loads()
		if server.ID != l.node.cluster.ID() {
			data, err := l.node.cluster.Call(ctx, server.ID, methodLoads, nil)
			loads = nil
			if err != nil || cbor.Unmarshal(data, &loads) != nil {
				return nil, false
			}
		}
		all = append(all, newServerLoads(loads))
	}
	out := make(map[compute.ExecutionID]autoscale.Counts)
	for e := range view.Deployments {
		c := countsOf(e.ID, all)
		if c.Idle = min(c.Idle, unchanged(view, e)); down { // It may have been asked through that server.
			c.Idle = 0
		}
		out[e.ID] = c
	}
	return out, true
}

// serverLoads is what a server has counted.
type serverLoads struct {
	loads map[compute.ExecutionID]router.Load
	idle  time.Duration // Without requests to other deployments; 0 for one of an older version.
}

func newServerLoads(all []router.Load) serverLoads {
	s := serverLoads{loads: make(map[compute.ExecutionID]router.Load, len(all))}
	for _, l := range all {
		if l.Deployment.IsZero() {
			s.idle = l.Idle
		}
		s.loads[l.Deployment] = l
	}
	return s
}

// countsOf adds up what servers have counted for a deployment.
func countsOf(id compute.ExecutionID, servers []serverLoads) autoscale.Counts {
	c := autoscale.Counts{Idle: math.MaxInt64}
	for _, s := range servers {
		l, ok := s.loads[id]
		if !ok {
			c.Idle = min(c.Idle, s.idle)
			continue
		}
		c.Idle = min(c.Idle, l.Idle)
		c.Started += l.Started
		c.UnderWay += l.UnderWay
		c.Waiting += l.Waiting
		if more := len(l.Delays) - len(c.Delays); more > 0 {
			c.Delays = append(c.Delays, make([]int64, more)...)
		}
		for class, n := range l.Delays {
			c.Delays[class] += n
		}
	}
	return c
}

// unchanged returns how long a deployment has wanted the same replicas, and these have been
// ready.
func unchanged(view *fsm.View, e *compute.Execution) time.Duration {
	last := e.Deployment.ChangedAt
	for _, slot := range e.Service.Slots {
		if replica, ok := view.AnyExecution(slot.Replica); ok && slot.Live {
			if last = max(last, replica.ReadyAt); !replica.Ready {
				return 0
			}
		}
	}
	return view.Now().Sub(last)
}
