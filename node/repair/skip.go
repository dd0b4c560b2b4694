package repair

import (
	"fmt"
	"strings"

	"berth/cluster/replica"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// Skipped is an entry that a server will skip.
type Skipped struct {
	Node     compute.NodeID  `json:"node"`
	Cluster  compute.UUID    `json:"cluster_id"`
	Entry    uint64          `json:"entry"`
	Hash     string          `json:"sha256"` // Hash of the entry's bytes: from the log if it has them, otherwise as given.
	Held     bool            `json:"held"`   // The log has the entry.
	Last     uint64          `json:"last_entry"`
	Commands []command.Frame `json:"commands"` // The commands in the entry, if the log has it.
	Listed   bool            `json:"listed"`   // The entry was already to be skipped.
	Done     bool            `json:"done"`
}

// SkipEntry makes the stopped server in dir skip an entry from its next start
// on, if the SHA-256 of the entry's bytes is hash. It must run on every server.
// Without do it changes nothing and reports the entry; hash may be "" then.
// Without force it refuses an entry that the log does not have, because the
// hash cannot be compared. It always refuses an entry that the server has
// applied.
func SkipEntry(dir string, index uint64, hash string, force, do bool) (Skipped, error) {
	if index == 0 {
		return Skipped{}, compute.Errorf(compute.CodeInvalid, "0 is not an index of an entry.")
	}
	stopped, err := replica.OpenStopped(dir)
	if err != nil {
		return Skipped{}, err
	}
	defer stopped.Close()
	s := Skipped{Node: stopped.Node(), Cluster: stopped.ClusterID(), Entry: index, Commands: []command.Frame{}}
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

// compare records what the server has of the entry, and returns the SHA-256 of
// its bytes. It refuses an entry whose hash differs from the one that the
// operator named.
func (s *Skipped) compare(held replica.Held, named string) (compute.Hash, error) {
	s.Last, s.Hash = held.Last, strings.ToLower(named)
	if s.Held = held.Data != nil; s.Held {
		s.Hash, s.Commands = fmt.Sprintf("%x", fsm.HashEntry(held.Data)), command.Frames(held.Data)
	}
	if s.Hash == "" {
		return compute.Hash{}, errNotHeld(s.Entry, held.Last)
	}
	wanted, err := parseHash(s.Hash)
	if _, ours := parseHash(named); err != nil || named != "" && ours != nil {
		return wanted, compute.Errorf(compute.CodeInvalid, "%q is not a SHA-256 hash, which has 64 digits.", named)
	}
	if named != "" && !strings.EqualFold(named, s.Hash) {
		return wanted, compute.Errorf(compute.CodeConflict,
			"Entry %d of this server is another one: the SHA-256 of its bytes is %s. Leave out what the servers stop at. "+
				"Where this one has yet to get that, start it, and it says so.", s.Entry, s.Hash)
	}
	return wanted, nil
}

// errNotHeld refuses to skip an entry that cannot be inspected.
func errNotHeld(index, last uint64) error {
	return compute.Errorf(compute.CodeNotFound, "This server does not have entry %d: its log ends at %d. "+
		"If it is to get the entry from the others and leave it out, name its SHA-256 with --hash, and --force.", index, last)
}
