package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// Each does something with each argument, also after a failure, and reports each
// failure. With one argument its error is returned as it is.
func Each(cmd *cobra.Command, args []string, do func(arg string) error) error {
	var failed []error
	for _, arg := range args {
		err := do(arg)
		switch {
		case err == nil:
			continue
		case len(args) == 1, cmd.Context().Err() != nil:
			return err
		}
		PrintError(cmd.ErrOrStderr(), fmt.Errorf("%s: %w", arg, err))
		failed = append(failed, err)
	}
	if len(failed) == 0 {
		return nil
	}
	code := ExitFailed
	for _, err := range failed {
		code = max(code, ExitCode(err))
	}
	return &ExitError{Code: code, Err: fmt.Errorf("%d of %d failed", len(failed), len(args))}
}
