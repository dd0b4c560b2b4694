package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// executionExit returns the exit code for an execution that has ended.
func executionExit(e *wire.Execution) int {
	switch {
	case e.Status == compute.StatusCompleted:
		return 0
	case e.Status == compute.StatusSystemFailure:
		return cli.ExitSystem
	case e.ReturnCode != nil && *e.ReturnCode != 0:
		return *e.ReturnCode
	case e.Status == compute.StatusAborted, e.Status == compute.StatusCancelled:
		return cli.ExitNeverRan
	}
	return cli.ExitFailed
}

// Outcome returns the command's error for an ended execution, nil if it
// completed.
func Outcome(e *wire.Execution) error {
	code := executionExit(e)
	if code == 0 {
		return nil
	}
	text := fmt.Sprintf("execution %s %s", e.ExecutionID, e.Status)
	switch {
	case len(e.Errors) > 0:
		text += ": " + strings.Join(e.Errors, "; ")
	case e.StatusDetails != nil:
		text += ": " + *e.StatusDetails
	}
	return &cli.ExitError{Code: code, Err: errors.New(text)}
}

// Unexecuted converts err for a command that follows an execution, so that its
// exit code cannot be mistaken for the execution's.
func Unexecuted(err error) error {
	if _, ok := errors.AsType[*cli.ExitError](err); ok || err == nil {
		return err
	}
	return &cli.ExitError{Code: cli.ExitSystem, Err: err}
}

// Finish waits for the end of the execution and returns the command's error for
// it.
func Finish(cmd *cobra.Command, c *client.Client, id compute.ExecutionID, asJSON bool) error {
	e, err := c.Finished(cmd.Context(), id)
	if err != nil {
		return Interrupted(cmd.Context(), id, err)
	}
	if asJSON {
		if err := cli.PrintJSON(cmd.OutOrStdout(), e); err != nil {
			return err
		}
	}
	return Outcome(&e)
}

// Interrupted prints how to follow the execution again if only the command has
// ended.
func Interrupted(ctx context.Context, id compute.ExecutionID, err error) error {
	if ctx.Err() == nil {
		return Unexecuted(err)
	}
	return &cli.ExitError{Code: cli.ExitInterrupted, Err: errors.New(`the execution goes on
  to see it:  berth logs -f ` + id.String() + `
  to end it:  berth abort ` + id.String())}
}
