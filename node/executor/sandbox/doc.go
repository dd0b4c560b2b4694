// Package sandbox starts one program that can reach only what it was given. The
// program has its own namespaces (user, mount, pid, network, ipc, uts, cgroup) and
// a tmpfs root with read-only mounts from an allow list. Landlock and a seccomp
// filter restrict it. It has no capabilities and cannot gain any.
//
// The package has two halves. Start, called by a supervisor that is root, makes
// detached mounts of the allowed paths and starts the first process of the
// namespaces. That process is the caller's program again, in Main, which package
// early calls. It is root only inside its own user namespace. It builds the root, drops
// privileges on one thread, and starts the program from that thread, as another
// user. Then it waits for the program and reports to the supervisor how it ended.
//
// The caller decides in Spec, as plain data, what is allowed. The filter is passed
// as assembled bytes, so that this package does not need the libraries that make
// it. It imports only the standard library, because it is loaded before the rest
// of the binary initialises.
package sandbox
