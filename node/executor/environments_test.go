package executor_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"berth/compute"
	"berth/node/executor"
	"berth/node/executor/packages"
	"berth/node/executor/packages/wheeltest"
	"berth/node/executor/prepare"
)

// TestEnvironments prepares environments and executes in them.
func TestEnvironments(t *testing.T) {
	t.Parallel()
	wheels := t.TempDir()
	wheeltest.Wheel{Name: "labtool", Version: "3.1", Code: "value = 'tool'\n"}.Write(t, wheels)
	n := newNode(t, func(c *executor.Config) {
		c.ScratchMiB = 256
		c.Packages = prepare.Packages{Index: packages.Index{Offline: true, FindLinks: []string{wheels}}, SizeMiB: 256}
	})
	newID := func() compute.EnvironmentID { return compute.EnvironmentID{UUID: compute.UUID(uuid.New())} }
	in := func(env compute.Environment) func(*compute.Work) {
		return func(w *compute.Work) {
			w.Execution.Environment = compute.EnvironmentRef{Name: env.Name, ID: env.ID}
		}
	}

	t.Run("installed", func(t *testing.T) {
		n := n.as(t)
		env := compute.Environment{ID: newID(), Name: "lab", Requirements: "labtool==3.1"}
		size, err := n.executor.Prepare(t.Context(), env)
		if err != nil || size == 0 {
			t.Fatalf("%d MiB, %v", size, err)
		}
		o, text := n.execute(compute.Bundle{Code: "import labtool; print(labtool.value)"}, in(env))
		if o.Status != compute.StatusCompleted || text != "tool\n" {
			t.Errorf("ended as %s/%s %q: %s", o.Status, o.Reason, o.Detail, text)
		}
		n.executor.Forget(env.ID)
	})
	t.Run("words of the installer", func(t *testing.T) {
		_, err := n.executor.Prepare(t.Context(), compute.Environment{ID: newID(), Requirements: "nosuchthing==1"})
		if compute.CodeOf(err) != compute.CodeInvalid || !strings.Contains(err.Error(), "nosuchthing==1") {
			t.Errorf("it fails with %v", err)
		}
	})
	t.Run("interpreter", func(t *testing.T) {
		n := n.as(t)
		home, err := os.MkdirTemp("/var/tmp", "environment-") //nolint:usetesting // Executions have a /tmp of their own.
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(home)
		if err := os.Chmod(home, 0o755); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(home, "venv")
		if out, err := exec.Command("python3", "-m", "venv", "--without-pip", path).CombinedOutput(); err != nil {
			t.Skipf("no virtual environments on this machine: %v %s", err, out)
		}
		sites, err := filepath.Glob(filepath.Join(path, "lib", "python*", "site-packages"))
		if err != nil || len(sites) != 1 {
			t.Fatalf("its packages are in %v, %v", sites, err)
		}
		if err := os.WriteFile(filepath.Join(sites[0], "venvtool.py"), []byte("value = 'venv'\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		env := compute.Environment{ID: newID(), Name: "venv", Path: path}
		if _, err := n.executor.Prepare(t.Context(), env); err != nil {
			t.Fatal(err)
		}
		o, text := n.execute(compute.Bundle{Code: "import sys, venvtool; print(venvtool.value, sys.prefix)"}, in(env))
		if o.Status != compute.StatusCompleted || text != "venv "+path+"\n" {
			t.Errorf("ended as %s/%s %q: %s", o.Status, o.Reason, o.Detail, text)
		}
		o, text = n.execute(compute.Bundle{Command: []string{"python3", "-c", "import venvtool; print(venvtool.value)"}}, in(env))
		if o.Status != compute.StatusCompleted || text != "venv\n" {
			t.Errorf("as a command it ended as %s/%s %q: %s", o.Status, o.Reason, o.Detail, text)
		}
	})
	t.Run("no directory", func(t *testing.T) {
		_, err := n.executor.Prepare(t.Context(), compute.Environment{ID: newID(), Path: "/opt/no/such/directory"})
		if err == nil || !strings.Contains(err.Error(), "no directory") {
			t.Errorf("it fails with %v", err)
		}
	})
}
