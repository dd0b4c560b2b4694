package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Own is the path at which this process executes its own program again, even if its file
// was replaced.
const Own = "/proc/self/exe"

// Check is the argument with which the program does nothing, and succeeds.
const Check = "check"

// checkTimeout bounds the check whether the program can be executed here.
const checkTimeout = 10 * time.Second

// ErrNotEmbedded means that this build has no program inside.
var ErrNotEmbedded = errors.New("this build has no program for supervisors inside: make build makes one")

// Program is a program in memory that nobody can write to. Processes that execute it outlive
// it.
type Program struct{ file *os.File }

// Open returns the embedded program, once it was seen to execute. The error is ErrNotEmbedded
// in a build that has none.
func Open() (*Program, error) {
	content := embedded()
	if len(content) == 0 {
		return nil, ErrNotEmbedded
	}
	p, err := load(content)
	if err != nil {
		return nil, fmt.Errorf("load program of supervisors: %w", err)
	}
	if err := p.check(); err != nil {
		p.Close()
		return nil, fmt.Errorf("execute program of supervisors: %w", err)
	}
	return p, nil
}

// load writes a program to memory and seals it.
func load(content []byte) (*Program, error) {
	fd, err := unix.MemfdCreate("berth-supervisor", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // Before Linux 6.3 all of them could be executed.
		fd, err = unix.MemfdCreate("berth-supervisor", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	p := &Program{os.NewFile(uintptr(fd), "berth-supervisor")}
	if _, err = p.file.Write(content); err == nil {
		err = p.seal()
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// seal makes the program one that everybody may execute and nobody can change.
func (p *Program) seal() error {
	if err := p.file.Chmod(0o555); err != nil {
		return err
	}
	seals := unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	_, err := unix.FcntlInt(p.file.Fd(), unix.F_ADD_SEALS, seals)
	return os.NewSyscallError("fcntl", err)
}

// check executes the program once: a machine may forbid programs in memory.
func (p *Program) check() error {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, pathOf(firstExtra), Check)
	cmd.ExtraFiles, cmd.Env = []*os.File{p.file}, []string{}
	return cmd.Run()
}

// firstExtra is the descriptor of the first of exec.Cmd's ExtraFiles.
const firstExtra = 3

// pathOf returns where a process executes the program of a descriptor. It is the child's own, which
// needs no right to look at its parent.
func pathOf(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// For returns the path of the program for a child with some descriptors, of which the program takes
// the place of the last one. For a nil Program they stay, and the path is Own.
func (p *Program) For(files []*os.File) (string, []*os.File) {
	if p == nil {
		return Own, files
	}
	last := len(files) - 1
	return pathOf(last), append(files[:last:last], p.file)
}

// Close frees the program once no process executes it.
func (p *Program) Close() {
	if p != nil {
		_ = p.file.Close()
	}
}
