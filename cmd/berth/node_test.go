package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRootTokenIsForTerminals holds that the root token reaches no journal and
// no log, and does reach whoever starts the first node by hand.
func TestRootTokenIsForTerminals(t *testing.T) {
	const path, token = "/var/lib/berth/root_token", "brt_0123456789"
	var journal bytes.Buffer
	printRootToken(&journal, path, []byte(token+"\n"))
	if said := journal.String(); !strings.Contains(said, path) || strings.Contains(said, token) {
		t.Errorf("a journal got %q, want the path and not the token", said)
	}
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	printRootToken(file, path, []byte(token+"\n"))
	if said, err := os.ReadFile(file.Name()); err != nil || !strings.Contains(string(said), path) || strings.Contains(string(said), token) {
		t.Errorf("a log got %q, %v, want the path and not the token", said, err)
	}
	terminal, screen := mustTerminal(t)
	printRootToken(terminal, path, []byte(token+"\n"))
	for _, want := range []string{path, token} {
		line, err := screen.ReadString('\n')
		if err != nil || !strings.Contains(line, want) {
			t.Errorf("a terminal got %q, %v, want %s", line, err, want)
		}
	}
}

// mustTerminal returns a terminal and what is seen on it.
func mustTerminal(t *testing.T) (terminal *os.File, screen *bufio.Reader) {
	t.Helper()
	open := func(path string) *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			t.Fatal(err)
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
	return open(fmt.Sprintf("/dev/pts/%d", number)), bufio.NewReader(far)
}
