package main

import (
	"github.com/spf13/cobra"
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
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          arguments(cobra.NoArgs),
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmd.ValidateFlagGroups(); err != nil {
				return usageErrorf("%w; see %s --help", err, cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageErrorf("%w; see %s --help", err, cmd.CommandPath())
	})
	root.AddGroup(
		&cobra.Group{ID: groupClient, Title: "Use a cluster:"},
		&cobra.Group{ID: groupCluster, Title: "Run a cluster:"},
	)
	for _, cmd := range []*cobra.Command{
		newRun(), newLogs(), newPs(), newExplain(), newAbort(), newStop(), newGPU(),
	} {
		cmd.GroupID = groupClient
		root.AddCommand(cmd)
	}
	for _, cmd := range []*cobra.Command{
		newNode(), newConfig(), newAdmin(), newReplay(), newWhatIf(), newDev(), newDemo(), newBench(), newVersion(),
	} {
		cmd.GroupID = groupCluster
		root.AddCommand(cmd)
	}
	return root
}

// Groups of commands in help.
const (
	groupClient  = "client"
	groupCluster = "cluster"
)

// parent returns a command that only groups others.
func parent(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(children...)
	return cmd
}
