package account

import (
	"strings"

	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
	"berth/cmd/berth/contexts"
)

// NewContext returns the command berth context.
func NewContext() *cobra.Command {
	cmd := cli.Parent("context", "Choose the cluster to use", newContextList(), newContextUse(), newContextRemove())
	cmd.Long = `A context is a cluster that berth login or berth dev remembered, and as whom to use it.
Commands use, in this order: --addr with --token-file, BERTH_ADDR with BERTH_TOKEN,
--context or BERTH_CONTEXT, a cluster of berth dev below the working directory, and the
current context. Contexts are in $XDG_CONFIG_HOME/berth/contexts.json (~/.config).`
	return cmd
}

// shownContext is a context without its secrets.
type shownContext struct {
	Name    string   `json:"name"`
	Current bool     `json:"current"`
	Addrs   []string `json:"addrs"`
	Email   string   `json:"email,omitempty"`
	Org     string   `json:"org,omitempty"`
	Kind    string   `json:"kind"` // session, key or dev.
	DevDir  string   `json:"dev_dir,omitempty"`
}

// newContextList returns the command berth context list.
func newContextList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List contexts; * marks the current one", Example: `  berth context list`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := contexts.Load()
			if err != nil {
				return err
			}
			shown := []shownContext{}
			for _, name := range cli.ContextNames() {
				shown = append(shown, show(name, file))
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), shown)
			}
			t := cli.NewTable("", "name", "kind", "as", "org", "address")
			for _, s := range shown {
				mark := " "
				if s.Current {
					mark = "*"
				}
				at := strings.Join(s.Addrs, ",")
				if s.Kind == "dev" {
					at = s.DevDir
				}
				t.AppendRow(cli.Row(mark, s.Name, s.Kind, orDash(s.Email), orDash(s.Org), at))
			}
			return cli.PrintTable(cmd.OutOrStdout(), t)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func show(name string, file contexts.File) shownContext {
	c := file.Contexts[name]
	s := shownContext{
		Name: name, Current: name == file.Current, Addrs: append([]string{}, c.Addrs...), Email: c.Email, Org: c.Org,
		DevDir: c.DevDir, Kind: "session",
	}
	switch {
	case c.DevDir != "":
		s.Kind = "dev"
	case c.Key != "":
		s.Kind = "key"
	}
	return s
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// completeContext completes the name of a context.
func completeContext(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return cli.ContextNames(), cobra.ShellCompDirectiveNoFileComp
}

// newContextUse returns the command berth context use.
func newContextUse() *cobra.Command {
	return cli.Reporting(&cobra.Command{
		Use: "use NAME", Short: "Make a context the current one", Example: `  berth context use lab`,
		Args: cli.Arguments(cobra.ExactArgs(1)), ValidArgsFunction: completeContext,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := contexts.Update(func(f *contexts.File) error {
				if _, ok := f.Contexts[args[0]]; !ok {
					return cli.UsageErrorf("no context %q: see berth context list", args[0])
				}
				f.Current = args[0]
				return nil
			})
			if err != nil {
				return err
			}
			cli.Report(cmd, cli.Done{Name: args[0], Done: "current"}, "the context %s is current", args[0])
			return nil
		},
	})
}

// newContextRemove returns the command berth context rm.
func newContextRemove() *cobra.Command {
	return cli.Reporting(&cobra.Command{
		Use: "rm NAME...", Short: "End the sessions of contexts and forget them", Example: `  berth context rm lab`,
		Args: cli.Arguments(cobra.MinimumNArgs(1)), ValidArgsFunction: completeContext,
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.Each(cmd, args, func(name string) error { return remove(cmd, name) })
		},
	})
}
