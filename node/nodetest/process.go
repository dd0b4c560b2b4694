package nodetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"berth/node"
	"berth/node/config"
)

// configVariable tells a test binary that it is to be the node whose
// configuration is in the file that it names.
const configVariable = "BERTH_NODETEST_CONFIG"

// stopWait is how long a process has to end after SIGTERM.
const stopWait = 60 * time.Second

// addresses are the addresses and the id that a node process reports to the
// test.
type addresses struct {
	API, RPC, Gossip, ID string
}

// Main is called by the TestMain of a test binary. It runs the tests, or the
// node that this process is.
func Main(m *testing.M) {
	if path := os.Getenv(configVariable); path != "" {
		if err := runProcess(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1) //nolint:forbidigo // As main.
		}
		os.Exit(0) //nolint:forbidigo // As main.
	}
	os.Exit(m.Run()) //nolint:forbidigo // As main.
}

// runProcess is one node until SIGTERM.
func runProcess(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var cfg config.Config
	if err := json.Unmarshal(data, &cfg); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	n, err := node.Open(ctx, cfg, node.Options{
		Version: "test", PromoteAfter: promoteAfter, Ballast: ballastIn(cfg.DataDir),
		StopLimit: stopWait, Alone: true,
		Logger: config.NewLogger(cfg.Log, os.Stderr).With("node", cfg.Name),
	})
	if err != nil {
		return err
	}
	said, err := json.Marshal(addresses{n.URL(), n.RPCAddress(), n.GossipAddress(), n.ID().String()})
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".open", said, 0o600); err != nil {
		return err
	}
	if err := os.Rename(path+".open", path+".addresses"); err != nil {
		return err
	}
	return errors.Join(n.Run(ctx), n.Close())
}

// Process is one node in a process of its own.
type Process struct {
	Config config.Config
	URL    string // Base URL of its API.
	ID     string

	tb     testing.TB
	output *output
	binary string // The program that it runs: this one, or one like it.
	path   string // Path of its configuration.
	rpc    string
	cmd    *exec.Cmd
	done   chan struct{} // Closed once the process has ended.
}

// Processes is a cluster of node processes.
type Processes struct {
	tb        testing.TB
	Nodes     []*Process
	RootToken string

	output *output
	binary string
}

// Start runs n nodes as processes and returns once all are members.
func Start(tb testing.TB, n int) *Processes {
	tb.Helper()
	return StartWith(tb, n, func(*NodeConfig) {})
}

// StartWith is Start with configurations that change makes other than usual.
func StartWith(tb testing.TB, n int, change func(*NodeConfig)) *Processes {
	tb.Helper()
	binary, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	return start(tb, n, binary, change)
}

// StartMeasured is StartWith for tests that measure memory: the nodes do not run under the
// race detector, also when the tests do, because it takes several times as much.
func StartMeasured(tb testing.TB, n int, change func(*NodeConfig)) *Processes {
	tb.Helper()
	if !raced {
		return StartWith(tb, n, change)
	}
	binary := filepath.Join(tb.TempDir(), "node.test")
	build := exec.CommandContext(tb.Context(), "go", "test", "-c", "-vet=off", "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("build a node without the race detector: %v\n%s", err, out)
	}
	return start(tb, n, binary, change)
}

// start runs n nodes as processes of a test binary.
func start(tb testing.TB, n int, binary string, change func(*NodeConfig)) *Processes {
	tb.Helper()
	c := &Processes{tb: tb, output: newOutput(tb), binary: binary}
	for i := range n {
		cfg := Config(tb, i)
		change(&cfg)
		c.add(cfg)
		if i == 0 {
			c.RootToken = mustReadFile(tb, filepath.Join(c.Nodes[0].Config.DataDir, "root_token"), readyWait)
			c.output.hide(c.RootToken)
		}
	}
	return c
}

// AddWorker starts a worker with simulated GPUs and returns once it is ready.
func (c *Processes) AddWorker(gpus ...string) *Process {
	c.tb.Helper()
	return c.AddWith(func(cfg *NodeConfig) { cfg.Role, cfg.GPUs.Simulated = Worker, gpus })
}

// AddWith starts one more node with a configuration that change makes other than
// usual, and returns once it is ready.
func (c *Processes) AddWith(change func(*NodeConfig)) *Process {
	c.tb.Helper()
	cfg := Config(c.tb, len(c.Nodes))
	change(&cfg)
	return c.add(cfg)
}

// add starts a node, which joins the others if there are any.
func (c *Processes) add(cfg config.Config) *Process {
	c.tb.Helper()
	if len(c.Nodes) > 0 {
		token := mustToken(c.tb, c.Nodes[0].URL, c.RootToken, cfg.Role)
		cfg.Join.TokenFile = filepath.Join(c.tb.TempDir(), "token")
		if err := os.WriteFile(cfg.Join.TokenFile, []byte(token), 0o600); err != nil {
			c.tb.Fatal(err)
		}
		cfg.Join.Hosts = []string{c.Nodes[0].rpc}
	}
	p := &Process{
		Config: cfg, tb: c.tb, output: c.output, binary: c.binary, path: filepath.Join(c.tb.TempDir(), cfg.Name+".json"),
	}
	p.Start()
	c.tb.Cleanup(p.Stop)
	c.Nodes = append(c.Nodes, p)
	Eventually(c.tb, readyWait, cfg.Name+" to be ready", func() bool {
		return MustClient(c.tb, "", p.URL).Ready(c.tb.Context()) == nil
	})
	return p
}

// Inside stops the processes and runs their nodes in this process, on the same data and
// addresses.
func (c *Processes) Inside() *Cluster {
	c.tb.Helper()
	in := &Cluster{tb: c.tb, RootToken: c.RootToken, output: c.output}
	for _, p := range c.Nodes {
		p.Stop()
	}
	for _, p := range c.Nodes {
		in.Nodes = append(in.Nodes, mustRun(c.tb, p.Config, 0, c.output))
	}
	in.WaitReady()
	return in
}

// Hide fails the test at its end if a node has logged the text.
func (c *Processes) Hide(text string) { c.output.hide(text) }

// Logged reports whether a node has logged a text.
func (c *Processes) Logged(text string) bool {
	c.output.mu.Lock()
	defer c.output.mu.Unlock()
	return bytes.Contains(c.output.all.Bytes(), []byte(text))
}

// MustAccount makes an account through the first node.
func (c *Processes) MustAccount(name string) Account {
	c.tb.Helper()
	return mustAccount(c.tb, c.output, c.Nodes[0].URL, c.RootToken, name)
}

// Start runs the process, again after Kill or Stop, on the same data and
// addresses, and returns once its sockets are open.
func (p *Process) Start() {
	p.tb.Helper()
	data, err := json.Marshal(p.Config)
	if err != nil {
		p.tb.Fatal(err)
	}
	if err := os.WriteFile(p.path, data, 0o600); err != nil {
		p.tb.Fatal(err)
	}
	if err := os.Remove(p.path + ".addresses"); err != nil && !errors.Is(err, os.ErrNotExist) {
		p.tb.Fatal(err)
	}
	p.cmd = exec.CommandContext(context.Background(), p.binary) // It ends with Stop or Kill.
	p.cmd.Env = append(os.Environ(), configVariable+"="+p.path)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// Supervisors live on and may keep the pipes of their dead parent open.
	p.cmd.WaitDelay = time.Second
	began, done, cmd := make(chan error), make(chan struct{}), p.cmd
	go func() {
		// The kernel also ends the process when the thread that started it ends, as
		// threads do that made a network. So this goroutine keeps its thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		began <- err
		if err == nil {
			_ = cmd.Wait() // How it ended is the test's own doing.
		}
	}()
	if err := <-began; err != nil {
		p.tb.Fatal(err)
	}
	p.done = done
	var said addresses
	text := mustReadFile(p.tb, p.path+".addresses", readyWait)
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		p.tb.Fatal(err)
	}
	p.URL, p.ID, p.rpc = said.API, said.ID, said.RPC
	p.Config.API.Addr, p.Config.RPC.Addr, p.Config.Gossip.Addr = said.API[len("http://"):], said.RPC, said.Gossip
}

// Pid returns the id of the running process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Kill ends the process with SIGKILL and waits for its end.
func (p *Process) Kill() {
	p.tb.Helper()
	p.end(syscall.SIGKILL)
}

// Stop ends the process gracefully. One that has ended already stays so.
func (p *Process) Stop() {
	p.tb.Helper()
	p.end(syscall.SIGTERM)
}

func (p *Process) end(sig syscall.Signal) {
	p.tb.Helper()
	if p.done == nil {
		return
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.tb.Errorf("signal node %s: %v", p.Config.Name, err)
	}
	select {
	case <-p.done:
	case <-time.After(stopWait):
		p.tb.Errorf("node %s did not end within %v of %v", p.Config.Name, stopWait, sig)
		if err := p.cmd.Process.Kill(); err != nil {
			p.tb.Errorf("kill node %s: %v", p.Config.Name, err)
		}
		<-p.done
	}
	p.done = nil
}
