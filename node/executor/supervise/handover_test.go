package supervise_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"berth/node/executor/supervise"
)

// waitingMark is the argument by which the test's program waits for an attempt.
const waitingMark = "await-attempt"

// awaitAttempt is the program that waits: it writes what it was handed to its standard error.
func awaitAttempt() int {
	dir, err := supervise.AwaitAttempt()
	if err != nil {
		fmt.Fprintln(os.NewFile(supervise.FDHand, "node"), "no attempt")
		return 3
	}
	slot, err := io.ReadAll(os.NewFile(supervise.FDSlot, "slot"))
	_, last := os.ReadDir("/proc/self/fd/20")
	fmt.Fprintf(os.Stderr, "%s %s %v %v", dir, slot, err, os.IsNotExist(last))
	fmt.Fprintln(os.NewFile(supervise.FDConn, "node"), "started 1 2")
	return 0
}

// TestHandOver hands an attempt to a process that waits for one, and closes the connection of
// another.
func TestHandOver(t *testing.T) {
	dir := t.TempDir()
	stderr, err := os.Create(filepath.Join(dir, "errors"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	slot := filepath.Join(dir, "slot")
	if err := os.WriteFile(slot, []byte("the slot"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, handed := range []bool{true, false} {
		process, theirs, err := supervise.NewProcess()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], waitingMark)
		files := supervise.Placeholders(null, theirs, nil)
		cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = files[0], files[1], files[2], files[3:]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		if handed {
			file, err := os.Open(slot)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := process.Hand(strings.Repeat("x", 3000), stderr, []*os.File{file})
			if err != nil {
				t.Fatal(err)
			}
			file.Close()
			if event, err := conn.Next(); err != nil || event.StartedAt != 2 {
				t.Errorf("the connection to the attempt: %+v, %v", event, err)
			}
			conn.Close()
		}
		process.Close()
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); (code == 0) != handed {
			t.Errorf("handed %v: it ended with code %d", handed, code)
		}
	}
	got, err := os.ReadFile(stderr.Name())
	if want := strings.Repeat("x", 3000) + " the slot <nil> true"; err != nil || string(got) != want {
		t.Errorf("it had %q, %v", got, err)
	}
}
