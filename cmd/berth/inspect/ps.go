package inspect

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// psEvery is how often berth ps --watch lists.
const psEvery = 2 * time.Second

// psFlags are the flags of berth ps.
type psFlags struct {
	conn       cli.Connection
	all        bool
	limit      int
	status     string
	kind       string
	tag        string
	parent     string
	since      time.Duration
	watch      bool
	jsonOutput bool
}

// NewPs returns the command berth ps.
func NewPs() *cobra.Command {
	f := &psFlags{}
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List executions",
		Long: `Ps lists the executions that have not ended, newest first; -a, --since, --parent and a
final --status include those that have. On a terminal identifiers are shortened to their
end, which every command accepts.`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.conn.Register(cmd)
	flags := cmd.Flags()
	flags.BoolVarP(&f.all, "all", "a", false, "include executions that have ended")
	flags.IntVarP(&f.limit, "limit", "n", 50, "list at most this many of those that have ended")
	flags.StringVar(&f.status, "status", "", "list only this `status`, such as running or failed")
	flags.StringVar(&f.kind, "type", "", "list only this `kind`: python, gpu_selection or gpu_selection_sub")
	flags.StringVar(&f.tag, "tag", "", "list only executions with this `tag`")
	flags.StringVar(&f.parent, "parent", "", "list the sub-executions of the GPU selection with this `id`")
	flags.DurationVar(&f.since, "since", 0, "list what was submitted within this `time`, such as 2h")
	flags.BoolVarP(&f.watch, "watch", "w", false, "list again every 2 s until Ctrl-C")
	flags.BoolVar(&f.jsonOutput, "json", false, "print JSON")
	cli.Must(cmd.RegisterFlagCompletionFunc(
		"status", cobra.FixedCompletions(statuses(), cobra.ShellCompDirectiveNoFileComp)))
	cli.Must(cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(
		[]string{"python", "gpu_selection", "gpu_selection_sub"}, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// statuses returns the names of all statuses.
func statuses() []string {
	var names []string
	for s := range compute.Status(compute.Statuses) {
		names = append(names, s.String())
	}
	return names
}

func (f *psFlags) run(cmd *cobra.Command) error {
	var status compute.Status
	if f.status != "" && status.UnmarshalText([]byte(f.status)) != nil {
		return cli.UsageErrorf("--status: must be one of %v", statuses())
	}
	if f.limit < 1 || f.limit > searched {
		return cli.UsageErrorf("--limit: must be 1 to %d", searched)
	}
	c, err := f.conn.Client(cmd)
	if err != nil {
		return err
	}
	query := client.HistoryQuery{Limit: f.limit, Status: f.status, Type: f.kind}
	if f.parent != "" {
		if query.Parent, err = FindExecution(cmd.Context(), c, f.parent); err != nil {
			return err
		}
	}
	ended := f.all || f.since > 0 || f.parent != "" || f.status != "" && status.Terminal()
	if !f.watch {
		return f.print(cmd, c, query, ended)
	}
	return repeat(cmd.Context(), psEvery, func() error {
		if cli.IsTerminal(cmd.OutOrStdout()) && !f.jsonOutput {
			fmt.Fprint(cmd.OutOrStdout(), "\x1b[H\x1b[2J") // Clear the screen.
		}
		return f.print(cmd, c, query, ended)
	})
}

// repeat calls do at once and then every so often, until it fails or ctx ends.
func repeat(ctx context.Context, every time.Duration, do func() error) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if err := do(); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *psFlags) print(cmd *cobra.Command, c *client.Client, query client.HistoryQuery, ended bool) error {
	list, err := f.list(cmd, c, query, ended)
	if err != nil {
		return err
	}
	if f.jsonOutput {
		return cli.PrintJSON(cmd.OutOrStdout(), append([]wire.ExecutionSummary{}, list...))
	}
	return printExecutions(cmd, cmd.OutOrStdout(), list)
}

// printExecutions prints a row for each execution.
func printExecutions(cmd *cobra.Command, w io.Writer, list []wire.ExecutionSummary) error {
	t := cli.NewTable("id", "kind", "profile", "status", "why", "age", "node", "credits", "name")
	now := time.Now() //nolint:forbidigo // For a person's eyes.
	for _, e := range list {
		node := "-"
		if e.Metadata != nil {
			node = cli.OrNone(e.Metadata.Node)
		}
		t.AppendRow(cli.Row(
			cli.ShortID(cmd, e.ExecutionID), e.ExecutionType, e.HardwareProfile, e.Status, reasonOf(e),
			ago(now, e.CreatedAt.Time()), node, cli.OrNone(e.Billed), cli.OrNone(cmp.Or(e.Name, e.FileName)),
		))
	}
	return cli.PrintTable(w, t)
}

// list returns the executions that the flags select.
func (f *psFlags) list(
	cmd *cobra.Command, c *client.Client, query client.HistoryQuery, ended bool,
) ([]wire.ExecutionSummary, error) {
	if f.since > 0 {
		now := time.Now() //nolint:forbidigo // The cluster wants an instant of the day.
		query.From = compute.InstantOf(now.Add(-f.since))
	}
	var list []wire.ExecutionSummary
	if ended {
		history, err := c.History(cmd.Context(), query)
		if err != nil {
			return nil, err
		}
		list = history.Executions
	} else {
		var err error
		if list, err = c.Workloads(cmd.Context()); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(list, func(e wire.ExecutionSummary) bool { return !f.selects(e) }), nil
}

// selects reports whether the flags select an execution.
func (f *psFlags) selects(e wire.ExecutionSummary) bool {
	return (f.status == "" || e.Status.String() == f.status) && (f.kind == "" || e.ExecutionType.String() == f.kind) &&
		(f.tag == "" || e.Metadata != nil && slices.Contains(e.Metadata.Tags, f.tag))
}

// reasonOf returns why an execution waits or has ended, and its retries.
func reasonOf(e wire.ExecutionSummary) string {
	why := cli.OrNone(e.StatusDetails)
	if e.Retries > 0 {
		why += fmt.Sprintf(" (retry %d of %d)", e.Retries, e.MaxRetries)
	}
	return why
}

// ago returns the time since t, in one unit.
func ago(now, t time.Time) string {
	d := now.Sub(t)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
