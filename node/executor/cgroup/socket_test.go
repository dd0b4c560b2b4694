package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// socketPairs are as many connections as would buffer several times the limit of
// the test, even with the smallest default sizes.
const socketPairs = 200

// fillSockets sends to sockets of this process until nothing more fits, and
// prints how many bytes they then hold: over TCP, and over UDP.
func fillSockets() error {
	if err := raiseLoopback(); err != nil {
		return err
	}
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
		held, err := fillKind(kind)
		if err != nil {
			return err
		}
		fmt.Println(held)
	}
	return nil
}

// raiseLoopback sets the loopback interface of a new network namespace up.
func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}

// fillKind sends over pairs of connected sockets, closes the sending ends, and
// returns the bytes that arrive.
func fillKind(kind int) (held int, err error) {
	var receivers []int
	for range socketPairs {
		from, to, err := connectedPair(kind)
		if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOBUFS) {
			break
		}
		if err != nil {
			return 0, err
		}
		receivers = append(receivers, to)
		data := make([]byte, 32<<10)
		for range 256 {
			if _, err := unix.Write(from, data); err != nil {
				break // Nothing more fits.
			}
		}
	}
	buf := make([]byte, 64<<10)
	for _, fd := range receivers {
		for {
			n, err := unix.Read(fd, buf)
			if n <= 0 || err != nil {
				break
			}
			held += n
		}
	}
	return held, nil
}

// connectedPair returns two non-blocking sockets, the first connected to the
// other, with the largest buffers that the kernel grants.
func connectedPair(kind int) (from, to int, err error) {
	to, err = bound(kind)
	if err != nil {
		return 0, 0, err
	}
	if from, err = bound(kind); err != nil {
		return 0, 0, err
	}
	if kind == unix.SOCK_STREAM {
		if err := unix.Listen(to, 1); err != nil {
			return 0, 0, err
		}
	}
	at, err := unix.Getsockname(to)
	if err != nil {
		return 0, 0, err
	}
	if err := unix.Connect(from, at); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return 0, 0, err
	}
	if kind == unix.SOCK_STREAM {
		listener := to
		if to, _, err = unix.Accept4(listener, unix.SOCK_NONBLOCK); err != nil {
			return 0, 0, err
		}
		unix.Close(listener)
	}
	return from, to, nil
}

func bound(kind int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	for _, option := range []int{unix.SO_SNDBUF, unix.SO_RCVBUF} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 16<<20); err != nil {
			return 0, err
		}
	}
	return fd, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
}

// TestSocketBuffersAreLimited fills the buffers of many sockets. On version 2
// they count as memory of the group, on version 1 they have a limit of their own.
func TestSocketBuffersAreLimited(t *testing.T) {
	const memory = 32 << 20
	g := newGroup(t, Limits{MemoryBytes: memory, Pids: 100})
	limit := int64(memory)
	if g.host.Version() == 1 {
		if !g.host.LimitsSockets() {
			t.Skip("this kernel does not limit sockets with cgroup version 1: the node says so in its gaps")
		}
		limit = socketBytes(memory)
	}
	cmd := self("buffer")
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := g.ForkInside(func(cgroupFD int) error {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			UseCgroupFD: cgroupFD >= 0, CgroupFD: cgroupFD, Cloneflags: syscall.CLONE_NEWNET,
		}
		return cmd.Start()
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if kills, _ := g.OOMKills(); ok && status.Signaled() && kills > 0 {
			return // Version 2: it met the memory limit.
		}
		t.Fatalf("%v: %s", err, failure.String())
	}
	for _, kind := range []string{"TCP", "UDP"} {
		var held int64
		if _, err := fmt.Fscan(&out, &held); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		// The kernel's own structures take some of the space.
		if held > limit || held < limit/16 {
			t.Errorf("sockets of %s hold %d bytes, limit %d", kind, held, limit)
		}
	}
}
