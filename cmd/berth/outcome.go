package main

import (
	"errors"
	"fmt"
	"strings"

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
	return &cli.ExitError{Code: code, Err: errors.New(text)}
}

// unexecuted converts err for a command that follows an execution, so that its
// exit code cannot be mistaken for the execution's.
func unexecuted(err error) error {
	if _, ok := errors.AsType[*cli.ExitError](err); ok || err == nil {
		return err
	}
	return &cli.ExitError{Code: cli.ExitSystem, Err: err}
}
