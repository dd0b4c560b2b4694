package account

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal makes a new terminal the standard input of the process, and returns its far end.
func terminal(t *testing.T) *os.File {
	t.Helper()
	open := func(name string) *os.File {
		f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			t.Skip("no terminals here:", err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	far := open("/dev/ptmx")
	number, err := unix.IoctlGetInt(int(far.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(far.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	before := os.Stdin
	os.Stdin = open(fmt.Sprintf("/dev/pts/%d", number))
	t.Cleanup(func() { os.Stdin = before })
	return far
}

// TestSecretOnATerminal asks for the value of a secret.
func TestSecretOnATerminal(t *testing.T) {
	addr, last := mustLab(t)
	mustLogin(t, addr)
	far := terminal(t)
	if _, err := io.WriteString(far, "hunter2\n"); err != nil {
		t.Fatal(err)
	}
	r := execute(t, "", "secret", "set", "TOKEN")
	want(t, r, 0, "Value: ")
	if !strings.Contains(last.body, `"value":"hunter2"`) {
		t.Errorf("sent %s", last.body)
	}
}
