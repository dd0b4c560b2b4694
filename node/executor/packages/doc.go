// Package packages installs the Python packages that executions ask for, and
// keeps what it installed.
//
// The packages of an organization for one interpreter are installed once, into a
// file system image of their own. The installer runs in a sandbox like the code
// of an execution, because building a package executes its code. The finished
// image is sealed: it is mounted read-only into every execution that asks for the
// same, also by several at once. Unused images are removed, the longest unused
// first, when they exceed their part of the disk. Those of named environments are
// pinned and stay.
//
// The sandbox of an installer has no network. It reaches the index through a
// proxy in its own network namespace, which connects to the hosts of the
// configured index and to nothing else. An index on the node's own loopback is
// reached in the same way, and only by installers.
//
// It is not for deciding what may be asked for: requirements.Check does
// that before a request is accepted.
package packages
