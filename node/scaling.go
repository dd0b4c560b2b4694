package node

import (
	"context"
	"time"

	"github.com/fxamacker/cbor/v2"

	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/fsm"
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

// serveLoads answers the leader.
func (n *Node) serveLoads() {
	n.cluster.Handle(methodLoads, cluster.Servers, func(context.Context, rpc.Peer, []byte) ([]byte, error) {
		return cbor.Marshal(n.routes.Loads())
	})
}

// scale scales deployments of models while this node leads.
func (n *Node) scale(ctx context.Context) error {
	err := n.cluster.WhileLeader(ctx, func(ctx context.Context, term uint64) error {
		s := autoscale.New(n.cfg.Inference.IdlePause)
		loop.Every(ctx, min(scalePeriod, max(n.cfg.Inference.IdlePause/4, time.Second)), func() { n.scaleOnce(ctx, s, term) })
		return nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // The end of ctx.
	}
	return err
}

// scaleOnce decides for every deployment. While a server does not answer, nothing is
// decided: it may be the one that is asked.
func (n *Node) scaleOnce(ctx context.Context, s *autoscale.Scaler, term uint64) {
	view := n.machine.View()
	live := make(map[compute.ExecutionID]bool)
	for e := range view.Deployments {
		live[e.ID] = true
	}
	s.Keep(func(id compute.ExecutionID) bool { return live[id] })
	if len(live) == 0 {
		return
	}
	counts, ok := n.askLoads(ctx, view)
	if !ok {
		return
	}
	places := n.modelQueues().Concurrency
	for e := range view.Deployments {
		want := s.Replicas(e, readyReplicas(view, e), places(e.Inference.Engine), counts[e.ID], n.opts.Now())
		cmd := fsm.ScaleDeployment{Term: term, Deployment: e.ID, Replicas: want, Since: e.Deployment.ChangedAt}
		if e.Deployment.State != compute.DeploymentActive || want == e.Service.Replicas || view.Allows(cmd) != nil {
			continue
		}
		if _, _, err := n.proposer().Propose(ctx, cmd); err != nil && ctx.Err() == nil {
			n.logger.Warn("deployment not scaled", "execution", e.ID, "err", err)
		}
	}
}

// askLoads returns what all servers that are up have counted, and whether all answered.
func (n *Node) askLoads(ctx context.Context, view *fsm.View) (map[compute.ExecutionID]autoscale.Counts, bool) {
	ctx, cancel := context.WithTimeout(ctx, scaleTimeout)
	defer cancel()
	out := make(map[compute.ExecutionID]autoscale.Counts)
	for server := range view.Nodes() {
		if server.Role != compute.RoleServer || server.State != compute.NodeUp {
			continue
		}
		loads := n.routes.Loads()
		if server.ID != n.cluster.ID() {
			data, err := n.cluster.Call(ctx, server.ID, methodLoads, nil)
			loads = nil
			if err != nil || cbor.Unmarshal(data, &loads) != nil {
				return nil, false
			}
		}
		for _, l := range loads {
			out[l.Deployment] = added(out[l.Deployment], l)
		}
	}
	return out, true
}

// added returns counts with those of one more server.
func added(c autoscale.Counts, l router.Load) autoscale.Counts {
	if c.Delays == nil {
		c.Delays = make([]int64, router.DelayBuckets)
	}
	c.Started += l.Started
	c.UnderWay += l.UnderWay
	c.Waiting += l.Waiting
	for i, n := range l.Delays {
		c.Delays[i] += n
	}
	return c
}
