package compute

import (
	"path"
	"slices"
	"strings"
)

// Limits of named environments.
const (
	MaxEnvironments    = 500      // In the cluster: every node reports those that it has.
	MaxOrgEnvironments = 20       // In one organization.
	MaxEnvironmentText = 16 << 10 // Bytes of the requirements of one.
	MaxEnvironmentName = 63
	MaxEnvironmentNote = 500 // Bytes of a node's report on why it failed.
)

// Environment is a set of Python packages that nodes have ready under a name.
// Nodes install its requirements, or have a directory with it.
type Environment struct {
	ID           EnvironmentID `cbor:"1,keyasint"`
	Org          OrgID         `cbor:"2,keyasint,omitempty"` // The organization that may use it; zero for every one.
	Name         string        `cbor:"3,keyasint"`
	Requirements string        `cbor:"4,keyasint,omitempty"`
	Path         string        `cbor:"5,keyasint,omitempty"` // Directory of the nodes, in place of requirements.
	Interpreter  string        `cbor:"6,keyasint,omitempty"` // Below Path; "" for bin/python3, if there is one.
	CreatedAt    Instant       `cbor:"7,keyasint"`

	Nodes []NodeEnvironment `cbor:"8,keyasint,omitempty"` // By node.
}

// EnvironmentRef is the environment that an execution asks for.
type EnvironmentRef struct {
	Name string        `cbor:"1,keyasint,omitempty"`
	ID   EnvironmentID `cbor:"2,keyasint,omitempty"` // The environment that had the name at the submit.
}

// NodeEnvironment is how far one node is with an environment.
type NodeEnvironment struct {
	Node    NodeID            `cbor:"1,keyasint"`
	Status  EnvironmentStatus `cbor:"2,keyasint,omitempty"`
	SizeMiB int64             `cbor:"3,keyasint,omitempty"` // Disk space of the installed packages.
	Error   string            `cbor:"4,keyasint,omitempty"` // Why it failed, in the installer's words.
	At      Instant           `cbor:"5,keyasint,omitempty"` // When the status was reported.
}

// Same reports whether a node says the same.
func (n *NodeEnvironment) Same(other *NodeEnvironment) bool {
	return n.Status == other.Status && n.SizeMiB == other.SizeMiB && n.Error == other.Error
}

// On returns a node's report on the environment, nil for none.
func (e *Environment) On(node NodeID) *NodeEnvironment {
	for i := range e.Nodes {
		if e.Nodes[i].Node == node {
			return &e.Nodes[i]
		}
	}
	return nil
}

// Status returns how far the nodes are together: ready if one is, failed if one has
// and no other is still at it.
func (e *Environment) Status() EnvironmentStatus {
	has := func(status EnvironmentStatus) bool {
		return slices.ContainsFunc(e.Nodes, func(n NodeEnvironment) bool { return n.Status == status })
	}
	switch {
	case has(EnvironmentReady):
		return EnvironmentReady
	case has(EnvironmentFailed) && !has(EnvironmentPreparing):
		return EnvironmentFailed
	}
	return EnvironmentPreparing
}

// Failure returns the report of a node on which the environment failed, "" for none.
func (e *Environment) Failure() string {
	for i := range e.Nodes {
		if e.Nodes[i].Status == EnvironmentFailed {
			return e.Nodes[i].Error
		}
	}
	return ""
}

// SizeMiB returns the most disk space that it takes on a node.
func (e *Environment) SizeMiB() (size int64) {
	for i := range e.Nodes {
		size = max(size, e.Nodes[i].SizeMiB)
	}
	return size
}

// Offer returns the offer of a node that has the environment.
func (e *Environment) Offer() Offer { return EnvironmentOffer(e.ID.String()) }

// EnvironmentStatus is how far an environment is.
type EnvironmentStatus uint8

// The states of environments. Values are written to disk: append only.
const (
	EnvironmentPreparing EnvironmentStatus = iota
	EnvironmentReady
	EnvironmentFailed
)

var environmentStatusNames = names{"preparing", "ready", "failed"}

// String returns the status as clients read it.
func (s EnvironmentStatus) String() string { return environmentStatusNames.text(uint8(s)) }

// MarshalText returns what String returns.
func (s EnvironmentStatus) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText accepts what String returns.
func (s *EnvironmentStatus) UnmarshalText(text []byte) error {
	v, err := environmentStatusNames.value("status", text)
	*s = EnvironmentStatus(v)
	return err
}

// BadEnvironmentPath says why no environment can be at a path of the nodes, "" when
// one can.
func BadEnvironmentPath(name string) string {
	switch {
	case !path.IsAbs(name) || path.Clean(name) != name || name == "/" || len(name) > MaxPath:
		return "the path of an environment is absolute, without '.' and '..'"
	case slices.Contains([]string{"proc", "sys", "dev", "boot", "etc"}, strings.Split(name, "/")[1]):
		return "the path of an environment must not be a directory of the system"
	}
	return ""
}

// BadInterpreter says why an interpreter cannot be that of an environment at a path,
// "" when it can.
func BadInterpreter(name string) string {
	if name == "" {
		return ""
	}
	if path.IsAbs(name) || path.Clean(name) != name || strings.HasPrefix(name, "..") || name == "." ||
		len(name) > MaxPath {
		return "an interpreter is a path below that of the environment, such as bin/python3"
	}
	return ""
}
