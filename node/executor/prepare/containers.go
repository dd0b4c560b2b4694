package prepare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/composefile"
	"berth/compute"
	"berth/loop"
	"berth/node/executor/docker"
	"berth/node/executor/inputs"
	"berth/node/executor/live"
	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

// Containers says how code is executed in containers.
type Containers struct {
	Host       string        // Address of the Docker engine; "" for none.
	Auto       bool          // There may be no engine at Host.
	Runtime    string        // The engine's runtime; "" for runc.
	Registries []string      // Images may be pulled from these; none for all public ones.
	Compose    string        // Docker Compose; "" for where packages put it.
	ECR        string        // Endpoint of Amazon ECR; "" for the public one of the key's region.
	KeepMiB    int64         // Disk space of pulled images; 0 for the default.
	ImageMiB   int64         // The largest image; 0 for the default.
	PullLimit  time.Duration // Time to pull one image; 0 for the default.
	ReapEvery  time.Duration // Between removals of objects without an attempt; 0 for the default.
}

// Credentials returns the credentials for the registry of an execution's image,
// nil for none.
type Credentials func(ctx context.Context, w compute.Work) (*compute.RegistryCredentials, error)

const (
	dockerDirName = "docker"

	containerStart  = time.Minute // For the engine to start a container, beyond what a sandbox takes.
	containerFiles  = 4 << 10     // Open files of a process in a container.
	containerPids   = 4096
	containerTmpMiB = 64 // The smallest directory in memory.
	containerReap   = 5 * time.Minute

	defaultRuntime = "runc"
	noGPUs         = "void" // The value of NVIDIA_VISIBLE_DEVICES with which the runtime adds nothing.
)

// ErrImage means that the image of an execution cannot be had.
var ErrImage = errors.New("image refused")

// containers executes code in containers of the machine's Docker engine.
type containers struct {
	cfg     *Config
	calls   *live.Calls
	turns   *live.Turns
	dirs    *live.Dirs
	live    *live.Attempts
	groups  *live.Groups
	pool    *resourcePool
	volumes *volumes
	log     *slog.Logger
	silent  prometheus.Gauge       // 1 while the engine does not answer.
	reaped  *prometheus.CounterVec // Counts what is removed.

	engine atomic.Pointer[engine] // nil until the engine of this machine has answered.
	watch  *engineWatch
}

// take adds the container of the work. The engine is asked for its network and for
// its image at the same time.
func (c *containers) take(
	ctx context.Context, a *live.Attempt, w compute.Work, bundle *compute.Bundle, res *resources,
) error {
	network, bad := "", error(nil)
	var others sync.WaitGroup
	ask := func() { network, bad = c.network(ctx, w, res) }
	if bundle.Compose == "" {
		others.Go(ask)
	} else if ask(); bad != nil { // A Compose file has to fit the addresses of the network.
		return bad
	}
	container, err := c.container(ctx, a, w, bundle, res)
	others.Wait()
	if err = cmp.Or(err, bad); err != nil {
		return err
	}
	container.Network = network
	res.container = container
	return nil
}

// network returns the name of the network of the work's containers.
func (c *containers) network(ctx context.Context, w compute.Work, res *resources) (string, error) {
	if w.Execution.Network == compute.NetworkNone {
		return docker.NoNetwork, nil
	}
	if c.pool.table == nil {
		res.notes = append(res.notes, "network: none ("+c.pool.why+")")
		return docker.NoNetwork, nil
	}
	link, subnet, addresses := c.pool.table.Bridge(res.slot.Number)
	res.addresses = addresses
	return c.engine.Load().Network(ctx, docker.Bridge{Slot: res.slot.Number, Link: link, Subnet: subnet})
}

// container returns the container of the work, with its image on the engine.
func (c *containers) container(
	ctx context.Context, a *live.Attempt, w compute.Work, bundle *compute.Bundle, res *resources,
) (*supervise.Container, error) {
	attempt := a.Key.String()
	limits := limitsOf(w, c.cfg.HostCPUs, c.cfg.HostMemoryMiB)
	engine := c.engine.Load()
	made := &supervise.Container{
		Engine: engine.Host(), Name: docker.Name(attempt), Labels: engine.Labels(attempt),
		Runtime: cmp.Or(c.cfg.Containers.Runtime, defaultRuntime),
		TmpMiB:  max(limits.memoryMiB/2, containerTmpMiB), Seccomp: engine.seccomp, MaxFiles: containerFiles,
	}
	if engine.Facts().Slices {
		made.Slice = docker.Slice(attempt)
	}
	if res.disk != nil {
		made.Device = res.disk.Name()
	}
	made.GPUs = deviceIDs(w.GPUs)
	var err error
	if made.Volumes, err = c.volumes.binds(w.Execution); err != nil {
		return nil, err
	}
	made.Volumes = append(made.Volumes, res.model...)
	if bundle.Compose != "" {
		return made, c.composeIn(ctx, a, w, bundle, res, made)
	}
	image, err := c.takeImage(ctx, a, w, w.Execution.Container.Images[0])
	if err != nil {
		return nil, err
	}
	made.Image = imageOf(image)
	made.Image.Command, made.Image.User = bundle.Command, bundle.User
	if image.WorkDir == "" || image.WorkDir == "/" {
		made.Image.WorkDir = sandbox.WorkDir
	}
	return made, nil
}

// deviceIDs returns the UUIDs of the GPUs that a container gets. Simulated ones are no
// devices.
func deviceIDs(gpus []compute.GPU) (ids []string) {
	for i := range gpus {
		if !gpus[i].Simulated {
			ids = append(ids, string(gpus[i].ID))
		}
	}
	return ids
}

// imageOf returns an image of the engine for a spec.
func imageOf(image *docker.Image) *supervise.ContainerImage {
	return &supervise.ContainerImage{
		ID: image.ID, Digest: image.Digest, Home: image.Home, Volumes: image.Volumes, StopWith: image.Stop,
	}
}

// composeIn adds what Docker Compose executes to the containers of the work: their
// images are on the engine, and each volume of the file has a disk.
func (c *containers) composeIn(
	ctx context.Context, a *live.Attempt, w compute.Work, bundle *compute.Bundle, res *resources,
	made *supervise.Container,
) error {
	engine := c.engine.Load()
	if engine.compose == "" {
		return compute.Errorf(compute.CodeUnavailable, "this node executes no Compose files: %s", engine.composeErr.Error())
	}
	file, faults := composefile.Parse(bundle.Compose, bundle.Env)
	if len(faults) > 0 {
		return compute.Errorf(compute.CodeInvalid, "compose file: %s", faults[0].Error())
	}
	if n := file.Containers(); res.addresses > 0 && n > res.addresses {
		return compute.Errorf(compute.CodeUnavailable,
			"this node is busy: the network has addresses for %d containers, not for %d", res.addresses, n)
	}
	made.Compose = &supervise.ContainerCompose{
		Program: engine.compose, Text: bundle.Compose, Interpolate: bundle.Env,
		Images: make(map[string]supervise.ContainerImage),
	}
	if err := c.internalNetworks(ctx, file, res, made); err != nil {
		return err
	}
	for _, ref := range file.Images() {
		image, err := c.takeImage(ctx, a, w, ref)
		if err != nil {
			return err
		}
		made.Compose.Images[ref] = *imageOf(image)
	}
	if len(file.Volumes) > 0 && c.pool.disks == nil {
		return compute.Errorf(compute.CodeUnavailable, "this node has no disk space for the volumes of a Compose file")
	}
	for range file.Volumes {
		disk, err := c.pool.disks.Take(ctx, w.Execution.ScratchMiB)
		if err != nil {
			return err
		}
		res.volumes = append(res.volumes, disk)
		if err := os.Chmod(fmt.Sprintf("/proc/self/fd/%d", disk.Fd()), os.ModeSticky|0o777); err != nil {
			return fmt.Errorf("prepare volume: %w", err)
		}
		made.Compose.Devices = append(made.Compose.Devices, disk.Name())
	}
	return nil
}

// internalNetworks adds the networks of a Compose file without a way out. On a machine
// without rules for networks there are none, as there is no other network.
func (c *containers) internalNetworks(
	ctx context.Context, file *composefile.File, res *resources, made *supervise.Container,
) (err error) {
	if c.pool.table == nil {
		if len(file.Internal) > 0 {
			res.notes = append(res.notes, "internal networks: none ("+c.pool.why+")")
		}
		return nil
	}
	var bridges []docker.Bridge
	for i := range file.Internal {
		b := docker.Bridge{Slot: res.slot.Number}
		if b.Link, b.Subnet, err = c.pool.table.Internal(b.Slot, i); err != nil {
			return err
		}
		bridges = append(bridges, b)
	}
	made.Compose.Internal, err = c.engine.Load().Internal(ctx, bridges)
	return err
}

// takeImage returns an image, pulled if need be. While it is pulled, the progress is in
// the output of the attempt.
func (c *containers) takeImage(
	ctx context.Context, a *live.Attempt, w compute.Work, ref string,
) (*docker.Image, error) {
	want := docker.Want{Ref: ref, Org: w.Execution.Org, Attempt: a.Key.String()}
	if c.cfg.Credentials != nil && len(w.Execution.Container.Credentials) > 0 {
		err := c.calls.Input(ctx, func(ctx context.Context) (err error) {
			want.Credentials, err = c.cfg.Credentials(ctx, w)
			return err
		})
		if compute.CodeOf(err) == compute.CodeInvalid {
			return nil, fmt.Errorf("%w: %w", ErrImage, err) // A secret that the user does not keep.
		}
		if err != nil {
			return nil, fmt.Errorf("%w: its registry credentials: %w", inputs.ErrUnread, err)
		}
	}
	ctx, wait := c.turns.Wait(ctx, a, "image")
	defer wait.End()
	image, err := c.engine.Load().Image(ctx, want, wait.Report)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case docker.IsRefusal(err):
		return nil, fmt.Errorf("%w: %w", ErrImage, err)
	}
	return image, err
}

// drop removes the containers of an attempt whose supervisor is dead.
func (c *containers) drop(k live.Key) {
	engine := c.engine.Load()
	if engine == nil {
		return
	}
	if err := engine.Remove(context.Background(), k.String()); err != nil {
		c.log.Error("containers not removed", "execution", k.Execution, "attempt", k.Epoch, "err", err)
	}
	c.groups.Host.Group(c.groups.Name(k)).RemoveLeft()
}

// reapEvery removes periodically what attempts left on the engine, until ctx ends. A supervisor
// that could not reach the engine leaves its containers, and so does an engine that
// answers late.
func (c *containers) reapEvery(ctx context.Context) {
	loop.Every(ctx, cmp.Or(c.cfg.Containers.ReapEvery, containerReap), func() {
		if err := c.reap(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("stale containers not looked for", "err", err)
		}
	})
}

// reap removes the containers of attempts that are not live and have no
// supervisor. An attempt is live before its container is made, so none of the list is
// one that just begins.
func (c *containers) reap(ctx context.Context) error {
	engine := c.engine.Load()
	if engine == nil {
		return nil
	}
	left, err := engine.Left(ctx)
	if err != nil {
		return err
	}
	for _, attempt := range left {
		if c.live.Has(attempt) || c.dirs.Supervised(attempt) {
			continue
		}
		if err := engine.Remove(ctx, attempt); err != nil {
			return err
		}
		c.reaped.WithLabelValues("container").Inc()
		c.log.Warn("stale container removed", "attempt", attempt)
	}
	return nil
}

// maxImageOffers is how many images a node says that it has.
const maxImageOffers = 100

// images returns the offers of the images that this node has pulled and used last.
func (c *containers) images() []compute.Offer {
	engine := c.engine.Load()
	if engine == nil {
		return nil
	}
	var offers []compute.Offer
	for _, ref := range engine.Refs() {
		if len(offers) < maxImageOffers {
			offers = append(offers, compute.ImageOffer(ref))
		}
	}
	return offers
}
