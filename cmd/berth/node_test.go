package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/cmd/berth/clitest"
)

// TestRootTokenIsForTerminals checks that the root token is printed to a
// terminal, but not to a journal or a log.
func TestRootTokenIsForTerminals(t *testing.T) {
	const path, token = "/var/lib/berth/root_token", "brt_0123456789"
	var journal bytes.Buffer
	printRootToken(&journal, path, []byte(token+"\n"))
	if output := journal.String(); !strings.Contains(output, path) || strings.Contains(output, token) {
		t.Errorf("a journal got %q, want the path and not the token", output)
	}
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	printRootToken(file, path, []byte(token+"\n"))
	if output, err := os.ReadFile(file.Name()); err != nil || !strings.Contains(string(output), path) || strings.Contains(string(output), token) {
		t.Errorf("a log got %q, %v, want the path and not the token", output, err)
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

// TestDataIsForTheOwnerOnly runs a node for a moment and checks the modes of
// all its files. Libraries create some with wider modes.
func TestDataIsForTheOwnerOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, as a node does")
	}
	before := unix.Umask(0o022) // The umask of most users.
	t.Cleanup(func() { unix.Umask(before) })
	dir := filepath.Join(t.TempDir(), "data")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan clitest.Result, 1)
	go func() {
		ended <- clitest.Execute(ctx, newRoot(), "", "node", "--data_dir", dir, "--gpus.source", "none",
			"--api.addr", "127.0.0.71:0", "--rpc.addr", "127.0.0.1:0", "--gossip.addr", "127.0.0.1:0", "--api.drain", "0")
	}()
	deadline := time.After(time.Minute)
	for {
		if _, err := os.Stat(filepath.Join(dir, rootTokenFile)); err == nil {
			break
		}
		select {
		case r := <-ended:
			t.Fatalf("the node ended: %d, %s", r.Code, r.Errors)
		case <-deadline:
			t.Fatal("no root token")
		case <-time.After(20 * time.Millisecond):
		}
	}
	conn, err := net.Dial("tcp", "127.0.0.71:6473") // Unless told otherwise, a node serves S3 there.
	if err != nil {
		t.Error(err)
	} else {
		conn.Close()
	}
	stop()
	<-ended
	seen := 0
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		seen++
		return err
	})
	if err != nil || seen < 10 {
		t.Errorf("%d files: %v", seen, err)
	}
}

// mustTerminal returns a terminal and a reader of its output.
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
