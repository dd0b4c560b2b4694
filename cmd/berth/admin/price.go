package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// newPrice returns the command berth admin price.
func newPrice(conn *cli.Connection) *cobra.Command {
	cmd := cli.Parent("price", "Manage the prices of GPU types and vCPUs",
		newPriceList(conn), newPriceSet(conn), newPriceRemove(conn))
	cmd.Long = `Every GPU type has a price per hour of a whole GPU: one that an operator set, a built-in
one, or a default that rises with the memory of the type. Counts, shares and MIG slices
cost in proportion. A change counts for what is submitted afterwards.`
	return cmd
}

func newPriceList(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List prices and where they come from",
		Args:  cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			list, err := c.Prices(cmd.Context())
			if err != nil || asJSON {
				return printOr(cmd, list, err)
			}
			t := cli.NewTable("resource", "credits/hour", "micro-credits/s", "source", "cost/hour")
			for _, p := range list.Prices {
				t.AppendRow(cli.Row(p.Resource, p.PerHour, int64(p.MicroCredits), p.Source, cli.OrNone(p.Cost)))
			}
			return cli.PrintTable(cmd.OutOrStdout(), t)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newPriceSet(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	var costs string
	cmd := &cobra.Command{
		Use:   "set RESOURCE CREDITS",
		Short: "Set the price of a GPU type or of cpu, in credits per hour",
		Long: `Set sets the price of an hour of a whole GPU of a type, or of a vCPU with cpu. It is
rounded to whole micro-credits per second. Executions submitted before keep their price.
With --cost, provider_billed of executions says what they cost you.

  berth admin price set rtx_4090 0.5
  berth admin price set cpu 0.054`,
		Args: cli.Arguments(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			price, err := compute.ParsePrice(args[1])
			if err != nil {
				return cli.UsageErrorf("%q: %w", args[1], err)
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			var cost compute.Credits
			if costs != "" {
				if cost, err = compute.ParseCredits(costs); err == nil {
					_, err = compute.PriceOf(cost)
				}
				if errors.Is(err, compute.ErrManyCredits) {
					err = compute.ErrPrice
				}
				if err != nil {
					return cli.UsageErrorf("--cost: %q: %w", costs, err)
				}
			}
			listed, err := c.SetPrice(cmd.Context(), args[0], price, cost)
			if err != nil || asJSON {
				return printOr(cmd, listed, err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s costs %s credits per hour from now on.\n",
				listed.Resource, listed.PerHour)
			return err
		},
	}
	cmd.Flags().StringVar(&costs, "cost", "", "`credits` per hour that it costs you (default: what was said before)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newPriceRemove(conn *cli.Connection) *cobra.Command {
	return newWithdraw(conn, "rm RESOURCE", "Withdraw a price, so that the built-in or default one counts again",
		(*client.Client).RemovePrice)
}

// newWithdraw returns a command that withdraws what its argument names, and prints the
// answer.
func newWithdraw(
	conn *cli.Connection, use, short string, do func(*client.Client, context.Context, string) (wire.Message, error),
) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			answer, err := do(c, cmd.Context(), args[0])
			if err != nil || asJSON {
				return printOr(cmd, answer, err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), answer.Message)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printOr prints an answer as JSON unless there is an error.
func printOr(cmd *cobra.Command, answer any, err error) error {
	if err != nil {
		return err
	}
	return cli.PrintJSON(cmd.OutOrStdout(), answer)
}
