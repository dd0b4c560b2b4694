package node_test

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// leavingCode leaves a small and a large file in outputs.
const leavingCode = `
import os
os.makedirs('outputs/sub')
open('outputs/a.txt', 'w').write('left')
open('outputs/sub/big', 'wb').write(bytes(range(256)) * (40 << 12))
`

// copiedOutputs has executions on a server and on a worker copy what they leave to the
// stored files, asked of a follower, and shows who may not, and what is said if it fails.
func (c *storageCluster) copiedOutputs(t *testing.T) {
	api := c.at(c.Follower())
	big := bytes.Repeat(allBytes(), 40<<12)
	for _, gpu := range []string{"a100", "b200"} {
		prefix := "runs/" + gpu
		started, err := api.Submit(t.Context(), client.Start{Code: leavingCode, ExecutionType: gpu, Timeout: 60, OutputsPrefix: "/" + prefix + "/"})
		if err != nil {
			t.Fatal(err)
		}
		e := mustFinish(t, api, started.ExecutionID)
		if e.Status != compute.StatusCompleted || len(e.Warnings) > 0 || len(e.Outputs) != 2 || e.OutputsPrefix != prefix {
			t.Fatalf("on %s it ended as %s with %v and %v", gpu, e.Status, e.Outputs, e.Warnings)
		}
		for name, want := range map[string][]byte{"/a.txt": []byte("left"), "/sub/big": big} {
			var out bytes.Buffer // The record shows the end, so that the files are there.
			if _, err := api.Download(t.Context(), prefix+name, "", 0, &out); err != nil || !bytes.Equal(out.Bytes(), want) {
				t.Errorf("on %s it left %d bytes as %s, %v", gpu, out.Len(), name, err)
			}
		}
		if err := api.Delete(t.Context(), e.ExecutionID); err != nil { // Its own outputs would stay for 30 days.
			t.Error(err)
		}
	}
	for _, prefix := range []string{"../up", "a/./b", strings.Repeat("x", 513), "a\x00b"} {
		start := client.Start{Code: leavingCode, ExecutionType: "cpu", Timeout: 60, OutputsPrefix: prefix}
		if _, err := api.Submit(t.Context(), start); statusOf(err) != 422 {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
	root := nodetest.MustClient(t, c.RootToken, c.Follower().URL())
	if err := root.SetStorageLimits(t.Context(), "umbrella", wire.StorageLimits{MaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	foreign := nodetest.MustClient(t, c.other, c.Follower().URL())
	started, err := foreign.Submit(t.Context(), client.Start{Code: leavingCode, ExecutionType: "cpu", Timeout: 60, OutputsPrefix: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	e := mustFinish(t, foreign, started.ExecutionID)
	// The other file is stored if its copy began before the first one was refused.
	failed := regexp.MustCompile(`not copied to storage: ([12]) of 2 files, the first: "mine/sub/big": QuotaExceeded`).
		FindStringSubmatch(strings.Join(e.Warnings, "\n"))
	if len(e.Outputs) != 2 || failed == nil {
		t.Fatalf("over the quota it left %d outputs, with %q", len(e.Outputs), e.Warnings)
	}
	if files, _, err := foreign.Files(t.Context(), "mine/", "", 0); err != nil || strconv.Itoa(2-len(files)) != failed[1] {
		t.Errorf("over the quota it left %v, %v, and %s of two failed", files, err, failed[1])
	}
	if err := foreign.Delete(t.Context(), e.ExecutionID); err != nil {
		t.Error(err)
	}
}

// allBytes returns each byte once.
func allBytes() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}
