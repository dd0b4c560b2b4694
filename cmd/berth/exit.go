package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"berth/api/wire"
	"berth/cmd/berth/dev"
	"berth/compute"
)

// Exit codes of commands. Commands that follow an execution exit with the
// execution's own code, and with these otherwise. 128+n means that signal n
// ended the execution: 137 if it was killed, for example for lack of memory.
const (
	exitFailed      = 1               // The execution, or a command without one, failed.
	exitUsage       = 2               // The command line is wrong.
	exitRemoved     = dev.ExitRemoved // berth node only: the cluster removed this node.
	exitSystem      = 125             // Berth refused, lost or could not run the execution, or is unreachable.
	exitNeverRan    = 126             // The execution was ended on request before it ran.
	exitInterrupted = 130             // Ctrl-C: the execution continues.
)

// exitHelp is the table above as help text.
const exitHelp = `The exit code is the execution's own. Otherwise it is
  1    the execution failed without a code of its own
  2    the command line is wrong
  125  Berth refused it, could not run it, lost it, or cannot be reached
  126  it was ended on request before it ran
  130  Ctrl-C: this command ended, the execution continues
and 128+n when signal n ended the execution: 137 when it was killed, as when
its memory ran out, 143 when it ended at its time limit.`

// exit is an error with an exit code. Without err nothing is printed.
type exit struct {
	code int
	err  error
}

// Error returns the printed text.
func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Unwrap returns the printed error.
func (e *exit) Unwrap() error { return e.err }

// exitCode returns the exit code for err.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*exit](err); ok {
		return e.code
	}
	return exitFailed
}

// unexecuted converts err for a command that follows an execution, so that its
// exit code cannot be mistaken for the execution's.
func unexecuted(err error) error {
	if _, ok := errors.AsType[*exit](err); ok || err == nil {
		return err
	}
	return &exit{code: exitSystem, err: err}
}

// usageErrorf returns an error for an invalid command line.
func usageErrorf(format string, args ...any) error {
	return &exit{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// arguments wraps a check of the arguments so that its error is a usage error.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageErrorf("%w; see %s --help", err, cmd.CommandPath())
		}
		return nil
	}
}

// needFlags marks flags of cmd as required, and returns cmd.
func needFlags(cmd *cobra.Command, names ...string) *cobra.Command {
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		for _, name := range names {
			if !cmd.Flags().Changed(name) {
				return usageErrorf("--%s is needed; see %s --help", name, cmd.CommandPath())
			}
		}
		return check(cmd, args)
	}
	return cmd
}

// executionExit returns the exit code for an execution that has ended.
func executionExit(e *wire.Execution) int {
	switch {
	case e.Status == compute.StatusCompleted:
		return 0
	case e.Status == compute.StatusSystemFailure:
		return exitSystem
	case e.ReturnCode != nil && *e.ReturnCode != 0:
		return *e.ReturnCode
	case e.Status == compute.StatusAborted, e.Status == compute.StatusCancelled:
		return exitNeverRan
	}
	return exitFailed
}

// outcome returns the command's error for an ended execution, nil if it
// completed.
func outcome(e *wire.Execution) error {
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
	return &exit{code: code, err: errors.New(text)}
}
