package node_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// printing prints numbered lines until it is ended.
const printing = `
import itertools, time
for i in itertools.count():
    print("line", i, flush=True)
    time.sleep(0.002)
`

// printed is an execution whose output is read while its node is killed.
type printed struct {
	id     compute.ExecutionID
	copied int // Lines that another node had when it was killed.
	output chan string
}

// mustPrint executes what prints on a node, has its output read through the others, and
// returns once another node has a copy of some lines.
func (l *losses) mustPrint(victim *nodetest.Process, api *client.Client) *printed {
	l.Helper()
	grace := 15
	p := &printed{output: make(chan string, 1)}
	p.id = l.mustRun(api, client.Start{Code: printing, Timeout: 400, DisconnectGrace: &grace, ExecutionType: ownGPU(victim)})
	go func() {
		text, err := readAll(l.Context(), api, p.id)
		p.output <- text + errText(err)
	}()
	nodetest.Eventually(l, time.Minute, "a copy of the output", func() bool {
		p.copied = l.copiedLines(victim, p.id)
		return p.copied > 300
	})
	return p
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return "error: " + err.Error()
}

// readAll returns all output of an execution, until it has ended.
func readAll(ctx context.Context, api *client.Client, id compute.ExecutionID) (string, error) {
	var out strings.Builder
	for event, err := range api.Stream(ctx, id, 0) {
		if err != nil {
			return out.String(), err
		}
		out.WriteString(event.Content)
		if event.Finished != nil {
			return out.String(), nil
		}
	}
	return out.String(), context.Cause(ctx)
}

// copiedLines returns how many lines the other nodes have of output.
func (l *losses) copiedLines(victim *nodetest.Process, id compute.ExecutionID) (n int) {
	for _, p := range l.others(victim) {
		path := filepath.Join(p.Config.DataDir, "copies", victim.ID, id.String(), "1", "out.seg")
		data, err := os.ReadFile(path)
		if err == nil {
			n = max(n, bytes.Count(data, []byte("line ")))
		}
	}
	return n
}

// mustKillSupervisor kills what supervises an execution.
func mustKillSupervisor(t *testing.T, id compute.ExecutionID) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for _, path := range lines {
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), id.String()) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
			killed++
		}
	}
	if killed == 0 {
		t.Error("nothing supervises the execution")
	}
}

// mustBeWhole wants every line that was copied, once and in order, and then a mark.
func (p *printed) mustBeWhole(t *testing.T, api *client.Client, victim *nodetest.Process) {
	t.Helper()
	var text string
	select {
	case text = <-p.output:
	case <-time.After(endWait):
		t.Fatal("the reader has not come to the end of the output")
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines[:len(lines)-1] {
		if line != fmt.Sprint("line ", i) {
			t.Fatalf("line %d is %q", i, line)
		}
	}
	last := lines[len(lines)-1]
	if len(lines)-1 < p.copied || !strings.Contains(last, "output are lost here: node "+victim.ID) {
		t.Errorf("%d of %d copied lines, and then %q", len(lines)-1, p.copied, last)
	}
	again, err := readAll(t.Context(), api, p.id)
	if err != nil || !strings.HasPrefix(text, again[:strings.LastIndex(again, "line")]) {
		t.Errorf("a late reader reads %d bytes: %v", len(again), err)
	}
	e, err := api.Execution(t.Context(), p.id, 0)
	if err != nil || !strings.Contains(e.Stdout, fmt.Sprint("line ", p.copied-1)) ||
		!strings.HasSuffix(e.CombinedOutput, last+"\n") {
		t.Errorf("the record has not what was copied: %v", err)
	}
	found, err := api.ExecutionLogs(t.Context(), p.id, client.LogQuery{Limit: 10, Search: "line 29"})
	if err != nil || found.Total < 11 || len(found.Warnings) != 1 {
		t.Errorf("with %d lines copied, a search finds %d with the warnings %q: %v: %+v", p.copied, found.Total, found.Warnings, err, found.Logs)
	}
}

// measured is an execution whose node is killed after its end, and its metrics before.
type measured struct {
	id     compute.ExecutionID
	before wire.ExecutionMetrics
}

// mustMeasure executes what takes some seconds on a node, to its end.
func (l *losses) mustMeasure(victim *nodetest.Process, api *client.Client) measured {
	l.Helper()
	code := "import time\nwhile time.process_time() < 2.5: pass\n"
	m := measured{id: l.mustRun(api, client.Start{Code: code, Timeout: 60, ExecutionType: ownGPU(victim)})}
	if e := mustFinish(l.T, api, m.id); e.Status != compute.StatusCompleted {
		l.Fatalf("it is %v", e.Status)
	}
	var err error
	if m.before, err = api.Metrics(l.Context(), m.id, client.MetricsQuery{Step: 1e9}); err != nil || len(m.before.CPUUsage) == 0 {
		l.Fatalf("it has %d points, %v", len(m.before.CPUUsage), err)
	}
	return m
}

// mustBeArchived wants the same metrics without the node that measured them.
func (m measured) mustBeArchived(t *testing.T, api *client.Client) {
	t.Helper()
	after, err := api.Metrics(t.Context(), m.id, client.MetricsQuery{Step: 1e9})
	if err != nil || !slices.Equal(after.CPUUsage, m.before.CPUUsage) || !slices.Equal(after.GPUPower, m.before.GPUPower) ||
		len(after.Warnings) > 0 {
		t.Errorf("got %+v, %v, want %+v", after, err, m.before)
	}
}
