package cli

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"

	"berth/api/client"
)

// Exit codes of commands. Commands that follow an execution exit with the
// execution's own code, and with these otherwise. 128+n means that signal n
// ended the execution: 137 if it was killed, for example for lack of memory.
const (
	ExitFailed      = 1   // The execution, or a command without one, failed.
	ExitUsage       = 2   // The command line is wrong.
	ExitRemoved     = 3   // berth node only: the cluster removed this node; package dev knows it too.
	ExitSystem      = 125 // Berth refused, lost or could not run the execution, or is unreachable.
	ExitNeverRan    = 126 // The execution was ended on request before it ran.
	ExitInterrupted = 130 // Ctrl-C: the execution continues.
)

// ExitHelp is the table of exit codes as help text.
const ExitHelp = `The exit code is the execution's own. Otherwise it is
  1    the execution failed without a code of its own
  2    the command line is wrong
  125  Berth refused it, could not run it, lost it, or cannot be reached
  126  it was ended on request before it ran
  130  Ctrl-C: this command ended, the execution continues
and 128+n when signal n ended the execution: 137 when it was killed, as when
its memory ran out, 143 when it ended at its time limit.`

// ExitError is an error with an exit code. Without Err nothing is printed.
type ExitError struct {
	Code int
	Err  error
}

// Error returns the printed text.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns the printed error.
func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode returns the exit code for err.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*ExitError](err); ok {
		return e.Code
	}
	if _, ok := errors.AsType[*client.UnreachableError](err); ok {
		return ExitSystem
	}
	return ExitFailed
}

// PrintError prints the error of a command: what happened, what to do about it, and
// by which id the logs of the nodes know the request. It prints nothing for an
// ExitError without an error.
func PrintError(w io.Writer, err error) {
	if e, ok := errors.AsType[*ExitError](err); ok && e.Err == nil {
		return
	}
	fmt.Fprintln(w, "berth:", Plain(err.Error()))
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		fmt.Fprintln(w, "berth: if the cluster has an authority of its own, name its file with --cacert or BERTH_CACERT")
	} else if _, ok := errors.AsType[*client.UnreachableError](err); ok {
		fmt.Fprintln(w, "berth: check the address (--addr, BERTH_ADDR or berth context list), and that a node runs there")
	}
	if e, ok := errors.AsType[*client.Error](err); ok {
		if e.Code == "unauthenticated" {
			fmt.Fprintln(w, "berth: sign in with berth login, or give an API key with BERTH_TOKEN or --token-file")
		}
		if e.RequestID != "" {
			fmt.Fprintln(w, "berth: request", e.RequestID)
		}
	}
}

// UsageErrorf returns an error for an invalid command line.
func UsageErrorf(format string, args ...any) error {
	return &ExitError{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}
