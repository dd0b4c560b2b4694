package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/cmd/berth/clitest"
	"berth/node/nodetest"
)

const patience = 3 * time.Minute

// TestCommandsOnAFollower executes commands that other tests give scripted answers against a
// follower of a real cluster.
func TestCommandsOnAFollower(t *testing.T) {
	c := nodetest.New(t, 3)
	t.Setenv("BERTH_ADDR", c.Follower().URL())
	t.Setenv("BERTH_TOKEN", c.MustAccount("acme").Key)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	must := func(args ...string) clitest.Result {
		t.Helper()
		r := execute(t, "", args...)
		if r.Code != 0 {
			t.Fatalf("berth %s: %+v", strings.Join(args, " "), r)
		}
		return r
	}
	const web = "import http.server, os\nprint('serving', flush=True)\n" +
		"http.server.HTTPServer(('127.0.0.1', int(os.environ['PORT'])), http.server.SimpleHTTPRequestHandler).serve_forever()\n"
	r := must("service", "run", "--name", "web", "-c", web) // It waits until the service is ready.
	_, service, _ := strings.Cut(strings.TrimSpace(r.Out), "/services/")
	service = strings.Trim(service, "/")
	if !strings.HasPrefix(r.Out, "http://") || service == "" {
		t.Errorf("its URL is %+v", r)
	}
	if out := must("service", "ls").Out; !strings.Contains(out, service) || !strings.Contains(out, "web") || !strings.Contains(out, "1/1") {
		t.Errorf("the services are %s", out)
	}
	if r := must("service", "logs", "web"); !strings.Contains(r.Out, "serving\n") {
		t.Errorf("its output is %+v", r)
	}
	must("service", "rm", "web")

	notebook := filepath.Join(t.TempDir(), "notebook.state")
	first := must("run", "--cell", notebook, "-c", "import threading\nx, lock = 41, threading.Lock()\n'first'")
	if first.Out != "'first'\n" || !strings.Contains(first.Errors, "lock is not kept for the next cell") {
		t.Errorf("the first cell: %+v", first)
	}
	if r := execute(t, "", "run", "--cell", notebook, "-c", "x += 1\n1 / 0"); r.Code != 1 || !strings.Contains(r.Errors, "ZeroDivisionError") {
		t.Errorf("a cell that fails: %+v", r)
	}
	if r := must("run", "--cell", notebook, "-c", "x"); r.Out != "42\n" {
		t.Errorf("the last cell: %+v", r)
	}

	id := strings.TrimSpace(must("run", "-d", "--gpu", "a100", "--callback", "https://127.0.0.2:1/ended", "-c", "while True: pass").Out)
	nodetest.Eventually(t, patience, "a busy GPU to be measured", func() bool {
		var m wire.ExecutionMetrics
		if err := json.Unmarshal([]byte(must("metrics", "--json", "--step", "1s", id).Out), &m); err != nil || m.ExecutionID.String() != id {
			t.Fatalf("as JSON: %+v, %v", m, err)
		}
		return len(m.CPUUsage) > 1 && slices.ContainsFunc(m.GPUUtilization, func(p wire.MetricPoint) bool { return p.Value > 0 })
	})
	must("abort", id)
	drawn := must("metrics", id)
	for _, name := range []string{"GPU %", "GPU power W", "CPU %", "memory MiB"} {
		_, row, found := strings.Cut(drawn.Out, "\n"+name)
		if row, _, _ = strings.Cut(row, "\n"); !found || !strings.ContainsAny(row, "▁▂▃▄▅▆▇█") {
			t.Errorf("nothing is drawn of %s: %+v", name, drawn)
		}
	}
	nodetest.Eventually(t, patience, "a callback to be tried", func() bool {
		out := must("callbacks", id).Out
		return strings.Contains(out, "msg_") && strings.Contains(out, "not a public address")
	})
	if r := must("callbacks", "--redeliver", id); !strings.Contains(r.Errors, "callbacks sent again: 1") {
		t.Errorf("sent again: %+v", r)
	}

	nodetest.Eventually(t, patience, "the service to end", func() bool { return !strings.Contains(must("service", "ls").Out, service) })
	if r := execute(t, "", "service", "rm", "web"); r.Code != cli.ExitUsage {
		t.Errorf("a service that has ended: %+v", r)
	}
}
