package executor_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"berth/compute"
	"berth/node/executor"
	"berth/node/executor/cgroup"
)

// facts prints what code can see of its sandbox, but for what differs between any two.
const facts = `
import os, re, resource, socket, sys
mounts = [line.split() for line in open('/proc/self/mountinfo')]
for mount in sorted([re.sub('(loop|id=)[0-9]+', '', m) for m in fields[4:6] + fields[fields.index('-') + 1:]] for fields in mounts):
    print(*mount)
for top in ('/', '/dev', '/etc', '/tmp', '/work', '/run', '/berth'):
    print(top, sorted(os.listdir(top)) if os.path.isdir(top) else None)
for top in ('/tmp', '/work', '/dev/shm', '/'):
    print(top, os.statvfs(top).f_blocks * os.statvfs(top).f_frsize, os.stat(top).st_uid, oct(os.stat(top).st_mode))
print([(n, resource.getrlimit(getattr(resource, n))) for n in sorted(dir(resource)) if n.startswith('RLIMIT_')])
print(*[l for l in open('/proc/self/status') if l.split(':')[0] in ('Uid', 'Gid', 'Groups', 'NoNewPrivs', 'Seccomp') or l[:3] == 'Cap'])
print(socket.gethostname(), os.getcwd(), sorted(os.listdir('/proc/self/fd')), sum(p.isdigit() for p in os.listdir('/proc')))
print(open('/proc/self/cgroup').read(), open('/proc/self/oom_score_adj').read(), sys.stdin.read())
print({k: v for k, v in os.environ.items() if k != 'BERTH_EXECUTION_ID'})
`

// each executes each of several programs in a process of its own.
const each = `
for code in %s:
    if not os.fork():
        try: exec(code)
        except BaseException as e: pass
        os._exit(0)
    os.wait()
    print('tried')
`

// TestPreparedSandbox executes in sandboxes that were prepared before their attempts were known.
func TestPreparedSandbox(t *testing.T) {
	t.Parallel()
	volume := t.TempDir()
	n := newNode(t, func(c *executor.Config) { c.Mounts = []executor.Mount{{Name: "data", Path: volume, ReadOnly: true}} })
	seen := func() string {
		w := n.newWork(compute.Bundle{Code: facts, Stdin: []byte("its input")})
		w.Execution.Volumes, w.Execution.Preemptible = []compute.Volume{{Name: "data"}}, true
		id := n.place(w)
		ending{status: compute.StatusCompleted}.check(t, n.end(id))
		return n.output(id)
	}
	first := seen() // No sandbox is prepared before it.
	group, _ := n.prepared()

	t.Run("it is like any other", func(t *testing.T) {
		next := seen()
		was, is := strings.Split(first, "\n"), strings.Split(next, "\n")
		for i := range max(len(was), len(is)) {
			if i >= len(was) || i >= len(is) || was[i] != is[i] {
				t.Fatalf("from line %d on a prepared one has\n%s\nanother one\n%s", i, is[min(i, len(is)):], was[min(i, len(was)):])
			}
		}
		if !strings.Contains(next, "its input") || !strings.Contains(next, "/mnt/data ro") {
			t.Errorf("it has\n%s", next)
		}
		if slices.Contains(n.groups(), group) {
			t.Error("its cgroup is left")
		}
	})
	t.Run("it is used once", func(t *testing.T) {
		for range 3 {
			group, _ := n.prepared()
			o, _ := n.as(t).execute(compute.Bundle{Code: "for d in '/tmp', '/work', '/dev/shm': open(d + '/mark', 'x')"}, nil)
			ending{status: compute.StatusCompleted}.check(t, o)
			if again, _ := n.prepared(); again == group {
				t.Errorf("cgroup %s is there again", group)
			}
		}
	})
	t.Run("it has the limits of its attempt", func(t *testing.T) {
		n.prepared()
		o, _ := n.as(t).execute(compute.Bundle{Code: "x = []\nwhile True:\n    x.append(bytearray(1 << 20))"}, limit(128))
		ending{compute.StatusFailed, compute.ReasonOutOfMemory, "memory limit of 128 MiB reached", 137}.check(t, o)
	})
	t.Run("code does not escape", func(t *testing.T) {
		var cases []string
		for _, test := range escapes {
			cases = append(cases, test.code)
		}
		list, err := json.Marshal(cases)
		if err != nil {
			t.Fatal(err)
		}
		env := surroundings(t, newNode(t, nil))
		n.prepared()
		_, out := n.as(t).execute(compute.Bundle{Code: prelude + fmt.Sprintf(each, list), Env: env}, nil)
		if strings.Contains(out, "ESCAPED") || strings.Count(out, "tried\n") != len(cases) {
			t.Errorf("%d cases ended with\n%s", len(cases), out)
		}
	})
	t.Run("its supervisor is killed", func(t *testing.T) {
		for range 3 {
			_, supervisor := n.prepared()
			if err := syscall.Kill(supervisor, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			await(t, "its end", func() bool { return isReaped(supervisor) })
			o, out := n.as(t).execute(compute.Bundle{Code: "print('went on')"}, nil)
			if (ending{status: compute.StatusCompleted}).check(t, o); out != "went on\n" {
				t.Errorf("output %q", out)
			}
		}
	})
	t.Run("the node restarts", func(t *testing.T) {
		group, _ := n.prepared()
		w := n.newWork(compute.Bundle{Code: "import time\nprint('begins')\nwhile True: time.sleep(0.1)"})
		id := n.place(w)
		await(t, "the code", func() bool { return n.says(id, "begins") })
		n.stop()
		n.run()
		if !slices.Equal(n.groups(), []string{group}) {
			t.Errorf("its cgroups are %v, want %s", n.groups(), group)
		}
		await(t, "the memory of the code", func() bool { _, memory, ok := n.executor.Resources(w); return ok && memory > 0 })
		n.update(func() { clear(n.work) })
		ending{compute.StatusAborted, compute.ReasonAborted, "", 137}.check(t, n.end(id))
		await(t, "the removal of its cgroup", func() bool { return len(n.groups()) == 0 })
	})
	t.Run("the node stops", func(t *testing.T) {
		seen()
		_, supervisor := n.prepared()
		n.stop()
		await(t, "the end of its supervisor", func() bool { return len(n.groups()) == 0 && hasEnded(supervisor) })
	})
}

// TestPreparedSandboxOfKilledNode checks that nothing is left of a sandbox that was prepared for a node
// that is killed, not even if its supervisor is killed too.
func TestPreparedSandboxOfKilledNode(t *testing.T) {
	t.Parallel()
	for _, both := range []bool{false, true} {
		n := idle(t)
		first := startStandIn(t, n, n.newWork(compute.Bundle{Code: "pass"}), "")
		first.expect("started")
		group, supervisor := n.prepared()
		if both {
			// Stopped, it cannot remove anything when the node ends.
			if err := syscall.Kill(supervisor, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
		first.kill()
		if both {
			if err := syscall.Kill(supervisor, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			await(t, "the end of its supervisor", func() bool { return hasEnded(supervisor) })
			if !slices.Contains(n.groups(), group) {
				t.Error("nothing was left to remove")
			}
			n.run()
		}
		await(t, "the removal", func() bool { return len(n.groups()) == 0 && hasEnded(supervisor) })
		n.stop()
	}
}

// groups returns the cgroups of the node.
func (n *node) groups() []string {
	n.t.Helper()
	host, err := cgroup.Detect()
	if err != nil {
		n.t.Fatal(err)
	}
	names, err := host.Groups()
	if err != nil {
		n.t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, n.cfg.Node.String()+".") })
}

// prepared waits until a sandbox is prepared and none is in use. It returns its cgroup and its
// supervisor.
func (n *node) prepared() (group string, supervisor int) {
	n.t.Helper()
	await(n.t, "a prepared sandbox", func() bool {
		names := n.groups()
		if len(names) != 1 || !strings.HasPrefix(names[0], n.cfg.Node.String()+".ahead-") {
			return false
		}
		group, supervisor = names[0], 0
		for _, pid := range pidsIn(group) {
			if _, err := os.Stat("/proc/" + pid + "/root/sys"); os.IsNotExist(err) { // Its root is built.
				supervisor = parentOf(pid)
			}
		}
		return supervisor > 1
	})
	return group, supervisor
}

// pidsIn returns the processes in a cgroup.
func pidsIn(group string) []string {
	for _, root := range []string{"/sys/fs/cgroup/pids/berth", "/sys/fs/cgroup/berth"} {
		if data, err := os.ReadFile(filepath.Join(root, group, "cgroup.procs")); err == nil {
			return strings.Fields(string(data))
		}
	}
	return nil
}

// parentOf returns the parent of a process, 0 if it has ended.
func parentOf(pid string) (parent int) {
	data, _ := os.ReadFile("/proc/" + pid + "/stat")
	_, rest, _ := strings.Cut(string(data), ") ")
	_, _ = fmt.Sscanf(rest, "%1s %d", new(string), &parent)
	return parent
}

// isReaped reports whether a process of this test's nodes has ended with all its threads: before, it
// may have its connection open.
func isReaped(pid int) bool {
	_, err := os.Stat("/proc/" + strconv.Itoa(pid))
	return err != nil
}

// hasEnded reports whether a process, which may not have been waited for, has ended.
func hasEnded(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(data), ") Z ")
}
