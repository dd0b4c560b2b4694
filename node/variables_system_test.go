package node_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"berth/api/client"
	"berth/compute"
	"berth/node/nodetest"
)

// canary is a secret that must be nowhere but in the environment of code.
const canary = "c4nary-9f1b7d53e2"

// shownValue is of a variable that is no secret.
const shownValue = "verdigris-5c0d2a"

// printsSecret prints a secret at once and in two writes, and that it has it.
const printsSecret = `import os, sys, time
value = os.environ["TOKEN"]
print("whole", value, os.environ["COLOUR"], len(value), flush=True)
sys.stdout.write("split " + value[:9])
sys.stdout.flush()
time.sleep(0.2)
print(value[9:])
`

// TestSecrets keeps a secret through a follower and has code print it on a server and
// on a worker. Only its length is ever shown, and no file of any node has it.
func TestSecrets(t *testing.T) {
	t.Parallel() // It mostly waits.
	c, b200, _ := withWorkers(t)
	account, other := c.MustAccount("acme"), c.MustAccount("evil")
	api := nodetest.MustClient(t, account.Key, c.Follower().URL())
	for _, v := range []struct {
		name, value string
		secret      bool
	}{{"TOKEN", "another-value", true}, {"TOKEN", canary, true}, {"COLOUR", shownValue, false}} {
		if err := api.SetVariable(t.Context(), v.name, v.value, v.secret); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := nodetest.MustClient(t, account.Key, b200.URL()).Variables(t.Context())
	if err != nil || len(kept) != 2 || kept[0].Value != shownValue || kept[1].Value != "****" || !kept[1].Secret {
		t.Fatalf("got %+v, %v", kept, err)
	}
	for _, profile := range []string{"cpu", "b200"} {
		started, err := api.Submit(t.Context(), client.Start{Code: printsSecret, ExecutionType: profile, Timeout: 60})
		if err != nil {
			t.Fatal(err)
		}
		e := mustFinish(t, api, started.ExecutionID)
		if e.Status != compute.StatusCompleted || e.Stdout != "whole **** "+shownValue+" 17\nsplit ****\n" {
			t.Errorf("on %s it is %v with output %q %q", profile, e.Status, e.Stdout, e.Stderr)
		}
	}
	tryRotation(t, c, account, api)
	theirs := nodetest.MustClient(t, other.Key, c.Leader().URL())
	if err := theirs.RemoveVariable(t.Context(), kept[1].ID); err == nil {
		t.Error("another organization removed it")
	}
	if found, err := theirs.Variables(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("another organization sees %+v, %v", found, err)
	}
	for _, n := range c.Nodes {
		if contains(t, n.Config.DataDir, canary) {
			t.Errorf("a file of node %s has the secret", n.ID())
		}
	}
	if !contains(t, c.Leader().Config.DataDir, shownValue) {
		t.Error("what is no secret is not found either: the search finds nothing")
	}
	if n, err := api.RemoveVariables(t.Context()); err != nil || n != 2 {
		t.Errorf("removed %d, %v", n, err)
	}
	started, err := api.Submit(t.Context(), client.Start{Code: "import os\nprint('TOKEN' in os.environ)", Timeout: 60})
	if err != nil {
		t.Fatal(err)
	}
	if e := mustFinish(t, api, started.ExecutionID); e.Stdout != "False\n" {
		t.Errorf("after its removal: %q", e.Stdout)
	}
}

// contains reports whether a file below a directory has a text.
func contains(t *testing.T, dir, text string) (found bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // It went away meanwhile, or is no file.
		}
		if data, err := readData(name); err == nil && bytes.Contains(data, []byte(text)) {
			t.Log(name, "has", text)
			found = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// readData reads what a file has, without its holes: scratch space is mostly empty.
func readData(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var out []byte
	for end := int64(0); ; {
		start, err := file.Seek(end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return out, nil
		}
		if err == nil {
			end, err = file.Seek(start, unix.SEEK_HOLE)
		}
		if err != nil {
			return nil, err
		}
		part := make([]byte, end-start)
		n, err := file.ReadAt(part, start)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		out = append(out, part[:n]...)
	}
}

// tryRotation rotates the data key through a follower, twice, while code uses the secret:
// it is read afterwards, sealed otherwise, on every node.
func tryRotation(t *testing.T, c *nodetest.Cluster, owner nodetest.Account, api *client.Client) {
	t.Helper()
	root := nodetest.MustClient(t, c.RootToken, c.Follower().URL())
	for want := uint64(2); want <= 3; want++ {
		rotated, err := root.RotateSecrets(t.Context(), owner.Slug)
		if err != nil || rotated.Key != want || rotated.Resealed != 1 || rotated.Left != 0 {
			t.Errorf("rotation to %d: %+v, %v", want, rotated, err)
		}
		started, err := api.Submit(t.Context(), client.Start{Code: printsSecret, ExecutionType: "cpu", Timeout: 60})
		if err != nil {
			t.Fatal(err)
		}
		if e := mustFinish(t, api, started.ExecutionID); e.Stdout != "whole **** "+shownValue+" 17\nsplit ****\n" {
			t.Errorf("after rotation %d it printed %q %q", want, e.Stdout, e.Stderr)
		}
	}
}
