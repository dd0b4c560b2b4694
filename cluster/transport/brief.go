package transport

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// briefConn is a TCP connection whose reads and writes do not tell the Go runtime that a
// system call begins. Its socket does not block, so that a call takes microseconds. The runtime
// would wake its monitor thread for each call of a process that does nothing else, to
// take the processor from a call that lasts (entersyscall in runtime/proc.go), which costs an idle
// cluster half as much again. Writes do not wait for each other: Corked has its own lock.
type briefConn struct {
	*net.TCPConn

	raw syscall.RawConn
}

// newBrief returns conn with brief calls, or conn itself if it is no TCP connection.
func newBrief(conn net.Conn) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return conn // It is closed, and its own error says so.
	}
	return &briefConn{TCPConn: tcp, raw: raw}
}

// Read implements net.Conn.
func (c *briefConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := c.call(syscall.SYS_READ, c.raw.Read, p)
	written.Load()
	if err == nil && n == 0 {
		err = io.EOF
	}
	return n, err
}

// Write implements net.Conn.
func (c *briefConn) Write(p []byte) (n int, err error) {
	written.Add(1)
	for n < len(p) && err == nil {
		var more int
		more, err = c.call(syscall.SYS_WRITE, c.raw.Write, p[n:])
		n += more
	}
	return n, err
}

// call makes one system call once the socket is ready for it.
func (c *briefConn) call(trap uintptr, whenReady func(func(fd uintptr) bool) error, p []byte) (int, error) {
	b := briefCalls.Get().(*briefCall)
	defer b.free()
	b.trap, b.data = trap, p
	if err := whenReady(b.try); err != nil {
		return 0, err // The deadline passed, or it was closed.
	}
	if b.errno != 0 {
		op := "read"
		if trap == syscall.SYS_WRITE {
			op = "write"
		}
		return 0, &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: b.errno}
	}
	return b.n, nil
}

// briefCall is one read or write.
type briefCall struct {
	trap  uintptr // Its number.
	data  []byte
	n     int
	errno syscall.Errno
	try   func(fd uintptr) bool // The method attempt, which is allocated once.
}

// written tells the race detector that what came before a write came before the read of its
// bytes, as ioSync of package syscall does.
var written atomic.Uint32 //nolint:gochecknoglobals // One for all sockets of the process.

// briefCalls has calls that are over.
var briefCalls = sync.Pool{New: func() any { //nolint:gochecknoglobals // Memory that all connections share.
	b := new(briefCall)
	b.try = b.attempt
	return b
}}

// attempt makes the call, and reports false if the socket was not ready.
func (b *briefCall) attempt(fd uintptr) bool {
	for {
		n, _, errno := syscall.RawSyscall(b.trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b.data))), uintptr(len(b.data)))
		if errno == syscall.EINTR {
			continue
		}
		if errno == 0 {
			b.n = int(n)
		}
		b.errno = errno
		return errno != syscall.EAGAIN
	}
}

// free keeps the call for another one.
func (b *briefCall) free() {
	b.data, b.n, b.errno = nil, 0, 0
	briefCalls.Put(b)
}
