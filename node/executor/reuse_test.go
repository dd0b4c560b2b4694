package executor_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/compute"
	"berth/node/executor"
	"berth/node/executor/program"
	"berth/node/executor/supervise"
)

// holding returns what a process holds: its directory, its network, its descriptors by what they
// refer to, and its processes.
func holding(t *testing.T, pid int) map[string]string {
	t.Helper()
	proc := "/proc/" + strconv.Itoa(pid)
	held := make(map[string]string)
	links, _ := filepath.Glob(proc + "/fd/*")
	for _, link := range append(links, proc+"/cwd", proc+"/ns/net") {
		to, err := os.Readlink(link)
		if err != nil {
			t.Fatal(err)
		}
		held[strings.TrimPrefix(link, proc+"/")] = to
	}
	children, _ := filepath.Glob(proc + "/task/*/children")
	for _, name := range children {
		text, _ := os.ReadFile(name)
		held["children"] += string(text)
	}
	return held
}

// isNew reports whether a supervisor has had no attempt: numbers of descriptors that are never used
// are reserved.
func isNew(pid int) bool {
	_, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", pid, supervise.FDStorage+50))
	return err == nil
}

// TestSupervisorIsReused executes attempts that end in all ways: the same supervisors supervise
// them, and hold after each what they held after their first. Those whose attempts had secrets end.
func TestSupervisorIsReused(t *testing.T) {
	var secrets sync.Map // By execution.
	n := newNode(t, func(c *executor.Config) {
		c.Network = compute.NetworkEgress
		c.Variables = func(_ context.Context, w compute.Work) ([]compute.EnvVariable, error) {
			if _, secret := secrets.Load(w.Execution.ID); !secret {
				return nil, nil
			}
			return []compute.EnvVariable{{Name: "TOKEN", Value: "c4nary", Secret: true}}, nil
		}
	})
	const prints = "import os\nopen('kept', 'w').write('x')\nprint(f'{os.environ[\"MARK\"]} {sorted(os.listdir(\".\"))}')\n" // One write, so one line of output.
	begin := func(i int, code, stdin string, change func(*compute.Work)) (compute.ExecutionID, string) {
		mark := fmt.Sprint("mark-", i)
		env := ownInterpreter()
		env["MARK"] = mark
		w := n.newWork(compute.Bundle{Code: prints + code, Env: env, Stdin: []byte(stdin)})
		if change != nil {
			change(&w)
		}
		return n.place(w), mark
	}
	self, err := os.Readlink("/proc/thread-self/ns/net") // Another test may have moved the main thread.
	if err != nil {
		t.Fatal(err)
	}
	own, err := program.Open()
	embedded := err == nil
	own.Close()
	held := make(map[int]map[string]string)
	attempts := 0
	for i, test := range []struct {
		name, code, stdin string
		change            func(*compute.Work)
		stop              compute.Stop
		want              compute.Reason
	}{
		{name: "the first"},
		{name: "a failure", code: "raise SystemExit(3)", want: compute.ReasonExitCode},
		{name: "a signal", code: "os.kill(os.getpid(), 9)", want: compute.ReasonSignal},
		{name: "a time limit", code: "import time; time.sleep(60)", want: compute.ReasonTimeout, change: func(w *compute.Work) { w.Execution.Timeout = 2 * time.Second }},
		{name: "a stop", code: "import time; time.sleep(60)", want: compute.ReasonStopped, stop: compute.StopGraceful},
		{name: "a hard stop", code: "import time; time.sleep(60)", want: compute.ReasonAborted, stop: compute.StopHard},
		{name: "a network", change: func(w *compute.Work) { w.Execution.Network = compute.NetworkEgress }},
		{name: "processes that stay", code: "import subprocess; subprocess.Popen(['sleep', '60'])"},
		{name: "input that is not read", code: "print(input())", stdin: "line\n" + strings.Repeat("x", 1<<20)},
		{name: "outputs", code: "os.mkdir('outputs'); open('outputs/file', 'w').write('x')"},
	} {
		id, mark := begin(i, test.code, test.stdin, test.change)
		if test.stop != compute.StopNone {
			await(t, "the start", func() bool { return n.says(id, mark) })
			n.requestStop(id, test.stop)
		}
		outcome := n.end(id)
		if want := mark + " ['kept', 'main.py']"; outcome.Reason != test.want || !n.says(id, want) {
			t.Errorf("%s: ended as %v, %v (%s), without %q:\n%s", test.name, outcome.Status, outcome.Reason, outcome.Detail, want, n.output(id))
		}
		attempts++
		// There may be several: the node may hear later than this test that one waits again.
		var pids []int
		await(t, "a supervisor that waits", func() bool {
			pids = slices.DeleteFunc(n.supervisors("/waiting"), isNew)
			return len(pids) > 0
		})
		for _, pid := range pids {
			now := holding(t, pid)
			if held[pid] == nil {
				held[pid] = now
			}
			if !maps.Equal(now, held[pid]) {
				t.Errorf("%s: it holds\n%v, and held\n%v", test.name, now, held[pid])
			}
			if own := strings.HasPrefix(now[fmt.Sprint("fd/", supervise.FDMounts)], "mnt:["); own != embedded {
				t.Errorf("%s: it starts sandboxes in a mount namespace of the node: %v", test.name, own)
			}
			if now["cwd"] != "/" || now["ns/net"] != self || now["children"] != "" {
				t.Errorf("%s: it holds %v", test.name, now)
			}
		}
	}
	if len(held) > attempts/2 {
		t.Errorf("%d attempts had %d supervisors", attempts, len(held))
	}
	for i := range len(held) + 1 { // As many as wait, and one more.
		id, _ := begin(attempts+i, "", "", func(w *compute.Work) { secrets.Store(w.Execution.ID, true) })
		n.end(id)
	}
	await(t, "the end of supervisors that had a secret", func() bool {
		return !slices.ContainsFunc(n.supervisors(""), func(pid int) bool { return held[pid] != nil })
	})
}

// TestSupervisorOfAWarmSandboxIsReused executes code in warm sandboxes: supervisors that have had an
// attempt in one make another.
func TestSupervisorOfAWarmSandboxIsReused(t *testing.T) {
	const attempts = 6
	n, warm := warmNode(t, nil)
	n.execute(compute.Bundle{Code: "pass"}, nil) // So that sandboxes are made for the next ones.
	made := make(map[int]bool)
	for i := range attempts {
		made[n.warmed()] = true
		o, output := n.execute(compute.Bundle{Code: "import os\nprint(sorted(os.listdir('.')))\nopen('kept', 'w')"}, nil)
		if want := "['main.py']\n"; o.Status != compute.StatusCompleted || output != want {
			t.Errorf("attempt %d ended as %v (%s) with %q", i, o.Status, o.Detail, output)
		}
	}
	// On a slow machine a sandbox may not say in time that it is alive.
	if got := warm(); got <= attempts/2 {
		t.Errorf("%d of %d attempts had a warm sandbox", got, attempts)
	}
	if len(made) == attempts {
		t.Errorf("%d sandboxes were made by as many supervisors", attempts)
	}
}
