package program

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestProgramInMemory loads a program that every machine has, which executes from memory, also
// once it is closed while it executes.
func TestProgramInMemory(t *testing.T) {
	content, err := os.ReadFile("/bin/cat")
	if err != nil {
		t.Fatal(err)
	}
	p, err := load(content)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	out, err := exec.Command(p.Path(), "/proc/self/cmdline").Output()
	if err != nil || !strings.HasPrefix(string(out), p.Path()) {
		t.Errorf("executed: %q, %v", out, err)
	}
	cat := exec.Command(p.Path())
	input, err := cat.StdinPipe()
	if err == nil {
		err = cat.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	input.Close()
	if err := cat.Wait(); err != nil {
		t.Errorf("a program that is closed while it executes: %v", err)
	}
}

// TestNobodyWritesToIt tries to change a program in memory.
func TestNobodyWritesToIt(t *testing.T) {
	p, err := load([]byte("#!/bin/true\n"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.file.WriteAt([]byte("x"), 0); !errors.Is(err, syscall.EPERM) {
		t.Errorf("write: %v, not %v", err, syscall.EPERM)
	}
	if err := p.file.Truncate(0); !errors.Is(err, syscall.EPERM) {
		t.Errorf("truncate: %v, not %v", err, syscall.EPERM)
	}
	if f, err := os.OpenFile(p.Path(), os.O_WRONLY|os.O_APPEND, 0); err == nil {
		if _, err = f.WriteString("x"); !errors.Is(err, syscall.EPERM) {
			t.Errorf("append: %v, not %v", err, syscall.EPERM)
		}
		f.Close()
	}
}

// TestUselessProgram checks that a program that cannot be executed, or fails, is noticed.
func TestUselessProgram(t *testing.T) {
	failing, err := os.ReadFile("/bin/false")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"no program": []byte("text"), "fails": failing} {
		p, err := load(content)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.check(); err == nil {
			t.Errorf("%s: no error", name)
		}
		p.Close()
	}
}

// TestNoProgram checks that without a program processes execute themselves.
func TestNoProgram(t *testing.T) {
	var p *Program
	if p.Path() != Own {
		t.Errorf("path %s, not %s", p.Path(), Own)
	}
	p.Close()
}
