package node_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/api/client"
	"berth/compute"
	"berth/node/nodetest"
)

// waitingCode stores a file, waits for another one, and stores a third.
const waitingCode = `
import os, time
open('/mnt/s3/begun', 'w').write('begun')
while not os.path.exists('/mnt/s3/go'):
    time.sleep(0.05)
with open('/mnt/s3/after', 'w') as f:
    f.write(open('/mnt/s3/go').read() * 1000)
`

// TestMountsSurviveAndEnd kills the node under code that has storage mounted, which goes
// on, and then a supervisor, of which neither a mount nor a process is left.
func TestMountsSurviveAndEnd(t *testing.T) {
	t.Parallel() // It mostly waits.
	mustHaveFUSE(t)
	c := nodetest.Start(t, 1)
	node := c.Nodes[0]
	api := nodetest.MustClient(t, c.MustAccount("acme").Key, node.URL)
	if creds, err := api.StorageCredentials(t.Context()); err != nil || creds.Endpoint != node.URL+"/s3" {
		t.Errorf("without an S3 port the endpoint is %q, %v", creds.Endpoint, err)
	}
	mounted := true
	start := client.Start{Code: waitingCode, ExecutionType: "cpu", Timeout: 300, EnableS3Mount: &mounted}
	submit := func() compute.ExecutionID {
		t.Helper()
		started, err := api.Submit(t.Context(), start)
		if err != nil {
			t.Fatal(err)
		}
		nodetest.Eventually(t, time.Minute, "the code to store a file", func() bool {
			_, err := api.Download(t.Context(), "begun", "", 0, new(bytes.Buffer))
			return err == nil
		})
		if err := api.DeleteFile(t.Context(), "begun"); err != nil {
			t.Fatal(err)
		}
		return started.ExecutionID
	}

	id := submit()
	node.Kill()
	node.Start()
	nodetest.Eventually(t, time.Minute, "the node to be ready", func() bool { return api.Ready(t.Context()) == nil })
	if _, err := api.Upload(t.Context(), bytesOf("go", []byte("go"))); err != nil {
		t.Fatal(err)
	}
	if e := mustFinish(t, api, id); e.Status != compute.StatusCompleted {
		t.Errorf("it ended as %s %v with %q", e.Status, e.Errors, e.Stderr)
	}
	var out bytes.Buffer
	if _, err := api.Download(t.Context(), "after", "", 0, &out); err != nil || out.Len() != 2000 {
		t.Errorf("after the node was killed it stored %d bytes, %v", out.Len(), err)
	}

	if err := api.DeleteFile(t.Context(), "go"); err != nil {
		t.Fatal(err)
	}
	id = submit()
	mine := mountProcesses(t, node.Pid())
	if len(mine) == 0 {
		t.Error("no process mounts storage")
	}
	text, err := os.ReadFile(filepath.Join(node.Config.DataDir, "attempts", id.String(), "1", "pid"))
	if err != nil {
		t.Fatal(err)
	}
	supervisor, err := strconv.Atoi(strings.Fields(string(text))[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(supervisor, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if e := mustFinish(t, api, id); e.Status != compute.StatusSystemFailure {
		t.Errorf("it ended as %s %v", e.Status, e.Errors)
	}
	nodetest.Eventually(t, time.Minute, "the process of the mount to end", func() bool {
		return len(mountProcesses(t, node.Pid())) == 0
	})
	left, err := filepath.Glob("/run/berth/storage/" + node.ID + ".*")
	if err != nil || len(left) > 0 {
		t.Errorf("left are %q, %v", left, err)
	}
}

// mountProcesses returns the processes that mount storage for a node.
func mountProcesses(t *testing.T, node int) (found []string) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range lines {
		line, _ := os.ReadFile(name) // It may have ended.
		stat, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "stat"))
		fields := strings.Fields(string(stat))
		if string(line) == "berth\x00mount-storage\x00" && len(fields) > 3 && fields[3] == strconv.Itoa(node) {
			found = append(found, name)
		}
	}
	return found
}
