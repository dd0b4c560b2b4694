package sandbox

import (
	"encoding/binary"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// TestNetlinkServerEnds has the only thread with a filter end. Then the server of the filter has
// nothing left to do, and ends too.
func TestNetlinkServerEnds(t *testing.T) {
	const setNoNewPrivs, returnAllow, codeReturn = 38, 0x7fff0000, 0x06
	program := binary.LittleEndian.AppendUint16(nil, codeReturn)
	program = binary.LittleEndian.AppendUint32(append(program, 0, 0), returnAllow)
	installed, end := make(chan int), make(chan struct{})
	var install func()
	install = func() {
		runtime.LockOSThread() // The thread ends with this goroutine,
		if syscall.Gettid() == syscall.Getpid() {
			go install() // unless it is the first one.
			<-end
			return
		}
		_, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, setNoNewPrivs, 1, 0, 0, 0, 0)
		listener, err := installFilter(program)
		if errno != 0 || err != nil {
			t.Error(errno, err)
		}
		installed <- listener
		<-end
	}
	go install()
	s, err := newNetlinkServer(<-installed)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(s.protocols)
	ended := make(chan struct{})
	go func() {
		s.run()
		close(ended)
	}()
	select {
	case <-ended:
		t.Fatal("the server ended before the thread")
	case <-time.After(20 * time.Millisecond):
	}
	close(end)
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the server has not ended")
	}
}
