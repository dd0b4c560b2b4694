package fault

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ExitCode is that of a process that a failpoint ended.
const ExitCode = 86

// ErrInjected is what an armed error is; with error:EIO and error:ENOSPC it is
// that errno too.
var ErrInjected = errors.New("injected fault")

// The variables of the environment.
const (
	faultsVariable = "BERTH_FAULTS"
	fileVariable   = "BERTH_FAULTS_FILE"
	logVariable    = "BERTH_FAULTS_LOG"
	plantVariable  = "BERTH_PLANT"
)

// rereadEvery is how stale the rules of the file may be.
const rereadEvery = 20 * time.Millisecond

// injector does what is armed. It is the whole of the package in a binary with
// failpoints, and not in others.
type injector struct {
	base    string // Rules of the environment.
	file    string
	log     string
	planted map[Bug]bool
	exit    func(code int)
	sleep   func(time.Duration)
	now     func() time.Time

	mu sync.Mutex

	read    time.Time // When the file was.
	text    string    // Of the file.
	armed   armed
	reached map[string]bool
}

// newInjector returns what the environment arms.
func newInjector(getenv func(string) string) (*injector, error) {
	i := &injector{
		base: getenv(faultsVariable), file: getenv(fileVariable), log: getenv(logVariable),
		planted: make(map[Bug]bool), reached: make(map[string]bool),
		exit: os.Exit, sleep: time.Sleep, now: time.Now, //nolint:forbidigo // That is what is armed.
	}
	for name := range strings.FieldsFuncSeq(getenv(plantVariable), isSeparator) {
		bug := Bug(strings.TrimSpace(name))
		if !known(bug) {
			return nil, fmt.Errorf("%s: there is no bug %q", plantVariable, bug)
		}
		i.planted[bug] = true
	}
	text, err := i.readFile()
	if err == nil {
		err = i.arm(text)
	}
	if err != nil {
		return nil, err
	}
	return i, nil
}

func isSeparator(r rune) bool { return r == ',' || r == ';' || r == '\n' }

// known reports whether the bug is in the list.
func known(bug Bug) bool {
	for _, p := range Plants() {
		if p.Bug == bug {
			return true
		}
	}
	return false
}

// readFile returns the rules of the file; one that is not there has none.
func (i *injector) readFile() (string, error) {
	if i.file == "" {
		return "", nil
	}
	i.read = i.now()
	data, err := os.ReadFile(i.file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%s: %w", fileVariable, err)
	}
	return string(data), nil
}

// arm replaces the rules by those of the environment and of text. A rule that
// stays goes on counting.
func (i *injector) arm(text string) error {
	now, err := parse(i.base + "\n" + text)
	if err != nil {
		return err
	}
	for name, r := range now.rules {
		if old := i.armed.rules[name]; old != nil && old.text == r.text {
			now.rules[name] = old
		}
	}
	i.text, i.armed = text, now
	return nil
}

// refresh arms what the file holds by now. Rules that cannot be read end the
// process: no test may go on without what it armed.
func (i *injector) refresh() {
	if i.file == "" || i.now().Sub(i.read) < rereadEvery {
		return
	}
	text, err := i.readFile()
	if err == nil && text != i.text {
		err = i.arm(text)
	}
	if err != nil {
		i.note("", err.Error())
		panic(err)
	}
}

// hit does what is armed at the point and returns the error, if that is it.
func (i *injector) hit(name string) error {
	r := i.due(name)
	if r == nil {
		return nil
	}
	i.note(name, r.text)
	switch r.action {
	case actionExit:
		i.exit(ExitCode)
	case actionPanic:
		panic(fmt.Errorf("%w at %s", ErrInjected, name))
	case actionSleep:
		i.sleep(r.pause)
	case actionError:
		return fmt.Errorf("%w at %s", ErrInjected, name)
	case actionEIO:
		return fmt.Errorf("%w at %s: %w", ErrInjected, name, syscall.EIO)
	case actionENOSPC:
		return fmt.Errorf("%w at %s: %w", ErrInjected, name, syscall.ENOSPC)
	}
	return nil
}

// due counts the hit and returns the rule that acts on it, nil for none.
func (i *injector) due(name string) *rule {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.refresh()
	if !i.reached[name] {
		i.reached[name] = true
		i.note(name, "reached")
	}
	r := i.armed.rules[name]
	if r == nil {
		return nil
	}
	r.hits++
	if r.nth > 0 && r.hits != r.nth {
		return nil
	}
	return r
}

// offset returns the shift of the clock.
func (i *injector) offset() time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.refresh()
	return i.armed.shift
}

// snapshotEvery returns after how many entries to make a snapshot.
func (i *injector) snapshotEvery() uint64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.armed.snapshotEvery
}

// note appends a line to the log: process, point, what happened. It is one
// write, so that lines of several processes do not mix; a log that cannot be
// written shows in the points that it lacks.
func (i *injector) note(name, what string) {
	if i.log == "" {
		return
	}
	file, err := os.OpenFile(i.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, _ = fmt.Fprintf(file, "%d %s %s\n", os.Getpid(), name, what)
	_ = file.Close()
}
