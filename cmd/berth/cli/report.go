package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// Done is one thing that a command did.
type Done struct {
	Name string `json:"name"` // Name of the object that was changed.
	Done string `json:"done"` // Such as deleted.
}

// reports are the changes that a command has made so far.
type reports struct {
	asJSON bool
	done   []Done
}

// reportsKey is the key of reports in the context of a command.
type reportsKey struct{}

// Reporting gives a command that only does something the flag --json: what was passed to
// Report is then printed as a list at its end, also after a failure.
func Reporting(cmd *cobra.Command) *cobra.Command {
	r := &reports{done: []Done{}}
	cmd.Flags().BoolVar(&r.asJSON, "json", false, "print JSON")
	do := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cmd.SetContext(context.WithValue(cmd.Context(), reportsKey{}, r))
		err := do(cmd, args)
		if r.asJSON && (err == nil || len(r.done) > 0) {
			err = errors.Join(err, PrintJSON(cmd.OutOrStdout(), r.done))
		}
		return err
	}
	return cmd
}

// Report says on standard error what a command of Reporting did, or keeps it for JSON.
func Report(cmd *cobra.Command, done Done, format string, args ...any) {
	if r, ok := cmd.Context().Value(reportsKey{}).(*reports); ok && r.asJSON {
		r.done = append(r.done, done)
		return
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "berth: "+Plain(fmt.Sprintf(format, args...)))
}
