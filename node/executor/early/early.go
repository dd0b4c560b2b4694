package early

import (
	"os"
	"syscall"
	"unsafe"

	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

// This is the only init function of the tree. Packages whose imports are
// initialised follow in the order of their import paths. This one has few imports
// and an early path, so it runs before the libraries of the node initialise. The
// start of a supervisor thus costs a fraction of the node's start.
//
//nolint:gochecknoinits // The reason is above.
func init() {
	if len(os.Args) < 2 || os.Args[0] != "berth" {
		return
	}
	switch os.Args[1] {
	case supervise.Command:
		name("berth-supervise")
		os.Exit(supervise.Main(os.Args[2:])) //nolint:forbidigo // This process is no node.
	case sandbox.Command:
		name("berth-sandbox")
		os.Exit(sandbox.Main()) //nolint:forbidigo // This process is no node.
	}
}

// name names this process in lists of processes, which would show the last part of the path
// that it was executed from: "exe", or the number of a descriptor.
func name(s string) {
	if text, err := syscall.BytePtrFromString(s); err == nil {
		_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_NAME, uintptr(unsafe.Pointer(text)), 0)
	}
}
