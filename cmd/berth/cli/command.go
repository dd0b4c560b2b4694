package cli

import (
	"github.com/spf13/cobra"
)

// SetUpRoot makes cmd the root of a command line: it takes no arguments and
// prints its help. A wrong flag of it or of a command below is a usage error.
// Cobra prints no errors: the caller of Execute does.
func SetUpRoot(cmd *cobra.Command) {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.Args = Arguments(cobra.NoArgs)
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := cmd.ValidateFlagGroups(); err != nil {
			return UsageErrorf("%w; see %s --help", err, cmd.CommandPath())
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return UsageErrorf("%w; see %s --help", err, cmd.CommandPath())
	})
}

// Parent returns a command that only groups others.
func Parent(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(children...)
	return cmd
}

// Arguments wraps a check of the arguments so that its error is a usage error.
func Arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return UsageErrorf("%w; see %s --help", err, cmd.CommandPath())
		}
		return nil
	}
}

// NeedFlags marks flags of cmd as required, and returns cmd.
func NeedFlags(cmd *cobra.Command, names ...string) *cobra.Command {
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		for _, name := range names {
			if !cmd.Flags().Changed(name) {
				return UsageErrorf("--%s is needed; see %s --help", name, cmd.CommandPath())
			}
		}
		return check(cmd, args)
	}
	return cmd
}
