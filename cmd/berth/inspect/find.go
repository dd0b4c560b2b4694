package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// Limits of searching for executions by a name or the end of an identifier.
const (
	searched     = 1000 // Executions that have ended, from the newest on.
	completeTime = 2 * time.Second
)

// FindExecution returns the execution that arg names: by its identifier, the end of
// that, or its name, where that is unique among those that have not ended and the
// newest others.
func FindExecution(ctx context.Context, c *client.Client, arg string) (compute.ExecutionID, error) {
	if id, err := compute.ParseExecutionID(arg); err == nil {
		return id, nil
	}
	live, err := c.Workloads(ctx)
	if err != nil {
		return compute.ExecutionID{}, err
	}
	e, err := cli.Unique("execution that has not ended is called", arg, live, namesOf)
	if err == nil {
		return e.ExecutionID, nil
	}
	history, err := c.History(ctx, client.HistoryQuery{Limit: searched})
	if err != nil {
		return compute.ExecutionID{}, err
	}
	e, err = cli.Unique("execution", arg, history.Executions, namesOf)
	if err != nil {
		return compute.ExecutionID{}, cli.UsageErrorf("%w: give its id, the end of that, or its name; see berth ps -a", err)
	}
	return e.ExecutionID, nil
}

// namesOf returns the names of an execution, the identifier first.
func namesOf(e wire.ExecutionSummary) []string {
	names := []string{e.ExecutionID.String()}
	if e.Name != nil {
		names = append(names, *e.Name)
	}
	return names
}

// clientAndExecution returns a client and the execution that arg names.
func clientAndExecution(
	cmd *cobra.Command, conn *cli.Connection, arg string,
) (*client.Client, compute.ExecutionID, error) {
	c, err := conn.Client(cmd)
	if err != nil {
		return nil, compute.ExecutionID{}, err
	}
	id, err := FindExecution(cmd.Context(), c, arg)
	return c, id, Unexecuted(err)
}

// CompleteExecutions completes the identifiers of executions, of those that have
// not ended or of all.
func CompleteExecutions(conn *cli.Connection, live bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
		defer cancel()
		c, err := conn.Client(cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var list []wire.ExecutionSummary
		if live {
			list, err = c.Workloads(ctx)
		} else {
			var history wire.ExecutionHistory
			history, err = c.History(ctx, client.HistoryQuery{Limit: 50})
			list = history.Executions
		}
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []string
		for _, e := range list {
			out = append(out, fmt.Sprintf("%s\t%s %s %s", e.ExecutionID, e.Status, e.HardwareProfile, cli.OrNone(e.FileName)))
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}
