// Command berth-supervisor is the program of supervisors of sandboxes and of the first
// processes of sandboxes, which never reach main: package early takes them over. The
// node's program has it inside and starts it; nobody else does.
package main

import (
	"fmt"
	"os"

	_ "berth/node/executor/early" // All that this program is for.
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "check" { // As package program, which is not light, has it.
		return
	}
	fmt.Fprintln(os.Stderr, "usage: nodes of Berth start this program")
	os.Exit(2)
}
