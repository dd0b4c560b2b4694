package node_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/executor/packages/wheeltest"
	"berth/node/nodetest"
)

// mustUseEnvironments makes named environments through a follower, of which only the
// node called able can prepare one, and executes in them.
func mustUseEnvironments(t *testing.T, c *nodetest.Cluster, acme *client.Client, wheels, able string) {
	t.Helper()
	follower := c.Follower().URL()
	root := nodetest.MustClient(t, c.RootToken, follower)
	other := nodetest.MustClient(t, c.MustAccount("other").Key, follower)
	wheeltest.Wheel{Name: "labtool", Version: "3.1", Code: "value = 'tool 3.1'\n"}.Write(t, wheels)
	packed := t.TempDir()
	module := filepath.Join(packed, "packed.py")
	mustWrite(t, module, "value = 'packed'\n")
	if err := errors.Join(os.Chmod(packed, 0o755), os.Chmod(module, 0o644)); err != nil {
		t.Fatal(err)
	}

	made, err := acme.CreateEnvironment(t.Context(), wire.NewEnvironment{Name: "lab", Requirements: "labtool==3.1\n"}, false)
	if err != nil || made.Name != "lab" || made.Shared {
		t.Fatalf("made %+v, %v", made, err)
	}
	waiting := mustSubmit(t, acme, client.Start{
		Code: "import labtool; print(labtool.value, labtool.__file__)", Environment: "lab",
	}) // It need not be ready.
	if e := mustFinish(t, acme, waiting); e.Status != compute.StatusCompleted || *e.Metadata.Node != able ||
		e.Stdout != "tool 3.1 /packages/site/labtool/__init__.py\n" || e.Timeout != 90 || e.Environment == nil || *e.Environment != "lab" {
		t.Errorf("it ended as %s %v on %v: %s%s", e.Status, e.Errors, *e.Metadata.Node, e.Stdout, e.Stderr)
	}
	var lab wire.Environment
	nodetest.Eventually(t, time.Minute, "the reports of all nodes", func() bool {
		all, err := acme.Environments(t.Context(), false)
		if err != nil || len(all) != 1 {
			return false
		}
		lab = all[0]
		return len(lab.Nodes) == 3 && !slices.ContainsFunc(lab.Nodes, func(n wire.EnvironmentNode) bool {
			return n.Status == compute.EnvironmentPreparing
		})
	})
	for _, n := range lab.Nodes {
		if ready := n.Status == compute.EnvironmentReady; ready != (n.Node == able) ||
			!ready && (n.Error == nil || !strings.Contains(*n.Error, "labtool==3.1")) {
			t.Errorf("node %s reports %s: %v", n.Node, n.Status, n.Error)
		}
	}
	if lab.Status != compute.EnvironmentReady || lab.Size == 0 {
		t.Errorf("the environment is %s with %d bytes", lab.Status, lab.Size)
	}
	nodes, err := root.Nodes(t.Context())
	if err != nil || !slices.ContainsFunc(nodes, func(n wire.Node) bool {
		return n.Name == able && slices.Contains(n.Offers, "environment:lab")
	}) {
		t.Errorf("the inventory does not list it: %+v, %v", nodes, err)
	}
	mustRefuseEnvironments(t, acme, other, packed)

	// Operators share a directory of the nodes. An environment that no node has ready
	// is waited for.
	for name, path := range map[string]string{"shared": packed, "nowhere": "/opt/no/such/directory"} {
		if _, err := root.CreateEnvironment(t.Context(), wire.NewEnvironment{Name: name, Path: path}, true); err != nil {
			t.Fatal(err)
		}
	}
	id := mustSubmit(t, other, client.Start{Code: "import packed; print(packed.value)", Timeout: 60, Environment: "shared"})
	if _, err := acme.Submit(t.Context(), client.Start{Code: "1", Timeout: 60, Environment: "shared"}); err != nil {
		t.Errorf("another organization: %v", err)
	}
	if e := mustFinish(t, other, id); e.Status != compute.StatusCompleted || e.Stdout != "packed\n" {
		t.Errorf("in a directory of the node it ended as %s %v: %s%s", e.Status, e.Errors, e.Stdout, e.Stderr)
	}
	mustExplainEnvironment(t, root, other)
	if err := acme.DeleteEnvironment(t.Context(), "lab", false); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := acme.Submit(t.Context(), client.Start{Code: "1", Timeout: 60, Environment: "lab"}); err == nil {
		t.Error("a deleted environment is known")
	}
}

// mustRefuseEnvironments asks for what is refused.
func mustRefuseEnvironments(t *testing.T, acme, other *client.Client, path string) {
	t.Helper()
	for name, test := range map[string]struct {
		start client.Start
		say   string
	}{
		"unknown":           {client.Start{Environment: "torch"}, "there are: lab"},
		"with requirements": {client.Start{Environment: "lab", Requirements: "numpy"}, "not both"},
	} {
		test.start.Code, test.start.Timeout = "print(1)", 60
		if _, err := acme.Submit(t.Context(), test.start); err == nil || !strings.Contains(err.Error(), test.say) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := other.Submit(t.Context(), client.Start{Code: "1", Timeout: 60, Environment: "lab"}); err == nil ||
		!strings.Contains(err.Error(), "there are: none") {
		t.Errorf("of another organization: %v", err)
	}
	for name, env := range map[string]wire.NewEnvironment{
		"a path":      {Name: "p", Path: path},
		"a URL":       {Name: "p", Requirements: "x @ https://host/x.whl"},
		"an option":   {Name: "p", Requirements: "--index-url https://host/"},
		"both":        {Name: "p", Requirements: "x", Path: path},
		"nothing":     {Name: "p"},
		"a bad name":  {Name: "P P", Requirements: "x"},
		"once more":   {Name: "lab", Requirements: "x"},
		"no relative": {Name: "p", Path: "opt/x"},
	} {
		if made, err := acme.CreateEnvironment(t.Context(), env, false); err == nil {
			t.Errorf("%s: made %+v", name, made)
		}
	}
	if err := other.DeleteEnvironment(t.Context(), "lab", false); err == nil {
		t.Error("another organization deletes it")
	}
}

// mustExplainEnvironment has an execution wait for an environment that no node has.
func mustExplainEnvironment(t *testing.T, root, api *client.Client) {
	t.Helper()
	started, err := api.Submit(t.Context(), client.Start{Code: "print(1)", Timeout: 60, Environment: "nowhere"})
	if err != nil { // Every node has said already that it lacks the directory.
		if !strings.Contains(err.Error(), "/opt/no/such/directory") {
			t.Errorf("refused: %v", err)
		}
	} else {
		why := wire.Explanation{}
		nodetest.Eventually(t, time.Minute, "the reason", func() bool {
			why, err = api.Explain(t.Context(), started.ExecutionID, false)
			return err == nil && why.Reason != nil && *why.Reason == "environment"
		})
		if why.Refused["environment"] != 3 {
			t.Errorf("explained as %+v", why)
		}
		if err := root.DeleteEnvironment(t.Context(), "nowhere", true); err == nil || !strings.Contains(err.Error(), "1 executions") {
			t.Errorf("one in use is deleted: %v", err)
		}
		if err := api.Abort(t.Context(), started.ExecutionID); err != nil {
			t.Error(err)
		}
	}
	if err := root.DeleteEnvironment(t.Context(), "nowhere", true); err != nil {
		t.Errorf("delete: %v", err)
	}
}

// mustPrepareOnWorkers makes an environment through a worker, which workers prepare and
// report on like all nodes, and executes in it on one.
func mustPrepareOnWorkers(t *testing.T, root, api *client.Client) {
	t.Helper()
	dir := t.TempDir()
	module := filepath.Join(dir, "packed.py")
	mustWrite(t, module, "value = 'packed'\n")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(module, 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := root.CreateEnvironment(t.Context(), wire.NewEnvironment{Name: "packed", Path: dir}, true); err != nil {
		t.Fatal(err)
	}
	id := mustSubmit(t, api, client.Start{
		Code: "import packed; print(packed.value)", ExecutionType: "gpu.b200", Environment: "packed",
	})
	if e := mustFinish(t, api, id); e.Status != compute.StatusCompleted || e.Stdout != "packed\n" {
		t.Errorf("on a worker it ended as %s %v: %s%s", e.Status, e.Errors, e.Stdout, e.Stderr)
	}
	nodetest.Eventually(t, time.Minute, "the reports of workers", func() bool {
		all, err := root.Environments(t.Context(), true)
		return err == nil && len(all) == 1 && len(all[0].Nodes) == 5
	})
}
