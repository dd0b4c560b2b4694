//go:build unix

package cli

import "golang.org/x/sys/unix"

// KeepPrivate sets the umask so that every file of this process, including
// those of libraries, is accessible to its owner only. Commands that write into
// a data directory call it first; those that write for a user do not.
func KeepPrivate() { unix.Umask(0o077) }
