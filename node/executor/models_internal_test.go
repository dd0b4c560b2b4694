package executor

import (
	"os"
	"testing"

	"berth/compute"
	"berth/node/executor/live"
	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

// TestModelDir reads which directory an attempt loads its model from, as a later process of
// the node would.
func TestModelDir(t *testing.T) {
	e := &Executor{dirs: live.NewDirs(t.TempDir(), nil)}
	binds := []sandbox.Bind{{Source: "/lib", Target: "/lib"}, {Source: "/cache/1/files", Target: "/model"}}
	for i, spec := range []*supervise.Spec{
		nil,
		{Sandbox: sandbox.Spec{Binds: binds}},
		{Container: &supervise.Container{Volumes: binds}},
		{Sandbox: sandbox.Spec{Binds: binds[:1]}},
	} {
		id := compute.ExecutionID{UUID: compute.UUID{byte(i + 1)}}
		if spec != nil {
			dir := e.dirs.Dir(live.Key{Execution: id, Epoch: 1})
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := spec.Write(dir); err != nil {
				t.Fatal(err)
			}
		}
		want := ""
		if i == 1 || i == 2 {
			want = "/cache/1/files"
		}
		if dir, known := e.ModelDir(id, 1, "/model"); dir != want || known != (want != "") {
			t.Errorf("spec %d: %q, %t, want %q", i, dir, known, want)
		}
	}
}
