package dev_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/cmd/berth/dev"
)

// patience is how long a test waits for an expected event.
const patience = 60 * time.Second

// eventually fails the test unless done returns true in time.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// mustProgram returns the path of this test binary, which acts as a berth
// program.
func mustProgram(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// mustStart runs a cluster of fake nodes and returns a function that stops it.
func mustStart(t *testing.T, cfg dev.Config) (stop func() error) {
	t.Helper()
	cfg.Binary = mustProgram(t)
	cluster, err := dev.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1) // Buffered, because nobody may receive.
	go func() { ended <- cluster.Run(ctx) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return errors.Join(<-ended, cluster.Close())
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-cluster.Ready():
	case err := <-ended:
		ended <- err
		t.Fatalf("the cluster ended before it was ready: %v", err)
	}
	return stop
}

func mustState(t *testing.T, dir string) dev.State {
	t.Helper()
	s, err := dev.ReadState(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// runs reports whether the process exists and has not ended.
func runs(pid int) bool {
	data, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "cmdline"))
	return err == nil && len(data) > 0
}

func itoa(n int) string {
	text, err := json.Marshal(n)
	if err != nil {
		return ""
	}
	return string(text)
}

func TestClusterLives(t *testing.T) {
	dir := t.TempDir()
	stop := mustStart(t, dev.Config{Dir: dir, Nodes: 3, GPUs: "n1=t4", Restart: true})
	s := mustState(t, dir)
	if s.APIKey != "lk_1" || s.RootToken != "brt_1" || s.OrgSlug != "dev" || s.Email == "" ||
		len(s.Password) < 10 || s.ClusterID.IsZero() || len(s.Nodes) != 3 || s.Leader != s.Nodes[0].ID {
		t.Fatalf("cluster.json says %+v", s)
	}
	if len(s.Nodes[0].GPUs) != 1 || s.Nodes[0].GPUs[0].VRAMMiB != 16384 || s.Nodes[1].GPUs == nil {
		t.Errorf("GPUs are %+v and %+v", s.Nodes[0].GPUs, s.Nodes[1].GPUs)
	}
	if len(s.Addrs()) != 3 || len(s.Followers()) != 2 {
		t.Errorf("addresses are %v, followers %v", s.Addrs(), s.Followers())
	}
	for _, n := range s.Nodes {
		if !runs(n.PID) {
			t.Errorf("process %d of %s does not run", n.PID, n.API)
		}
	}

	if err := os.WriteFile(filepath.Join(dir, "leader"), []byte("n3"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "cluster.json names the new leader", func() bool {
		return mustState(t, dir).Leader == s.Nodes[2].ID
	})

	if err := syscall.Kill(s.Nodes[1].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "cluster.json names a new process", func() bool {
		pid := mustState(t, dir).Nodes[1].PID
		return pid != 0 && pid != s.Nodes[1].PID && runs(pid)
	})

	last := mustState(t, dir)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, n := range last.Nodes {
		if runs(n.PID) {
			t.Errorf("process %d goes on", n.PID)
		}
	}
	if _, err := dev.ReadState(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("cluster.json is still there: %v", err)
	}

	mustStart(t, dev.Config{Dir: dir, Restart: true})
	again := mustState(t, dir)
	for i, n := range again.Nodes {
		if n.API != s.Nodes[i].API || len(n.GPUs) != len(s.Nodes[i].GPUs) {
			t.Errorf("the second start has %+v, the first had %+v", n, s.Nodes[i])
		}
	}
	if again.Password != s.Password || again.APIKey != s.APIKey {
		t.Error("the second start has other credentials")
	}
}

// TestRootTokenRotated checks that a cluster whose root token was rotated takes the new one from its
// directory, while it runs and when it starts, and says so where it lacks it.
func TestRootTokenRotated(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := dev.Config{Dir: dir, Nodes: 1, GPUs: "n1=t4", Restart: true}
	stop := mustStart(t, cfg)
	put("rotated", "brt_2")
	put("root_token", "brt_2\n")
	eventually(t, "cluster.json has the new token", func() bool { return mustState(t, dir).RootToken == "brt_2" })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	put("rotated", "brt_3")
	cfg.Binary = mustProgram(t)
	cluster, err := dev.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	err = cluster.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "root_token")) {
		t.Errorf("without the new token: %v", err)
	}
	if err := cluster.Close(); err != nil {
		t.Fatal(err)
	}
	put("root_token", "brt_3")
	mustStart(t, dev.Config{Dir: dir, Restart: true})
	if s := mustState(t, dir); s.RootToken != "brt_3" {
		t.Errorf("cluster.json says %q", s.RootToken)
	}
}

func TestNoRestart(t *testing.T) {
	dir := t.TempDir()
	mustStart(t, dev.Config{Dir: dir, Nodes: 2, GPUs: "n1=t4"})
	if err := syscall.Kill(mustState(t, dir).Nodes[1].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "cluster.json says that the process is gone", func() bool {
		return mustState(t, dir).Nodes[1].PID == 0
	})
}

// TestRemovedNode checks that a node that the cluster has removed is not
// started, even the first one, and is created again once its data is deleted.
func TestRemovedNode(t *testing.T) {
	dir := t.TempDir()
	cfg := dev.Config{Dir: dir, Nodes: 3, GPUs: "n1=t4", Restart: true}
	stop := mustStart(t, cfg)
	first := mustState(t, dir).Nodes[0]
	data := filepath.Join(dir, "n1", "data")
	err := errors.Join(os.WriteFile(filepath.Join(dir, "leader"), []byte("n2"), 0o600),
		os.WriteFile(filepath.Join(data, "removed"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "cluster.json names the others", func() bool {
		nodes := mustState(t, dir).Nodes
		return len(nodes) == 2 && nodes[0].ID != first.ID && runs(nodes[0].PID)
	})
	for range 2 { // The second start omits the node.
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		stop = mustStart(t, cfg)
		if nodes := mustState(t, dir).Nodes; len(nodes) != 2 {
			t.Fatalf("the cluster starts with %d nodes", len(nodes))
		}
	}
	if err := errors.Join(stop(), os.RemoveAll(data)); err != nil {
		t.Fatal(err)
	}
	mustStart(t, cfg)
	if nodes := mustState(t, dir).Nodes; len(nodes) != 3 || nodes[0].ID != first.ID {
		t.Fatalf("without its data the node is not created again: %+v", nodes)
	}
	config, err := os.ReadFile(filepath.Join(dir, "n1", "berth.yaml"))
	if err != nil || !strings.Contains(string(config), "token_file") {
		t.Errorf("the new node would make a cluster of its own (%v):\n%s", err, config)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	mustStart(t, dev.Config{Dir: dir, Nodes: 1, GPUs: "n1=t4"})
	if _, err := dev.Open(t.Context(), dev.Config{Dir: dir}); !errors.Is(err, dev.ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
	if _, err := dev.Detach(t.Context(), dev.Config{Dir: dir}); !errors.Is(err, dev.ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
	if _, err := dev.Open(t.Context(), dev.Config{Dir: t.TempDir(), Nodes: 999, GPUs: "x"}); err == nil || !strings.Contains(err.Error(), "--nodes") {
		t.Errorf("got %v, want a complaint about --nodes", err)
	}
	if _, err := dev.Open(t.Context(), dev.Config{Dir: t.TempDir(), GPUs: "n1=x"}); err == nil || !strings.Contains(err.Error(), "--gpus") {
		t.Errorf("got %v, want a complaint about --gpus", err)
	}
}

func TestOpenKeepsNodes(t *testing.T) {
	dir := t.TempDir()
	stop := mustStart(t, dev.Config{Dir: dir, Nodes: 2, GPUs: "n1=t4"})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := dev.Open(t.Context(), dev.Config{Dir: dir, Nodes: 3}); err == nil || !strings.Contains(err.Error(), "--nodes 2") {
		t.Errorf("got %v, want what to write instead", err)
	}
}

// TestRunNamesTakenPort checks that the error names a port that another program
// has taken, and a remedy.
func TestRunNamesTakenPort(t *testing.T) {
	dir := t.TempDir()
	stop := mustStart(t, dev.Config{Dir: dir, Nodes: 1, GPUs: "n1=t4"})
	addr := strings.TrimPrefix(mustState(t, dir).Nodes[0].API, "http://")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	mustListen(t, addr)
	cluster, err := dev.Open(t.Context(), dev.Config{Dir: dir, Binary: mustProgram(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	if err := cluster.Run(t.Context()); err == nil || !strings.Contains(err.Error(), addr+" of node n1 is taken") {
		t.Errorf("got %v, want the port named", err)
	}
}

// TestRunShowsWhy checks that a node that cannot start ends the command, with
// the end of the node's log.
func TestRunShowsWhy(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "n1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "n1", "broken"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cluster, err := dev.Open(t.Context(), dev.Config{Dir: dir, Nodes: 1, GPUs: "n1=t4", Binary: mustProgram(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	if err := cluster.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "this node is broken") {
		t.Errorf("got %v, want the node's own words", err)
	}
}

// mustSpawn runs a cluster in its own process and returns the process once the
// cluster is ready.
func mustSpawn(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := mustExec(t, "runcluster", dir)
	eventually(t, "the cluster is ready", func() bool {
		_, err := dev.ReadState(dir)
		return err == nil
	})
	return cmd
}

// mustExec starts this test binary as a berth program.
func mustExec(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), mustProgram(t), args...)
	var words bytes.Buffer
	cmd.Stderr = &words
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cmd.Wait() //nolint:errcheck // It is killed, or the test fails anyway.
	}()
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // It may have ended.
		<-ended
		if t.Failed() {
			t.Log(words.String())
		}
	})
	return cmd
}

func TestDown(t *testing.T) {
	dir := t.TempDir()
	cmd := mustSpawn(t, dir)
	s := mustState(t, dir)
	supervisor := mustExec(t, "supervise", filepath.Join(dir, "n1", "data", "attempts", "e", "1"))
	other := mustExec(t, "supervise", filepath.Join(t.TempDir(), "n1", "data", "attempts", "e", "1"))
	for _, p := range []*exec.Cmd{supervisor, other} {
		eventually(t, "the supervisor runs", func() bool { return runs(p.Process.Pid) })
	}
	running, err := dev.Down(t.Context(), dir)
	if err != nil || !running {
		t.Fatalf("Down = %t, %v", running, err)
	}
	for _, n := range s.Nodes {
		if runs(n.PID) {
			t.Errorf("process %d goes on", n.PID)
		}
	}
	if runs(supervisor.Process.Pid) {
		t.Error("a supervisor of the cluster goes on")
	}
	if !runs(other.Process.Pid) {
		t.Error("a supervisor of another cluster was ended")
	}
	eventually(t, "the cluster's process has ended", func() bool { return !runs(cmd.Process.Pid) })
	if running, err := dev.Down(t.Context(), dir); err != nil || running {
		t.Errorf("Down again = %t, %v", running, err)
	}
	if _, err := dev.Down(t.Context(), filepath.Join(dir, "none")); err == nil {
		t.Error("Down of no directory gave no error")
	}
}

// TestGuardEndsCluster checks that the guard ends the cluster when the process
// that runs it is killed.
func TestGuardEndsCluster(t *testing.T) {
	dir := t.TempDir()
	cmd := mustSpawn(t, dir)
	s := mustState(t, dir)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is left", func() bool {
		for _, n := range s.Nodes {
			if runs(n.PID) {
				return false
			}
		}
		_, err := dev.ReadState(dir)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// TestProfiles checks that nodes get a token for their profiles, which only their owner
// can read, and none without the flag.
func TestProfiles(t *testing.T) {
	for _, asked := range []bool{true, false} {
		dir := t.TempDir()
		mustStart(t, dev.Config{Dir: dir, Nodes: 1, GPUs: "n1=t4", Profiles: asked})
		config, err := os.ReadFile(filepath.Join(dir, "n1", "berth.yaml"))
		if err != nil || strings.Contains(string(config), "metrics:") != asked {
			t.Errorf("asked %t, %v:\n%s", asked, err, config)
		}
		token, err := os.Stat(filepath.Join(dir, dev.ProfilesToken))
		if asked && (err != nil || token.Mode().Perm() != 0o600 || token.Size() < 20) || !asked && err == nil {
			t.Errorf("asked %t: the token is %+v, %v", asked, token, err)
		}
	}
}
