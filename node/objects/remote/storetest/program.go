package storetest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startTime is how long a server may take to start, on a busy machine.
const startTime = time.Minute

// installed returns the path of a file that scripts/stores.sh installs. The test fails if
// it is not there.
func installed(tb testing.TB, name string) string {
	tb.Helper()
	_, here, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(here), "../../../../bin/stores", name)
	if _, err := os.Stat(path); err != nil {
		tb.Fatalf("%v: install what long tests need with scripts/setup.sh test-long", err)
	}
	return path
}

// start starts a program, and returns what follows ready in the first line of its output
// that has it, and a function that ends the program. It ends with the test, too.
func start(tb testing.TB, ready string, cmd *exec.Cmd) (rest string, stop func(), err error) {
	tb.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		return "", nil, err
	}
	defer in.Close() // The program has it alone: reading ends when the program does.
	cmd.Stdout, cmd.Stderr = in, in
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // The test may end without its clean-up.
	began, gone := make(chan error), make(chan struct{})
	go func() {
		// The kernel also ends the program when the thread that started it ends, as threads
		// do that made a network. So this goroutine keeps its thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(gone)
		err := cmd.Start()
		began <- err
		if err == nil {
			_ = cmd.Wait() // It is killed.
		}
	}()
	if err := <-began; err != nil {
		out.Close()
		return "", nil, err
	}
	found, ended := make(chan string, 1), make(chan struct{})
	var printed strings.Builder
	go func() {
		defer close(ended)
		defer out.Close()
		for lines := bufio.NewScanner(out); lines.Scan(); {
			_, rest, ok := strings.Cut(lines.Text(), ready)
			if ok && len(found) == 0 {
				found <- rest
			}
			fmt.Fprintln(&printed, lines.Text())
		}
	}()
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // It may have ended.
		<-gone
		<-ended
	})
	tb.Cleanup(stop)
	limit, cancel := context.WithTimeout(tb.Context(), startTime)
	defer cancel()
	select {
	case rest = <-found:
		return rest, stop, nil
	case <-ended:
		return "", nil, fmt.Errorf("%s ended:\n%s", cmd.Path, printed.String())
	case <-limit.Done():
		stop()
		return "", nil, fmt.Errorf("%s did not start:\n%s", cmd.Path, printed.String())
	}
}
