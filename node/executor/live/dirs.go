package live

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"berth/compute"
	"berth/node/executor/journal"
	"berth/node/executor/supervise"
)

const (
	attemptsDirName = "attempts"
	reportedFile    = "reported"       // The state has the outcome.
	prefixFile      = "outputs_prefix" // Where its outputs are copied.
	stderrBytes     = 400              // Bytes of a dead supervisor's standard error in an outcome.
)

// Key names an attempt.
type Key struct {
	Execution compute.ExecutionID
	Epoch     uint64
}

// KeyOf returns the key of an attempt.
func KeyOf(a *compute.Attempt) Key { return Key{a.Execution, a.Epoch} }

// String returns the key as it is in the names of files and cgroups.
func (k Key) String() string { return fmt.Sprintf("%s.%d", k.Execution, k.Epoch) }

// Dirs has a directory for each attempt that was prepared on this node. DESIGN.md
// describes their files.
type Dirs struct {
	Root string // The directory of all attempts.
	log  *slog.Logger
}

// NewDirs returns the directories below the data directory of a node.
func NewDirs(dataDir string, log *slog.Logger) *Dirs {
	return &Dirs{Root: filepath.Join(dataDir, attemptsDirName), log: log}
}

// Dir returns the directory of an attempt.
func (d *Dirs) Dir(k Key) string {
	return filepath.Join(d.Root, k.Execution.String(), strconv.FormatUint(k.Epoch, 10))
}

// File returns the path of a file of an attempt.
func (d *Dirs) File(k Key, name string) string { return filepath.Join(d.Dir(k), name) }

// IsNew reports whether the attempt has no directory. One that has a directory was
// prepared or ended here before.
func (d *Dirs) IsNew(k Key) bool {
	_, err := os.Lstat(d.Dir(k))
	return errors.Is(err, fs.ErrNotExist)
}

// Stored returns the attempts that have a directory.
func (d *Dirs) Stored() ([]Key, error) {
	executions, err := os.ReadDir(d.Root)
	if err != nil {
		return nil, fmt.Errorf("list attempts: %w", err)
	}
	var keys []Key
	for _, entry := range executions {
		id, err := compute.ParseExecutionID(entry.Name())
		if err != nil {
			continue // Not ours.
		}
		epochs, err := os.ReadDir(filepath.Join(d.Root, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("list attempts: %w", err)
		}
		for _, entry := range epochs {
			if epoch, err := strconv.ParseUint(entry.Name(), 10, 64); err == nil {
				keys = append(keys, Key{id, epoch})
			}
		}
	}
	return keys, nil
}

// Supervised reports whether the attempt, in the format of Key.String, has a live
// supervisor.
func (d *Dirs) Supervised(text string) bool {
	id, epoch, _ := strings.Cut(text, ".")
	held, err := journal.Open(filepath.Join(d.Root, id, epoch, supervise.JournalFile))
	if err == nil {
		held.Close()
	}
	return errors.Is(err, journal.ErrHeld)
}

// InContainers reports whether the code of an attempt executes in containers, as the
// spec for its supervisor says.
func (d *Dirs) InContainers(k Key) bool {
	spec, err := supervise.ReadSpec(d.Dir(k))
	return err != nil || spec.Container != nil // Without a spec, anything may be left.
}

// Source returns the directory of the node that the code of an attempt has at target. It
// reports false before that is decided.
func (d *Dirs) Source(k Key, target string) (dir string, known bool) {
	spec, err := supervise.ReadSpec(d.Dir(k))
	if err != nil {
		return "", false
	}
	binds := spec.Sandbox.Binds
	if spec.Container != nil {
		binds = spec.Container.Volumes
	}
	for _, b := range binds {
		if b.Target == target {
			return b.Source, true
		}
	}
	return "", false
}

// LeftOutputs reports whether an attempt left outputs that are not stored yet.
func (d *Dirs) LeftOutputs(k Key) bool {
	for _, name := range []string{supervise.OutputsFile, supervise.OutputsSummary} {
		if _, err := os.Lstat(d.File(k, name)); err == nil {
			return true
		}
	}
	return false
}

// StderrTail returns the end of the standard error of the attempt's supervisor.
func (d *Dirs) StderrTail(k Key) string {
	data, err := os.ReadFile(d.File(k, supervise.ErrorFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data[max(len(data)-stderrBytes, 0):]))
}

// Clean removes what only a live attempt needs. The removed spec contains the secrets of
// its environment.
func (d *Dirs) Clean(k Key) {
	for _, name := range []string{
		supervise.WorkFile, supervise.InputFile, supervise.SpecFile, supervise.ControlFile, supervise.PortFile,
		supervise.NoticeDir, supervise.OutputsFile, supervise.OutputsSummary,
	} {
		if err := os.RemoveAll(d.File(k, name)); err != nil {
			d.log.Warn("attempt directory not cleaned", "err", err)
		}
	}
}

// Remove removes the directory of an attempt.
func (d *Dirs) Remove(k Key) error {
	if err := os.RemoveAll(d.Dir(k)); err != nil {
		return err
	}
	_ = os.Remove(filepath.Dir(d.Dir(k))) // Fails while it has other epochs.
	return nil
}

// MarkReported records that the state has the outcome, so that no later process
// reports it again. Without the attempt's directory there is nothing to record.
func (d *Dirs) MarkReported(k Key) error {
	file, err := os.OpenFile(d.File(k, reportedFile), os.O_CREATE|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("mark reported: %w", err)
	}
	return file.Close()
}

// Reported returns the file by which MarkReported recorded that the state has the outcome.
func (d *Dirs) Reported(k Key) (fs.FileInfo, error) { return os.Lstat(d.File(k, reportedFile)) }

// NoteOutputsPrefix notes beside an attempt where its outputs go, for the next process of
// the node.
func (d *Dirs) NoteOutputsPrefix(k Key, x *compute.Execution) error {
	if x.OutputsPrefix == "" {
		return nil
	}
	return os.WriteFile(d.File(k, prefixFile), []byte(prefixOf(x)), 0o600)
}

// OutputsPrefix returns where the outputs of an attempt go, "" for nowhere.
func (d *Dirs) OutputsPrefix(k Key) (string, error) {
	prefix, err := os.ReadFile(d.File(k, prefixFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read where outputs go: %w", err)
	case len(prefix) == 0: // The machine lost power before it was written.
		return "", errors.New("the node has lost where they go")
	}
	return string(prefix), nil
}

// prefixOf returns where in the bucket the outputs of an execution go. Runs of a GPU
// selection have a folder each.
func prefixOf(e *compute.Execution) string {
	prefix := e.OutputsPrefix
	if e.Kind != compute.KindSubSelection {
		return prefix
	}
	prefix += "/" + strings.TrimPrefix(e.Profile, "gpu.")
	if e.Repeat > 1 {
		prefix += fmt.Sprintf("-%d", e.Repeat)
	}
	return prefix
}
