// Package sandbox starts one program where it can reach nothing but what it
// was given: namespaces of its own (user, mount, pid, network, ipc, uts,
// cgroup), a root of memory with read-only views of an allow list, Landlock, a
// seccomp filter, no capabilities and no way to gain any.
//
// It has two ends. Start, called by a supervisor that is root, makes detached
// views of the allowed paths and starts the first process of the namespaces,
// which is this same binary again (Main, reached by package early). That
// process is root only inside its own user namespace. It builds the root,
// gives up everything on one thread, and starts the program from that thread;
// then it waits for the program and tells the supervisor how it ended.
//
// The caller decides what is allowed, in Spec, as plain data: the filter
// arrives as assembled bytes, so that nothing here needs the libraries that
// make it. It imports the standard library only: it is loaded before the rest
// of the binary initialises.
package sandbox
