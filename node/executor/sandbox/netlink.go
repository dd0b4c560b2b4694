package sandbox

import (
	"bytes"
	"fmt"
	"syscall"
	"unsafe"
)

// The kernel charges what waits in a netlink socket to nobody, and only its buffer's
// size, which is up to twice net.core.rmem_max, bounds it. So the program's filter
// passes each request for a netlink socket to this process, which makes the socket
// unless maxNetlinkSockets exist. More than a few are open only in an attack: the C
// library opens one to list interfaces or addresses, and closes it.
const maxNetlinkSockets = 16

const (
	ioctlNotifyReceive = 0xc0502100
	ioctlNotifySend    = 0xc0182101
	ioctlNotifyAddFD   = 0x40182103

	pollIn = 0x1 // POLLIN.

	socketTypeArg   = 1
	protocolsName   = "/proc/net/protocols"
	protocolsBuffer = 8 << 10 // Bytes; the file has about 4 KiB.
)

// notification is struct seccomp_notif: a system call that waits for an answer.
type notification struct {
	id           uint64
	pid, flags   uint32
	number, arch uint32
	ip           uint64
	args         [6]uint64
}

// answer is struct seccomp_notif_resp.
type answer struct {
	id    uint64
	value int64
	errno int32 // Negative.
	flags uint32
}

// addFD is struct seccomp_notif_addfd.
type addFD struct {
	id                      uint64
	flags                   uint32
	source, target, fdFlags uint32
}

// pollFD is struct pollfd.
type pollFD struct {
	fd              int32
	events, revents int16
}

// netlinkServer makes the netlink sockets of the program. It allocates nothing after
// its start, because this process collects no garbage.
type netlinkServer struct {
	listener  int // File descriptor of the filter's notifications.
	protocols int // protocolsName in the sandbox's network namespace.
	buffer    [protocolsBuffer]byte
	request   notification
	answer    answer
	add       addFD
	poll      pollFD
}

func newNetlinkServer(listener int) (*netlinkServer, error) {
	protocols, err := syscall.Open(protocolsName, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("count netlink sockets: %w", err)
	}
	return &netlinkServer{listener: listener, protocols: protocols}, nil
}

// run answers requests until no process is left that could make one, or the listener fails.
// Requests then fail with ENOSYS.
func (s *netlinkServer) run() {
	for s.await() {
		s.request = notification{}
		errno := s.ioctl(ioctlNotifyReceive, unsafe.Pointer(&s.request))
		if errno == syscall.EINTR || errno == syscall.ENOENT { // The caller was killed meanwhile.
			continue
		}
		if errno != 0 {
			break
		}
		fd, err := s.makeSocket()
		s.answer = answer{id: s.request.id, value: int64(fd), errno: -int32(err)}
		_ = s.ioctl(ioctlNotifySend, unsafe.Pointer(&s.answer)) // As above.
	}
	syscall.Close(s.listener)
}

// await waits for a request. It reports false once no process uses the filter. Newer kernels
// (6.11) then let a receive fail at once with ENOENT, again and again.
func (s *netlinkServer) await() bool {
	for {
		s.poll = pollFD{fd: int32(s.listener), events: pollIn}
		_, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&s.poll)), 1, 0, 0, 0, 0)
		if errno != syscall.EINTR {
			return errno == 0 && s.poll.revents&pollIn != 0
		}
	}
}

// makeSocket makes a socket and returns its descriptor in the caller.
func (s *netlinkServer) makeSocket() (int, syscall.Errno) {
	if count, ok := s.count(); !ok || count >= maxNetlinkSockets {
		return 0, syscall.EMFILE
	}
	kind := uint32(s.request.args[socketTypeArg])
	fd, _, errno := syscall.RawSyscall(syscall.SYS_SOCKET, syscall.AF_NETLINK,
		uintptr(kind|syscall.SOCK_CLOEXEC), syscall.NETLINK_ROUTE)
	if errno != 0 {
		return 0, errno
	}
	defer syscall.Close(int(fd))
	s.add = addFD{id: s.request.id, source: uint32(fd), fdFlags: kind & syscall.SOCK_CLOEXEC}
	theirs, _, errno := syscall.RawSyscall(syscall.SYS_IOCTL, uintptr(s.listener), ioctlNotifyAddFD,
		uintptr(unsafe.Pointer(&s.add)))
	return int(theirs), errno
}

// count returns how many netlink sockets the processes of the sandbox have.
func (s *netlinkServer) count() (int, bool) {
	length := 0
	for length < len(s.buffer) {
		n, err := syscall.Pread(s.protocols, s.buffer[length:], int64(length))
		if err != nil {
			return 0, false
		}
		if n == 0 {
			break
		}
		length += n
	}
	return netlinkSockets(s.buffer[:length])
}

// netlinkSockets returns the number of sockets in the line of netlink: it follows the
// name and the size of a socket. It allocates nothing.
func netlinkSockets(protocols []byte) (int, bool) {
	name := []byte("\nNETLINK ")
	start := bytes.Index(protocols, name)
	if start < 0 {
		return 0, false
	}
	line := bytes.TrimLeft(protocols[start+len(name):], " ")
	_, line, _ = bytes.Cut(line, []byte(" "))
	count, digits := 0, 0
	for _, c := range bytes.TrimLeft(line, " ") {
		if c < '0' || c > '9' {
			break
		}
		count, digits = count*10+int(c-'0'), digits+1
	}
	return count, digits > 0
}

func (s *netlinkServer) ioctl(request uintptr, argument unsafe.Pointer) syscall.Errno {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(s.listener), request, uintptr(argument))
	return errno
}
