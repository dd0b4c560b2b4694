package executor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
	"berth/node/executor"
	"berth/node/executor/cgroup"
	"berth/node/executor/prepare"
)

// ownInterpreter returns variables that an interpreter reads when it starts: so code that has
// them gets an interpreter that has waited for nothing.
func ownInterpreter() map[string]string { return map[string]string{"TZ": "UTC"} }

// warmNode returns a node and the number of its attempts that got a warm sandbox.
func warmNode(t *testing.T, change func(*executor.Config)) (n *node, warm func() int) {
	t.Helper()
	registry := prometheus.NewRegistry()
	n = newNode(t, func(c *executor.Config) {
		c.Registerer = registry
		if change != nil {
			change(c)
		}
	})
	return n, func() int {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() == "berth_executor_warm_total" {
				return int(family.GetMetric()[0].GetCounter().GetValue())
			}
		}
		t.Fatal("there is no such metric")
		return 0
	}
}

// supervisors returns the processes that supervise attempts of the node, or wait, with a text
// in the last part of their arguments.
func (n *node) supervisors(text string) (pids []int) {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		command, _ := os.ReadFile(name)
		_, at, ok := strings.Cut(string(command), "berth\x00supervise\x00"+n.cfg.DataDir+"/attempts")
		if ok && strings.HasPrefix(at, text) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// warmed waits for a supervisor of the node with a warm sandbox, and returns it.
func (n *node) warmed() (pid int) {
	n.t.Helper()
	await(n.t, "a warm sandbox", func() bool {
		pids := n.supervisors("/warm")
		for _, found := range pids {
			pid = found
		}
		return len(pids) > 0
	})
	return pid
}

// describing prints all that code sees of its process.
const describing = `
import json, os, resource, sys
status = dict(line.rstrip("\n").split(":\t", 1) for line in open("/proc/self/status") if ":\t" in line)
mounts = [line.split()[4:8] for line in open("/proc/self/mountinfo")]
start = open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19]
print(json.dumps({"start": int(start), "process": {
    "environ": {k: v for k, v in os.environ.items() if k not in ("BERTH_EXECUTION_ID", "TZ")},
    "argv": sys.argv, "orig": sys.orig_argv, "path": sys.path, "flags": str(sys.flags), "directory": os.getcwd(),
    "main": sorted(vars(sys.modules["__main__"])), "modules": sorted(m for m in sys.modules),
    "files": sorted(os.listdir(".")), "descriptors": sorted(os.listdir("/proc/self/fd")),
    "limits": [resource.getrlimit(i) for i in range(16)],
    "status": {k: status[k] for k in ("Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp",
        "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "Umask", "SigBlk", "SigIgn", "SigCgt")},
    "mounts": mounts, "cgroup": open("/proc/self/cgroup").read(), "stdin": os.readlink("/proc/self/fd/0"),
    "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()], "parent": os.getppid(),
    "timers": open("/proc/self/timerslack_ns").read(),
    "processes": [p for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()],
}}))
`

type described struct {
	Start   int64                      `json:"start"` // The interpreter started then, in ticks since boot.
	Process map[string]json.RawMessage `json:"process"`
}

// sees checks that the code of two executions sees the same.
func (d described) sees(t *testing.T, who string, want described) {
	t.Helper()
	for name, text := range want.Process {
		if got := d.Process[name]; string(got) != string(text) {
			t.Errorf("%s: %s differs:\n%s, want\n%s", who, name, got, text)
		}
	}
}

func (n *node) describe(bundle compute.Bundle) described {
	n.t.Helper()
	bundle.Code = describing
	outcome, output := n.execute(bundle, nil)
	var d described
	if err := json.Unmarshal([]byte(output), &d); err != nil || outcome.Status != compute.StatusCompleted {
		n.t.Fatalf("ended as %s (%s): %s", outcome.Status, outcome.Detail, output)
	}
	return d
}

// TestWarmSandbox executes the same code in a sandbox of its own whose interpreter starts with
// its variables, in one whose interpreter waits for them, and in a warm one. The code sees
// no difference, but the age of its process.
func TestWarmSandbox(t *testing.T) {
	t.Parallel()
	n, warm := warmNode(t, nil)
	bundle := func(env map[string]string) compute.Bundle {
		env["NAME"] = "va=lue\nß"
		return compute.Bundle{
			Args: []string{"", "--x=1", "ß"}, FileName: "dir/own.py", Env: env,
			ImportFiles: map[string]string{"a.txt": "1", "dir/b.txt": "2"},
		}
	}
	plain := n.describe(bundle(ownInterpreter()))
	if got := string(plain.Process["timers"]); got != `"50000\n"` {
		t.Errorf("timers of the code may be %s ns late, want the kernel's 50000", got)
	}
	waited := n.describe(bundle(map[string]string{}))
	if warm() != 0 {
		t.Fatalf("%d attempts had a warm sandbox", warm())
	}
	supervisor := fmt.Sprintf("/proc/%d/timerslack_ns", n.warmed())
	if text, err := os.ReadFile(supervisor); string(text) != "1000000\n" {
		t.Errorf("timers of the supervisor may be %q ns late, want 1000000 (%v)", text, err)
	}
	warmed := n.describe(bundle(map[string]string{}))
	if warm() != 1 {
		t.Fatalf("%d attempts had a warm sandbox, want the third", warm())
	}
	waited.sees(t, "an interpreter that waits", plain)
	warmed.sees(t, "a warm sandbox", plain)
	n.warmed()
	for name, change := range map[string]func(*compute.Work){
		"memory": func(w *compute.Work) { w.Execution.Request.MemoryMiB = 640 },
		"notice": func(w *compute.Work) { w.Execution.Preemptible = true },
	} {
		before := warm()
		if outcome, output := n.execute(compute.Bundle{Code: "print(1)"}, change); output != "1\n" || warm() != before {
			t.Errorf("%s: ended as %s with %q, %d warm", name, outcome.Status, output, warm()-before)
		}
	}
	for name, bundle := range map[string]compute.Bundle{
		"packages": {Code: "print(1)", ImportFiles: map[string]string{".local/lib/x.py": "", "y.py": ""}},
		"input":    {Code: "print(input())", Stdin: []byte("1\n")},
		"prior":    {Code: "print(1)", PriorImports: []string{"import os"}},
		"many":     {Code: "print(1)", Env: map[string]string{"X": strings.Repeat("x", 70<<10)}},
	} {
		before := warm()
		if outcome, output := n.execute(bundle, nil); output != "1\n" || warm() != before {
			t.Errorf("%s: ended as %s with %q, %d warm", name, outcome.Status, output, warm()-before)
		}
	}
}

// TestWarmSandboxSeesVolumes mounts something below a volume that every execution has, while a
// sandbox waits with what was there before: the next attempt gets one of its own.
func TestWarmSandboxSeesVolumes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	below := filepath.Join(dir, "be low")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	n, warm := warmNode(t, func(c *executor.Config) {
		c.Mounts = []prepare.Mount{{Name: "data", Path: dir, ReadOnly: true, Always: true}}
	})
	sees := func(want string) {
		t.Helper()
		code := compute.Bundle{Code: "import os\nprint(sorted(os.listdir('/mnt/data/be low')))"}
		if outcome, output := n.execute(code, nil); output != want+"\n" {
			t.Fatalf("ended as %s (%s) with %q, want %s", outcome.Status, outcome.Detail, output, want)
		}
	}
	sees("[]")
	n.warmed()
	sees("[]")
	if warm() != 1 {
		t.Fatalf("%d attempts had a warm sandbox, want the second", warm())
	}
	n.warmed()
	if err := syscall.Mount("none", below, "tmpfs", 0, "mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(below, syscall.MNT_DETACH) })
	if err := os.Mkdir(filepath.Join(below, "new"), 0o755); err != nil {
		t.Fatal(err)
	}
	sees("['new']")
	if warm() != 1 {
		t.Fatalf("an attempt had a sandbox from before the mount")
	}
}

// TestWarmSandboxDies kills a part of a warm sandbox: the next attempt gets one of its own, and
// the cgroup goes.
func TestWarmSandboxDies(t *testing.T) {
	t.Parallel()
	n, _ := warmNode(t, nil)
	completes := func() {
		t.Helper()
		if outcome, output := n.execute(compute.Bundle{Code: "print('hello')"}, nil); output != "hello\n" {
			t.Fatalf("ended as %s (%s) with %q", outcome.Status, outcome.Detail, output)
		}
	}
	completes()
	for _, part := range []string{"interpreter", "first process", "supervisor"} {
		pid := n.warmed()
		name, group := groupOfSandbox(t, n)
		pids := group()
		switch part {
		case "interpreter":
			pid = pids[1]
		case "first process":
			pid = pids[0]
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if part == "supervisor" {
			await(t, "its end", func() bool { return isReaped(pid) })
		} else {
			await(t, "its end", func() bool { return len(group()) < 2 })
		}
		completes()
		completes()
		await(t, "the end of its cgroup", func() bool { return !slices.Contains(warmGroups(t, n), name) })
	}
}

// groupOfSandbox waits for a warm sandbox whose interpreter has started, and returns its cgroup
// and the processes there.
func groupOfSandbox(t *testing.T, n *node) (name string, pids func() []int) {
	t.Helper()
	host, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	read := func() []int {
		found, err := host.Group(name).PIDs()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return found
	}
	await(t, "the interpreter of a warm sandbox", func() bool {
		for _, name = range warmGroups(t, n) {
			if len(read()) == 2 {
				return true
			}
		}
		return false
	})
	return name, read
}

// warmGroups returns the cgroups of the node's warm sandboxes.
func warmGroups(t *testing.T, n *node) (found []string) {
	t.Helper()
	host, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	names, err := host.Groups()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, n.cfg.Node.String()+".warm.") {
			found = append(found, name)
		}
	}
	return found
}

// TestWarmSandboxOutlivesTheNode stops the node while an attempt executes in a warm sandbox. The
// attempt goes on, and ends as the next process of the node sees. The sandboxes
// that nobody had are gone.
func TestWarmSandboxOutlivesTheNode(t *testing.T) {
	t.Parallel()
	n, warm := warmNode(t, nil)
	n.execute(compute.Bundle{Code: "pass"}, nil)
	n.warmed()
	id := n.place(n.newWork(compute.Bundle{Code: counting}))
	await(t, "the code to print", func() bool { return n.says(id, "begin") })
	if warm() != 1 {
		t.Fatalf("%d attempts had a warm sandbox", warm())
	}
	n.warmed()
	n.stop()
	if left := n.supervisors("/warm"); len(left) > 0 {
		t.Errorf("the supervisors %v wait for a node that has stopped", left)
	}
	if groups := warmGroups(t, n); len(groups) != 1 {
		t.Errorf("the cgroups %v are there, want the attempt's", groups)
	}
	n.cfg.Registerer = nil
	n.run()
	if o := n.end(id); o.Status != compute.StatusFailed || o.ExitCode != 5 {
		t.Errorf("ended as %s with code %d (%s)", o.Status, o.ExitCode, o.Detail)
	}
	await(t, "the removal of the cgroup", func() bool { return len(warmGroups(t, n)) == 0 })
}
