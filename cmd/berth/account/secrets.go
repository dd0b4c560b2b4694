package account

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// NewSecrets returns the command berth secret.
func NewSecrets() *cobra.Command {
	conn := &cli.Connection{}
	cmd := cli.Parent("secret", "Manage secrets and variables of your executions",
		newSecretSet(conn), newSecretList(conn), newSecretRemove(conn))
	cmd.Long = `Secrets are environment variables that Berth keeps for you in one organization: each of
your executions has them. The value of a secret is never shown again, and masked where
output has it. Variables that a start sets itself with --env come first.`
	conn.Register(cmd)
	return cmd
}

// newSecretSet returns the command berth secret set.
func newSecretSet(conn *cli.Connection) *cobra.Command {
	var file string
	var plain bool
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Keep a secret; its value is asked for, or read from standard input",
		Long: `Set keeps a secret, or replaces it. It asks for the value on a terminal without showing it,
and reads it from standard input or a file otherwise; never from the command line, which
others on the machine can see. A line feed at its end does not count.`,
		Example: `  berth secret set HF_TOKEN
  berth secret set HF_TOKEN < token.txt
  berth secret set SSH_KEY --from id_ed25519
  echo debug | berth secret set LOG_LEVEL --plain`,
		Args: cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			value, err := readValue(cmd, file)
			if err != nil {
				return err
			}
			if value == "" && !plain {
				return cli.UsageErrorf("the secret is empty: pipe its value in, or give --from FILE")
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			if err := c.SetVariable(cmd.Context(), args[0], value, !plain); err != nil {
				return err
			}
			cli.Report(cmd, cli.Done{Name: args[0], Done: "kept"},
				"%s is kept: your executions that start from now on have it", args[0])
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "from", "", "`file` to read the value from")
	cmd.Flags().BoolVar(&plain, "plain", false, "keep it as a variable that is no secret: its value is shown")
	return cli.Reporting(cmd)
}

// readValue returns the value of a secret.
func readValue(cmd *cobra.Command, file string) (string, error) {
	var value string
	var err error
	switch {
	case file != "":
		value, err = cli.ReadFile(file, compute.MaxVariableValue+1)
	case cli.CanAsk(): // A read would wait without a word, and the terminal show what is typed.
		value, err = cli.Secret{Prompt: "Value", Flag: "from"}.Read(cmd)
	default:
		value, err = cli.ReadLimited(cmd.InOrStdin(), "standard input", compute.MaxVariableValue+1)
	}
	return strings.TrimSuffix(strings.TrimSuffix(value, "\n"), "\r"), err
}

// newSecretList returns the command berth secret ls.
func newSecretList(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List secrets and variables", Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			kept, err := c.Variables(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), kept)
			}
			list := cli.NewTable("NAME", "VALUE", "UPDATED")
			for _, v := range kept {
				list.AppendRow(cli.Row(v.Name, v.Value, v.UpdatedAt.Time().Local().Format("2006-01-02 15:04")))
			}
			return cli.PrintTable(cmd.OutOrStdout(), list)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// newSecretRemove returns the command berth secret rm.
func newSecretRemove(conn *cli.Connection) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "rm NAME... | --all", Short: "Delete secrets and variables",
		Args: cli.Arguments(func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return cli.UsageErrorf("name what to delete, or give --all")
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			if all {
				n, err := c.RemoveVariables(cmd.Context())
				if err == nil {
					cli.Report(cmd, cli.Done{Name: "all", Done: "deleted"}, "%d deleted", n)
				}
				return err
			}
			return cli.Each(cmd, args, func(name string) error { return removeSecret(cmd, c, name) })
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "delete all of them")
	return cli.Reporting(cmd)
}

// removeSecret deletes a secret by its name.
func removeSecret(cmd *cobra.Command, c *client.Client, name string) error {
	kept, err := c.Variables(cmd.Context())
	if err != nil {
		return err
	}
	for _, v := range kept {
		if v.Name == name {
			err := c.RemoveVariable(cmd.Context(), v.ID)
			if err == nil {
				cli.Report(cmd, cli.Done{Name: name, Done: "deleted"}, "%s is deleted", name)
			}
			return err
		}
	}
	return fmt.Errorf("there is no secret %q", name)
}
