// Command berth-supervisor is the program of supervisors of sandboxes and of the first
// processes of sandboxes. The berth binary has it inside and starts it; nobody else does.
// Like package early it imports only light packages.
package main

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

func main() {
	command := ""
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	switch command {
	case supervise.Command:
		name("berth-supervise")
		os.Exit(supervise.Main(os.Args[2:]))
	case sandbox.Command:
		name("berth-sandbox")
		os.Exit(sandbox.Main())
	case "check": // As package program has it, which is not light.
		os.Exit(0)
	}
	fmt.Fprintln(os.Stderr, "usage: nodes of Berth start this program")
	os.Exit(2)
}

// name names this process in lists of processes, which would show the number of the descriptor
// that it was executed from.
func name(s string) {
	if text, err := syscall.BytePtrFromString(s); err == nil {
		_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_NAME, uintptr(unsafe.Pointer(text)), 0)
	}
}
