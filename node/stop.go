package node

import (
	"context"
	"fmt"
	"time"

	"berth/cluster"
)

// stopLimit is how long a stop may take, the drain included, before the
// process ends whatever still hangs.
const stopLimit = 20 * time.Second

// stopGracefully waits for the end of asked or of the node, and prepares the
// others for what comes then: /readyz says that the node stops while it still
// answers for the configured time, with every connection closed behind its
// answer, so that balancers and clients go elsewhere; then leadership is given
// away while what waits for it can still be forwarded.
func (n *Node) stopGracefully(asked, ended context.Context) {
	select {
	case <-asked.Done():
	case <-ended.Done():
	}
	n.limitStop()
	if ended.Err() != nil {
		return
	}
	n.logger.Info("node stops", "node", n.cluster.ID())
	n.api.Drain()
	if !n.alone() {
		timer := time.NewTimer(n.cfg.API.Drain)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ended.Done():
			return
		}
	}
	n.cluster.HandOver()
}

// alone reports whether no other node could answer in this one's place. A worker
// never is: there is a server at least.
func (n *Node) alone() bool { return !n.isWorker() && len(n.cluster.Servers()) < 2 }

// limitStop ends the process when it has not ended by itself in time.
func (n *Node) limitStop() {
	limit := n.opts.StopLimit
	timer := time.AfterFunc(limit, func() {
		n.opts.Fatal(fmt.Errorf("the node has been stopping for %s: what hangs is left behind", limit))
	})
	n.stopTimer.Store(timer)
}

// stopped calls off what limitStop began.
func (n *Node) stopped() {
	if timer := n.stopTimer.Load(); timer != nil {
		timer.Stop()
	}
}

// Removed reports whether err is the end of a node because the cluster removed
// it: started again, it ends the same way.
func Removed(err error) bool { return cluster.IsRemoved(err) }
