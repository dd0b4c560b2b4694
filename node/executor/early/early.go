package early

import (
	"os"

	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

// The one init of the tree. Packages initialise in the order of their import
// paths as soon as what they import has, so this one, light and early in the
// alphabet, comes before the libraries of the node: a supervisor costs a
// fraction of what the node's start does.
//
//nolint:gochecknoinits // The reason is above.
func init() {
	if len(os.Args) < 2 || os.Args[0] != "berth" {
		return
	}
	switch os.Args[1] {
	case supervise.Command:
		os.Exit(supervise.Main(os.Args[2:])) //nolint:forbidigo // This process is no node.
	case sandbox.Command:
		os.Exit(sandbox.Main()) //nolint:forbidigo // This process is no node.
	}
}
