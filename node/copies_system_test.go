package node_test

import (
	"bytes"
	"context"
	"errors"
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
	"berth/node/logs"
	"berth/node/nodetest"
)

// printing prints numbered lines until it is ended, with a pause of printPause behind each. A line is
// one write, which is never in two records: print makes several.
const (
	printing = `
import itertools, sys, time
for i in itertools.count():
    sys.stdout.write(f"line {i}\n")
    time.sleep(%f)
`
	printPause = 2 * time.Millisecond
	busyFactor = 5
)

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
	code := fmt.Sprintf(printing, printPause.Seconds())
	p.id = l.mustRun(api, client.Start{Code: code, Timeout: 400, DisconnectGrace: &grace, ExecutionType: ownGPU(victim)})
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
		n = max(n, linesIn(filepath.Join(p.Config.DataDir, "copies", victim.ID, id.String(), "1")))
	}
	return n
}

// linesIn returns how many lines of printing are in a directory for an attempt's output.
func linesIn(dir string) int {
	data, err := os.ReadFile(filepath.Join(dir, logs.SegmentName))
	if err != nil {
		return 0
	}
	return bytes.Count(data, []byte("line "))
}

// mustDie kills a node and what supervises an execution there, all at once as a machine
// does that loses its power. The code ends with its supervisor.
func (l *losses) mustDie(victim *nodetest.Process, id compute.ExecutionID) {
	l.Helper()
	supervisors := supervisorsOf(l.T, id)
	l.signal([]*nodetest.Process{victim}, syscall.SIGKILL) // First: it would copy the end of the output.
	for _, pid := range supervisors {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) { // One ends with another.
			l.Errorf("kill supervisor %d: %v", pid, err)
		}
	}
	victim.Kill() // Waits for its end.
}

// supervisorsOf returns the processes that supervise an execution.
func supervisorsOf(t *testing.T, id compute.ExecutionID) (pids []int) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), id.String()) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	if len(pids) == 0 {
		t.Fatal("nothing supervises the execution")
	}
	return pids
}

// mustBeWhole wants every line that was copied, once and in order, and then a mark. The
// lines that only the dead node has are no more than code prints in the time that the
// mark names, because it pauses behind each. A busy machine has it print fewer.
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
	var seconds int
	if _, err := fmt.Sscanf(last, "[berth: up to %d s of output are lost here", &seconds); err != nil {
		t.Errorf("the mark is %q: %v", last, err)
	}
	all := linesIn(p.dirOn(victim))
	// On a busy machine the copies may be later than they are elsewhere.
	most := busyFactor * int(time.Duration(seconds)*time.Second/printPause)
	if lost := all - (len(lines) - 1); lost < 0 || lost > most {
		t.Errorf("of %d lines that the node has, %d are copied, and at most %d may be lost", all, len(lines)-1, most)
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

// dirOn returns where a node that executes has the output.
func (p *printed) dirOn(owner *nodetest.Process) string {
	return filepath.Join(owner.Config.DataDir, "attempts", p.id.String(), "1")
}

// mustReturn wants the lines that were at risk too, once their node is back.
func (p *printed) mustReturn(t *testing.T, api *client.Client, victim *nodetest.Process) {
	t.Helper()
	all := linesIn(p.dirOn(victim))
	nodetest.Eventually(t, endWait, "the whole output", func() bool {
		text, err := readAll(t.Context(), api, p.id)
		return err == nil && strings.Count(text, "line ") == all && strings.HasSuffix(text, fmt.Sprintf("line %d\n", all-1))
	})
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
