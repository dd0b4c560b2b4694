package main

import (
	"testing"

	"github.com/spf13/cobra"
)

// TestEveryCommandPrintsJSON holds that scripts can read what every command prints.
func TestEveryCommandPrintsJSON(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			walk(child)
		}
		if !cmd.Runnable() || cmd.HasSubCommands() || cmd.Hidden || cmd.CommandPath() == "berth node" {
			return // A node logs JSON.
		}
		if cmd.Flags().Lookup("json") == nil && cmd.InheritedFlags().Lookup("json") == nil {
			t.Errorf("%s has no --json", cmd.CommandPath())
		}
	}
	walk(newRoot())
}
