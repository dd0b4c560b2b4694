package node_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"berth/api/client"
	"berth/api/wire"
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
	tryLeaks(t, c, api)
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

// holdsSecret waits with a secret until it is stopped, and then ends as a crash would,
// which writes a core file where that is allowed.
const holdsSecret = `import os, signal
value = os.environ["TOKEN"]
signal.signal(signal.SIGTERM, lambda *_: os.abort())
print("ready", flush=True)
while True: signal.pause()
`

// tryLeaks searches for the secret while code holds it: in the command lines of all
// processes, in a backup, in metrics and, after a crash, in files.
func tryLeaks(t *testing.T, c *nodetest.Cluster, api *client.Client) {
	t.Helper()
	started, err := api.Submit(t.Context(), client.Start{Code: holdsSecret, ExecutionType: "cpu", Timeout: 60})
	if err != nil {
		t.Fatal(err)
	}
	mustReach(t, api, started.ExecutionID, "to have the secret", func(e wire.Execution) bool { return e.Stdout == "ready\n" })
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(lines) < 3 {
		t.Fatalf("%d processes, %v", len(lines), err)
	}
	for _, name := range lines {
		if text, err := os.ReadFile(name); err == nil && bytes.Contains(text, []byte(canary)) {
			t.Errorf("%s has the secret", name)
		}
	}
	var backup bytes.Buffer
	if err := nodetest.MustClient(t, c.RootToken, c.Follower().URL()).SaveSnapshot(t.Context(), &backup); err != nil {
		t.Fatal(err)
	}
	if backup.Len() == 0 || bytes.Contains(backup.Bytes(), []byte(canary)) {
		t.Errorf("a backup of %d bytes has the secret", backup.Len())
	}
	for _, n := range c.Nodes {
		if text := mustFetch(t, n.URL()+"/metrics"); !strings.Contains(text, "berth_") || strings.Contains(text, canary) {
			t.Errorf("the metrics of %s are none, or have the secret", n.ID())
		}
	}
	if err := api.Stop(t.Context(), started.ExecutionID); err != nil {
		t.Fatal(err)
	}
	mustFinish(t, api, started.ExecutionID)
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
	tryMasterRotation(t, c, api)
}

// tryMasterRotation rotates the master key through a follower, twice: every server has
// another file, with one key, and secrets, files and sign-ins go on.
func tryMasterRotation(t *testing.T, c *nodetest.Cluster, api *client.Client) {
	t.Helper()
	root := nodetest.MustClient(t, c.RootToken, c.Follower().URL())
	files := func() (out []string) {
		for _, s := range c.Servers() {
			data, err := os.ReadFile(filepath.Join(s.Config.DataDir, "keys", "master.key"))
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(data))
		}
		return out
	}
	before := files()
	var both sync.WaitGroup
	for _, s := range c.Servers()[:2] { // At once: neither breaks the other.
		api := nodetest.MustClient(t, c.RootToken, s.URL())
		both.Go(func() {
			if _, err := api.RotateMaster(t.Context()); err != nil && client.CodeOf(err) != "rotation_in_progress" {
				t.Errorf("one of two rotations at once: %v", err)
			}
		})
	}
	both.Wait()
	for range 2 {
		done, err := root.RotateMaster(t.Context())
		if err != nil || done.Servers != len(before) || done.Resealed < 2 || done.Left != 0 {
			t.Fatalf("rotation of the master key: %+v, %v", done, err)
		}
	}
	for i, file := range files() {
		if file == before[i] || file != files()[0] || strings.Count(file, "keyId") != strings.Count(before[i], "keyId") {
			t.Errorf("server %d has a file of %d bytes, which is the old one, or not that of the others", i, len(file))
		}
	}
	if err := api.SetVariable(t.Context(), "TOKEN", canary, true); err != nil {
		t.Error(err)
	}
	started, err := api.Submit(t.Context(), client.Start{Code: printsSecret, ExecutionType: "cpu", Timeout: 60})
	if err != nil {
		t.Fatal(err)
	}
	if e := mustFinish(t, api, started.ExecutionID); e.Stdout != "whole **** "+shownValue+" 17\nsplit ****\n" {
		t.Errorf("after the rotation it printed %q %q", e.Stdout, e.Stderr)
	}
}
