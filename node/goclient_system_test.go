package node_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"berth/node/nodetest"
	berth "berth/sdk/go"
)

// tryGoClient does with the Go client for other programs, by way of a node that is not
// the leader, what its documentation shows first.
func tryGoClient(t *testing.T, n *nodetest.Node, key string) {
	t.Helper()
	c, err := berth.New(berth.Config{Addrs: []string{n.URL()}, Token: key})
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	code := "import sys; print('out'); print('err', file=sys.stderr); import os; os.makedirs('outputs'); open('outputs/a b.txt', 'w').write('left')"
	e, err := c.Run(t.Context(), berth.PythonStart{Code: code, Name: "go-client"}, &stdout, &stderr)
	if err != nil || e.Status != berth.StatusCompleted || e.Billed == nil || e.Name == nil || *e.Name != "go-client" {
		t.Errorf("run: %+v, %v", e, err)
	}
	if stdout.String() != "out\n" || stderr.String() != "err\n" {
		t.Errorf("printed %q and %q", stdout.String(), stderr.String())
	}
	var left strings.Builder
	if _, err := c.Output(t.Context(), e.ExecutionID, "a b.txt", 0, &left); err != nil || left.String() != "left" {
		t.Errorf("the output is %q, %v", left.String(), err)
	}
	stored, err := c.Upload(t.Context(), berth.NewFile{Key: "sets/a b", Size: 3, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("abc")), nil
	}})
	if err != nil || stored.Size != 3 {
		t.Errorf("upload: %+v, %v", stored, err)
	}
	var back strings.Builder
	if _, err := c.Download(t.Context(), "sets/a b", "", 1, &back); err != nil || back.String() != "bc" {
		t.Errorf("downloaded %q, %v", back.String(), err)
	}
	_, err = c.Executions.StartPython(t.Context(), berth.PythonStart{Code: "1", GPUTypes: []string{"no such type"}})
	if berth.CodeOf(err) != "gpu_types" {
		t.Errorf("a GPU type that does not exist: %v", err)
	}
}
