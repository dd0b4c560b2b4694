//go:build !client

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
	"berth/node/config"
)

// newConfig returns the command berth config.
func newConfig() *cobra.Command {
	return cli.Parent("config", "Work with configuration files", newConfigCheck())
}

// checkedFault is one fault as berth config check --json prints it.
type checkedFault struct {
	Line    int    `json:"line"` // 0 for a fault that has no single line.
	Key     string `json:"key"`
	Message string `json:"message"`
}

func newConfigCheck() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file",
		Long: `Check reads a configuration file as berth node does and prints every fault with its
line. The exit code is 1 if there are any.`,
		Args: cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			faults, err := config.Check(args[0])
			if err != nil {
				return err
			}
			return printFaults(cmd, args[0], faults, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printFaults(cmd *cobra.Command, file string, faults []*config.Fault, asJSON bool) error {
	out := cmd.OutOrStdout()
	checked := []checkedFault{}
	for _, f := range faults {
		checked = append(checked, checkedFault{Line: f.Line, Key: f.Key, Message: f.Message})
		if asJSON {
			continue
		}
		where := file
		if f.Line > 0 {
			where = fmt.Sprintf("%s:%d", file, f.Line)
		}
		text := f.Message
		if f.Key != "" {
			text = f.Key + ": " + text
		}
		fmt.Fprintf(out, "%s: %s\n", where, text)
	}
	if asJSON {
		if err := cli.PrintJSON(out, map[string]any{"file": file, "faults": checked}); err != nil {
			return err
		}
	}
	if len(faults) > 0 {
		return &cli.ExitError{Code: cli.ExitFailed}
	}
	if !asJSON {
		fmt.Fprintf(out, "%s: no faults\n", file)
	}
	return nil
}
