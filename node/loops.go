package node

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/node/secrets"
	"berth/node/worker"
)

// announcePeriod is how often a node looks whether the state has its record
// right.
const announcePeriod = 2 * time.Second

// leadWhileLeader does the leader's duties during this node's terms.
func (n *Node) leadWhileLeader(ctx context.Context) error {
	l := &leader{
		machine: n.machine, cluster: n.cluster, propose: n.proposer(), schedule: n.schedule,
		secrets: n.master, settings: settingsOf(n.cfg), self: n.self,
		found: func() (fsm.Bootstrap, error) {
			return found(n.cfg, n.cluster.ClusterID(), n.master, n.cluster.Clock().Now())
		},
		now: n.cluster.Clock().Now, spread: n.spreadArchive, progress: n.askProgress, logger: n.logger.With("part", "leader"),
	}
	return n.cluster.WhileLeader(ctx, l.lead)
}

// publishInventory hands each change of this node's devices to gossip.
func (n *Node) publishInventory(ctx context.Context) error {
	for {
		inventory := n.devices.Current()
		inventory.Node = n.cluster.ID()
		if err := n.cluster.Gossip().SetInventory(inventory); err != nil {
			n.logger.Warn("inventory not published", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-n.devices.Changed():
		}
	}
}

// announce keeps this node's own record right: addresses and version may
// change from one start to the next.
func (n *Node) announce(ctx context.Context) error {
	ticker := time.NewTicker(announcePeriod)
	defer ticker.Stop()
	for {
		self := n.self()
		record, ok := n.machine.View().Node(self.ID)
		if ok && !worker.SameIdentity(record, &self) {
			wait, cancel := context.WithTimeout(ctx, proposeWait)
			_, err := n.proposer().do(wait, fsm.RegisterNode{Node: self})
			cancel()
			if err != nil && ctx.Err() == nil {
				n.logger.Warn("own record not renewed", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// importMaster keeps the master key that the cluster hands to a new server.
func (n *Node) importMaster(clusterID compute.UUID, data []byte) error {
	_, err := secrets.Import(filepath.Join(n.cfg.DataDir, masterKeyFile), data, clusterID)
	return err
}

// ready says what this node still lacks to serve.
func (n *Node) ready() error {
	view := n.machine.View()
	if _, known := n.cluster.Leader(); !known {
		return errors.New("no leader is known")
	}
	if _, ok := view.Node(n.cluster.ID()); !ok || !view.Bootstrapped() {
		return errors.New("the state has not reached this node")
	}
	return nil
}
