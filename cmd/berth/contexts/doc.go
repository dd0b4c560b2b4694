// Package contexts keeps the clusters that a person has signed in to: a file with
// addresses and credentials under names, of which one is current.
//
// The file is readable by its owner only, and is refused otherwise, as ssh does
// with private keys. It is replaced as a whole under a lock, so that commands
// that renew a session at the same time do not lose each other's change.
//
// It knows no flags, no environment but XDG_CONFIG_HOME, and makes no request.
package contexts
