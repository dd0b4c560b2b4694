package node

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"berth/cluster"
)

// stopLimit is how long a stop may take, the drain included, before the
// process ends whatever still hangs.
const stopLimit = 20 * time.Second

// stopGracefully waits for the end of asked or of the node. In the first case
// it drains the API: for the configured time /readyz reports that the node
// stops, requests are still answered, and connections are closed behind their
// answers. So balancers and clients go elsewhere. Then it gives leadership away
// while pending requests can still be forwarded.
func (n *Node) stopGracefully(asked, ended context.Context) {
	select {
	case <-asked.Done():
	case <-ended.Done():
	}
	n.stop.begin()
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

// stopDeadline ends the process when a stop hangs.
type stopDeadline struct {
	limit time.Duration
	fatal func(error)
	timer atomic.Pointer[time.Timer]
}

// begin ends the process when end is not called within the limit.
func (d *stopDeadline) begin() {
	d.timer.Store(time.AfterFunc(d.limit, func() {
		d.fatal(fmt.Errorf("the node has been stopping for %s: what hangs is left behind", d.limit))
	}))
}

// end reports that the stop has ended.
func (d *stopDeadline) end() {
	if timer := d.timer.Load(); timer != nil {
		timer.Stop()
	}
}

// Removed reports whether err is the end of a node because the cluster removed
// it: started again, it ends the same way.
func Removed(err error) bool { return cluster.IsRemoved(err) }
