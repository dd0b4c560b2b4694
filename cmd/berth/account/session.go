package account

import (
	"fmt"

	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
	"berth/cmd/berth/contexts"
)

// NewLogout returns the command berth logout.
func NewLogout() *cobra.Command {
	conn := &cli.Connection{}
	cmd := &cobra.Command{
		Use:   "logout",
		Short: "End the session and forget the context",
		Long: `Logout ends the session of the current context, or of --context, on the cluster and
removes the context. An API key stays good: berth keys revoke deletes it.`,
		Example: `  berth logout
  berth logout --context lab`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := contexts.Load()
			if err != nil {
				return err
			}
			name := conn.ContextName()
			if name == "" {
				name = file.Current
			}
			if name == "" {
				return cli.UsageErrorf("no context is current: see berth context list")
			}
			return remove(cmd, name)
		},
	}
	conn.RegisterContext(cmd)
	return cli.Reporting(cmd)
}

// remove ends the session of a context and removes the context. A cluster that
// cannot be reached does not keep it.
func remove(cmd *cobra.Command, name string) error {
	file, err := contexts.Load()
	if err != nil {
		return err
	}
	saved, ok := file.Contexts[name]
	if !ok {
		return cli.UsageErrorf("no context %q: see berth context list", name)
	}
	if saved.RefreshToken != "" {
		t := cli.Target{Addrs: saved.Addrs}
		t.SetCACert(saved.CACert)
		c, err := t.Client(cmd.Context())
		if err == nil {
			err = c.Logout(cmd.Context(), saved.RefreshToken)
		}
		if err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "berth: the session may go on until it expires: %v\n", err)
		}
	}
	err = contexts.Update(func(f *contexts.File) error {
		delete(f.Contexts, name)
		return nil
	})
	if err != nil {
		return err
	}
	cli.Report(cmd, cli.Done{Name: name, Done: "removed"}, "the context %s is removed", name)
	return nil
}

// NewWhoami returns the command berth whoami.
func NewWhoami() *cobra.Command {
	conn := &cli.Connection{}
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "whoami",
		Short:   "Show who you are on which cluster",
		Example: `  berth whoami --json`,
		Args:    cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := conn.Target(cmd)
			if err != nil {
				return err
			}
			if t.Token == "" {
				return cli.UsageErrorf("not signed in: see berth login --help")
			}
			c, err := t.Client(cmd.Context())
			if err != nil {
				return err
			}
			who := signedIn{Context: t.Name, Addrs: t.Addrs}
			if err := identify(cmd.Context(), c, &t, &who); err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), who)
			}
			at := t.Addrs[0]
			if who.Context != "" {
				at += " (context " + who.Context + ")"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s, at %s\n", who.describe(), at)
			return err
		},
	}
	conn.Register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// NewPassword returns the command berth password.
func NewPassword() *cobra.Command {
	conn := &cli.Connection{}
	var oldFile, newFile string
	cmd := &cobra.Command{
		Use:   "password",
		Short: "Change your password",
		Long: `Password replaces your password. All your other sessions end; this one and your API keys
stay. It asks for the passwords on the terminal, or reads them from files.`,
		Example: `  berth password
  berth password --old-file old.txt --new-file new.txt`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			old, err := cli.Secret{Prompt: "Old password", File: oldFile, Flag: "old-file"}.Read(cmd)
			if err != nil {
				return err
			}
			fresh, err := cli.Secret{Prompt: "New password", File: newFile, Flag: "new-file", Twice: true}.Read(cmd)
			if err != nil {
				return err
			}
			if err := c.ChangePassword(cmd.Context(), old, fresh); err != nil {
				return err
			}
			cli.Report(cmd, cli.Done{Name: "password", Done: "changed"},
				"the password is changed; your other sessions have ended")
			return nil
		},
	}
	conn.Register(cmd)
	cmd.Flags().StringVar(&oldFile, "old-file", "", "`file` with the old password (default: ask)")
	cmd.Flags().StringVar(&newFile, "new-file", "", "`file` with the new password (default: ask)")
	return cli.Reporting(cmd)
}
