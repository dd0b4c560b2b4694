package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/node/gateway"
)

// mountSockets is where mounts of this machine find their nodes. Root alone reaches it.
const mountSockets = "/run/berth/s3"

// openMounts opens the socket by which the mounts of executions reach this node's
// S3 endpoint. It outlives the listener, so that the next process opens the same.
func (p *s3Part) openMounts(ctx context.Context) error {
	if err := os.MkdirAll(mountSockets, 0o700); err != nil {
		p.node.logger.Warn("storage cannot be mounted", "err", err)
		return nil
	}
	name := filepath.Join(mountSockets, p.node.cluster.ID().String())
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("open mount listener: %w", err)
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "unix", name)
	if err != nil {
		return fmt.Errorf("open mount listener: %w", err)
	}
	p.node.onClose(ignoreClosed(l.Close))
	p.mounts, p.socket = l, name
	return nil
}

// listeners returns the endpoints of S3.
func (p *s3Part) listeners() (all []net.Listener) {
	for _, l := range []net.Listener{p.listener, p.mounts} {
		if l != nil {
			all = append(all, l)
		}
	}
	return all
}

// access returns how a mount for an execution reaches the bucket: with the rights of
// who submitted it, for as long as it may last.
func (p *s3Part) access(view *fsm.View, e *compute.Execution) (*compute.StorageAccess, error) {
	user, ok := view.User(e.User)
	if !ok {
		return nil, compute.Errorf(compute.CodeForbidden, "The user of the execution is gone.")
	}
	actor := command.Actor{User: e.User, Key: e.Key, Org: e.Org, TokenVersion: user.TokenVersion}
	c := p.keys.MintFor(actor, max(gateway.Lifetime, e.Timeout+mountSlack))
	return &compute.StorageAccess{
		Bucket: gateway.BucketOf(e.Org), Region: gateway.Region, Access: c.Access, Secret: c.Secret, Token: c.Token,
	}, nil
}

// mountSlack is how long a mount may last beyond the time limit of its execution: images
// are pulled before, and files are stored after.
const mountSlack = 2 * time.Hour

// ownAccess returns the same for an attempt of this server, which has to be live by all that
// was acknowledged: the server may have been cut off for long.
func (p *s3Part) ownAccess(ctx context.Context, w compute.Work) (*compute.StorageAccess, error) {
	view, err := p.node.reader().Read(ctx)
	if err != nil {
		return nil, err
	}
	for _, live := range view.Work(p.node.cluster.ID()) {
		if live.Attempt.Execution == w.Attempt.Execution && live.Attempt.Epoch == w.Attempt.Epoch {
			return p.access(view, live.Execution)
		}
	}
	return nil, compute.Errorf(compute.CodeNotFound, "The attempt is no longer live.")
}
