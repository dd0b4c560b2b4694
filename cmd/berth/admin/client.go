//go:build client

package admin

import (
	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
)

// A client has no commands that need the code of a server.
func repairs() []*cobra.Command { return nil }

func snapshots(*cli.Connection) []*cobra.Command { return nil }
