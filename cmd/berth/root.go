package main

import (
	"github.com/spf13/cobra"

	"berth/cmd/berth/account"
	"berth/cmd/berth/admin"
	"berth/cmd/berth/cli"
	"berth/cmd/berth/execution"
	"berth/cmd/berth/inspect"
	"berth/cmd/berth/storage"
)

// newRoot returns the command berth with all commands below it.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "berth",
		Short: "Turn your GPU machines into a private compute cloud",
		Long: `Berth turns a handful of GPU machines into one private compute cloud. The same
program runs on every machine, without a database, and any node answers.

Try it on this machine:    berth demo
Start a cluster:           berth dev
Run code on it:            berth run examples/hello.py
Add a machine to it:       berth admin token create, then berth node --help`,
	}
	cli.SetUpRoot(root)
	root.Version = version
	root.SetVersionTemplate(versionInfoOf().text())
	root.AddGroup(
		&cobra.Group{ID: groupClient, Title: "Use a cluster:"},
		&cobra.Group{ID: groupCluster, Title: "Run a cluster:"},
	)
	for _, cmd := range []*cobra.Command{
		execution.NewRun(), execution.NewService(), execution.NewDeploy(),
		inspect.NewLogs(), inspect.NewOutputs(), inspect.NewMetrics(), inspect.NewCallbacks(), inspect.NewPs(),
		inspect.NewShow(), inspect.NewExplain(),
		execution.NewAbort(), execution.NewStop(), execution.NewRm(), execution.NewGPU(), newCredits(),
		account.NewLogin(), account.NewLogout(), account.NewWhoami(), account.NewPassword(), account.NewContext(),
		account.NewKeys(), account.NewOrgs(), account.NewInvite(),
		account.NewSecrets(), account.NewEnv(), account.NewBilling(), storage.New(),
	} {
		cmd.GroupID = groupClient
		root.AddCommand(cmd)
	}
	for _, cmd := range []*cobra.Command{
		admin.New(), inspect.NewReplay(), inspect.NewWhatIf(), newVersion(),
	} {
		cmd.GroupID = groupCluster
		root.AddCommand(cmd)
	}
	for _, cmd := range serverCommands() {
		cmd.GroupID = groupCluster
		root.AddCommand(cmd)
	}
	finishHelp(root)
	return root
}

// Groups of commands in help.
const (
	groupClient  = "client"
	groupCluster = "cluster"
)
