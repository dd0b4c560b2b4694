package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// endExecution is a method of a client that ends an execution.
type endExecution func(*client.Client, context.Context, compute.ExecutionID) error

// newAbort returns the command berth abort.
func newAbort() *cobra.Command {
	return newEnd("abort ID...", "End executions at once", (*client.Client).Abort)
}

// newStop returns the command berth stop.
func newStop() *cobra.Command {
	return newEnd("stop ID...", "Ask executions to end, and end them if they do not", (*client.Client).Stop)
}

// newEnd returns a command that ends executions by end.
func newEnd(use, short string, end endExecution) *cobra.Command {
	conn := &cli.Connection{}
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cli.Arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			for _, arg := range args {
				id, err := executionID(arg)
				if err != nil {
					return err
				}
				if err := end(c, cmd.Context(), id); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
			}
			return nil
		},
	}
	conn.Register(cmd)
	return cmd
}
