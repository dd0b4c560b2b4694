//go:build !client

package main

import (
	"github.com/spf13/cobra"

	"berth/cmd/berth/admin"
	"berth/cmd/berth/benchcmd"
	"berth/node/executor/docker"
	_ "berth/node/executor/early" // Takes over supervisor processes before main.
	"berth/node/executor/mount"
)

// takeOver ends this process if it was started to supervise containers, or to mount
// storage.
func takeOver() {
	docker.TakeOver()
	mount.TakeOver()
}

// serverCommands returns the commands that a build for clients leaves out.
func serverCommands() []*cobra.Command {
	return []*cobra.Command{
		newNode(), newConfig(), newDev(), newDemo(), admin.NewLedger(), benchcmd.New(version, revision),
	}
}
