package node

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/loop"
	"berth/node/leader"
	"berth/node/secrets"
	"berth/node/worker"
)

// Times of announcements.
const (
	announcePeriod  = 2 * time.Second  // How often a node checks its own record.
	announceTimeout = 10 * time.Second // For one change of it.
)

// lead does the leader's duties during this node's terms.
func (n *Node) lead(ctx context.Context) error {
	l := &leader.Leader{
		Machine: n.machine, Cluster: n.cluster, Propose: n.proposer().Propose, Schedule: n.schedule,
		Secrets: n.master, Settings: settingsOf(n.cfg), Prices: n.cfg.Billing.PriceList(),
		DataDir: n.cfg.DataDir, Self: n.self, Now: n.cluster.Clock().Now, Spread: n.spreadArchive, Progress: n.progress.Ask,
		NewID: newID, Logger: n.logger.With("part", "leader"),
	}
	return n.cluster.WhileLeader(ctx, l.Lead)
}

// saveBackups saves backups while this node leads.
func (n *Node) saveBackups(ctx context.Context) error {
	b := leader.NewBackups(leader.BackupConfig{
		Every: n.cfg.Backup.Every, To: n.cfg.Backup.To, Keep: n.cfg.Backup.Keep,
		Cluster: n.cluster.ClusterID(), Version: n.opts.Version, View: n.reader().Read, Now: n.cluster.Clock().Now,
		Logger: n.logger.With("part", "backup"), Registerer: n.registry,
	})
	if n.cfg.Backup.Every <= 0 {
		<-ctx.Done()
		return nil
	}
	err := n.cluster.WhileLeader(ctx, b.Lead)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // The end of ctx.
	}
	return err
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
	loop.Every(ctx, announcePeriod, func() {
		masterKey{n}.follow(ctx)
		self := n.self()
		record, ok := n.machine.View().Node(self.ID)
		if !ok || worker.SameIdentity(record, &self) {
			return
		}
		wait, cancel := context.WithTimeout(ctx, announceTimeout)
		defer cancel()
		if _, err := n.proposer().do(wait, command.RegisterNode{Node: self}); err != nil && ctx.Err() == nil {
			n.logger.Warn("own record not renewed", "err", err)
		}
	})
	return nil
}

// importMaster keeps the master key that the cluster hands to a new server.
func (n *Node) importMaster(clusterID compute.UUID, data []byte) error {
	_, err := secrets.Import(filepath.Join(n.cfg.DataDir, masterKeyFile), data, clusterID)
	return err
}

// ready returns an error that says why this node cannot serve yet.
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
