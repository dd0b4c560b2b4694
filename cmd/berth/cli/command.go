package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/compute"
)

// SetUpRoot makes cmd the root of a command line: it takes no arguments and
// prints its help. A wrong flag of it or of a command below is a usage error.
// Cobra prints no errors: the caller of Execute does.
func SetUpRoot(cmd *cobra.Command) {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.Args = noCommand
	setUsage(cmd)
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
		Use: use, Short: short, Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(children...)
	for _, verbs := range Synonyms() {
		share(verbs, children)
	}
	return cmd
}

// Synonyms returns verbs that people take for one another. A group of commands shows one of each
// and accepts the others.
func Synonyms() [][]string { return [][]string{{"list", "ls"}, {"remove", "rm", "revoke", "delete"}} }

// share gives the verbs that none of the commands has to the one with the first of them.
func share(verbs []string, commands []*cobra.Command) {
	var first *cobra.Command
	var rest []string
	for _, verb := range verbs {
		at := slices.IndexFunc(commands, func(cmd *cobra.Command) bool { return cmd.Name() == verb })
		switch {
		case at < 0:
			rest = append(rest, verb)
		case first == nil:
			first = commands[at]
		}
	}
	if first != nil {
		first.Aliases = append(first.Aliases, rest...)
	}
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

// Amount returns the amount of credits above 0 in a flag, or with "" in an argument.
func Amount(flag, text string) (compute.Credits, error) {
	amount, err := compute.ParseAmount(text)
	switch {
	case err == nil:
		return amount, nil
	case flag == "":
		return 0, UsageErrorf("%q: %w", text, err)
	}
	return 0, UsageErrorf("--%s: %q: %w", flag, text, err)
}

// FilledFlags has cmd refuse flags that are given without a value, as with an unset variable
// of a shell: it would do without them what they were to restrict. It returns cmd.
func FilledFlags(cmd *cobra.Command, names ...string) *cobra.Command {
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		for _, name := range names {
			if f := cmd.Flags().Lookup(name); f.Changed && (f.Value.String() == "" || f.Value.String() == "[]") {
				return UsageErrorf("--%s is empty", name)
			}
		}
		return check(cmd, args)
	}
	return cmd
}

// helpWidth is the length of the longest line of help.
const helpWidth = 100

// setUsage has the help of cmd and of the commands below it wrap its flags, and leave out other
// names of commands.
func setUsage(cmd *cobra.Command) {
	cobra.AddTemplateFunc("wrapFlags", func(flags *pflag.FlagSet) string {
		return strings.TrimRight(flags.FlagUsagesWrapped(helpWidth), " \n")
	})
	template := cmd.UsageTemplate()
	for _, flags := range []string{".LocalFlags", ".InheritedFlags"} {
		template = strings.ReplaceAll(template, flags+".FlagUsages | trimTrailingWhitespaces", "wrapFlags "+flags)
	}
	template = strings.Replace(template, "{{if gt (len .Aliases) 0}}", "{{if false}}", 1)
	cmd.SetUsageTemplate(template)
}

// noCommand refuses arguments of a command that only has others below it, and
// suggests those that may be meant.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	meant := ""
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		meant = "; did you mean " + strings.Join(similar, " or ") + "?"
	}
	return UsageErrorf("unknown command %q for %q%s; see %s --help", args[0], cmd.CommandPath(), meant, cmd.CommandPath())
}

// Wrap breaks the lines of a text that are longer than those of help.
func Wrap(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		for len(line) > helpWidth {
			at := strings.LastIndexByte(line[:helpWidth], ' ')
			if at <= 0 {
				break
			}
			out.WriteString(line[:at] + "\n")
			line = line[at+1:]
		}
		out.WriteString(line)
	}
	return out.String()
}
