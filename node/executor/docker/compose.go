package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"berth/composefile"
	"berth/node/executor/cgroup"
	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

// Files of an attempt that executes a Compose file, in its directory.
const (
	ComposeFile    = "compose.json" // The file that Docker Compose executes; no value of a variable is in it.
	composeSeccomp = "seccomp.json"
)

const (
	removals     = 2 // How often what is left is looked for.
	minimumMajor = 2 // Docker Compose 1 is another program.
)

// FindCompose returns the program of Docker Compose on this machine and its version. The
// name is that of a program, or "" to look where packages put it.
func FindCompose(ctx context.Context, name string) (program, version string, err error) {
	candidates := []string{name}
	if name == "" {
		candidates = []string{"docker-compose"}
		for _, dir := range []string{
			"/usr/libexec/docker/cli-plugins", "/usr/lib/docker/cli-plugins",
			"/usr/local/libexec/docker/cli-plugins", "/usr/local/lib/docker/cli-plugins",
		} {
			candidates = append(candidates, filepath.Join(dir, "docker-compose"))
		}
	}
	err = errors.New("docker-compose is not installed")
	for _, candidate := range candidates {
		found, bad := exec.LookPath(candidate)
		if bad != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, openTimeout)
		out, bad := exec.CommandContext(ctx, found, "version", "--short").Output()
		cancel()
		version := strings.TrimPrefix(strings.TrimSpace(string(out)), "v")
		major, _ := strconv.Atoi(strings.SplitN(version, ".", 2)[0])
		switch {
		case bad != nil:
			err = fmt.Errorf("ask %s for its version: %w", found, bad)
		case major < minimumMajor && version != "dev":
			err = fmt.Errorf("%s is version %s: version %d or newer is needed", found, version, minimumMajor)
		default:
			return found, version, nil
		}
	}
	return "", "", err
}

// composed is the containers of a Compose file, which Docker Compose executes.
type composed struct {
	api     *client.Client
	group   *cgroup.Group
	attempt string
	grace   time.Duration // How long the services may take to stop.
	cmd     *exec.Cmd
	started chan struct{} // Closed once cmd has been started, or failed to,
	ended   chan struct{} // and once it has ended.
	files   []*os.File    // Its output.
	removed chan struct{}
	stuck   atomic.Bool // Docker Compose did not notice that a container failed.
}

// openCompose writes the file that Docker Compose executes.
func openCompose(spec *supervise.Spec, group *cgroup.Group, stdout, stderr *os.File) (supervise.Box, error) {
	api, err := client.New(client.WithHost(spec.Container.Engine))
	if err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	environment, err := writeCompose(spec, group)
	if err != nil {
		return nil, err
	}
	b := &composed{
		api: api, group: group, attempt: spec.Container.Labels[labelAttempt], grace: spec.StopGrace,
		started: make(chan struct{}), ended: make(chan struct{}),
	}
	for _, file := range []*os.File{stdout, stderr} {
		fd, err := syscall.Dup(int(file.Fd()))
		if err != nil {
			return nil, fmt.Errorf("pass output: %w", err)
		}
		syscall.CloseOnExec(fd)
		b.files = append(b.files, os.NewFile(uintptr(fd), file.Name()))
	}
	b.cmd = exec.CommandContext(context.Background(), spec.Container.Compose.Program,
		"--ansi", "never", "--progress", "quiet", "--file", ComposeFile,
		"up", "--abort-on-container-failure", "--no-color", "--no-build", "--pull", "never", "--menu=false")
	b.cmd.Stdout, b.cmd.Stderr = b.files[0], b.files[1]
	// A group of its own: signals to the supervisor are not Docker Compose's.
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	b.cmd.Env = append(environment, "DOCKER_HOST="+spec.Container.Engine, "HOME=/nonexistent", "PATH=/usr/bin:/bin",
		"COMPOSE_MENU=false", "DOCKER_CONFIG=/nonexistent")
	return b, nil
}

// writeCompose writes the file for Docker Compose, and returns the environment whose
// values it names.
func writeCompose(spec *supervise.Spec, group *cgroup.Group) (environment []string, err error) {
	c := spec.Container
	file, faults := composefile.Parse(c.Compose.Text, c.Compose.Interpolate)
	if len(faults) > 0 {
		return nil, fmt.Errorf("%w: compose file: %w", sandbox.ErrProgram, faults[0])
	}
	values := make(map[string]string)
	for _, pair := range spec.Sandbox.Env {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = value
	}
	variables, environment := composefile.Interpolated(values)
	frame := &composefile.Frame{
		Project: strings.ToLower(strings.ReplaceAll(c.Name, ".", "-")), Labels: c.Labels, Network: c.Network,
		Parent: c.Slice, Runtime: c.Runtime, Images: make(map[string]composefile.Image), Devices: c.Compose.Devices,
		Variables: variables, GPUs: c.GPUs, MemoryMiB: spec.MemoryMiB, CPUMilli: spec.CPUMilli, Pids: spec.Pids,
		MaxFiles: c.MaxFiles, TmpMiB: c.TmpMiB, Grace: spec.StopGrace,
	}
	if frame.Parent == "" {
		frame.Parent, frame.CPUMilli = group.Parent(), 0 // The group limits all together.
	}
	for _, n := range c.Compose.Internal {
		frame.Internal = append(frame.Internal, composefile.Network(n))
	}
	for _, v := range c.Volumes {
		frame.Binds = append(frame.Binds, composefile.Bind{Source: v.Source, Target: v.Target, ReadOnly: !v.Writable})
	}
	for ref, image := range maps.All(c.Compose.Images) {
		frame.Images[ref] = composefile.Image{ID: image.ID, Volumes: image.Volumes, Home: image.Home}
	}
	if c.Seccomp != "" {
		if err := os.WriteFile(composeSeccomp, []byte(c.Seccomp), 0o600); err != nil {
			return nil, fmt.Errorf("write seccomp profile: %w", err)
		}
		frame.Seccomp = composeSeccomp
	}
	text, err := file.Emit(frame)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(ComposeFile, text, 0o600); err != nil {
		return nil, fmt.Errorf("write compose file: %w", err)
	}
	return environment, nil
}

// Await returns at once: Docker Compose makes the containers when it starts them.
func (b *composed) Await() error { return nil }

// Execute starts Docker Compose.
func (b *composed) Execute(time.Duration) error {
	defer close(b.started)
	if err := b.cmd.Start(); err != nil {
		return fmt.Errorf("start docker compose: %w", err)
	}
	return nil
}

// Wait waits until Docker Compose ends: once all containers have ended, or one failed,
// whose exit code it has then. If other services wait for the one that failed, Docker Compose
// exits with another code, or never.
func (b *composed) Wait() (sandbox.Exit, error) {
	go b.endStuck()
	err := b.cmd.Wait()
	close(b.ended)
	exit := sandbox.Exit{}
	if status, ok := b.cmd.ProcessState.Sys().(syscall.WaitStatus); ok {
		exit.Status = status
	} else if err != nil {
		return exit, fmt.Errorf("wait for docker compose: %w", err)
	}
	if exit.Status.ExitStatus() == composeCode || b.stuck.Load() {
		if code := b.firstFailure(); code > 0 {
			exit.Status = syscall.WaitStatus(code << 8)
		}
	}
	if exit.Status.ExitStatus() == killedCode {
		exit.OOM = slices.ContainsFunc(b.states(), func(s *container.State) bool { return s.OOMKilled })
	}
	return exit, nil
}

// Kill kills Docker Compose. The cgroup holds the containers.
func (b *composed) Kill() error {
	select {
	case <-b.started:
	default:
		return nil // It is killed once it has started.
	}
	if b.cmd.Process == nil {
		return nil
	}
	if err := b.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill docker compose: %w", err)
	}
	return nil
}

// Process returns 0: the services of a file have networks of their own.
func (b *composed) Process() int { return 0 }

// Close begins to remove the containers, their volumes and their networks.
func (b *composed) Close() syscall.WaitStatus {
	if b.removed != nil {
		return 0
	}
	for _, file := range b.files {
		file.Close()
	}
	b.removed = make(chan struct{})
	go func() {
		defer close(b.removed)
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		// The engine may still carry out what Docker Compose asked for before it ended.
		for range removals {
			if err := removeAttempt(ctx, b.api, b.attempt); err != nil {
				fmt.Fprintln(os.Stderr, err) // The node removes them later.
			}
		}
		b.group.RemoveLeft()
	}()
	return 0
}

// Release waits until everything is removed.
func (b *composed) Release() {
	if b.removed == nil {
		b.Close()
	}
	<-b.removed
	_ = b.api.Close() // Only idle connections are left.
}
