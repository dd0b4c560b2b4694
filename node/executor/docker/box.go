package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"

	"berth/compute"
	"berth/loop"
	"berth/node/executor/cgroup"
	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

// Command is the argument by which the program reaches Main.
const Command = "supervise-container"

// Main supervises an attempt in a container. Its argument is that of a supervisor of
// sandboxes. It returns the exit code of the process.
func Main(args []string) int { return supervise.MainIn(args, open) }

// TakeOver calls Main, and ends the process, if this process was started to supervise
// an attempt in containers. Programs and tests that start attempts call it first.
func TakeOver() {
	if len(os.Args) >= 2 && os.Args[0] == "berth" && os.Args[1] == Command {
		os.Exit(Main(os.Args[2:])) //nolint:forbidigo // This process is no node.
	}
}

const (
	killedCode = 137                    // The exit code after SIGKILL.
	askAgain   = 200 * time.Millisecond // While the engine restarts.
	giveUp     = 5 * time.Minute        // After which the end of a container counts as not known.
)

// box is the container of one attempt.
type box struct {
	api     *client.Client
	group   *cgroup.Group
	made    chan struct{} // Closed once the container is made, or cannot be made.
	err     error         // Why it cannot be made. It and id are set before made is closed.
	id      string        // Empty if there is no container.
	stop    string        // The signal that asks the code to end.
	waiting client.ContainerWaitResult
	died    chan int      // Gets the exit code of the container once it has ended, if the engine says so in time.
	quiet   func()        // Ends the events of the engine.
	removed chan struct{} // Closed once nothing is left; nil before Close.
	killed  atomic.Bool   // Kill was called.
}

// open makes the box of an attempt: one container, or those of a Compose file.
func open(spec *supervise.Spec, group *cgroup.Group, stdout, stderr *os.File) (supervise.Box, error) {
	if spec.Container.Compose != nil {
		return openCompose(spec, group, stdout, stderr)
	}
	return openContainer(spec, group, stdout, stderr)
}

// openContainer begins to make the container of an attempt, while the supervisor makes the
// start durable. It does not start it.
func openContainer(spec *supervise.Spec, group *cgroup.Group, stdout, stderr *os.File) (supervise.Box, error) {
	api, err := client.New(client.WithHost(spec.Container.Engine))
	if err != nil {
		return nil, fmt.Errorf("make container: %w", err)
	}
	out, err := duplicates(stdout, stderr)
	if err != nil {
		return nil, errors.Join(err, api.Close())
	}
	b := &box{
		api: api, group: group, made: make(chan struct{}), stop: spec.Container.Image.StopWith, died: make(chan int, 1),
	}
	var ctx context.Context
	ctx, b.quiet = context.WithCancel(context.Background())
	go b.hear(ctx, spec.Container.Name)
	go func() {
		defer close(b.made)
		if b.err = b.make(spec, out); b.err != nil {
			out[0].Close()
			out[1].Close()
		}
	}()
	return b, nil
}

// make makes the container, whose output goes to out.
func (b *box) make(spec *supervise.Spec, out [2]*os.File) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := ownScratch(spec); err != nil {
		return err
	}
	parent := spec.Container.Slice
	if parent == "" {
		parent = b.group.Parent()
	}
	made, err := b.api.ContainerCreate(ctx, request(spec, parent))
	if err != nil {
		return fmt.Errorf("make container: %w", asProgramError(err))
	}
	b.id = made.ID
	return b.attach(ctx, out)
}

// hear waits for the event that the container has ended. The engine answers the question
// for that only once it has disconnected the networks and unmounted the volumes.
func (b *box) hear(ctx context.Context, name string) {
	heard := b.api.Events(ctx, client.EventsListOptions{
		Filters: make(client.Filters).Add("container", name).Add("event", string(events.ActionDie)),
	})
	for {
		select {
		case event := <-heard.Messages:
			code, err := strconv.Atoi(event.Actor.Attributes["exitCode"])
			if err == nil && event.Actor.Attributes["name"] == name { // The engine compares beginnings of names.
				b.died <- code
				return
			}
		case <-heard.Err: //nolint:errcheck // As below.
			return // The answer to the question remains.
		}
	}
}

// duplicates returns files of the box's own for the output of the code.
func duplicates(files ...*os.File) (out [2]*os.File, err error) {
	for i, file := range files {
		fd, err := syscall.Dup(int(file.Fd()))
		if err != nil {
			if i > 0 {
				out[0].Close()
			}
			return out, fmt.Errorf("pass output: %w", err)
		}
		syscall.CloseOnExec(fd)
		out[i] = os.NewFile(uintptr(fd), file.Name())
	}
	return out, nil
}

// ownScratch lets every user of the container write to the scratch space, and puts the
// files of the execution there.
func ownScratch(spec *supervise.Spec) error {
	if !spec.Sandbox.ScratchDisk {
		return nil
	}
	scratch := fmt.Sprintf("/proc/self/fd/%d", supervise.FDScratch)
	if err := os.Chmod(scratch, os.ModeSticky|0o777); err != nil {
		return fmt.Errorf("make container: %w", err)
	}
	work, err := os.Open(supervise.WorkFile)
	if err != nil {
		return fmt.Errorf("make container: %w", err)
	}
	defer work.Close()
	if err := sandbox.Unpack(work, scratch); err != nil {
		return fmt.Errorf("%w: %w", sandbox.ErrProgram, err) // They do not fit.
	}
	return nil
}

// attach copies the output of the container to the files until it ends. The output
// is complete when they are closed.
func (b *box) attach(ctx context.Context, out [2]*os.File) error {
	// The engine ties the stream to the request's context.
	stream, err := b.api.ContainerAttach(context.WithoutCancel(ctx), b.id, client.ContainerAttachOptions{
		Stream: true, Stdout: true, Stderr: true,
	})
	if err != nil {
		return fmt.Errorf("attach to container: %w", err)
	}
	go func() {
		defer stream.Close()
		// An error ends the output. The end of the container has its reason.
		_, _ = stdcopy.StdCopy(out[0], out[1], stream.Reader)
		_, _ = io.Copy(io.Discard, stream.Reader)
		out[0].Close()
		out[1].Close()
	}()
	return nil
}

// Await returns once the container is made.
func (b *box) Await() error {
	<-b.made
	return b.err
}

// Execute starts the container.
func (b *box) Execute(extra time.Duration) error {
	// Asked for first, no end can be missed.
	b.waiting = b.api.ContainerWait(context.Background(), b.id, client.ContainerWaitOptions{
		Condition: container.WaitConditionNextExit,
	})
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout+extra)
	defer cancel()
	_, err := b.api.ContainerStart(ctx, b.id, client.ContainerStartOptions{})
	switch {
	case err == nil:
		return nil
	case cerrdefs.IsUnavailable(err) || client.IsErrConnectionFailed(err) || ctx.Err() != nil:
		return fmt.Errorf("%w: start container: %w", sandbox.ErrNoReport, err)
	}
	return fmt.Errorf("start container: %w", asProgramError(err))
}

// Wait waits for the end of the container. If the engine restarts meanwhile, it asks
// again.
func (b *box) Wait() (sandbox.Exit, error) {
	select {
	case code := <-b.died:
		return b.exit(code), nil
	case end := <-b.waiting.Result:
		if end.Error == nil {
			return b.exit(int(end.StatusCode)), nil
		}
	case <-b.waiting.Error: //nolint:errcheck // It is asked again.
	}
	until := time.Now().Add(giveUp) //nolint:forbidigo // Only how long it takes.
	for {
		ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
		found, err := b.api.ContainerInspect(ctx, b.id, client.ContainerInspectOptions{})
		cancel()
		switch {
		case err == nil && found.Container.State != nil && !found.Container.State.Running:
			return b.exit(found.Container.State.ExitCode), nil
		case cerrdefs.IsNotFound(err):
			return sandbox.Exit{}, fmt.Errorf("wait for container: %w", err)
		case err != nil && time.Now().After(until): //nolint:forbidigo // As above.
			return sandbox.Exit{}, fmt.Errorf("wait for container: %w", err)
		}
		time.Sleep(askAgain) //nolint:forbidigo // The engine tells nobody that it is back.
	}
}

// exit returns how the container ended.
func (b *box) exit(code int) sandbox.Exit {
	exit := sandbox.Exit{Status: syscall.WaitStatus(code << 8)}
	if code != killedCode {
		return exit
	}
	ctx, cancel := context.WithTimeout(context.Background(), oomWait)
	defer cancel()
	for {
		found, err := b.api.ContainerInspect(ctx, b.id, client.ContainerInspectOptions{})
		if err != nil || found.Container.State == nil {
			return exit
		}
		// The engine hears of the end and of its reason from two sources, in any order.
		exit.OOM = found.Container.State.OOMKilled
		if exit.OOM || b.killed.Load() || !loop.Sleep(ctx, oomPoll) {
			return exit
		}
	}
}

// How long the engine may take to say that the kernel killed a program for its memory.
const (
	oomWait = 3 * time.Second // On a busy machine it was more than one.
	oomPoll = 50 * time.Millisecond
)

// Terminate sends the signal by which the image wants to be stopped.
func (b *box) Terminate() error { return b.signal(b.stop) }

// Kill kills the container.
func (b *box) Kill() error {
	b.killed.Store(true)
	return b.signal("SIGKILL")
}

func (b *box) signal(name string) error {
	if <-b.made; b.id == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	_, err := b.api.ContainerKill(ctx, b.id, client.ContainerKillOptions{Signal: name})
	if err != nil && !cerrdefs.IsNotFound(err) && !cerrdefs.IsConflict(err) { // Conflict: it does not run.
		return fmt.Errorf("signal container: %w", err)
	}
	return nil
}

// Process returns the first process of the container, 0 if it does not run.
func (b *box) Process() int {
	if <-b.made; b.id == "" {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	found, err := b.api.ContainerInspect(ctx, b.id, client.ContainerInspectOptions{})
	if err != nil || found.Container.State == nil {
		return 0
	}
	return found.Container.State.Pid
}

// Close begins to remove the container.
func (b *box) Close() syscall.WaitStatus {
	if b.removed != nil {
		return 0
	}
	b.removed = make(chan struct{})
	go func() {
		defer close(b.removed)
		defer b.group.RemoveLeft()
		b.quiet()
		if <-b.made; b.id == "" {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		_, err := b.api.ContainerRemove(ctx, b.id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if err != nil && !cerrdefs.IsNotFound(err) && !cerrdefs.IsConflict(err) {
			fmt.Fprintln(os.Stderr, "remove container:", err) // The node removes it later.
		}
	}()
	return 0
}

// Release waits until the container is removed.
func (b *box) Release() {
	if b.removed == nil {
		b.Close()
	}
	<-b.removed
	_ = b.api.Close() // Only idle connections are left.
}

// errNoImage is the refusal of an image.
func errNoImage(format string, args ...any) error {
	return compute.Errorf(compute.CodeInvalid, format, args...).Named("image")
}

// IsRefusal reports whether an error of Engine is the user's to fix: the image does not
// exist, may not be pulled, or does not fit this machine.
func IsRefusal(err error) bool {
	e, ok := errors.AsType[*compute.Error](err)
	return ok && e.Code == compute.CodeInvalid
}
