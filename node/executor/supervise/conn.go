package supervise

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth/compute"
)

const (
	writeTimeout = 2 * time.Second // A node that does not read for this long is skipped.
	backlog      = 4               // Connections that wait for accept. A machine has one node process.
	maxConns     = 8               // Connections served concurrently.
	maxNote      = 300             // Bytes of a note.
)

// Conn is the node's end of a connection to a supervisor. One goroutine may read
// while another one writes.
type Conn struct {
	file  *os.File
	lines *bufio.Reader
}

// Event is a message of a supervisor: the code started, whether it is ready, or the
// attempt ended and its outcome is in the journal.
type Event struct {
	Ended     bool
	Readiness bool // Whether the code is ready has changed, or the node has just connected.
	Ready     bool
	ExecletAt compute.Instant
	StartedAt compute.Instant
}

// Pair returns a connection, and the file that a new supervisor inherits as
// FDConn. The caller closes the file after the start.
func Pair() (*Conn, *os.File, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, nil, err
	}
	return newConn(ours), theirs, nil
}

// socketPair returns two connected sockets that do not block.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "supervisor"), os.NewFile(uintptr(fds[1]), "node"), nil
}

// Dial connects to the living supervisor of the attempt in dir.
func Dial(dir string) (*Conn, error) {
	fd, err := dialAt(dir, ControlFile, syscall.SOCK_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("dial supervisor: %w", err)
	}
	return newConn(os.NewFile(uintptr(fd), "supervisor")), nil
}

// dialAt connects to a socket in dir. The path goes through the directory's
// descriptor, because the path of a socket is limited to 108 bytes.
func dialAt(dir, name string, flags int) (int, error) {
	d, err := os.Open(dir)
	if err != nil {
		return -1, err
	}
	defer d.Close()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|flags, 0)
	if err != nil {
		return -1, err
	}
	path := fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name)
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		syscall.Close(fd)
		return -1, err
	}
	return fd, nil
}

func newConn(file *os.File) *Conn { return &Conn{file: file, lines: bufio.NewReader(file)} }

// Contact reports at which boottime the leader was last reached.
func (c *Conn) Contact(at time.Duration) error {
	return writeLine(c.file, fmt.Sprintf("contact %d", at.Nanoseconds()))
}

// Stop makes the supervisor stop the code.
func (c *Conn) Stop(stop compute.Stop) error {
	word := "graceful"
	if stop == compute.StopHard {
		word = "hard"
	}
	return writeLine(c.file, "stop "+word)
}

// Paid tells the supervisor at which boottime the credits of the attempt end, 0 for no end that is
// known. If the leader is not reached then, the supervisor stops the code.
func (c *Conn) Paid(until time.Duration) error {
	return writeLine(c.file, fmt.Sprintf("paid %d", until.Nanoseconds()))
}

// Preempt makes the supervisor preempt the code: it gives the code a notice and
// stops it when the notice is over.
func (c *Conn) Preempt(notice time.Duration) error {
	return writeLine(c.file, fmt.Sprintf("yield %d", notice.Milliseconds()))
}

// Note makes the supervisor write a line to the output.
func (c *Conn) Note(text string) error {
	return writeLine(c.file, "note "+compute.Clip(strings.ReplaceAll(text, "\n", " "), maxNote))
}

// Next waits for the supervisor's next event. An error means that the supervisor
// has hung up: it has exited, or waits for another attempt.
func (c *Conn) Next() (Event, error) {
	line, err := c.lines.ReadString('\n')
	if err != nil {
		return Event{}, fmt.Errorf("read from supervisor: %w", err)
	}
	if word, ready, ok := strings.Cut(strings.TrimSpace(line), " "); ok && word == "ready" {
		return Event{Readiness: true, Ready: ready == "1"}, nil
	}
	var execlet, started int64
	if n, _ := fmt.Sscanf(line, "started %d %d", &execlet, &started); n == 2 {
		return Event{ExecletAt: compute.Instant(execlet), StartedAt: compute.Instant(started)}, nil
	}
	return Event{Ended: true}, nil
}

// Close ends the connection. The supervisor keeps running.
func (c *Conn) Close() { c.file.Close() }

func writeLine(file *os.File, line string) error {
	if err := file.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("write to peer: %w", err)
	}
	if _, err := file.WriteString(line + "\n"); err != nil {
		return fmt.Errorf("write to peer: %w", err)
	}
	return nil
}

// command is one command of the node.
type command struct {
	stop    compute.Stop
	contact time.Duration // Boottime of the last contact, with StopNone.
	preempt bool          // Preempt the code,
	notice  time.Duration // with this notice.
	credits bool          // The credits end
	paid    time.Duration // at this boottime; 0 for never.
	note    string        // A line for the output, in place of all others.
}

// listen makes the socket to which a later node process connects. The current
// directory is the attempt's.
func listen() (int, error) {
	os.Remove(ControlFile)
	return listenAt(ControlFile, backlog)
}

// listenAt makes a socket in the current directory.
func listenAt(name string, backlog int) (int, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("listen for node: %w", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: name}); err != nil {
		syscall.Close(fd)
		return -1, fmt.Errorf("listen for node: %w", err)
	}
	if err := syscall.Listen(fd, backlog); err != nil {
		syscall.Close(fd)
		return -1, fmt.Errorf("listen for node: %w", err)
	}
	return fd, nil
}

// accept calls serve for every node that connects, until the listener is shut down. It returns
// once all calls have.
func accept(listener int, serve func(*os.File)) {
	var group sync.WaitGroup
	defer group.Wait()
	slots := make(chan struct{}, maxConns)
	for {
		fd, _, err := syscall.Accept4(listener, syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK)
		if err == syscall.EINTR || err == syscall.ECONNABORTED {
			continue
		}
		if err != nil {
			return
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			serve(os.NewFile(uintptr(fd), "node"))
		})
	}
}

// unread returns how many bytes wait to be read from a socket, at most a page.
func unread(fd int) int {
	n, _, err := syscall.Recvfrom(fd, make([]byte, 4<<10), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	if err != nil {
		return 0 // None wait.
	}
	return n
}

// serveFirst serves the connection of the node that has started this supervisor. It
// closes early once the commands that were waiting are in s.commands.
func (s *supervisor) serveFirst(file *os.File, early chan<- struct{}) {
	waiting := unread(FDConn) // The socket of file.
	if waiting == 0 {
		close(early)
	}
	s.serve(file, func(n int) {
		if waiting > 0 {
			if waiting -= n; waiting <= 0 {
				close(early)
			}
		}
	})
	if waiting > 0 {
		close(early) // The node has gone in the middle of a command.
	}
}

// readCommands passes the node's commands on until it disconnects. It calls done with the
// bytes of each.
func (s *supervisor) readCommands(file *os.File, done func(bytes int)) {
	scanner := bufio.NewScanner(file)
	for ; scanner.Scan(); done(len(scanner.Bytes()) + 1) {
		c, ok := parseCommand(scanner.Text())
		if !ok {
			continue
		}
		select {
		case s.commands <- c:
		case <-s.over:
		}
	}
}

// parseCommand returns the command in a line. It reports false for one that it does not know.
func parseCommand(line string) (c command, ok bool) {
	word, rest, _ := strings.Cut(line, " ")
	switch {
	case word == "stop" && rest == "hard":
		return command{stop: compute.StopHard}, true
	case word == "stop":
		return command{stop: compute.StopGraceful}, true
	case word == "yield":
		ms, err := strconv.ParseInt(rest, 10, 64)
		return command{preempt: true, notice: time.Duration(ms) * time.Millisecond}, err == nil && ms >= 0
	case word == "note":
		return command{note: rest}, rest != ""
	case word == "paid":
		ns, err := strconv.ParseInt(rest, 10, 64)
		return command{credits: true, paid: time.Duration(ns)}, err == nil && ns >= 0
	case word == "contact":
		ns, err := strconv.ParseInt(rest, 10, 64)
		return command{contact: time.Duration(ns)}, err == nil && ns >= 0
	}
	return command{}, false
}

// serve replays the past events to one node and reads its commands until it
// disconnects. It calls done with the bytes of each command.
func (s *supervisor) serve(file *os.File, done func(bytes int)) {
	defer file.Close()
	s.mu.Lock()
	if s.hungUp {
		s.mu.Unlock()
		return
	}
	s.conns[file] = true
	for _, line := range s.events {
		if writeLine(file, line) != nil {
			break
		}
	}
	if s.spec.Serving != nil && s.wasReady {
		_ = writeLine(file, readyLine(s.ready)) // As above.
	}
	s.mu.Unlock()
	s.readCommands(file, done)
	s.mu.Lock()
	delete(s.conns, file)
	s.mu.Unlock()
}

// hangUp ends the connections of nodes, which have been sent all events, and returns when nothing
// serves them any more.
func (s *supervisor) hangUp() {
	close(s.over)
	s.mu.Lock()
	s.hungUp = true
	for file := range s.conns {
		// The node still reads the events that were written.
		if raw, err := file.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
		}
	}
	s.mu.Unlock()
	_ = syscall.Shutdown(s.listener, syscall.SHUT_RDWR) // Which ends the accept that waits.
	s.connected.Wait()
	_ = syscall.Close(s.listener)
}

// broadcast sends an event to every connected node, and keeps it for later ones.
func (s *supervisor) broadcast(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, line)
	for file := range s.conns {
		// A node that misses the event reads the journal instead.
		_ = writeLine(file, line)
	}
}
