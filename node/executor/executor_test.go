package executor_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/node/executor"
)

// ending is the expected outcome of a test.
type ending struct {
	status compute.Status
	reason compute.Reason
	detail string // A part of the outcome's.
	code   int
}

func (e ending) check(t *testing.T, o compute.Outcome) {
	t.Helper()
	if o.Status != e.status || o.Reason != e.reason || o.ExitCode != e.code || !strings.Contains(o.Detail, e.detail) {
		t.Errorf("ended as %s/%s %q code %d, want %s/%s %q code %d",
			o.Status, o.Reason, o.Detail, o.ExitCode, e.status, e.reason, e.detail, e.code)
	}
}

// handlerSet is the time in which a program surely sets its signal handler, even
// on a busy machine.
const handlerSet = 5 * time.Second

// TestEndings checks the outcomes of all the ways in which code may end.
func TestEndings(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil)
	completed := ending{status: compute.StatusCompleted}
	exit := func(code int, detail string) ending {
		return ending{compute.StatusFailed, compute.ReasonExitCode, detail, code}
	}
	tests := []struct {
		name   string
		code   string
		change func(*compute.Work)
		want   ending
		output string // A part of the output.
	}{
		{"returns", "print('hello')", nil, completed, "hello\n"},
		{"exits 0", "raise SystemExit(0)", nil, completed, ""},
		{"exits 3", "import sys\nsys.exit(3)", nil, exit(3, "exit code 3"), ""},
		{"exits with a text", "raise SystemExit('no way')", nil, exit(1, "exit code 1"), "no way"},
		{"raises", "def f():\n    raise ValueError('bad')\nf()", nil, exit(1, "exit code 1"), "ValueError: bad"},
		{"is no Python", "print(", nil, exit(1, ""), "SyntaxError"},
		{
			"kills itself", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", nil,
			ending{compute.StatusFailed, compute.ReasonSignal, "signal 11", 139},
			"",
		},
		{
			"ends by SIGTERM", "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)", nil,
			ending{compute.StatusFailed, compute.ReasonSignal, "signal 15", 143},
			"",
		},
		{"leaves children behind", "import os, time\nif os.fork() == 0:\n    time.sleep(600)\nprint('left')", nil, completed, "left"},
		{
			"allocates without end", "x = []\nwhile True:\n    x.append(bytearray(1 << 20))", limit(128),
			ending{compute.StatusFailed, compute.ReasonOutOfMemory, "memory limit of 128 MiB reached", 137},
			"",
		},
		{
			"fills its scratch", "f = open('/tmp/x', 'wb')\nwhile True:\n    f.write(bytes(1 << 20))", limit(128),
			exit(1, ""), "No space left on device",
		},
		{"forks a bomb", bomb, nil, completed, "BlockingIOError"},
		{
			"sleeps past its limit", "import time\ntime.sleep(600)", timeout(time.Second),
			ending{compute.StatusFailed, compute.ReasonTimeout, "time limit of 1 s reached", 143},
			"time limit of 1 s reached",
		},
		{
			"cleans up at its limit", "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *a: sys.exit(7))\ntime.sleep(600)",
			timeout(handlerSet),
			ending{compute.StatusFailed, compute.ReasonTimeout, "time limit", 7},
			"",
		},
		{
			"ignores SIGTERM", "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True:\n    time.sleep(1)",
			timeout(handlerSet),
			ending{compute.StatusFailed, compute.ReasonTimeout, "time limit", 137},
			"",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			o, output := n.as(t).execute(compute.Bundle{Code: test.code}, test.change)
			test.want.check(t, o)
			if !strings.Contains(output, test.output) {
				t.Errorf("output %q does not contain %q", output, test.output)
			}
			if !o.Ran || o.Duration <= 0 || o.StartedAt < o.ExecletAt || o.EndedAt < o.StartedAt {
				t.Errorf("times make no sense: %+v", o)
			}
		})
	}
}

// bomb forks until fork fails, and prints the error.
const bomb = `
import os, time
children = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(600)
        children += 1
except BlockingIOError as e:
    print(type(e).__name__, children)
assert 100 < children < 512, children
`

func limit(memoryMiB int64) func(*compute.Work) {
	return func(w *compute.Work) { w.Execution.Request.MemoryMiB = memoryMiB }
}

func timeout(d time.Duration) func(*compute.Work) {
	return func(w *compute.Work) { w.Execution.Timeout = d }
}

func TestTracebackShowsTheUsersFramesOnly(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil)
	_, output := n.execute(compute.Bundle{
		Code:         "import helper\n\n\ndef outer():\n    helper.fail()\n\n\nouter()\n",
		FileName:     "train/model.py",
		ImportFiles:  map[string]string{"helper.py": "def fail():\n    raise KeyError('lost')\n"},
		PriorImports: []string{"import os", "import json as j"},
	}, nil)
	want := `Traceback (most recent call last):
  File "/work/train/model.py", line 8, in <module>
    outer()
  File "/work/train/model.py", line 5, in outer
    helper.fail()
  File "/work/helper.py", line 2, in fail
    raise KeyError('lost')
KeyError: 'lost'
`
	if output != want {
		t.Errorf("traceback is\n%s\nwant\n%s", output, want)
	}
}

func TestInputs(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(c *executor.Config) { c.SiteDirs = []string{t.TempDir()} })
	code := `
import sys, os, pathlib
assert __name__ == '__main__' and sys.modules['__main__'].__dict__ is globals()
assert sys.argv == ['/work/go.py'] == [__file__], sys.argv
assert sys.path[0] == '/work' and os.getcwd() == '/work'
assert math.pi > 3 and j.dumps([1]) == '[1]'
import pkg.deep.thing
assert pkg.deep.thing.x == 1 and pathlib.Path('data/a.txt').read_text() == 'text'
pathlib.Path('made.txt').write_text('mine')
assert os.environ['COLOUR'] == 'green' and 'BERTH_MINE' not in os.environ
assert os.environ['BERTH_GPU_TYPE'] == 'l40s' and os.environ['BERTH_ATTEMPT'] == '1'
assert os.environ['BERTH_GPUS'] == os.environ['CUDA_VISIBLE_DEVICES'] == 'SIM-a-0'
assert sys.path[1] == os.environ['PYTHONPATH'] and os.path.isdir(sys.path[1]), sys.path
print(os.environ['BERTH_EXECUTION_ID'], file=sys.stderr)
`
	o, output := n.execute(compute.Bundle{
		Code: code, FileName: "go.py", PriorImports: []string{"import math", "import json as j"},
		ImportFiles: map[string]string{"pkg/deep/thing.py": "x = 1", "data/a.txt": "text", "go.py": "wrong"},
		Env:         map[string]string{"COLOUR": "green", "BERTH_MINE": "1", "BERTH_ATTEMPT": "9"},
	}, gpu("l40s", 450, 1000))
	if o.Status != compute.StatusCompleted || output != o.Execution.String()+"\n" {
		t.Errorf("ended as %s %q with output\n%s", o.Status, o.Detail, output)
	}
}

// gpu gives the work a share of a simulated GPU.
func gpu(kind string, speedMilli, shareMilli int) func(*compute.Work) {
	return func(w *compute.Work) {
		w.Attempt.GPUs = []compute.GPUShare{{GPU: "SIM-a-0", Milli: shareMilli}}
		w.GPUs = []compute.GPU{{ID: "SIM-a-0", Type: kind, Simulated: true, SpeedMilli: speedMilli, VRAMMiB: 1 << 14}}
	}
}

func TestSpeedOfASimulatedGPU(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil)
	code := "import time\nend = time.process_time() + 2\nwhile time.process_time() < end: pass"
	o, _ := n.execute(compute.Bundle{Code: code}, gpu("h100", 1000, 1000))
	// The quota is half a second of CPU per second. Two seconds of CPU take at
	// least three, if the first half is used at the end of a period.
	if o.Status != compute.StatusCompleted || o.Duration < 2900*time.Millisecond {
		t.Errorf("two seconds of CPU took %v (%s), want about four", o.Duration, o.Status)
	}
	if o.Usage.CPUTime < 2*time.Second || o.Usage.CPUTime > 4*time.Second || o.Usage.GPUUtilPercent < 1 {
		t.Errorf("usage is %+v", o.Usage)
	}
}

// TestUnusableBundles checks that code fails, and not the system, if its files or
// variables cannot be used.
func TestUnusableBundles(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(c *executor.Config) { c.ScratchMiB, c.ScratchMemory = 2, true })
	many := make(map[string]string)
	for i := range 1001 {
		many[strings.Repeat("x", i+1)] = ""
	}
	dirs, variables := make(map[string]string), make(map[string]string)
	for i := range 34 {
		dirs[fmt.Sprint(i, "/", strings.Repeat("a/", 30), "x")] = ""
	}
	for i := range 60 {
		variables[fmt.Sprint("A", i)] = strings.Repeat("x", 120<<10)
	}
	for name, b := range map[string]compute.Bundle{
		"absolute":        {ImportFiles: map[string]string{"/etc/passwd": "x"}},
		"climbs":          {ImportFiles: map[string]string{"a/../../x": "x"}},
		"empty":           {ImportFiles: map[string]string{"": "x"}},
		"file and parent": {ImportFiles: map[string]string{"a": "x", "a/b": "x"}},
		"name climbs":     {FileName: "../main.py"},
		"too many":        {ImportFiles: many},
		"too deep":        {ImportFiles: map[string]string{strings.Repeat("a/", 32) + "x": ""}},
		"too many dirs":   {ImportFiles: dirs},
		"too much text":   {ImportFiles: map[string]string{"x": strings.Repeat("x", 4<<20)}},
		"large variable":  {Env: map[string]string{"A": strings.Repeat("x", 128<<10)}},
		"many variables":  {Env: variables},
		"NUL":             {ImportFiles: map[string]string{"a\x00b": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := n.as(t)
			b.Code = "print('started')"
			o := n.end(n.place(n.newWork(b)))
			if o.Status != compute.StatusFailed || o.Reason != compute.ReasonStartFailed || o.Ran || o.Detail == "" {
				t.Errorf("ended as %s/%s %q ran %v", o.Status, o.Reason, o.Detail, o.Ran)
			}
		})
	}
}

func TestStops(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil)
	for _, test := range []struct {
		name string
		stop compute.Stop
		code string
		want ending
	}{
		{
			"graceful", compute.StopGraceful, "",
			ending{compute.StatusCancelled, compute.ReasonStopped, "stopped on request", 143},
		},
		{
			"graceful, ignored", compute.StopGraceful,
			"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n",
			ending{compute.StatusCancelled, compute.ReasonStopped, "", 137},
		},
		{
			"hard", compute.StopHard, "",
			ending{compute.StatusAborted, compute.ReasonAborted, "aborted on request", 137},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			n := n.as(t)
			id := n.place(n.newWork(compute.Bundle{Code: test.code + "import time\nprint('here')\nwhile True: time.sleep(1)"}))
			await(t, "the start", func() bool { return n.started(id) && strings.Contains(n.output(id), "here") })
			n.update(func() { n.work[id].Execution.Stop = test.stop })
			test.want.check(t, n.end(id))
		})
	}
	t.Run("before the start", func(t *testing.T) {
		t.Parallel()
		n := n.as(t)
		w := n.newWork(compute.Bundle{Code: "print('started')"})
		w.Execution.Stop = compute.StopHard
		o := n.end(n.place(w))
		if o.Status != compute.StatusAborted || o.Ran {
			t.Errorf("ended as %s, ran %v", o.Status, o.Ran)
		}
	})
	t.Run("gone from the state", func(t *testing.T) {
		t.Parallel()
		n := n.as(t)
		id := n.place(n.newWork(compute.Bundle{Code: "import time\ntime.sleep(600)"}))
		await(t, "the start", func() bool { return n.started(id) })
		n.update(func() { delete(n.work, id) })
		if o := n.end(id); o.Status != compute.StatusAborted {
			t.Errorf("ended as %s", o.Status)
		}
	})
}

// TestGraceEndsWithTheCeiling checks that code whose ceiling of credits pays for its
// time limit alone has no grace after it, which nobody would pay for.
func TestGraceEndsWithTheCeiling(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(c *executor.Config) { c.StopGrace = time.Hour })
	code := "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(1)"
	o, _ := n.execute(compute.Bundle{Code: code}, func(w *compute.Work) {
		w.Execution.Timeout, w.Execution.StopGrace = time.Second, time.Hour
		w.Execution.Price, w.Execution.MaxCredits = 100, 100
	})
	ending{compute.StatusFailed, compute.ReasonTimeout, "time limit of 1 s reached", 137}.check(t, o)
}

func TestFloodIsBounded(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil)
	code := "import os\nline = b'x' * 1023 + b'\\n'\nfor _ in range(1 << 10):\n    os.write(1, line * 1024)"
	id := n.place(n.newWork(compute.Bundle{Code: code}))
	o := n.end(id)
	if o.Status != compute.StatusCompleted || o.Usage.OutputBytes < 1000<<20 {
		t.Errorf("ended as %s with %d bytes of output", o.Status, o.Usage.OutputBytes)
	}
	if !n.says(id, "dropped") {
		t.Error("nothing says that output was dropped")
	}
	if size := diskUse(t, n.cfg.DataDir); size > 100<<20 {
		t.Errorf("1 GiB of output left %d bytes on disk", size)
	}
}

// TestEndOfOutputIsKept prints much and then raises: the last lines and the traceback
// are there, and up to the documented total everything is.
func TestEndOfOutputIsKept(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil)
	for _, megabytes := range []int{8, 20, 100} {
		t.Run(fmt.Sprint(megabytes), func(t *testing.T) {
			t.Parallel()
			n := n.as(t)
			code := fmt.Sprintf("for i in range(%d * 10000):\n    print(f'{i:099d}')\nraise SystemError('the reason')\n", megabytes)
			w := n.newWork(compute.Bundle{Code: code})
			w.Execution.Timeout = 10 * time.Minute
			id := n.place(w)
			awaitWithin(t, "the end of much output", 5*time.Minute, func() bool { return n.outcome(id) != nil })
			o, output := *n.outcome(id), n.output(id)
			if o.Status != compute.StatusFailed || o.Usage.OutputBytes < int64(megabytes)*1_000_000 {
				t.Errorf("ended as %s with %d bytes of output", o.Status, o.Usage.OutputBytes)
			}
			last := fmt.Sprintf("%099d", megabytes*10_000-1)
			if !strings.Contains(output, last) || !strings.Contains(output, "SystemError: the reason") {
				t.Errorf("the end is lost: ...%q", output[max(len(output)-300, 0):])
			}
		})
	}
}

func TestNoInterpreter(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(c *executor.Config) { c.Python = "no-such-python" })
	o := n.end(n.place(n.newWork(compute.Bundle{Code: "print(1)"})))
	ending{compute.StatusSystemFailure, compute.ReasonStartFailed, `no Python interpreter "no-such-python"`, 0}.check(t, o)
}

func TestInputsLost(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil)
	w := n.newWork(compute.Bundle{})
	w.Execution.Bundle = compute.BundleRef{Hash: compute.Hash{1}, Size: 10}
	o := n.end(n.place(w))
	ending{compute.StatusSystemFailure, compute.ReasonInputsLost, "", 0}.check(t, o)
}

// TestEndsWhileInputsAreFetched checks that an attempt which is stopped or
// preempted while the node fetches its code is not started.
func TestEndsWhileInputsAreFetched(t *testing.T) {
	t.Parallel()
	for i, test := range []struct {
		name   string
		change func(*compute.Work)
		want   ending
	}{
		{
			"graceful stop", func(w *compute.Work) { w.Execution.Stop = compute.StopGraceful },
			ending{compute.StatusCancelled, compute.ReasonStopped, "before it was started", 0},
		},
		{
			"hard stop", func(w *compute.Work) { w.Execution.Stop = compute.StopHard },
			ending{compute.StatusAborted, compute.ReasonAborted, "before it was started", 0},
		},
		{
			"preemption", func(w *compute.Work) { w.Attempt.PreemptAt, w.Attempt.Notice = 1, time.Hour },
			ending{compute.StatusSystemFailure, compute.ReasonPreempted, "before it was started", 0},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, nil)
			n.fetching = make(chan bool)
			w := n.newWork(compute.Bundle{})
			w.Execution.Bundle = compute.BundleRef{Hash: compute.Hash{byte(i + 1)}, Size: 10}
			n.bundles[w.Execution.Bundle.Hash] = &compute.Bundle{Code: "print('started')"}
			id := n.place(w)
			<-n.fetching
			marker := n.newWork(compute.Bundle{Code: "print('seen')"})
			n.update(func() {
				test.change(&w)
				n.work[id], n.work[marker.Execution.ID] = w, marker
			})
			n.end(marker.Execution.ID) // By then the node has seen the change too.
			<-n.fetching
			o := n.end(id)
			test.want.check(t, o)
			if o.Ran || n.started(id) {
				t.Error("the code was started")
			}
		})
	}
}

// TestNoNetwork checks that code which requests a network starts without one
// if the node has none, and that its output says so.
func TestNoNetwork(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil)
	code := "import os\nprint(sorted(l.split(':')[0].strip() for l in open('/proc/net/dev').readlines()[2:]))"
	o, output := n.execute(compute.Bundle{Code: code}, egress)
	want := "network: none (this node gives executions no network)\n['lo']\n"
	if o.Status != compute.StatusCompleted || output != want {
		t.Errorf("ended as %s with output %q, want %q", o.Status, output, want)
	}
}

func egress(w *compute.Work) { w.Execution.Network = compute.NetworkEgress }

// TestNetwork checks the network of package egress from inside the sandbox.
func TestNetwork(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(c *executor.Config) { c.Network = compute.NetworkEgress })
	port, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	code := fmt.Sprintf(`
import socket
print(sorted(l.split(':')[0].strip() for l in open('/proc/net/dev').readlines()[2:]))
gateway = open('/proc/net/route').readlines()[1].split()[2]
gateway = '.'.join(str(b) for b in reversed(bytes.fromhex(gateway)))
try:
    socket.create_connection((gateway, %d), 1)
    print('reached')
except OSError as e:
    print(type(e).__name__)
`, port.Addr().(*net.TCPAddr).Port)
	for _, test := range []struct {
		change func(*compute.Work)
		want   string
	}{{egress, "['eth0', 'lo']\nTimeoutError\n"}, {nil, "IndexError"}} {
		if _, output := n.execute(compute.Bundle{Code: code}, test.change); !strings.Contains(output, test.want) {
			t.Errorf("output %q does not contain %q", output, test.want)
		}
	}
}
