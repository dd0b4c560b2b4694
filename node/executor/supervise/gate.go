package supervise

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth/compute"
	"berth/node/executor/sandbox"
)

// PortFile is the socket for DialPort, in the directory of an attempt that serves a
// port.
const PortFile = "port"

const (
	portBacklog = 128             // Connections that wait for accept.
	maxDials    = 64              // Connections to the code that are being made.
	dialTimeout = 2 * time.Second // For the code to accept one.

	msgNoSignal = 0x4000 // MSG_NOSIGNAL.
)

// gate makes connections to a port in the network of the sandbox. A socket belongs
// to the network namespace of the thread that makes it, for good: one thread enters
// the namespace and makes them, and any other may connect and use them.
type gate struct {
	port    int
	wanted  chan int // Address families.
	sockets chan gateSocket
	mu      sync.Mutex // Held between a request and its socket.
}

type gateSocket struct {
	fd  int
	err error
}

// openGate enters the network of a process of the sandbox.
func openGate(pid, port int) (*gate, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, fmt.Errorf("open network of sandbox: %w", err)
	}
	g := &gate{port: port, wanted: make(chan int), sockets: make(chan gateSocket)}
	entered := make(chan error)
	go func() {
		defer file.Close()
		runtime.LockOSThread() // For good: the thread ends with this process.
		if err := sandbox.EnterNamespace(int(file.Fd()), cloneNewNet); err != nil {
			entered <- fmt.Errorf("enter network of sandbox: %w", err)
			return
		}
		entered <- nil
		for family := range g.wanted {
			fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			g.sockets <- gateSocket{fd, err}
		}
	}()
	if err := <-entered; err != nil {
		return nil, err
	}
	return g, nil
}

// socket returns a new socket in the network of the sandbox.
func (g *gate) socket(family int) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wanted <- family
	s := <-g.sockets
	return s.fd, s.err
}

// dial connects to the port, as a program on the same host would: by IPv4, then by
// IPv6. The descriptor blocks.
func (g *gate) dial() (fd int, err error) {
	for _, to := range []struct {
		family  int
		address syscall.Sockaddr
	}{
		{syscall.AF_INET, &syscall.SockaddrInet4{Port: g.port, Addr: [4]byte{127, 0, 0, 1}}},
		{syscall.AF_INET6, &syscall.SockaddrInet6{Port: g.port, Addr: [16]byte{15: 1}}},
	} {
		if fd, err = g.socket(to.family); err != nil {
			return -1, err
		}
		if err = connectWithin(fd, to.address, dialTimeout); err == nil {
			return fd, nil
		}
		syscall.Close(fd)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return -1, err
		}
	}
	return -1, err
}

// connectWithin connects a blocking socket. The limit of sends bounds connect too.
func connectWithin(fd int, to syscall.Sockaddr, limit time.Duration) error {
	bound := func(limit time.Duration) error {
		value := syscall.NsecToTimeval(int64(limit))
		return syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &value)
	}
	if err := bound(limit); err != nil {
		return err
	}
	for {
		err := syscall.Connect(fd, to)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		return bound(0)
	}
}

// serveGate hands connections to the code to the node: each connection to the socket
// in the attempt's directory is answered with one. So no byte of the code's traffic
// passes through the supervisor, and a restarted node finds it in place.
func (s *supervisor) serveGate(g *gate) error {
	os.Remove(PortFile)
	listener, err := listenAt(PortFile, portBacklog)
	if err != nil {
		return err
	}
	slots := make(chan struct{}, maxDials)
	go func() {
		for {
			fd, _, err := syscall.Accept4(listener, syscall.SOCK_CLOEXEC)
			if err == syscall.EINTR || err == syscall.ECONNABORTED {
				continue
			}
			if err != nil {
				return
			}
			slots <- struct{}{}
			go func() {
				defer func() { <-slots }()
				defer syscall.Close(fd)
				g.answer(fd)
			}()
		}
	}()
	return nil
}

// answer sends a connection to the code, or why there is none. A node that has gone
// needs none.
func (g *gate) answer(to int) {
	fd, err := g.dial()
	if err != nil {
		_ = syscall.Sendto(to, []byte("-"+err.Error()), msgNoSignal, nil)
		return
	}
	defer syscall.Close(fd)
	_ = syscall.Sendmsg(to, []byte("+"), syscall.UnixRights(fd), nil, msgNoSignal)
}

// DialPort returns the descriptor of a connection to the port of the code of the
// attempt in dir. It does not block. Its error is unavailable while the code accepts
// none.
func DialPort(dir string) (*os.File, error) {
	fd, err := dialAt(dir, PortFile, 0)
	if err != nil {
		return nil, compute.Errorf(compute.CodeUnavailable, "the attempt serves no port: %s", err.Error())
	}
	defer syscall.Close(fd)
	limit := syscall.NsecToTimeval(int64(3 * dialTimeout))
	if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &limit); err != nil {
		return nil, fmt.Errorf("dial port: %w", err)
	}
	text, rights := make([]byte, 512), make([]byte, syscall.CmsgSpace(4))
	n, m, _, _, err := syscall.Recvmsg(fd, text, rights, syscall.MSG_CMSG_CLOEXEC)
	for errors.Is(err, syscall.EINTR) {
		n, m, _, _, err = syscall.Recvmsg(fd, text, rights, syscall.MSG_CMSG_CLOEXEC)
	}
	if err != nil || n == 0 {
		return nil, compute.Errorf(compute.CodeUnavailable, "the attempt does not answer")
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:m])
	if err == nil && len(messages) == 1 {
		var fds []int
		if fds, err = syscall.ParseUnixRights(&messages[0]); err == nil && len(fds) == 1 {
			if err = syscall.SetNonblock(fds[0], true); err != nil {
				syscall.Close(fds[0])
				return nil, fmt.Errorf("dial port: %w", err)
			}
			return os.NewFile(uintptr(fds[0]), "port"), nil
		}
	}
	return nil, compute.Errorf(compute.CodeUnavailable, "%s", strings.TrimPrefix(string(text[:n]), "-"))
}
