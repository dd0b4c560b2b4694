package admin

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// newModel returns the command berth admin model.
func newModel(conn *cli.Connection) *cobra.Command {
	cmd := cli.Parent("model", "Manage the models that every organization may use",
		newModelList(conn), newModelSet(conn), newModelRemove(conn))
	cmd.Long = `A model that is published answers every organization under its id, which pays for
tokens by the prices of the model. A deployment answers for it, for which its
own organization pays by the second.`
	return cmd
}

func newModelList(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the published models",
		Args:  cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			list, err := c.Models(cmd.Context())
			if err != nil || asJSON {
				return printOr(cmd, list, err)
			}
			t := cli.NewTable("id", "model", "status", "prompt/M", "completion/M", "deployment")
			for _, m := range list.Models {
				t.AppendRow(cli.Row(m.ID, m.Root, m.Status, m.Prompt, m.Completion, m.Deployment))
			}
			return cli.PrintTable(cmd.OutOrStdout(), t)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newModelSet(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	var prompt, completion string
	cmd := &cobra.Command{
		Use:   "set ID DEPLOYMENT",
		Short: "Publish a deployment as a model, or change its prices",
		Long: `Set publishes a deployment under an id for every organization. Prices are in credits
for a million tokens. A request is charged at the prices at which it was accepted.`,
		Args: cli.Arguments(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := wire.NewModel{Deployment: args[1]}
			for _, price := range []struct {
				name, text string
				to         *compute.Credits
			}{{"prompt", prompt, &body.Prompt}, {"completion", completion, &body.Completion}} {
				credits, err := compute.ParseCredits(price.text)
				if errors.Is(err, compute.ErrManyCredits) || credits > compute.MaxTokenPrice {
					err = fmt.Errorf("a price is at most %s credits for a million tokens", compute.MaxTokenPrice)
				}
				if err != nil {
					return cli.UsageErrorf("--%s: %q: %w", price.name, price.text, err)
				}
				*price.to = credits
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			m, err := c.SetModel(cmd.Context(), args[0], body)
			if err != nil || asJSON {
				return printOr(cmd, m, err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"%s answers every organization, for %s and %s credits per million prompt and completion tokens.\n",
				m.ID, m.Prompt, m.Completion)
			return err
		},
	}
	cmd.Flags().StringVar(&prompt, "prompt", "0", "`credits` for a million prompt tokens")
	cmd.Flags().StringVar(&completion, "completion", "0", "`credits` for a million completion tokens")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newModelRemove(conn *cli.Connection) *cobra.Command {
	return newWithdraw(conn, "rm ID", "Withdraw a model. Its deployment stays", (*client.Client).RemoveModel)
}
