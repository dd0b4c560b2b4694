package prepare

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"berth/compute"
	"berth/loop"
	"berth/node/executor/egress"
	"berth/node/executor/sandbox"
	"berth/node/executor/scratch"
	"berth/node/executor/slot"
	"berth/node/executor/supervise"
)

const (
	readyNetworks = 4                // Networks made in advance, because making one would delay a start too much.
	networkRetry  = 10 * time.Second // Delay after a failure to make a network.
	tableNameLen  = 6                // The kernel limits interface names to 15 bytes.

	scratchDirName = "scratch"
)

// resources are the machine resources of one attempt: its slot and its network.
type resources struct {
	slot        *slot.Slot
	network     *os.File       // nil for no network but lo.
	disk        *os.File       // Scratch space; nil for scratch space in memory.
	packages    *os.File       // The packages that it asked for; nil for none.
	environment *environment   // The named environment; nil for none.
	variables   *os.File       // The variables of the user, in memory; nil for none.
	storage     *os.File       // The socket to the process that mounts the bucket; nil for none,
	mounted     *sandbox.Bind  // and where it did.
	resolv      string         // The content of resolv.conf.
	notes       []string       // For the output.
	model       []sandbox.Bind // Directories that an engine of models reads.

	early      bool               // The interpreter starts before it has the code.
	warm       *warmKey           // The key of warm sandboxes for such attempts; nil for none.
	supervisor *supervise.Process // The supervisor of a warm sandbox; nil for none,
	group      string             // and its cgroup.

	container *supervise.Container // nil for a sandbox.
	addresses int                  // Addresses for containers in its network.
	volumes   []*os.File           // Disks for the volumes of a Compose file.
}

func (r *resources) close() {
	if r.supervisor != nil {
		r.supervisor.Close()
	}
	r.slot.File.Close()
	if r.network != nil {
		r.network.Close()
	}
	if r.disk != nil {
		r.disk.Close()
	}
	if r.packages != nil {
		r.packages.Close()
	}
	if r.variables != nil {
		r.variables.Close()
	}
	if r.storage != nil {
		r.storage.Close()
	}
	for _, disk := range r.volumes {
		disk.Close()
	}
}

// files returns the descriptors of a supervisor from supervise.FDSlot on.
func (r *resources) files(null *os.File) []*os.File {
	files := []*os.File{
		r.slot.File, cmp.Or(r.network, null), cmp.Or(r.disk, null), cmp.Or(r.packages, null),
		cmp.Or(r.variables, null), cmp.Or(r.storage, null),
	}
	return append(files, r.volumes...) // The supervisor keeps them while its containers use the devices.
}

// resourcePool hands out resources and keeps some with a network ready.
type resourcePool struct {
	slots *slot.Dir
	disks *scratch.Pool // nil if scratch space is in memory.
	table *egress.Table // nil if executions get no network.
	why   string        // The reason in that case, for executions that request one.
	log   *slog.Logger
	ready chan *resources
}

// openPool returns the pool of this node. It never fails: a missing network is
// logged, and reported to the executions that request one.
func openPool(cfg *Config, log *slog.Logger) *resourcePool {
	p := &resourcePool{
		slots: slot.Machine(), disks: openDisks(cfg, log), log: log, ready: make(chan *resources, readyNetworks),
	}
	if cfg.Network == compute.NetworkNone {
		p.why = "this node gives executions no network"
		return p
	}
	var err error
	if p.table, err = egress.Open(tableName(cfg.Node), cfg.DenyCIDRs); err != nil {
		p.table, p.why = nil, "this node cannot give executions a network"
		log.Error("execution network unavailable",
			"hint", "nftables with nft_connlimit, nf_conntrack_netlink and veth are needed", "err", err)
	}
	return p
}

// openDisks returns the scratch space of this node, or nil if it is in memory: it was
// configured so, or the machine has no loop devices.
func openDisks(cfg *Config, log *slog.Logger) *scratch.Pool {
	if cfg.ScratchMemory || cfg.ScratchMiB == 0 {
		return nil
	}
	disks, err := scratch.Open(context.Background(), filepath.Join(cfg.DataDir, scratchDirName), cfg.ScratchMiB, log)
	if err != nil {
		log.Warn("scratch space is in memory", "hint",
			"space on disk needs loop devices, ext4 and mkfs.ext4; executor.scratch: memory accepts it", "err", err)
		return nil
	}
	return disks
}

// take returns resources with the requested network. If this node has no network,
// the code starts without one, because most code needs none. Its output then says
// so.
func (p *resourcePool) take(network compute.Network) (*resources, error) {
	if network == compute.NetworkNone || p.table == nil {
		s, err := p.slots.Take()
		if err != nil {
			return nil, err
		}
		made := &resources{slot: s}
		if network != compute.NetworkNone {
			made.notes = []string{"network: none (" + p.why + ")"}
		}
		return made, nil
	}
	select {
	case made := <-p.ready:
		return made, nil
	default:
		return p.makeConnected()
	}
}

// makeConnected makes resources with a network.
func (p *resourcePool) makeConnected() (*resources, error) {
	s, err := p.slots.TakeConnected(egress.Forget)
	if err != nil {
		return nil, err
	}
	network, err := p.table.Network(s.Number)
	if err != nil {
		s.File.Close()
		return nil, fmt.Errorf("make network: %w", err)
	}
	return &resources{slot: s, network: network, resolv: p.table.Resolv()}, nil
}

// takeFor takes a slot, the network and the scratch space that x asks for.
func (p *resourcePool) takeFor(ctx context.Context, network compute.Network, x *compute.Execution) (*resources, error) {
	res, err := p.take(network)
	if err != nil {
		return nil, err
	}
	if err := p.takeDisk(ctx, x, res); err != nil {
		res.close()
		return nil, err
	}
	return res, nil
}

// takeDisk adds the scratch space that x asks for, unless that is in memory.
func (p *resourcePool) takeDisk(ctx context.Context, x *compute.Execution, res *resources) (err error) {
	switch {
	case p.disks != nil && !x.ScratchMemory:
		res.disk, err = p.disks.Take(ctx, x.ScratchMiB)
	case x.ScratchMiB > 0 && !x.ScratchMemory:
		err = compute.Errorf(compute.CodeUnavailable, "this node has no scratch space on disk")
	}
	return err
}

// run keeps resources with a network ready until ctx ends.
func (p *resourcePool) run(ctx context.Context) {
	if p.table == nil {
		return
	}
	for {
		made, err := p.makeConnected()
		if err != nil {
			p.log.Warn("network creation failed", "err", err)
			if !loop.Sleep(ctx, networkRetry) {
				return
			}
			continue
		}
		select {
		case p.ready <- made:
		case <-ctx.Done():
			made.close()
			return
		}
	}
}

// deny replaces the addresses of the cluster.
func (p *resourcePool) deny(prefixes []netip.Prefix) error {
	if p.table == nil {
		return nil
	}
	return p.table.Deny(prefixes)
}

// close releases the resources that nobody took. When idle, so that no attempt
// needs the rules, it also removes those.
func (p *resourcePool) close(idle bool) error {
	for {
		select {
		case made := <-p.ready:
			made.close()
			continue
		default:
		}
		break
	}
	if p.table == nil || !idle {
		return nil
	}
	return p.table.Close()
}

// tableName returns the name of a node's firewall rules.
func tableName(node compute.NodeID) string { return node.String()[:tableNameLen] }
