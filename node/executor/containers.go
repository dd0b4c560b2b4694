package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"berth/composefile"
	"berth/compute"
	"berth/loop"
	"berth/node/executor/docker"
	"berth/node/executor/egress"
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

// errImage means that the image of an execution cannot be had.
var errImage = errors.New("image refused")

// takeForContainers is takeForSandbox for code that executes in containers.
func (e *Executor) takeForContainers(
	ctx context.Context, a *attempt, w compute.Work, bundle *compute.Bundle, model []sandbox.Bind,
) (*resources, error) {
	slot, err := e.pool.slots.TakeOwned(e.cfg.Node.String(), egress.WideSlots)
	if err != nil {
		return nil, err
	}
	res := &resources{slot: slot, model: model}
	if bundle.Compose == "" {
		err = e.takeDisk(ctx, w.Execution, res)
	}
	if err != nil {
		return res, err
	}
	kept, err := e.keptVariables(ctx, w, bundle)
	if err != nil {
		return res, err
	}
	if res.variables, err = passVariables(kept); err != nil {
		return res, err
	}
	if err := e.takeContainer(ctx, a, w, bundle, res); err != nil {
		return res, err
	}
	if err := e.takeStorage(ctx, a, w, res); err != nil {
		return res, err
	}
	if res.mounted != nil {
		res.container.Volumes = append(res.container.Volumes, *res.mounted)
	}
	return res, nil
}

// takeContainer adds the container of the work. The engine is asked for its network and for
// its image at the same time.
func (e *Executor) takeContainer(
	ctx context.Context, a *attempt, w compute.Work, bundle *compute.Bundle, res *resources,
) error {
	network, bad := "", error(nil)
	var others sync.WaitGroup
	ask := func() { network, bad = e.containerNetwork(ctx, w, res) }
	if bundle.Compose == "" {
		others.Go(ask)
	} else if ask(); bad != nil { // A Compose file has to fit the addresses of the network.
		return bad
	}
	container, err := e.container(ctx, a, w, bundle, res)
	others.Wait()
	if err = cmp.Or(err, bad); err != nil {
		return err
	}
	container.Network = network
	res.container = container
	return nil
}

// containerNetwork returns the name of the network of the work's containers.
func (e *Executor) containerNetwork(ctx context.Context, w compute.Work, res *resources) (string, error) {
	if w.Execution.Network == compute.NetworkNone {
		return docker.NoNetwork, nil
	}
	if e.pool.table == nil {
		res.notes = append(res.notes, "network: none ("+e.pool.why+")")
		return docker.NoNetwork, nil
	}
	link, subnet, addresses := e.pool.table.Bridge(res.slot.Number)
	res.addresses = addresses
	return e.engine.Load().Network(ctx, docker.Bridge{Slot: res.slot.Number, Link: link, Subnet: subnet})
}

// container returns the container of the work, with its image on the engine.
func (e *Executor) container(
	ctx context.Context, a *attempt, w compute.Work, bundle *compute.Bundle, res *resources,
) (*supervise.Container, error) {
	attempt := a.key.String()
	limits := limitsOf(w, e.cfg.HostCPUs, e.cfg.HostMemoryMiB)
	engine := e.engine.Load()
	c := &supervise.Container{
		Engine: engine.Host(), Name: docker.Name(attempt), Labels: engine.Labels(attempt),
		Runtime: cmp.Or(e.cfg.Containers.Runtime, defaultRuntime),
		TmpMiB:  max(limits.memoryMiB/2, containerTmpMiB), Seccomp: engine.seccomp, MaxFiles: containerFiles,
	}
	if engine.Facts().Slices {
		c.Slice = docker.Slice(attempt)
	}
	if res.disk != nil {
		c.Device = res.disk.Name()
	}
	c.GPUs = deviceIDs(w.GPUs)
	var err error
	if c.Volumes, err = e.volumes(w.Execution); err != nil {
		return nil, err
	}
	c.Volumes = append(c.Volumes, res.model...)
	if bundle.Compose != "" {
		return c, e.composeIn(ctx, a, w, bundle, res, c)
	}
	image, err := e.takeImage(ctx, a, w, w.Execution.Container.Images[0])
	if err != nil {
		return nil, err
	}
	c.Image = imageOf(image)
	c.Image.Command, c.Image.User = bundle.Command, bundle.User
	if image.WorkDir == "" || image.WorkDir == "/" {
		c.Image.WorkDir = sandbox.WorkDir
	}
	return c, nil
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
func (e *Executor) composeIn(
	ctx context.Context, a *attempt, w compute.Work, bundle *compute.Bundle, res *resources, c *supervise.Container,
) error {
	engine := e.engine.Load()
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
	c.Compose = &supervise.ContainerCompose{
		Program: engine.compose, Text: bundle.Compose, Interpolate: bundle.Env,
		Images: make(map[string]supervise.ContainerImage),
	}
	if err := e.internalNetworks(ctx, file, res, c); err != nil {
		return err
	}
	for _, ref := range file.Images() {
		image, err := e.takeImage(ctx, a, w, ref)
		if err != nil {
			return err
		}
		c.Compose.Images[ref] = *imageOf(image)
	}
	if len(file.Volumes) > 0 && e.disks == nil {
		return compute.Errorf(compute.CodeUnavailable, "this node has no disk space for the volumes of a Compose file")
	}
	for range file.Volumes {
		disk, err := e.disks.Take(ctx, w.Execution.ScratchMiB)
		if err != nil {
			return err
		}
		res.volumes = append(res.volumes, disk)
		if err := os.Chmod(fmt.Sprintf("/proc/self/fd/%d", disk.Fd()), os.ModeSticky|0o777); err != nil {
			return fmt.Errorf("prepare volume: %w", err)
		}
		c.Compose.Devices = append(c.Compose.Devices, disk.Name())
	}
	return nil
}

// internalNetworks adds the networks of a Compose file without a way out. On a machine
// without rules for networks there are none, as there is no other network.
func (e *Executor) internalNetworks(
	ctx context.Context, file *composefile.File, res *resources, c *supervise.Container,
) (err error) {
	if e.pool.table == nil {
		if len(file.Internal) > 0 {
			res.notes = append(res.notes, "internal networks: none ("+e.pool.why+")")
		}
		return nil
	}
	var bridges []docker.Bridge
	for i := range file.Internal {
		b := docker.Bridge{Slot: res.slot.Number}
		if b.Link, b.Subnet, err = e.pool.table.Internal(b.Slot, i); err != nil {
			return err
		}
		bridges = append(bridges, b)
	}
	c.Compose.Internal, err = e.engine.Load().Internal(ctx, bridges)
	return err
}

// takeImage returns an image, pulled if need be. While it is pulled, the progress is in
// the output of the attempt.
func (e *Executor) takeImage(ctx context.Context, a *attempt, w compute.Work, ref string) (*docker.Image, error) {
	want := docker.Want{Ref: ref, Org: w.Execution.Org, Attempt: a.key.String()}
	if e.cfg.Credentials != nil && len(w.Execution.Container.Credentials) > 0 {
		limited, cancel := context.WithTimeout(ctx, bundleTimeout)
		defer cancel()
		err := e.repeat(limited, func(ctx context.Context) (err error) {
			want.Credentials, err = e.cfg.Credentials(ctx, w)
			return err
		})
		if compute.CodeOf(err) == compute.CodeInvalid {
			return nil, fmt.Errorf("%w: %w", errImage, err) // A secret that the user does not keep.
		}
		if err != nil {
			return nil, fmt.Errorf("%w: its registry credentials: %w", errInputs, err)
		}
	}
	// Others start meanwhile.
	<-e.starting
	defer func() { e.starting <- struct{}{} }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go e.watchStop(ctx, a, cancel)
	out := &installLog{path: filepath.Join(e.dir(a.key), supervise.OutputFile), prefix: "image", now: e.cfg.Now}
	defer out.release()
	image, err := e.engine.Load().Image(ctx, want, out.line)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case docker.IsRefusal(err):
		return nil, fmt.Errorf("%w: %w", errImage, err)
	}
	return image, err
}

// containerEnvironment returns the variables of code in a container: those of the
// bundle and of Berth. The image has the rest.
func (e *Executor) containerEnvironment(w compute.Work, bundle *compute.Bundle, c *supervise.Container) []string {
	env := make(map[string]string)
	if c.Image != nil && !c.Image.Home {
		env["HOME"] = sandbox.WorkDir
	}
	addVariables(env, bundle.Env)
	maps.DeleteFunc(env, func(name, _ string) bool { return strings.HasPrefix(name, composefile.GPUVariables) })
	addOwn(env, w)
	env["NVIDIA_VISIBLE_DEVICES"] = cmp.Or(strings.Join(c.GPUs, ","), noGPUs)
	return pairs(env)
}

// inContainers reports whether the code of an attempt executes in containers, as the
// spec for its supervisor says.
func (e *Executor) inContainers(k key) bool {
	spec, err := supervise.ReadSpec(e.dir(k))
	return err != nil || spec.Container != nil // Without a spec, anything may be left.
}

// dropContainers removes the containers of an attempt whose supervisor is dead.
func (e *Executor) dropContainers(k key) {
	engine := e.engine.Load()
	if engine == nil {
		return
	}
	if err := engine.Remove(context.Background(), k.String()); err != nil {
		e.log.Error("containers not removed", "execution", k.execution, "attempt", k.epoch, "err", err)
	}
	e.cgroups.Group(e.groupName(k)).RemoveLeft()
}

// reapEvery removes periodically what attempts left on the engine, until ctx ends. A supervisor
// that could not reach the engine leaves its containers, and so does an engine that
// answers late.
func (e *Executor) reapEvery(ctx context.Context) {
	loop.Every(ctx, cmp.Or(e.cfg.Containers.ReapEvery, containerReap), func() {
		if err := e.reapContainers(ctx); err != nil && ctx.Err() == nil {
			e.log.Warn("stale containers not looked for", "err", err)
		}
	})
}

// reapContainers removes the containers of attempts that are not live and have no
// supervisor. An attempt is live before its container is made, so none of the list is
// one that just begins.
func (e *Executor) reapContainers(ctx context.Context) error {
	engine := e.engine.Load()
	if engine == nil {
		return nil
	}
	left, err := engine.Left(ctx)
	if err != nil {
		return err
	}
	for _, attempt := range left {
		if e.isLive(attempt) || e.supervised(attempt) {
			continue
		}
		if err := engine.Remove(ctx, attempt); err != nil {
			return err
		}
		e.metrics.reaped.WithLabelValues("container").Inc()
		e.log.Warn("stale container removed", "attempt", attempt)
	}
	return nil
}

// isLive reports whether an attempt is being prepared or supervised.
func (e *Executor) isLive(attempt string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for k := range e.attempts {
		if k.String() == attempt {
			return true
		}
	}
	return false
}

// maxImageOffers is how many images a node says that it has.
const maxImageOffers = 100

// Images returns the offers of the images that this node has pulled and used last.
func (e *Executor) Images() []compute.Offer {
	if e == nil || e.engine.Load() == nil {
		return nil
	}
	var offers []compute.Offer
	for _, ref := range e.engine.Load().Refs() {
		if len(offers) < maxImageOffers {
			offers = append(offers, compute.ImageOffer(ref))
		}
	}
	return offers
}
