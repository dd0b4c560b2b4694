package node

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/cluster/file"
	"berth/cluster/replica"
	"berth/compute"
	"berth/fsm"
)

// skipFile lists the entries that this server leaves out, within the data
// directory: a line for each with its index and the SHA-256 of its bytes. Lines
// that begin with # say what it is for.
const skipFile = "skip-entries"

const skipHead = `# Entries of the log that this server leaves out, each at its index if its bytes have the SHA-256.
# It is the same on every server; berth admin raft skip writes it.
`

// Limits of the file.
const (
	maxSkips    = 1000
	maxSkipFile = 128 << 10
)

// readSkips returns what the file in a data directory lists. One that is not
// there lists nothing.
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

// parseSkips reads the text of the file path, for whose lines it speaks.
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
			return nil, errSkips(path, number, "%q is no index of an entry", first)
		}
		hash, err := parseHash(second)
		if err != nil {
			return nil, errSkips(path, number, "%q is no SHA-256, which has 64 digits", second)
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

// errSkips refuses a file that is not as it is written. Which entries a server
// leaves out is not guessed at.
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

// guardReplica has the state machine leave out what the file lists, and end the
// process at an entry that it cannot apply.
func (n *Node) guardReplica() error {
	skips, err := readSkips(n.cfg.DataDir)
	if err != nil {
		return err
	}
	n.machine.Guard(fsm.Guard{
		Skips: skips,
		LeftOut: func(index uint64, hash compute.Hash) {
			n.logger.Warn("entry left out", "index", index, "err",
				fmt.Sprintf("%s lists it: nothing in it took effect; the SHA-256 of its bytes is %x", skipFile, hash))
		},
		Poisoned: func(p *fsm.PoisonError) {
			// The log may hang, with the disk for example.
			within(lastWord, func() { n.logger.Error("entry not applied", "index", p.Index, "err", string(p.Stack)) })
			n.opts.Fatal(errors.New(adviceOn(p, n.cfg.DataDir)))
		},
	})
	return nil
}

// newMachine returns a second state machine beside the replica in dir, which
// leaves out the same.
func newMachine(dir string) (*fsm.FSM, error) {
	skips, err := readSkips(dir)
	if err != nil {
		return nil, err
	}
	machine := fsm.New()
	machine.Guard(fsm.Guard{Skips: skips})
	return machine, nil
}

// adviceOn says what to do about an entry that cannot be applied by the server
// in dir.
func adviceOn(p *fsm.PoisonError, dir string) string {
	return fmt.Sprintf("%v. Every server that comes to it ends, at each start; nothing that was acknowledged is lost. "+
		"Where other servers go on, this one differs: install the version of Berth that they have, or else have it come in "+
		"empty (berth admin raft rejoin). Otherwise install a version that can apply it; where there is none, stop all "+
		"servers, leave the entry out on every one of them, and start them: "+
		"berth admin raft skip --data-dir %s --entry %d --hash %x", p, dir, p.Index, p.Hash)
}

// Skipped is an entry that a server is to leave out.
type Skipped struct {
	Node     compute.NodeID `json:"node"`
	Cluster  compute.UUID   `json:"cluster_id"`
	Entry    uint64         `json:"entry"`
	Hash     string         `json:"sha256"` // Of its bytes: as the log of the server has them, else as it was named.
	Held     bool           `json:"held"`   // The log has the entry.
	Last     uint64         `json:"last_entry"`
	Commands []fsm.Frame    `json:"commands"` // In the entry, where it is held.
	Listed   bool           `json:"listed"`   // It was to be left out before.
	Done     bool           `json:"done"`
}

// SkipEntry has the stopped server in dir leave out an entry from its next start
// on, if the SHA-256 of its bytes is hash. It is done on every server. Without do
// it changes nothing and says what the entry is; hash may be "" then. What cannot
// be compared, because the log does not have the entry, is refused but with force;
// what comes too late, because the server has applied it, always.
func SkipEntry(dir string, index uint64, hash string, force, do bool) (Skipped, error) {
	if index == 0 {
		return Skipped{}, compute.Errorf(compute.CodeInvalid, "0 is no index of an entry.")
	}
	stopped, err := replica.OpenStopped(dir)
	if err != nil {
		return Skipped{}, err
	}
	defer stopped.Close()
	s := Skipped{Node: stopped.Node(), Cluster: stopped.ClusterID(), Entry: index, Commands: []fsm.Frame{}}
	skips, err := readSkips(dir)
	if err != nil {
		return s, err
	}
	held, err := stopped.Entry(index)
	if err != nil && (!force || compute.CodeOf(err) == compute.CodeInvalid) {
		return s, err
	}
	known, listed := skips[index]
	if held.Covered >= index && !listed {
		return s, compute.Errorf(compute.CodeConflict,
			"This server has applied entry %d: its snapshot reaches to %d. Servers that leave it out would differ from this "+
				"one: have those that stop at it come in empty (berth admin raft rejoin).", index, held.Covered)
	}
	wanted, err := s.compare(held, hash)
	if err != nil {
		return s, err
	}
	if listed && known == wanted {
		s.Listed = true
		s.Done = do
		return s, nil
	}
	switch {
	case !s.Held && !force:
		return s, errNotHeld(index, held.Last)
	case !do:
		return s, nil
	case skips == nil:
		skips = fsm.Skips{}
	}
	skips[index] = wanted
	err = writeSkips(dir, skips)
	s.Done = err == nil
	return s, err
}

// compare notes what the server has of the entry, and returns the SHA-256 of its
// bytes. It refuses an entry that has another one than the operator named.
func (s *Skipped) compare(held replica.Held, named string) (compute.Hash, error) {
	s.Last, s.Hash = held.Last, strings.ToLower(named)
	if s.Held = held.Data != nil; s.Held {
		s.Hash, s.Commands = fmt.Sprintf("%x", fsm.HashEntry(held.Data)), fsm.Frames(held.Data)
	}
	if s.Hash == "" {
		return compute.Hash{}, errNotHeld(s.Entry, held.Last)
	}
	wanted, err := parseHash(s.Hash)
	if _, ours := parseHash(named); err != nil || named != "" && ours != nil {
		return wanted, compute.Errorf(compute.CodeInvalid, "%q is no SHA-256, which has 64 digits.", named)
	}
	if named != "" && !strings.EqualFold(named, s.Hash) {
		return wanted, compute.Errorf(compute.CodeConflict,
			"Entry %d of this server is another one: the SHA-256 of its bytes is %s. Leave out what the servers stop at. "+
				"Where this one has yet to get that, start it, and it says so.", s.Entry, s.Hash)
	}
	return wanted, nil
}

// errNotHeld refuses to leave out what cannot be looked at.
func errNotHeld(index, last uint64) error {
	return compute.Errorf(compute.CodeNotFound, "This server does not have entry %d: its log ends at %d. "+
		"If it is to get the entry from the others and leave it out, name its SHA-256 with --hash, and --force.", index, last)
}
