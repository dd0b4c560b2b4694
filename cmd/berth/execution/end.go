package execution

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/cmd/berth/cli"
	"berth/cmd/berth/inspect"
	"berth/compute"
)

// endExecution is a method of a client that ends or deletes an execution.
type endExecution func(*client.Client, context.Context, compute.ExecutionID) error

// NewAbort returns the command berth abort.
func NewAbort() *cobra.Command {
	return newEnd("abort", "End executions at once", "is asked to end", true, (*client.Client).Abort)
}

// NewStop returns the command berth stop.
func NewStop() *cobra.Command {
	return newEnd("stop", "Ask executions to end, and end them if they do not", "is asked to end", true,
		(*client.Client).Stop)
}

// NewRm returns the command berth rm.
func NewRm() *cobra.Command {
	cmd := newEnd("rm", "Delete the code and the output of executions that have ended", "is deleted", false,
		(*client.Client).Delete)
	cmd.Long = `Rm deletes the code, the output and the files of executions that have ended. Their lines
in the ledger and in berth ps -a stay.`
	return cmd
}

// endResult is the result for one execution, for --json.
type endResult struct {
	ExecutionID *compute.ExecutionID `json:"execution_id"` // Null if nothing is called so.
	Argument    string               `json:"argument"`
	Error       string               `json:"error,omitempty"`
}

// newEnd returns a command that does something with each execution by do.
func newEnd(verb, short, done string, live bool, do endExecution) *cobra.Command {
	conn := &cli.Connection{}
	var asJSON bool
	cmd := &cobra.Command{
		Use: verb + " ID...", Short: short, Args: cli.Arguments(cobra.MinimumNArgs(1)),
		Long: short + ".\nAll are tried, and each failure is reported. An execution is named by its identifier,\n" +
			"the end of that, or its name.",
		ValidArgsFunction: inspect.CompleteExecutions(conn, live),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := conn.Client(cmd)
		if err != nil {
			return err
		}
		results := []endResult{}
		err = cli.Each(cmd, args, func(arg string) error {
			id, err := inspect.FindExecution(cmd.Context(), c, arg)
			if err == nil {
				err = do(c, cmd.Context(), id)
			}
			result := endResult{Argument: arg}
			if !id.IsZero() {
				result.ExecutionID = &id
			}
			if err != nil {
				result.Error = err.Error()
			} else if !asJSON {
				fmt.Fprintf(cmd.ErrOrStderr(), "berth: %s %s\n", id, done)
			}
			results = append(results, result)
			return err
		})
		if asJSON {
			if failed := cli.PrintJSON(cmd.OutOrStdout(), results); failed != nil {
				return failed
			}
		}
		return err
	}
	conn.Register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
