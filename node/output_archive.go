package node

import (
	"context"
	"io"
	"time"

	"berth/compute"
	"berth/loop"
	"berth/node/logs/archive"
	"berth/node/worker"
)

// trimPeriod is how often the leader drops archived output beyond its limit.
const trimPeriod = time.Minute

// outputArchive archives what ended attempts have printed before nodes remove it.
type outputArchive struct{ node *Node }

// open opens the archive of a server, which reads it even if it archives nothing itself.
func (o outputArchive) open() {
	o.node.outputArchive = archive.New(archive.Config{
		View: o.node.machine.View, Read: o.node.reader().Read, Objects: o.node.objects, Propose: o.node.proposer().Propose,
		Export: func(ctx context.Context, a compute.Attempt, w io.Writer) (int, bool, error) {
			return o.node.output.Export(ctx, a, w)
		},
		MaxBytes: o.node.cfg.Output.ArchiveMiB << 20, Now: o.node.cluster.Clock().Now, Registerer: o.node.registry,
	})
}

// keepOwn archives the output of an attempt of this node, as package executor wants it.
func (o outputArchive) keepOwn(ctx context.Context, execution compute.ExecutionID, epoch uint64) (bool, error) {
	if o.node.isWorker() {
		return worker.Archive{Up: o.node.cluster}.Keep(ctx, execution, epoch)
	}
	return o.keep(ctx, o.node.cluster.ID(), execution, epoch)
}

// keep archives the output of an attempt of a node, on a server.
func (o outputArchive) keep(
	ctx context.Context, owner compute.NodeID, execution compute.ExecutionID, epoch uint64,
) (bool, error) {
	if o.node.cfg.Output.ArchiveMiB == 0 {
		return true, nil
	}
	return o.node.outputArchive.Keep(ctx, owner, execution, epoch)
}

// keepCopy archives output of which this node has a copy, if its owner is down. Workers
// have copies only beside a single server, and leave that to it.
func (o outputArchive) keepCopy(ctx context.Context, execution compute.ExecutionID, epoch uint64) (bool, error) {
	if o.node.isWorker() || o.node.cfg.Output.ArchiveMiB == 0 {
		return true, nil
	}
	return o.node.outputArchive.KeepCopy(ctx, execution, epoch)
}

// trim drops what is beyond the limit while this node leads.
func (o outputArchive) trim(ctx context.Context) error {
	err := o.node.cluster.WhileLeader(ctx, func(ctx context.Context, term uint64) error {
		loop.Every(ctx, trimPeriod, func() {
			if err := o.node.outputArchive.Trim(ctx, term); err != nil && ctx.Err() == nil {
				o.node.logger.Warn("archived output not trimmed", "err", err)
			}
		})
		return nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // The end of ctx.
	}
	return err
}
