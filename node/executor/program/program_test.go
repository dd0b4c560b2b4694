package program

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestMain is the program that tests execute from memory.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 {
		switch os.Args[1] {
		case Check:
			os.Exit(0)
		case "wait":
			fmt.Println("waiting")
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// mustLoad loads this test's own binary.
func mustLoad(t *testing.T) *Program {
	t.Helper()
	content, err := os.ReadFile(Own)
	if err != nil {
		t.Fatal(err)
	}
	p, err := load(content)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// TestProgramInMemory executes a program from memory, which goes on once it is closed.
func TestProgramInMemory(t *testing.T) {
	p := mustLoad(t)
	if err := p.check(); err != nil {
		t.Fatal(err)
	}
	in, stop, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stop.Close()
	out, printed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	files := []*os.File{in, printed, printed, os.Stderr, os.Stderr}
	path, files := p.For(files)
	process, err := os.StartProcess(path, []string{"program", "wait"}, &os.ProcAttr{Files: files})
	in.Close()
	printed.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("waiting"))); err != nil {
		t.Error(err)
	}
	p.Close()
	if link, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", process.Pid)); !strings.HasPrefix(link, "/memfd:") {
		t.Errorf("it executes %q, %v", link, err)
	}
	stop.Close()
	if state, err := process.Wait(); err != nil || !state.Success() {
		t.Errorf("a program that is closed while it executes: %v, %v", state, err)
	}
}

// TestNobodyWritesToIt tries to change a program in memory.
func TestNobodyWritesToIt(t *testing.T) {
	p := mustLoad(t)
	if _, err := p.file.WriteAt([]byte("x"), 0); !errors.Is(err, syscall.EPERM) {
		t.Errorf("write: %v, not %v", err, syscall.EPERM)
	}
	if err := p.file.Truncate(0); !errors.Is(err, syscall.EPERM) {
		t.Errorf("truncate: %v, not %v", err, syscall.EPERM)
	}
	if f, err := os.OpenFile(pathOf(int(p.file.Fd())), os.O_WRONLY|os.O_APPEND, 0); err == nil {
		if _, err = f.WriteString("x"); !errors.Is(err, syscall.EPERM) {
			t.Errorf("append: %v, not %v", err, syscall.EPERM)
		}
		f.Close()
	}
}

// TestUselessProgram checks that a program that cannot be executed, or fails, is noticed.
func TestUselessProgram(t *testing.T) {
	for name, content := range map[string]string{"no program": "text", "fails": "#!/bin/sh\nexit 3\n"} {
		p, err := load([]byte(content))
		if err != nil {
			t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := p.check(); err == nil || errors.As(err, &exit) != (name == "fails") {
			t.Errorf("%s: %v", name, err)
		}
		p.Close()
	}
}

// TestNoProgram checks that without a program processes execute themselves.
func TestNoProgram(t *testing.T) {
	var p *Program
	if path, files := p.For([]*os.File{os.Stdin}); path != Own || len(files) != 1 || files[0] != os.Stdin {
		t.Errorf("path %s with %v", path, files)
	}
	p.Close()
}
