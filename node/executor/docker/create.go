package docker

import (
	"fmt"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/go-units"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

const (
	oomScore  = 500       // The OOM killer's first choice.
	tmpParts  = 2         // A directory in memory has at most this part of the memory limit.
	stickyDir = 0o1777    // Everybody may write there.
	nanoCPUs  = 1_000_000 // A thousandth of a core.
)

// request returns the request that makes the container of a spec. It is an allow
// list: options that it does not name have the engine's defaults.
func request(spec *supervise.Spec, parent string) client.ContainerCreateOptions {
	c, image := spec.Container, spec.Container.Image
	off := false
	pids := spec.Pids
	host := &container.HostConfig{
		LogConfig:      container.LogConfig{Type: "none"}, // The supervisor has the output.
		NetworkMode:    container.NetworkMode(c.Network),
		RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyDisabled},
		CapDrop:        []string{"ALL"},
		SecurityOpt:    securityOptions(c),
		CgroupnsMode:   container.CgroupnsModePrivate,
		IpcMode:        container.IPCModePrivate,
		ReadonlyRootfs: true,
		OomScoreAdj:    oomScore,
		ShmSize:        c.TmpMiB << 20,
		Runtime:        c.Runtime,
		Mounts:         mounts(c),
		Resources: container.Resources{
			Memory: spec.MemoryMiB << 20, MemorySwap: spec.MemoryMiB << 20,
			PidsLimit: &pids, OomKillDisable: &off, CgroupParent: parent,
			Ulimits: []*units.Ulimit{
				{Name: "nofile", Soft: c.MaxFiles, Hard: c.MaxFiles}, {Name: "core"},
			},
		},
	}
	if c.Slice != "" {
		host.NanoCPUs = spec.CPUMilli * nanoCPUs
	}
	if len(c.GPUs) > 0 {
		host.DeviceRequests = []container.DeviceRequest{{
			Driver: "nvidia", DeviceIDs: c.GPUs, Capabilities: [][]string{{"gpu"}},
		}}
	}
	return client.ContainerCreateOptions{
		Name: c.Name,
		Config: &container.Config{
			Hostname: "berth", Image: image.ID, Cmd: image.Command, User: image.User, WorkingDir: image.WorkDir,
			Env: spec.Sandbox.Env, Labels: c.Labels, AttachStdout: true, AttachStderr: true,
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}}, // Services have a probe of their own.
		},
		HostConfig: host,
	}
}

// securityOptions returns the options of the kernel's security modules.
func securityOptions(c *supervise.Container) []string {
	options := []string{"no-new-privileges"}
	if c.Seccomp != "" {
		options = append(options, "seccomp="+c.Seccomp)
	}
	return options
}

// mounts returns the mounts of the container: the scratch space at the work
// directory, the operator's volumes, and directories in memory.
func mounts(c *supervise.Container) []mount.Mount {
	var all []mount.Mount
	inMemory := func(target string) {
		all = append(all, mount.Mount{
			Type: mount.TypeTmpfs, Target: target,
			TmpfsOptions: &mount.TmpfsOptions{SizeBytes: c.TmpMiB << 20, Mode: stickyDir},
		})
	}
	taken := map[string]bool{}
	if c.Device != "" {
		all = append(all, mount.Mount{
			Type: mount.TypeVolume, Target: sandbox.WorkDir,
			VolumeOptions: &mount.VolumeOptions{
				NoCopy: true, Labels: c.Labels,
				DriverConfig: &mount.Driver{
					Name: "local", Options: map[string]string{"type": "ext4", "device": c.Device, "o": "nosuid,nodev"},
				},
			},
		})
	} else {
		inMemory(sandbox.WorkDir)
	}
	taken[sandbox.WorkDir] = true
	for _, v := range c.Volumes {
		all = append(all, mount.Mount{
			Type: mount.TypeBind, Source: v.Source, Target: v.Target, ReadOnly: !v.Writable,
			BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate, NonRecursive: true},
		})
		taken[v.Target] = true
	}
	for _, target := range append([]string{"/tmp", "/var/tmp", "/run"}, c.Image.Volumes...) {
		if !taken[target] {
			taken[target] = true
			inMemory(target)
		}
	}
	return all
}

// unreachable reports whether the engine was not reached, or is not ready.
func unreachable(err error) bool {
	return client.IsErrConnectionFailed(err) || cerrdefs.IsUnavailable(err)
}

// notExecutable reports whether the engine's error says that the program of the image
// cannot be executed, which is the user's to fix.
func notExecutable(err error) bool {
	text := err.Error()
	for _, part := range []string{
		"executable file not found", "exec format error", "no command specified", "unable to find user",
		"no matching entries in passwd file",
	} {
		if strings.Contains(text, part) {
			return true
		}
	}
	_, program, found := strings.Cut(text, "exec: ") // The rest is about the program itself.
	return found && (strings.Contains(program, "no such file or directory") ||
		strings.Contains(program, "permission denied") ||
		strings.Contains(program, "not a directory"))
}

// asProgramError returns an engine's error about the user's program as such.
func asProgramError(err error) error {
	if unreachable(err) || !notExecutable(err) {
		return err
	}
	return fmt.Errorf("%w: %s", sandbox.ErrProgram, lastCause(err.Error()))
}

// lastCause returns the end of an engine's error, which is about the program. The text
// before it names the parts of the engine that failed to start the program.
func lastCause(text string) string {
	if i := strings.Index(text, "exec: "); i >= 0 {
		text = text[i+len("exec: "):]
	}
	return strings.TrimSuffix(strings.TrimSpace(text), ": unknown")
}
