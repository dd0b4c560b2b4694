package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// logsFlags are the flags of berth logs.
type logsFlags struct {
	conn       cli.Connection
	follow     bool
	after      uint64
	raw        bool
	jsonOutput bool
}

// newLogs returns the command berth logs.
func newLogs() *cobra.Command {
	f := &logsFlags{}
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "Show the output of an execution",
		Long: `Logs shows the output of an execution from its beginning. For a running execution it
shows the output so far, at most the last MiB; with -f it follows the output until the
execution has ended.

` + cli.ExitHelp,
		Args: cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	f.conn.Register(cmd)
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "follow the output until the execution has ended")
	cmd.Flags().Uint64Var(&f.after, "after", 0, "start after this sequence `number`")
	cmd.Flags().BoolVar(&f.raw, "raw", false, cli.RawHelp)
	cmd.Flags().BoolVar(&f.jsonOutput, "json", false, "print one JSON object per piece of output")
	return cmd
}

func (f *logsFlags) run(cmd *cobra.Command, arg string) error {
	id, err := executionID(arg)
	if err != nil {
		return err
	}
	c, err := f.conn.Client(cmd)
	if err != nil {
		return err
	}
	e, err := c.Execution(cmd.Context(), id, 0)
	if err != nil {
		return unexecuted(err)
	}
	if !f.follow && !e.Status.Terminal() {
		return f.printSoFar(cmd, e.CombinedOutput)
	}
	show := cli.NewOutputPrinter(cmd, f.raw).Print
	if f.jsonOutput {
		show = func(event client.Event) error { return printEvent(cmd, event) }
	}
	for event, err := range c.Stream(cmd.Context(), id, f.after) {
		if err != nil {
			return interrupted(cmd.Context(), id, err)
		}
		if err := show(event); err != nil {
			return err
		}
	}
	if !f.follow {
		return nil
	}
	return finish(cmd, c, id, false)
}

// printSoFar prints the output so far of an execution that has not ended.
func (f *logsFlags) printSoFar(cmd *cobra.Command, output string) error {
	if f.jsonOutput {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(outputEvent{Stream: "combined", Content: output})
	}
	return cli.NewOutputPrinter(cmd, f.raw).Print(client.Event{Content: output})
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
	return json.NewEncoder(cmd.OutOrStdout()).Encode(out)
}

// executionID reads the id of an execution from the command line.
func executionID(arg string) (compute.ExecutionID, error) {
	id, err := compute.ParseExecutionID(arg)
	if err != nil {
		return id, cli.UsageErrorf("%q is not the id of an execution, such as berth ps lists: %w", arg, err)
	}
	return id, nil
}
