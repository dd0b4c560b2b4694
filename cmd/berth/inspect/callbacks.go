package inspect

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
)

// NewCallbacks returns the command berth callbacks.
func NewCallbacks() *cobra.Command {
	conn := &cli.Connection{}
	var asJSON, again bool
	cmd := &cobra.Command{
		Use:   "callbacks ID",
		Short: "Show what became of the callbacks of an execution",
		Long: `Callbacks lists the URLs that are notified when an execution ends (berth run --callback),
and what became of each. Receivers that do not acknowledge are tried for 24 hours.`,
		Args: cli.Arguments(cobra.ExactArgs(1)), ValidArgsFunction: CompleteExecutions(conn, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id, err := clientAndExecution(cmd, conn, args[0])
			if err != nil {
				return err
			}
			if again {
				done, err := c.Redeliver(cmd.Context(), id, "")
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "berth: callbacks sent again: %d\n", done.Count)
			}
			list, err := c.Callbacks(cmd.Context(), id)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), list)
			}
			t := cli.NewTable("webhook id", "status", "tries", "code", "url", "error")
			for _, c := range list {
				code := ""
				if c.StatusCode != nil {
					code = fmt.Sprint(*c.StatusCode)
				}
				t.AppendRow(cli.Row(c.WebhookID, c.Status, c.Tries, code, c.URL, *cmp.Or(c.Error, new(string))))
			}
			return cli.PrintTable(cmd.OutOrStdout(), t)
		},
	}
	conn.Register(cmd)
	cmd.Flags().BoolVar(&again, "redeliver", false, "send all of them again")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
