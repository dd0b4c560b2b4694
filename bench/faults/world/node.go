package world

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"berth/compute"
)

// Ports of every node. Each node has its own address.
const (
	apiPort    = 6470
	rpcPort    = 6471
	gossipPort = 6472
)

// Node is one berth node with its own machine. Its methods may be called by one
// goroutine at a time, except URL and Running.
type Node struct {
	Name string
	IP   string
	GPUs []string // In the format of gpus.simulated.

	Env []string // Additional environment variables, from the next start on.

	// ID is set once the node was ready.
	ID compute.NodeID

	world  *World
	dir    string
	netns  string
	joins  bool
	worker bool
	filter filter

	mu      sync.Mutex
	process *process
	stopped bool // By SIGSTOP.
}

// URL returns the base URL of the node's API.
func (n *Node) URL() string { return fmt.Sprintf("http://%s:%d", n.IP, apiPort) }

// Log returns the path of the output of the node's processes.
func (n *Node) Log() string { return filepath.Join(n.dir, "node.log") }

// LogLine returns the first line of the node's log that contains one of the
// words, "" for none.
func (n *Node) LogLine(words ...string) (string, error) {
	for line, err := range n.lines() {
		if err != nil {
			return "", err
		}
		for _, w := range words {
			if strings.Contains(line, w) {
				return line, nil
			}
		}
	}
	return "", nil
}

// LastLogLine returns the last line of the node's log that begins with a word,
// "" for none.
func (n *Node) LastLogLine(word string) (last string, err error) {
	for line, err := range n.lines() {
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(line, word) {
			last = line
		}
	}
	return last, nil
}

// lines yields the lines of the node's log.
func (n *Node) lines() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		file, err := os.Open(n.Log())
		if err != nil {
			yield("", err)
			return
		}
		defer file.Close()
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, maxLine)
		for lines.Scan() {
			if !yield(lines.Text(), nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield("", err)
		}
	}
}

// maxLine is the maximum length of a log line.
const maxLine = 16 << 20

// Data returns the path of the node's data directory.
func (n *Node) Data() string { return n.data() }

func (n *Node) data() string { return filepath.Join(n.dir, "data") }

// Running reports whether the node has a process that is not paused.
func (n *Node) Running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process != nil && !n.stopped && !isClosed(n.process.ended)
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Start starts the node's process unless one is alive. The process outlives
// ctx; Kill ends it.
func (n *Node) Start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process != nil && !isClosed(n.process.ended) {
		return nil
	}
	env := n.Env
	if n.world.cfg.Points {
		env = append(slices.Clone(env), "BERTH_FAULTS_FILE="+n.faultsFile(), "BERTH_PLANT="+n.world.cfg.Plant)
	}
	p, err := start(ctx, n.netns, n.Log(), env,
		n.world.cfg.Binary, "node", "--config", filepath.Join(n.dir, "berth.yaml"), "--promote-after", "1s")
	if err != nil {
		return err
	}
	n.process, n.stopped = p, false
	return nil
}

// Kill kills the node's process. Its executions go on.
func (n *Node) Kill(ctx context.Context) error {
	p := n.current()
	if p == nil {
		return nil
	}
	return p.kill(ctx)
}

// Stop asks the node's process to exit and waits until it has.
func (n *Node) Stop(ctx context.Context) error {
	p := n.current()
	if p == nil {
		return nil
	}
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.wait(ctx)
}

func (n *Node) current() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process
}

// Ended reports whether the node's process has exited, and how.
func (n *Node) Ended() (bool, error) {
	p := n.current()
	if p == nil || !isClosed(p.ended) {
		return p == nil, nil
	}
	return true, p.err
}

// Freeze pauses the node's process; Thaw resumes it.
func (n *Node) Freeze() error { return n.halt(syscall.SIGSTOP, true) }

// Thaw resumes the node's process.
func (n *Node) Thaw() error { return n.halt(syscall.SIGCONT, false) }

func (n *Node) halt(sig syscall.Signal, stopped bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return nil
	}
	n.stopped = stopped
	return n.process.signal(sig)
}

// Crash kills the node's process and all its executions, as a machine failure
// does.
func (n *Node) Crash(ctx context.Context) error {
	if err := n.Kill(ctx); err != nil {
		return err
	}
	return errors.Join(endProcesses(ctx, n.dir), reapNodes(n.dir))
}

// KillSupervisors kills the supervisors of the node's executions, but not the
// node, and returns their number.
func (n *Node) KillSupervisors(ctx context.Context) (int, error) {
	pids, err := n.Supervisors()
	if err != nil {
		return 0, err
	}
	return len(pids), killAll(ctx, pids)
}

// Supervisors returns the supervisor processes of the node's executions.
func (n *Node) Supervisors() ([]int, error) { return owned(n.dir, "supervise") }

// writeConfig writes the node's configuration file.
func (n *Node) writeConfig() error {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\ndata_dir: %q\nraft:\n  profile: lan\n", n.Name, n.data())
	fmt.Fprintf(&b, "api:\n  addr: %s:%d\n  insecure: true\nrpc:\n  addr: %s:%d\ngossip:\n  addr: %s:%d\n",
		n.IP, apiPort, n.IP, rpcPort, n.IP, gossipPort)
	b.WriteString("s3:\n  addr: off\n")
	if n.worker {
		fmt.Fprintf(&b, "role: %s\n", compute.RoleWorker)
	}
	if n.joins {
		fmt.Fprintf(&b, "join:\n  hosts: [%q]\n  token_file: %q\n",
			n.world.Nodes[0].IP+":"+strconv.Itoa(rpcPort), n.tokenFile())
	}
	b.WriteString("executor:\n  network: none\n  grace: 2s\n")
	fmt.Fprintf(&b, "  mounts:\n    - {name: marks, path: %q, always: true}\n", n.world.Marks())
	b.WriteString("billing:\n  mode: enforce\n  signup_grant: 0\n") // As the model of an account does.
	b.WriteString("limits:\n  queued: 100000\n  keys: 10000\n  concurrent: 1000\n")
	fmt.Fprintf(&b, "gpus:\n  source: simulated\n  simulated: [%s]\n", strings.Join(n.GPUs, ", "))
	return os.WriteFile(filepath.Join(n.dir, "berth.yaml"), []byte(b.String()), 0o600)
}
