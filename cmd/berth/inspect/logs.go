package inspect

import (
	"context"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/cmd/berth/cli"
)

// LogsFlags are the flags of berth logs.
type LogsFlags struct {
	Conn   cli.Connection
	Follow bool
	after  uint64
	Tail   int
	since  time.Duration
	mine   bool
	level  string
	grep   string
	Raw    bool
	JSON   bool
}

// NewLogs returns the command berth logs.
func NewLogs() *cobra.Command {
	f := &LogsFlags{}
	cmd := &cobra.Command{
		Use:   "logs [ID]",
		Short: "Show the output of an execution, or search it",
		Long: `Logs shows the output of an execution from its beginning. For a running execution it
shows the output so far, at most the last MiB; with -f it follows the output until the
execution has ended. With --level or --grep it shows the lines that match, with --mine
those of all your executions of the last day.

` + cli.ExitHelp,
		Args: cli.Arguments(cobra.MaximumNArgs(1)), ValidArgsFunction: CompleteExecutions(&f.Conn, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.mine == (len(args) == 1):
				return cli.UsageErrorf("name an execution, or give --mine")
			case f.mine:
				return f.search(cmd, "")
			case f.level != "" || f.grep != "":
				return f.search(cmd, args[0])
			}
			return f.Run(cmd, args[0])
		},
	}
	f.Conn.Register(cmd)
	cmd.Flags().BoolVarP(&f.Follow, "follow", "f", false, "follow the output until the execution has ended")
	cmd.Flags().Uint64Var(&f.after, "after", 0, "start after this sequence `number`")
	cmd.Flags().IntVarP(&f.Tail, "tail", "n", -1, "show only the last `lines`; with -f, follow from there")
	cmd.Flags().DurationVar(&f.since, "since", 0, "show only what was written within this `time`, such as 10m")
	cmd.Flags().BoolVar(&f.mine, "mine", false, "show the lines of all your executions")
	cmd.Flags().StringVar(&f.level, "level", "", "show only lines of at least this `level`: debug, info, warning or error")
	cmd.Flags().StringVar(&f.grep, "grep", "", "show only lines that contain this `text`, letters of either case")
	cli.Must(cmd.RegisterFlagCompletionFunc("level", cobra.FixedCompletions(
		[]string{"debug", "info", "warning", "error"}, cobra.ShellCompDirectiveNoFileComp)))
	cmd.Flags().BoolVar(&f.Raw, "raw", false, cli.RawHelp)
	cmd.Flags().BoolVar(&f.JSON, "json", false, "print one JSON object per piece of output")
	return cmd
}

// Run prints the output of the execution that arg names.
func (f *LogsFlags) Run(cmd *cobra.Command, arg string) error {
	c, id, err := clientAndExecution(cmd, &f.Conn, arg)
	if err != nil {
		return err
	}
	e, err := c.Execution(cmd.Context(), id, 0)
	if err != nil {
		return Unexecuted(err)
	}
	if !f.Follow && !e.Status.Terminal() && f.since == 0 {
		return f.printSoFar(cmd, lastOf(e.CombinedOutput, f.Tail))
	}
	show := cli.NewOutputPrinter(cmd, f.Raw).Print
	if f.JSON {
		show = func(event client.Event) error { return printEvent(cmd, event) }
	}
	now := time.Now() //nolint:forbidigo // Output has the instants of the day.
	chosen := chooser{tail: f.Tail, now: now, toTheEnd: f.Follow || e.Status.Terminal(), show: show}
	if f.since > 0 {
		chosen.from = now.Add(-f.since)
	}
	err = chosen.read(cmd.Context(), func(ctx context.Context) iter.Seq2[client.Event, error] {
		return c.Stream(ctx, id, f.after)
	})
	if err != nil {
		return Interrupted(cmd.Context(), id, err)
	}
	if !f.Follow {
		return nil
	}
	return Finish(cmd, c, id, false)
}

// printSoFar prints the output so far of an execution that has not ended.
func (f *LogsFlags) printSoFar(cmd *cobra.Command, output string) error {
	if f.JSON {
		return cli.PrintJSONLine(cmd.OutOrStdout(), outputEvent{Stream: "combined", Content: output})
	}
	return cli.NewOutputPrinter(cmd, f.Raw).Print(client.Event{Content: output})
}

// outputEvent is one piece of output in berth logs --json.
type outputEvent struct {
	Seq        uint64  `json:"seq,omitempty"`
	Stream     string  `json:"stream,omitempty"`
	Content    string  `json:"content,omitempty"`
	ReturnCode *string `json:"return_code,omitempty"` // On the last line.
	Error      *string `json:"error,omitempty"`
	Missing    string  `json:"output_missing,omitempty"` // The reason why output before this piece may be missing.
}

func printEvent(cmd *cobra.Command, event client.Event) error {
	out := outputEvent{Seq: event.Seq, Stream: "stdout", Content: event.Content}
	switch {
	case event.Finished != nil:
		out = outputEvent{
			Seq: event.Seq, ReturnCode: &event.Finished.ReturnCode, Error: event.Finished.Error, Missing: event.Finished.Missing,
		}
	case event.Stderr:
		out.Stream = "stderr"
	}
	return cli.PrintJSONLine(cmd.OutOrStdout(), out)
}
