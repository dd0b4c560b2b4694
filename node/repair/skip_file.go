package repair

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/cluster/file"
	"berth/compute"
	"berth/fsm"
)

// skipFile lists the entries that this server skips, in the data directory.
// Each line has an index and the SHA-256 of the entry's bytes. Lines that begin
// with # are comments.
const skipFile = "skip-entries"

const skipHead = `# Entries of the log that this server leaves out, each at its index if its bytes have the SHA-256.
# It is the same on every server; berth admin raft skip writes it.
`

// Limits of the file.
const (
	maxSkips    = 1000
	maxSkipFile = 128 << 10
)

// readSkips returns the entries that the file in a data directory lists, none
// without a file.
func readSkips(dir string) (fsm.Skips, error) {
	path := filepath.Join(dir, skipFile)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read entries to leave out: %w", err)
	}
	if info.Size() > maxSkipFile {
		return nil, errSkips(path, 0, "it is larger than %d bytes", maxSkipFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read entries to leave out: %w", err)
	}
	return parseSkips(path, string(text))
}

// parseSkips parses the text of the file at path. Errors name path and line.
func parseSkips(path, text string) (fsm.Skips, error) {
	skips := fsm.Skips{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		first, second, _ := strings.Cut(line, " ")
		index, err := strconv.ParseUint(first, 10, 64)
		if err != nil || index == 0 {
			return nil, errSkips(path, number, "%q is not an index of an entry", first)
		}
		hash, err := parseHash(second)
		if err != nil {
			return nil, errSkips(path, number, "%q is not a SHA-256 hash, which has 64 digits", second)
		}
		if _, twice := skips[index]; twice {
			return nil, errSkips(path, number, "entry %d is listed twice", index)
		}
		if skips[index] = hash; len(skips) > maxSkips {
			return nil, errSkips(path, number, "more than %d entries are listed", maxSkips)
		}
	}
	return skips, nil
}

// errSkips refuses a malformed file. A server does not guess which entries to
// skip.
func errSkips(path string, line int, format string, args ...any) error {
	where := path
	if line > 0 {
		where = fmt.Sprintf("%s, line %d", path, line)
	}
	return compute.Errorf(compute.CodeConflict, "%s: %s. A line is the index of an entry and the SHA-256 of its bytes; "+
		"copy the file of another server, or remove it and run berth admin raft skip again.",
		where, fmt.Sprintf(format, args...))
}

// writeSkips replaces the file.
func writeSkips(dir string, skips fsm.Skips) error {
	text := bytes.NewBufferString(skipHead)
	for _, index := range slices.Sorted(maps.Keys(skips)) {
		fmt.Fprintf(text, "%d %x\n", index, skips[index])
	}
	path := filepath.Join(dir, skipFile)
	if _, err := parseSkips(path, text.String()); err != nil {
		return err // The server would not start with it.
	}
	if err := file.Write(path, text.Bytes()); err != nil {
		return fmt.Errorf("write entries to leave out: %w", err)
	}
	return nil
}

// parseHash reads a SHA-256 of 64 digits.
func parseHash(text string) (hash compute.Hash, err error) {
	data, err := hex.DecodeString(text)
	if err == nil && len(data) != len(hash) {
		err = hex.ErrLength
	}
	copy(hash[:], data)
	return hash, err
}

// Guard makes the state machine of the server in dir skip the listed entries.
// It calls poisoned for an entry that cannot be applied, with an error that
// advises the operator.
func Guard(
	machine *fsm.FSM, dir string, logger *slog.Logger, poisoned func(p *fsm.PoisonError, advice error),
) error {
	skips, err := readSkips(dir)
	if err != nil {
		return err
	}
	machine.Guard(fsm.Guard{
		Skips: skips,
		Skipped: func(index uint64, hash compute.Hash) {
			logger.Warn("entry skipped", "index", index, "path", filepath.Join(dir, skipFile),
				"reason", fmt.Sprintf("listed with SHA-256 %x", hash))
		},
		Poisoned: func(p *fsm.PoisonError) { poisoned(p, errors.New(adviceOn(p, dir))) },
	})
	return nil
}

// NewMachine returns a second state machine for the replica in dir, which skips
// the same entries.
func NewMachine(dir string) (*fsm.FSM, error) {
	skips, err := readSkips(dir)
	if err != nil {
		return nil, err
	}
	machine := fsm.New()
	machine.Guard(fsm.Guard{Skips: skips})
	return machine, nil
}

// adviceOn returns advice on an entry that cannot be applied by the server in
// dir.
func adviceOn(p *fsm.PoisonError, dir string) string {
	return fmt.Sprintf("%v. Every server that comes to it ends, at each start; nothing that was acknowledged is lost. "+
		"Where other servers go on, this one differs: install the version of Berth that they have, or else have it come in "+
		"empty (berth admin raft rejoin). Otherwise install a version that can apply it; where there is none, stop all "+
		"servers, leave the entry out on every one of them, and start them: "+
		"berth admin raft skip --data-dir %s --entry %d --hash %x", p, dir, p.Index, p.Hash)
}
