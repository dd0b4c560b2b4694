package supervise

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"berth/fault"
	"berth/node/executor/cgroup"
	"berth/node/executor/sandbox"
)

// A supervisor that waits may make a sandbox ahead, whose interpreter starts and waits too:
// the node hands it a spec without an attempt first. The attempt that it is handed then has the
// sandbox, which no other attempt had or gets. Before that the node asks whether the
// sandbox is alive.

const (
	warmLine   = "warm\n"
	warmWithin = 30 * time.Second // For a sandbox to be made,
	asksWithin = 2 * time.Second  // and for the answer whether it is alive.
)

// warm is a sandbox that was made before its attempt was known.
type warm struct {
	spec  *Spec
	fit   []byte // An attempt must ask for the same to get it.
	group *cgroup.Group
	box   *sandbox.Sandbox
	pumps *pumps
}

// Warm has a waiting supervisor make the sandbox of the spec. The files are those of Hand.
func (p *Process) Warm(spec *Spec, stderr *os.File, files []*os.File) error {
	data, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("make warm sandbox: %w", err)
	}
	if err = p.send(nil, stderr, append([]*os.File{stderr}, files...)); err == nil { // No Conn yet.
		err = p.file.SetDeadline(time.Now().Add(warmWithin))
	}
	if err == nil {
		err = writeSized(p.file, data)
	}
	if err == nil {
		err = p.awaitWarm(warmWithin)
	}
	if err != nil {
		return fmt.Errorf("make warm sandbox: %w", err)
	}
	return nil
}

// IsWarm asks a supervisor that has made a sandbox whether the sandbox is alive.
func (p *Process) IsWarm(null *os.File) bool {
	return p.send(nil, null, nil) == nil && p.awaitWarm(asksWithin) == nil
}

// awaitWarm waits for the supervisor to say that the sandbox is alive.
func (p *Process) awaitWarm(within time.Duration) error {
	if err := p.file.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	line, err := p.lines.ReadString('\n')
	if err == nil && line != warmLine {
		err = errors.New(strings.TrimSpace(line))
	}
	return errors.Join(err, p.file.SetDeadline(time.Time{}))
}

// End ends a supervisor that waits, and returns once it has gone, with its sandbox.
func (p *Process) End(within time.Duration) {
	defer p.Close()
	raw, err := p.file.SyscallConn()
	if err == nil {
		err = errors.Join(raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_WR) }),
			p.file.SetReadDeadline(time.Now().Add(within)))
	}
	if err == nil {
		_, _ = io.Copy(io.Discard, p.file)
	}
}

// warmUp makes the sandbox of the spec that the node sends, and returns it with the directory of
// the attempt that is to have it.
func (p *process) warmUp(reserved int) (*warm, string, error) {
	made, err := p.makeWarm()
	if err != nil {
		_, _ = syscall.Write(FDHand, []byte(strings.ReplaceAll(err.Error(), "\n", " ")+"\n")) // The node logs it.
		return nil, "", err
	}
	for {
		dir, err := made.await(reserved)
		if err != nil {
			made.close()
			return nil, "", err
		}
		if dir != "" {
			return made, dir, nil
		}
	}
}

// await says that the sandbox is alive, and waits for the attempt, or for the next question
// whether it is.
func (w *warm) await(reserved int) (dir string, err error) {
	if !w.alive() {
		return "", errEnded
	}
	if _, err := syscall.Write(FDHand, []byte(warmLine)); err != nil {
		return "", err
	}
	fault.Point("supervisor.warm")
	return awaitAttempt(reserved)
}

var errEnded = errors.New("the sandbox that was made ahead has ended")

// makeWarm makes the sandbox of the spec that comes from FDHand, and returns once its
// interpreter has been started.
func (p *process) makeWarm() (*warm, error) {
	for fd := FDHand; fd < firstHanded+handedFiles; fd++ {
		syscall.CloseOnExec(fd)
	}
	data, err := readSized()
	if err != nil {
		return nil, err
	}
	w := &warm{spec: new(Spec)}
	if err := json.Unmarshal(data, w.spec); err != nil {
		return nil, fmt.Errorf("make warm sandbox: %w", err)
	}
	if w.fit, err = w.spec.fit(); err != nil {
		return nil, err
	}
	if err := w.start(p); err != nil {
		w.close()
		return nil, fmt.Errorf("make warm sandbox: %w", err)
	}
	return w, nil
}

// start starts the sandbox and its interpreter.
func (w *warm) start(p *process) error {
	stdin, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer stdin.Close()
	pumps, stdout, stderr, err := newPumps()
	if err != nil {
		return err
	}
	defer stdout.Close()
	defer stderr.Close()
	w.pumps = pumps
	if w.group, w.box, err = p.makeSandbox(w.spec, stdin, stdout, stderr); err != nil {
		return err
	}
	return w.box.Await()
}

// fits reports whether the sandbox is what an attempt asks for.
func (w *warm) fits(spec *Spec) bool {
	fit, err := spec.fit()
	return err == nil && bytes.Equal(fit, w.fit)
}

// alive reports whether the interpreter lives.
func (w *warm) alive() bool {
	processes, err := w.group.PIDs()
	return err == nil && len(processes) > 1 // The first one, and the interpreter.
}

// close ends the sandbox.
func (w *warm) close() {
	if w.box != nil {
		discard(sandboxed{w.box, w.group})
	}
	if w.group != nil {
		if err := w.group.Remove(killTimeout); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// fit returns what two specs have in common if one may have the sandbox of the other: all but
// what Execute passes to a program that waits, and what is the supervisor's own.
func (s *Spec) fit() ([]byte, error) {
	if s.Sandbox.Early == nil {
		return nil, errors.New("the interpreter does not wait")
	}
	box := s.Sandbox
	box.Argv, box.Env, box.WorkSource = nil, nil, ""
	data, err := json.Marshal(Spec{
		Group: s.Group, MemoryMiB: s.MemoryMiB, Pids: s.Pids, JoinNetwork: s.JoinNetwork,
		MountAt: s.MountAt, Storage: s.Storage, Container: s.Container, Sandbox: box,
	})
	if err != nil {
		return nil, fmt.Errorf("compare sandboxes: %w", err)
	}
	return data, nil
}

// writeSized writes the length of data, and data.
func writeSized(file *os.File, data []byte) error {
	_, err := file.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...))
	return err
}

// readSized reads from FDHand what writeSized wrote.
func readSized() ([]byte, error) {
	var size [4]byte
	if err := readHand(size[:]); err != nil {
		return nil, err
	}
	data := make([]byte, binary.BigEndian.Uint32(size[:]))
	return data, readHand(data)
}
