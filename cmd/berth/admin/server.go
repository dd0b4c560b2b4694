//go:build !client

package admin

import (
	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
)

// repairs returns the commands that repair a stopped server.
func repairs() []*cobra.Command {
	return []*cobra.Command{newRaftRecover(), newRaftRejoin(), newRaftSkip()}
}

// snapshots returns the command for backups.
func snapshots(conn *cli.Connection) []*cobra.Command { return []*cobra.Command{newSnapshot(conn)} }
