package executor

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
	reportedFile    = "reported" // The state has the outcome.
	stderrBytes     = 400        // Bytes of a dead supervisor's standard error in an outcome.
)

// key names an attempt.
type key struct {
	execution compute.ExecutionID
	epoch     uint64
}

func keyOf(a *compute.Attempt) key { return key{a.Execution, a.Epoch} }

// String returns the key as it is in the names of files and cgroups.
func (k key) String() string { return fmt.Sprintf("%s.%d", k.execution, k.epoch) }

// attemptDirs has a directory for each attempt that was prepared on this node. DESIGN.md
// describes their files.
type attemptDirs struct {
	root string
	log  *slog.Logger
}

// of returns the directory of an attempt.
func (d *attemptDirs) of(k key) string {
	return filepath.Join(d.root, k.execution.String(), strconv.FormatUint(k.epoch, 10))
}

// file returns the path of a file of an attempt.
func (d *attemptDirs) file(k key, name string) string { return filepath.Join(d.of(k), name) }

// isNew reports whether the attempt has no directory. One that has a directory was
// prepared or ended here before.
func (d *attemptDirs) isNew(k key) bool {
	_, err := os.Lstat(d.of(k))
	return errors.Is(err, fs.ErrNotExist)
}

// stored returns the attempts that have a directory.
func (d *attemptDirs) stored() ([]key, error) {
	executions, err := os.ReadDir(d.root)
	if err != nil {
		return nil, fmt.Errorf("list attempts: %w", err)
	}
	var keys []key
	for _, entry := range executions {
		id, err := compute.ParseExecutionID(entry.Name())
		if err != nil {
			continue // Not ours.
		}
		epochs, err := os.ReadDir(filepath.Join(d.root, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("list attempts: %w", err)
		}
		for _, entry := range epochs {
			if epoch, err := strconv.ParseUint(entry.Name(), 10, 64); err == nil {
				keys = append(keys, key{id, epoch})
			}
		}
	}
	return keys, nil
}

// supervised reports whether the attempt, in the format of key.String, has a live
// supervisor.
func (d *attemptDirs) supervised(text string) bool {
	id, epoch, _ := strings.Cut(text, ".")
	held, err := journal.Open(filepath.Join(d.root, id, epoch, supervise.JournalFile))
	if err == nil {
		held.Close()
	}
	return errors.Is(err, journal.ErrHeld)
}

// inContainers reports whether the code of an attempt executes in containers, as the
// spec for its supervisor says.
func (d *attemptDirs) inContainers(k key) bool {
	spec, err := supervise.ReadSpec(d.of(k))
	return err != nil || spec.Container != nil // Without a spec, anything may be left.
}

// source returns the directory of the node that the code of an attempt has at target. It
// reports false before that is decided.
func (d *attemptDirs) source(k key, target string) (dir string, known bool) {
	spec, err := supervise.ReadSpec(d.of(k))
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

// leftOutputs reports whether an attempt left outputs that are not stored yet.
func (d *attemptDirs) leftOutputs(k key) bool {
	for _, name := range []string{supervise.OutputsFile, supervise.OutputsSummary} {
		if _, err := os.Lstat(d.file(k, name)); err == nil {
			return true
		}
	}
	return false
}

// stderrTail returns the end of the standard error of the attempt's supervisor.
func (d *attemptDirs) stderrTail(k key) string {
	data, err := os.ReadFile(d.file(k, supervise.ErrorFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data[max(len(data)-stderrBytes, 0):]))
}

// clean removes what only a live attempt needs. The removed spec contains the secrets of
// its environment.
func (d *attemptDirs) clean(k key) {
	for _, name := range []string{
		supervise.WorkFile, supervise.InputFile, supervise.SpecFile, supervise.ControlFile, supervise.PortFile,
		supervise.NoticeDir, supervise.OutputsFile, supervise.OutputsSummary,
	} {
		if err := os.RemoveAll(d.file(k, name)); err != nil {
			d.log.Warn("attempt directory not cleaned", "err", err)
		}
	}
}

// remove removes the directory of an attempt.
func (d *attemptDirs) remove(k key) error {
	if err := os.RemoveAll(d.of(k)); err != nil {
		return err
	}
	_ = os.Remove(filepath.Dir(d.of(k))) // Fails while it has other epochs.
	return nil
}

// markReported records that the state has the outcome, so that no later process
// reports it again. Without the attempt's directory there is nothing to record.
func (d *attemptDirs) markReported(k key) error {
	file, err := os.OpenFile(d.file(k, reportedFile), os.O_CREATE|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("mark reported: %w", err)
	}
	return file.Close()
}

// reported returns the file by which markReported recorded that the state has the outcome.
func (d *attemptDirs) reported(k key) (fs.FileInfo, error) { return os.Lstat(d.file(k, reportedFile)) }
