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

// ExitCode is the exit code of a process that a failpoint ended.
const ExitCode = 86

// ErrInjected is the armed error; error:EIO and error:ENOSPC also wrap that
// errno.
var ErrInjected = errors.New("injected fault")

// Environment variables.
const (
	faultsVariable = "BERTH_FAULTS"
	fileVariable   = "BERTH_FAULTS_FILE"
	logVariable    = "BERTH_FAULTS_LOG"
	plantVariable  = "BERTH_PLANT"
)

// rereadEvery is the longest time that a change of the rules file goes
// unnoticed.
const rereadEvery = 20 * time.Millisecond

// injector applies the armed rules. Only binaries with failpoints use it.
type injector struct {
	base    string // Rules from the environment.
	file    string
	log     string
	planted map[Bug]bool
	exit    func(code int)
	sleep   func(time.Duration)
	now     func() time.Time

	mu sync.Mutex

	read    time.Time // When the file was last read.
	text    string    // The file's rules.
	armed   armed
	reached map[string]bool
}

// newInjector returns the injector that the environment configures.
func newInjector(getenv func(string) string) (*injector, error) {
	i := &injector{
		base: getenv(faultsVariable), file: getenv(fileVariable), log: getenv(logVariable),
		planted: make(map[Bug]bool), reached: make(map[string]bool),
		exit: os.Exit, sleep: time.Sleep, now: time.Now, //nolint:forbidigo // The armed action.
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

// readFile returns the rules in the file; a missing file has none.
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

// arm replaces the rules by those of the environment and of text. An unchanged
// rule keeps its hit count.
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

// refresh arms the file's current rules. Invalid rules end the process: a test
// must not continue without its faults.
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

// hit applies the rule at the point and returns its error, if any.
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

// due counts the hit and returns the rule that applies to it, nil for none.
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

// snapshotEvery returns the number of entries between snapshots.
func (i *injector) snapshotEvery() uint64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.armed.snapshotEvery
}

// note appends a line to the log: process, point, action. It is one write, so
// that lines of several processes do not mix. After a failed write, the points
// are missing from the log.
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
