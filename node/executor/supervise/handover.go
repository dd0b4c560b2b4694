package supervise

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// A supervisor is started before its attempt is known, because its program takes time
// to initialise. It waits at FDHand until the node hands it an attempt: the length of the
// directory's path and with it the descriptors, then the path. When the attempt has ended, it may wait
// for another. It ends when the node closes the connection.

const (
	pathHeader     = 2
	maxPath        = 4 << 10
	handedFiles    = 64 // A supervisor has no more descriptors from the node.
	firstHanded    = FDConn
	handOverWithin = 2 * time.Second
)

// waitingName is where the name of an execution would be in the argument of a supervisor
// that waits. Slashes make it as long as the directory of any attempt.
const (
	waitingName   = "/waiting"
	warmName      = "/warm"         // In its place while a sandbox waits too.
	attemptLength = 1 + 36 + 1 + 20 // Slash, UUID, slash, epoch.
)

// Waiting returns the argument of a supervisor that waits for one of the attempts whose
// directories are below a directory. Once it has the attempt, its command line shows that
// directory, as people and `berth dev down` expect.
func Waiting(attempts string) string {
	return attempts + waitingName + strings.Repeat("/", attemptLength-len(waitingName))
}

func waits(argument string) bool {
	return strings.HasSuffix(strings.TrimRight(argument, "/"), waitingName)
}

// show overwrites an argument of this process, which is memory of its command line, with
// the directory of its attempt.
func show(argument, dir string) {
	shown := unsafe.Slice(unsafe.StringData(argument), len(argument))
	clear(shown[copy(shown, dir):])
}

// Process is the node's end of the connection to a supervisor without an attempt, or with one
// after which it may wait again. One goroutine uses it at a time.
type Process struct {
	file  *os.File
	lines *bufio.Reader
}

// NewProcess returns a Process, and the file that a new supervisor inherits as FDHand. The
// caller closes the file after the start.
func NewProcess() (*Process, *os.File, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, nil, err
	}
	return &Process{file: ours, lines: bufio.NewReader(ours)}, theirs, nil
}

// Hand gives a waiting supervisor the attempt in dir, and returns the connection to it. stderr
// becomes its standard output and error, and the files the descriptors from FDSlot on.
func (p *Process) Hand(dir string, stderr *os.File, files []*os.File) (*Conn, error) {
	if len(dir) > maxPath || len(files)+1 >= handedFiles {
		return nil, fmt.Errorf("hand over attempt: too much")
	}
	conn, theirs, err := Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	if err := p.send([]byte(dir), stderr, append([]*os.File{theirs}, files...)); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// Waits waits for the end of the attempt, and reports whether the supervisor then waits for
// another one. If not, it has ended, or this end was closed. An error is why it could not wait again.
func (p *Process) Waits() (bool, error) {
	if err := p.file.SetDeadline(time.Time{}); err != nil {
		return false, nil //nolint:nilerr // This end was closed.
	}
	line, err := p.lines.ReadString('\n')
	if err == nil && line != waitsLine {
		return false, errors.New(strings.TrimSpace(line))
	}
	return err == nil, nil
}

// Close ends the connection. A supervisor without an attempt ends, and one with an attempt once
// that has ended.
func (p *Process) Close() { p.file.Close() }

// send sends a path with descriptors, the first of which becomes the standard output and error.
func (p *Process) send(path []byte, stderr *os.File, files []*os.File) error {
	fds := []int{int(stderr.Fd())}
	for _, file := range files {
		fds = append(fds, int(file.Fd()))
	}
	message := append(binary.BigEndian.AppendUint16(nil, uint16(len(path))), path...)
	raw, err := p.file.SyscallConn()
	if err == nil {
		err = p.file.SetWriteDeadline(time.Now().Add(handOverWithin))
	}
	if err != nil {
		return fmt.Errorf("hand over attempt: %w", err)
	}
	var sent error
	err = raw.Write(func(fd uintptr) bool {
		var n int
		n, sent = syscall.SendmsgN(int(fd), message, syscall.UnixRights(fds...), nil, syscall.MSG_NOSIGNAL)
		if sent == nil && n < len(message) {
			sent = fmt.Errorf("%d of %d bytes were taken", n, len(message))
		}
		return !errors.Is(sent, syscall.EAGAIN)
	})
	if err = errors.Join(err, sent); err != nil {
		return fmt.Errorf("hand over attempt: %w", err)
	}
	return nil
}

// Placeholders returns the files with which a waiting supervisor is started: FDHand is hand, FDMounts is
// mounts if that is not nil, and nothing of its own gets the numbers that an attempt will use. No attempt uses
// the last one, so that the supervisor's program may be in its place.
func Placeholders(null, hand, mounts *os.File) []*os.File {
	if mounts == nil {
		mounts = null
	}
	files := []*os.File{null, null, null, hand, mounts}
	for len(files) < firstHanded+handedFiles {
		files = append(files, null)
	}
	return files
}

// AwaitAttempt returns the directory of the first attempt that a node hands to this process.
// An error means that there will be none.
func AwaitAttempt() (dir string, err error) { return awaitAttempt(handedFiles) }

// awaitAttempt returns the directory of an attempt that a node hands to this process, or "" for
// a sandbox that is to be made ahead: its spec follows, and the descriptors of an attempt, of which
// there are so many, stay reserved.
func awaitAttempt(reserved int) (dir string, err error) {
	// The poller of the runtime never gets this descriptor, and waits in no thread.
	if err := syscall.SetNonblock(FDHand, false); err != nil {
		return "", fmt.Errorf("await attempt: %w", err)
	}
	head, rights := make([]byte, pathHeader), make([]byte, syscall.CmsgSpace(4*handedFiles))
	n, size, _, _, err := recvmsg(head, rights)
	if err != nil || n < len(head) {
		return "", fmt.Errorf("await attempt: the node has gone: %w", errors.Join(err, syscall.ECONNRESET))
	}
	fds, err := descriptors(rights[:size])
	if err != nil {
		return "", fmt.Errorf("await attempt: %w", err)
	}
	for i, fd := range fds {
		to := firstHanded + i - 1
		if i == 0 {
			to = int(os.Stderr.Fd())
		}
		err := syscall.Dup3(fd, to, 0)
		if i == 0 && err == nil {
			err = syscall.Dup3(fd, int(os.Stdout.Fd()), 0)
		}
		if err := errors.Join(err, syscall.Close(fd)); err != nil {
			return "", fmt.Errorf("await attempt: %w", err)
		}
	}
	path := make([]byte, binary.BigEndian.Uint16(head))
	if len(path) == 0 {
		return "", nil
	}
	for fd := firstHanded + len(fds) - 1; fd < firstHanded+reserved; fd++ {
		if fd > reservedLast { // A placeholder that no further attempt of this process needs.
			_ = syscall.Close(fd)
		}
	}
	if err := readHand(path); err != nil {
		return "", err
	}
	return string(path), nil
}

// readHand fills p from FDHand, which blocks.
func readHand(p []byte) error {
	for at := 0; at < len(p); {
		n, err := syscall.Read(FDHand, p[at:])
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return fmt.Errorf("await attempt: the node has gone: %w", errors.Join(err, syscall.ECONNRESET))
		}
		at += n
	}
	return nil
}

// recvmsg waits for bytes and descriptors.
func recvmsg(p, oob []byte) (n, oobn, flags int, from syscall.Sockaddr, err error) {
	for {
		n, oobn, flags, from, err = syscall.Recvmsg(FDHand, p, oob, syscall.MSG_CMSG_CLOEXEC)
		if !errors.Is(err, syscall.EINTR) {
			return n, oobn, flags, from, err
		}
	}
}

// descriptors returns the descriptors in a control message.
func descriptors(control []byte) (fds []int, err error) {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		more, err := syscall.ParseUnixRights(&m)
		if err != nil {
			return nil, err
		}
		fds = append(fds, more...)
	}
	if len(fds) == 0 || len(fds) > handedFiles {
		return nil, fmt.Errorf("%d descriptors", len(fds))
	}
	return fds, nil
}
