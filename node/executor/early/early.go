package early

import (
	"os"

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
		os.Exit(supervise.Main(os.Args[2:])) //nolint:forbidigo // This process is no node.
	case sandbox.Command:
		os.Exit(sandbox.Main()) //nolint:forbidigo // This process is no node.
	}
}
