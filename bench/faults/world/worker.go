package world

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"berth/api/wire"
	"berth/compute"
)

// MaxWorkers is the largest number of workers in a world.
const MaxWorkers = 3

// machines returns the servers and the workers.
func (w *World) machines() []*Node { return slices.Concat(w.Nodes, w.Workers) }

// addWorkers adds the workers after the servers. They have the GPU type that
// every server has too, so that the scheduler places work on both.
func (w *World) addWorkers() {
	for i := range w.cfg.Workers {
		name := fmt.Sprintf("w%d", i+1)
		w.Workers = append(w.Workers, &Node{
			Name: name, IP: w.slot.address(firstHost + maxNodes + i), GPUs: []string{"h100:2"}, joins: true, worker: true,
			world: w, dir: filepath.Join(w.cfg.Dir, name), netns: w.slot.name() + "-" + name,
			filter: filter{silent: map[string]bool{}},
		})
	}
}

// startWorkers creates a token of the role worker and starts the workers with
// it.
func (w *World) startWorkers(ctx context.Context) error {
	if len(w.Workers) == 0 {
		return nil
	}
	c, err := w.admin(w.Nodes[0])
	if err != nil {
		return err
	}
	token, err := c.CreateJoinToken(ctx, wire.NewJoinToken{
		Role: compute.RoleWorker.String(), TTL: 3600, Uses: len(w.Workers),
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(w.Workers[0].tokenFile(), []byte(token.Token), 0o600); err != nil {
		return err
	}
	for _, n := range w.Workers {
		if err := n.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// tokenFile returns the path of the node's join token.
func (n *Node) tokenFile() string {
	if n.worker {
		return n.world.tokenFile() + "-worker"
	}
	return n.world.tokenFile()
}

// StartAll starts every node that has no process.
func (w *World) StartAll(ctx context.Context) error {
	for _, n := range w.machines() {
		if err := n.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}
