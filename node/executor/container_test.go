package executor_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"berth/compute"
	"berth/node/executor"
	"berth/node/executor/docker"
	"berth/node/executor/docker/dockertest"
	"berth/node/executor/supervise"
)

// newDockerNode returns a node that executes containers on a real engine.
func newDockerNode(t *testing.T, change func(*executor.Config)) *node {
	t.Helper()
	host := dockertest.Host(t)
	dockertest.Probe(t)
	return newNode(t, func(c *executor.Config) {
		c.Containers.Host = host
		if change != nil {
			change(c)
		}
	})
}

// newContainer returns an attempt to execute a command in a container of the probe image.
func (n *node) newContainer(command []string, change func(*compute.Work)) compute.Work {
	n.t.Helper()
	w := n.newWork(compute.Bundle{Command: command, Env: map[string]string{"COLOUR": "green"}})
	w.Execution.Kind = compute.KindDocker
	w.Execution.Container = &compute.Container{Images: []string{dockertest.Image}}
	w.Execution.Request.MemoryMiB = 64
	if change != nil {
		change(&w)
	}
	return w
}

// left returns how many containers and volumes of the node there are on the engine.
func (n *node) left(api *client.Client) int {
	n.t.Helper()
	label := make(client.Filters).Add("label", "berth.node="+n.cfg.Node.String())
	containers, err := api.ContainerList(context.Background(), client.ContainerListOptions{All: true, Filters: label})
	if err != nil {
		n.t.Fatal(err)
	}
	volumes, err := api.VolumeList(context.Background(), client.VolumeListOptions{Filters: label})
	if err != nil {
		n.t.Fatal(err)
	}
	return len(containers.Items) + len(volumes.Items)
}

// containerEndings are executions of containers, and how they end.
var containerEndings = []struct {
	name    string
	command []string
	change  func(*compute.Work)
	status  compute.Status
	reason  compute.Reason
	code    int
	output  string // In the output, or in the detail of the outcome.
}{
	{name: "output", command: []string{"print", "hello"}, output: "hello\n"},
	{name: "variables", command: []string{"env"}, output: "COLOUR=green\n"},
	{name: "no GPUs by default", command: []string{"env"}, output: "NVIDIA_VISIBLE_DEVICES=void\n"},
	{name: "work directory", command: []string{"write", "file", "0"}},
	{name: "temporary files", command: []string{"write", "/tmp/file", "1"}},
	{name: "user of the image", command: []string{"id"}, output: "0 0\n"},
	{
		name: "exit code", command: []string{"exit", "7"}, status: compute.StatusFailed,
		reason: compute.ReasonExitCode, code: 7,
	},
	{
		name: "memory limit", command: []string{"alloc", "200"}, status: compute.StatusFailed,
		reason: compute.ReasonOutOfMemory, code: 137, output: "memory limit of 64 MiB",
	},
	{
		name: "time limit", command: []string{"sleep", "60"}, change: func(w *compute.Work) { w.Execution.Timeout = time.Second },
		status: compute.StatusFailed, reason: compute.ReasonTimeout, code: 137, output: "time limit of 1 s reached",
	},
	{
		name: "no such image", change: func(w *compute.Work) { w.Execution.Container.Images[0] = "10.0.0.1:5000/nothing:1" },
		status: compute.StatusFailed, reason: compute.ReasonImage, output: "not a public address",
	},
	{
		name: "another architecture", change: func(w *compute.Work) { w.Execution.Container.Images[0] = foreignImage },
		status: compute.StatusFailed, reason: compute.ReasonImage, output: "is for linux/s390x",
	},
	{
		name: "no such program", change: func(w *compute.Work) { w.Execution.Container.Images[0] = brokenImage },
		status: compute.StatusFailed, reason: compute.ReasonStartFailed, output: "no such file or directory",
	},
	{name: "read-only root", command: []string{"write", "/file", "0"}, status: compute.StatusFailed, reason: compute.ReasonExitCode, code: 1, output: "read-only"},
	{
		name: "processes", command: []string{"forks", "6000"}, status: compute.StatusFailed, reason: compute.ReasonOutOfMemory, code: 137,
	},
}

const (
	foreignImage = "berth.test/foreign:1"
	brokenImage  = "berth.test/broken:1"
)

// TestContainers executes containers as users do, and checks how they end, and that
// nothing of them is left.
func TestContainers(t *testing.T) {
	n := newDockerNode(t, nil)
	api := dockertest.Client(t)
	dockertest.Import(t, foreignImage, "s390x", "/probe")
	dockertest.Import(t, brokenImage, runtime.GOARCH, "/nothing")
	for _, test := range containerEndings {
		t.Run(test.name, func(t *testing.T) {
			n := n.as(t)
			if test.status == compute.StatusPending {
				test.status = compute.StatusCompleted
			}
			id := n.place(n.newContainer(test.command, test.change))
			outcome := n.end(id)
			output := n.output(id)
			if outcome.Status != test.status || outcome.Reason != test.reason || outcome.ExitCode != test.code {
				t.Errorf("ended as %v, %v (%s), code %d", outcome.Status, outcome.Reason, outcome.Detail, outcome.ExitCode)
			}
			if !strings.Contains(output, test.output) && !strings.Contains(outcome.Detail, test.output) {
				t.Errorf("output is %q, detail %q, want %q in one", output, outcome.Detail, test.output)
			}
			if outcome.Ran && outcome.Digest == "" {
				t.Error("the outcome does not say which image was executed")
			}
		})
	}
	await(t, "the removal of all containers", func() bool { return n.left(api) == 0 })
}

// requestStop has the state want an execution to stop.
func (n *node) requestStop(id compute.ExecutionID, stop compute.Stop) {
	n.update(func() {
		w := n.work[id]
		e := *w.Execution
		e.Stop = stop
		w.Execution = &e
		n.work[id] = w
	})
}

// TestContainerStops stops a container: it gets SIGTERM, and SIGKILL if it ignores that.
func TestContainerStops(t *testing.T) {
	n := newDockerNode(t, nil)
	id := n.place(n.newContainer([]string{"term", "3"}, nil))
	await(t, "the start", func() bool { return n.says(id, "ready") && n.started(id) })
	n.requestStop(id, compute.StopGraceful)
	outcome := n.end(id)
	if outcome.Status != compute.StatusCancelled || outcome.ExitCode != 3 || !strings.Contains(n.output(id), "terminated") {
		t.Errorf("ended as %v (%s), code %d: %s", outcome.Status, outcome.Detail, outcome.ExitCode, n.output(id))
	}
	id = n.place(n.newContainer([]string{"sleep", "60"}, func(w *compute.Work) { w.Execution.Container.Grace = time.Second }))
	await(t, "the start", func() bool { return n.says(id, "sleeping") && n.started(id) })
	n.requestStop(id, compute.StopGraceful)
	if outcome := n.end(id); outcome.Status != compute.StatusCancelled || outcome.ExitCode != 137 {
		t.Errorf("ended as %v (%s), code %d", outcome.Status, outcome.Detail, outcome.ExitCode)
	}
}

// TestContainerHasTheCPUsAskedFor reads the quota of the cgroups that a container is in.
func TestContainerHasTheCPUsAskedFor(t *testing.T) {
	n := newDockerNode(t, nil)
	api := dockertest.Client(t)
	for _, milli := range []int64{300, 1500} {
		if milli > int64(runtime.NumCPU())*1000 {
			t.Logf("this machine has less than %d thousandths", milli)
			continue
		}
		id := n.place(n.newContainer([]string{"term", "0"}, func(w *compute.Work) { w.Execution.Request.VCPUMilli = milli }))
		await(t, "the start", func() bool { return n.says(id, "ready") && n.started(id) })
		found, err := api.ContainerList(t.Context(), client.ContainerListOptions{
			Filters: make(client.Filters).Add("label", "berth.attempt="+id.String()+".1"),
		})
		if err != nil || len(found.Items) != 1 {
			t.Fatalf("%d containers, %v", len(found.Items), err)
		}
		container, err := api.ContainerInspect(t.Context(), found.Items[0].ID, client.ContainerInspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := dockertest.CPUMilli(t, container.Container.State.Pid); got != milli {
			t.Errorf("of %d thousandths it has %d", milli, got)
		}
		n.requestStop(id, compute.StopHard)
		n.end(id)
	}
}

// TestEngineIsFoundLater starts a node before its engine. The node offers it and executes
// containers once it answers.
func TestEngineIsFoundLater(t *testing.T) {
	host := dockertest.Host(t)
	dockertest.Probe(t)
	socket := filepath.Join(t.TempDir(), "docker.sock")
	n := newNode(t, func(c *executor.Config) { c.Containers.Host, c.Containers.Auto = "unix://"+socket, true })
	if offers, fault := n.executor.Engine(); len(offers) > 0 || fault != "" {
		t.Errorf("without an engine it offers %v, with the fault %q", offers, fault)
	}
	if err := os.Symlink(strings.TrimPrefix(host, "unix://"), socket); err != nil {
		t.Fatal(err)
	}
	await(t, "the offer of the engine", func() bool {
		offers, fault := n.executor.Engine()
		return slices.Contains(offers, compute.DockerOffer(true)) && fault == ""
	})
	id := n.place(n.newContainer([]string{"print", "found"}, nil))
	if outcome := n.end(id); outcome.Status != compute.StatusCompleted || !n.says(id, "found") {
		t.Errorf("ended as %v (%s): %s", outcome.Status, outcome.Detail, n.output(id))
	}
}

// TestContainersOutliveTheNode restarts the node while a container executes: it is adopted,
// and its output goes on.
func TestContainersOutliveTheNode(t *testing.T) {
	n := newDockerNode(t, nil)
	id := n.place(n.newContainer([]string{"term", "0"}, nil))
	await(t, "the start", func() bool { return n.says(id, "ready") && n.started(id) })
	n.stop()
	n.run()
	n.requestStop(id, compute.StopGraceful)
	if outcome := n.end(id); outcome.Status != compute.StatusCancelled || !n.says(id, "terminated") {
		t.Errorf("ended as %v (%s): %s", outcome.Status, outcome.Detail, n.output(id))
	}
}

// TestKilledSupervisorLeavesNoContainer kills the supervisor of a container: the node
// removes the container, and ends the attempt.
func TestKilledSupervisorLeavesNoContainer(t *testing.T) {
	n := newDockerNode(t, nil)
	api := dockertest.Client(t)
	id := n.place(n.newContainer([]string{"sleep", "600"}, nil))
	await(t, "the start", func() bool { return n.says(id, "sleeping") })
	data, err := os.ReadFile(filepath.Join(n.cfg.DataDir, "attempts", id.String(), "1", supervise.PIDFile))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.Fields(string(data))[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if outcome := n.end(id); outcome.Reason != compute.ReasonSupervisorLost {
		t.Errorf("ended as %v, %v (%s)", outcome.Status, outcome.Reason, outcome.Detail)
	}
	if left := n.left(api); left > 0 {
		t.Errorf("%d containers and volumes are left", left)
	}
}

// TestSupervisorWaits checks that a supervisor waits for the next attempt once one has
// ended, that another takes its place when it is killed, and that none outlives the node.
func TestSupervisorWaits(t *testing.T) {
	t.Run("containers", func(t *testing.T) {
		n := newDockerNode(t, nil)
		n.keepsSupervisors(t, docker.Command, func() compute.Work { return n.newContainer([]string{"print", "hello"}, nil) })
	})
	t.Run("sandboxes", func(t *testing.T) {
		n := newNode(t, nil)
		n.keepsSupervisors(t, supervise.Command, func() compute.Work { return n.newWork(compute.Bundle{Code: "print('hello')", Env: ownInterpreter()}) })
	})
}

func (n *node) keepsSupervisors(t *testing.T, kind string, work func() compute.Work) {
	t.Helper()
	completes := func() {
		t.Helper()
		id := n.place(work())
		if outcome := n.end(id); outcome.Status != compute.StatusCompleted || !n.says(id, "hello") {
			t.Fatalf("ended as %v (%s): %s", outcome.Status, outcome.Detail, n.output(id))
		}
	}
	// There may be several: the node may hear later than this test that one waits again.
	waits := func() (pids []int) {
		t.Helper()
		await(t, "a supervisor that waits", func() bool {
			pids = waitingSupervisors(kind)
			return len(pids) > 0
		})
		return pids
	}
	gone := func(pids []int) {
		t.Helper()
		await(t, "their end", func() bool {
			return !slices.ContainsFunc(waitingSupervisors(kind), func(pid int) bool { return slices.Contains(pids, pid) })
		})
	}
	for range 3 {
		completes()
		for _, pid := range waits() {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			await(t, "its end", func() bool { return isReaped(pid) })
		}
	}
	completes()
	first := waits()
	completes()
	if kind == docker.Command {
		gone(first) // It was for one attempt.
	}
	last := waits()
	n.stop()
	gone(append(first, last...))
}

// isReaped reports whether a process has ended with all its threads: before, it may have its
// connection open.
func isReaped(pid int) bool {
	_, err := os.Stat("/proc/" + strconv.Itoa(pid))
	return err != nil
}

// waitingSupervisors returns the children of this process that wait for an attempt of a kind.
func waitingSupervisors(kind string) (pids []int) {
	tasks, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range tasks {
		dir := filepath.Dir(name)
		stat, _ := os.ReadFile(name)
		command, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		handed, err := os.Readlink(filepath.Join(dir, "fd", strconv.Itoa(supervise.FDSlot)))
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if err == nil && handed == os.DevNull && len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(os.Getpid()) &&
			strings.HasPrefix(string(command), "berth\x00"+kind+"\x00") && strings.Contains(string(command), "/waiting/") {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestStaleContainersAreReaped leaves a container of an attempt that is gone, while the node
// executes another one: it removes the first and not the second.
func TestStaleContainersAreReaped(t *testing.T) {
	n := newDockerNode(t, func(c *executor.Config) { c.Containers.ReapEvery = 50 * time.Millisecond })
	api := dockertest.Client(t)
	id := n.place(n.newContainer([]string{"term", "0"}, nil))
	await(t, "the start", func() bool { return n.says(id, "ready") && n.started(id) })
	made, err := api.ContainerCreate(t.Context(), client.ContainerCreateOptions{Config: &container.Config{
		Image: dockertest.Image, Cmd: []string{"sleep", "600"},
		Labels: map[string]string{"berth.node": n.cfg.Node.String(), "berth.attempt": compute.ExecutionID{UUID: compute.UUID{9}}.String() + ".1"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the removal of the stale container", func() bool {
		_, err := api.ContainerInspect(context.Background(), made.ID, client.ContainerInspectOptions{})
		return cerrdefs.IsNotFound(err)
	})
	n.requestStop(id, compute.StopGraceful)
	if outcome := n.end(id); outcome.Status != compute.StatusCancelled || !n.says(id, "terminated") {
		t.Errorf("the live one ended as %v (%s): %s", outcome.Status, outcome.Detail, n.output(id))
	}
}

// TestContainerKeepsOutputs keeps what a container leaves in outputs/.
func TestContainerScratch(t *testing.T) {
	n := newDockerNode(t, nil)
	for _, user := range []string{"", "ada", "1234:1234"} {
		w := n.newContainer([]string{"write", "/work/file", "1"}, nil)
		data, err := (&compute.Bundle{Command: []string{"write", "/work/file", "1"}, User: user}).Encode()
		if err != nil {
			t.Fatal(err)
		}
		w.Execution.Bundle = compute.BundleRef{Size: int64(len(data)), Inline: data}
		id := n.place(w)
		if outcome := n.end(id); outcome.Status != compute.StatusCompleted {
			t.Errorf("as %q it ended as %v (%s): %s", user, outcome.Status, outcome.Detail, n.output(id))
		}
	}
	// The scratch space has a size of its own.
	id := n.place(n.newContainer([]string{"write", "/work/file", "200"}, nil))
	if outcome := n.end(id); outcome.ExitCode != 1 || !n.says(id, "no space left") {
		t.Errorf("200 MiB in 64 MiB ended as %v (%s): %s", outcome.Status, outcome.Detail, n.output(id))
	}
}

// TestSecretsOfContainers checks that the variables of a user reach the container, and are
// masked in its output.
func TestSecretsOfContainers(t *testing.T) {
	n := newDockerNode(t, func(c *executor.Config) {
		c.Variables = func(context.Context, compute.Work) ([]compute.EnvVariable, error) {
			return []compute.EnvVariable{{Name: "TOKEN", Value: "c4nary-in-a-container", Secret: true}}, nil
		}
	})
	id := n.place(n.newContainer([]string{"env"}, nil))
	n.end(id)
	if output := n.output(id); !strings.Contains(output, "TOKEN=****") {
		t.Errorf("output is %q", output)
	}
}
