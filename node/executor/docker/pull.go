package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"syscall"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"berth/compute"
	"berth/loop"
)

const (
	progressEvery = 2 * time.Second // Between lines about a pull.
	mib           = 1 << 20
)

// pull pulls an image from its registry. The engine has it under the returned name, which
// the caller removes, also after an error unless it is empty.
func (e *Engine) pull(ctx context.Context, named reference.Named, want *Want, line func(string)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.PullLimit)
	defer cancel()
	if err := e.allowed(named); err != nil {
		return "", err
	}
	credentials, err := e.resolve(ctx, want.Credentials)
	if err != nil {
		return "", err
	}
	begin := e.cfg.Now()
	line("pulling " + named.String())
	r, err := e.openRelay(ctx, named, credentials)
	if err != nil {
		return "", pullError(named, err)
	}
	defer r.close()
	ref := r.ref()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go e.watchDisk(ctx, named, stop)
	err = e.pullFrom(ctx, named, ref, line)
	if failure := r.failure(); err != nil && failure != nil {
		err = failure // The engine knows less.
	}
	full, ended := errors.AsType[*compute.Error](context.Cause(ctx))
	if ended && err != nil && !errors.Is(err, errTooLarge) && !IsRefusal(err) {
		return ref, full
	}
	switch {
	case errors.Is(err, errTooLarge):
		return ref, e.tooLarge(named)
	case err != nil && !IsRefusal(err):
		return ref, pullError(named, err)
	case err != nil:
		return ref, err
	}
	line(fmt.Sprintf("pulled %s in %.1f s", named, e.cfg.Now().Sub(begin).Seconds()))
	return ref, nil
}

func (e *Engine) tooLarge(named reference.Named) error {
	return errNoImage("the image %s is larger than %d MiB", named, e.cfg.ImageMiB)
}

const (
	minFree        = 2 << 30 // Bytes of the engine's disk that a pull leaves free.
	diskEvery      = time.Second
	unpackedFactor = 4 // How many times docker.image_mib the layers of an image take on the disk at most.
)

// watchDisk ends a pull once the engine's disk is nearly full: what a layer takes there is known
// only when it is unpacked.
func (e *Engine) watchDisk(ctx context.Context, named reference.Named, stop context.CancelCauseFunc) {
	root := e.Facts().root
	if root == "" {
		return
	}
	loop.Every(ctx, diskEvery, func() {
		free, err := e.free(root)
		if err != nil || free >= minFree {
			return // The engine may have its disk elsewhere.
		}
		stop(compute.Errorf(compute.CodeUnavailable,
			"the image %s was not pulled: the disk of this node's engine has %d MiB left", named, free/mib))
	})
}

// freeBytes returns what is free on the disk that has a directory.
func freeBytes(dir string) (int64, error) {
	var at syscall.Statfs_t
	if err := syscall.Statfs(dir, &at); err != nil {
		return 0, fmt.Errorf("ask for free space: %w", err)
	}
	return int64(at.Bavail) * at.Bsize, nil
}

// checkUnpacked refuses an image whose layers are too large on the disk.
func (e *Engine) checkUnpacked(named reference.Named, layers []layerSize) error {
	limit := e.cfg.ImageMiB * unpackedFactor
	if size := onDisk(map[string]*pulled{"": {Layers: layers}}); size > limit*mib {
		return errNoImage("the image %s takes %d MiB when it is unpacked, at most %d MiB are allowed", named, size/mib, limit)
	}
	return nil
}

// pullFrom has the engine pull an image from a relay.
func (e *Engine) pullFrom(ctx context.Context, named reference.Named, ref string, line func(string)) error {
	stream, err := e.api.ImagePull(ctx, ref, client.ImagePullOptions{
		Platforms: []ocispec.Platform{{OS: runtime.GOOS, Architecture: runtime.GOARCH}},
	})
	if err != nil {
		return err
	}
	defer stream.Close()
	p := progress{now: e.cfg.Now, line: line, layers: make(map[string]layer)}
	for message, err := range stream.JSONMessages(ctx) {
		switch {
		case err != nil:
			return err
		case message.Error != nil:
			return message.Error
		}
		p.add(&message)
		if p.total() > e.cfg.ImageMiB*mib {
			return e.tooLarge(named)
		}
	}
	return ctx.Err()
}

// pullError returns an error of a pull: a refusal if the image or the credentials are
// at fault.
func pullError(named reference.Named, err error) error {
	text := said(err)
	name, lookup := errors.AsType[*net.DNSError](err)
	unknown := lookup && name.IsNotFound && !name.IsTemporary // A name server says that there is no such registry.
	if _, special := errors.AsType[*specialError](err); special || unknown || refusedStatus(err) {
		return errNoImage("the image %s cannot be pulled: %s", named, text)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("pull image %s: the time for it is over: %w", named, err)
	}
	if unreachable(err) {
		return compute.Errorf(compute.CodeUnavailable, "the image %s could not be pulled: %s", named, text)
	}
	wrong := cerrdefs.IsNotFound(err) || cerrdefs.IsUnauthorized(err) || cerrdefs.IsPermissionDenied(err) ||
		cerrdefs.IsInvalidArgument(err)
	for _, part := range []string{
		"not found", "manifest unknown", "denied", "unauthorized", "authentication required", "no basic auth credentials",
		"no matching manifest", "repository does not exist", "incorrect username or password",
	} {
		wrong = wrong || strings.Contains(strings.ToLower(text), part)
	}
	if wrong {
		return errNoImage("the image %s cannot be pulled: %s", named, text)
	}
	return compute.Errorf(compute.CodeUnavailable, "the image %s could not be pulled: %s", named, text)
}

// layer is how much of a layer has been transferred.
type layer struct{ current, total int64 }

// progress turns the engine's messages about a pull into a line now and then.
type progress struct {
	now    func() time.Time
	line   func(string)
	last   time.Time
	layers map[string]layer
}

// add takes a message.
func (p *progress) add(m *jsonstream.Message) {
	if m.ID == "" || m.Progress == nil {
		return
	}
	switch l := p.layers[m.ID]; {
	case m.Status == "Downloading" && m.Progress.Total > 0:
		p.layers[m.ID] = layer{m.Progress.Current, m.Progress.Total}
	case m.Status == "Download complete" || m.Status == "Pull complete":
		p.layers[m.ID] = layer{l.total, l.total}
	}
	if now := p.now(); now.Sub(p.last) >= progressEvery && p.total() > 0 {
		p.last = now
		done, whole := int64(0), p.total()
		for _, l := range p.layers {
			done += l.current
		}
		p.line(fmt.Sprintf("%d of %d MiB", done/mib, (whole+mib-1)/mib))
	}
}

// total returns how much the layers that are known so far are together.
func (p *progress) total() (sum int64) {
	for _, l := range p.layers {
		sum += l.total
	}
	return sum
}
