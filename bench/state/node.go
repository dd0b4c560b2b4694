package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"berth/api/client"
	"berth/bench/usage"
	"berth/fsm"
	"berth/loop"
)

// Timing of the wait for a real node.
const (
	idleFor    = 60 * time.Second
	readyEvery = 10 * time.Millisecond
	readyLimit = 5 * time.Minute
	endLimit   = time.Minute
)

// NodeReport measures a real node: a process with a data directory, alone in
// its cluster and without GPUs.
type NodeReport struct {
	IdleMiB       float64 `json:"idle_rss_mib"`       // Resident, a minute after a new node was ready.
	IdleOwnMiB    float64 `json:"idle_rss_own_mib"`   // The part of it that is not pages of files.
	RestoreS      float64 `json:"backup_restore_s"`   // berth admin snapshot restore: read, check, move into place.
	FirstS        float64 `json:"first_start_s"`      // From exec to ready after the restore.
	RestartS      float64 `json:"restart_s"`          // From exec to ready the second time.
	RestartedMiB  float64 `json:"restarted_rss_mib"`  // Resident, a minute after that.
	RestartedPeak float64 `json:"restarted_peak_mib"` // Peak resident memory.
	Writes        Writes  `json:"writes"`             // Requests from then until the node had written a snapshot.
	ReplayS       float64 `json:"replay_s"`           // From exec to ready, with the entries after that snapshot.
}

// node is a berth process with a data directory.
type node struct {
	program string
	dir     string
	url     string
	client  *client.Client
	clock   func() time.Time

	cmd  *exec.Cmd // Nil without a process.
	done chan struct{}
}

// newNode writes the configuration of a node.
func newNode(ctx context.Context, program, dir string, clock func() time.Time) (*node, error) {
	var addrs [3]string
	for i := range addrs {
		var err error
		if addrs[i], err = freeAddress(ctx); err != nil {
			return nil, err
		}
	}
	n := &node{program: program, dir: dir, url: "http://" + addrs[0], clock: clock}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	config := fmt.Sprintf("name: bench\ndata_dir: %q\napi:\n  addr: %s\n  drain: 0s\nrpc:\n  addr: %s\n"+
		"gossip:\n  addr: %s\ns3:\n  addr: off\ngpus:\n  source: none\n", n.data(), addrs[0], addrs[1], addrs[2])
	return n, os.WriteFile(n.config(), []byte(config), 0o600)
}

func (n *node) data() string   { return filepath.Join(n.dir, "data") }
func (n *node) config() string { return filepath.Join(n.dir, "berth.yaml") }

// freeAddress returns an unused address of this machine.
func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// start starts the process and returns the time until it was ready.
func (n *node) start(ctx context.Context) (time.Duration, error) {
	log, err := os.OpenFile(filepath.Join(n.dir, "node.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	begun := n.clock()
	n.cmd = exec.CommandContext(context.WithoutCancel(ctx), n.program, "node", "--config", n.config()) // end ends it.
	n.cmd.Stdout, n.cmd.Stderr = log, log
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	began := make(chan error)
	n.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		runtime.LockOSThread() // The kernel also ends the process when the thread that started it ends.
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		began <- err
		if err == nil {
			_ = cmd.Wait() // This program ends it itself.
		}
	}(n.cmd, n.done)
	if err := <-began; err != nil {
		n.cmd = nil
		return 0, err
	}
	if n.client, err = client.New(client.Config{Addrs: []string{n.url}, RetryFor: -1}); err != nil {
		return 0, err
	}
	limit := time.After(readyLimit)
	for {
		if err = n.client.Ready(ctx); err == nil {
			return n.clock().Sub(begun), nil
		}
		select {
		case <-time.After(readyEvery):
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-n.done:
			return 0, fmt.Errorf("the node ended: %s", n.lastLogLine())
		case <-limit:
			return 0, fmt.Errorf("the node is not ready: %w", err)
		}
	}
}

// lastLogLine returns the last line of the node's log.
func (n *node) lastLogLine() string {
	text, err := os.ReadFile(filepath.Join(n.dir, "node.log"))
	if err != nil {
		return err.Error()
	}
	text = bytes.TrimSpace(text)
	return string(text[bytes.LastIndexByte(text, '\n')+1:])
}

// end ends the process. n may be nil.
func (n *node) end() error {
	if n == nil || n.cmd == nil {
		return nil
	}
	cmd := n.cmd
	n.cmd = nil
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-n.done:
		return nil
	case <-time.After(endLimit):
		return errors.Join(errors.New("the node did not exit after SIGTERM"), cmd.Process.Kill())
	}
}

func mib(bytes uint64) float64 { return float64(bytes) / (1 << 20) }

// found bootstraps a real node's cluster, measures it while idle, saves its
// state and ends it.
func (m *measurement) found(ctx context.Context) error {
	n, err := newNode(ctx, m.cfg.Program, filepath.Join(m.cfg.Dir, "node"), m.cfg.Now)
	if err != nil {
		return err
	}
	m.node, m.report.Node = n, new(NodeReport)
	if _, err := n.start(ctx); err != nil {
		return err
	}
	if !loop.Sleep(ctx, idleFor) {
		return ctx.Err()
	}
	used, err := usage.Read(n.cmd.Process.Pid)
	if err != nil {
		return err
	}
	m.report.Node.IdleMiB, m.report.Node.IdleOwnMiB = mib(used.Resident), mib(used.Own)
	c, err := n.asRoot()
	if err != nil {
		return err
	}
	if err := m.write(m.saved, func(w io.Writer) error { return c.SaveSnapshot(ctx, w) }); err != nil {
		return err
	}
	return n.end()
}

// empty returns the state machine to fill: that of the real node, if there is
// one.
func (m *measurement) empty() (*fsm.FSM, error) {
	if m.node == nil {
		return fsm.New(), nil
	}
	file, err := os.Open(m.saved)
	if err != nil {
		return nil, err
	}
	_, machine, err := fsm.ReadBackup(file)
	return machine, errors.Join(err, file.Close())
}

// restart restores the backup to the real node's data directory and starts the
// node twice. The second process keeps running.
func (m *measurement) restart(ctx context.Context) error {
	n, r := m.node, m.report.Node
	took, err := m.took(func() error {
		cmd := exec.CommandContext(ctx, n.program, "admin", "snapshot", "restore", m.saved, "--data-dir", n.data(), "--yes")
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("restore of the backup: %w: %s", err, output)
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.RestoreS = took.Seconds()
	if took, err = n.start(ctx); err != nil {
		return err
	}
	r.FirstS = took.Seconds()
	if err := n.end(); err != nil {
		return err
	}
	if took, err = n.start(ctx); err != nil {
		return err
	}
	r.RestartS = took.Seconds()
	if !loop.Sleep(ctx, idleFor) {
		return ctx.Err()
	}
	used, err := usage.Read(n.cmd.Process.Pid)
	if err != nil {
		return err
	}
	r.RestartedMiB, r.RestartedPeak = mib(used.Resident), mib(used.Peak)
	return nil
}
