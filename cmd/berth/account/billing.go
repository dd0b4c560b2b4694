package account

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// NewBilling returns the command berth billing.
func NewBilling() *cobra.Command {
	conn := &cli.Connection{}
	cmd := cli.Parent("billing", "Show who used what, set budgets, buy credits",
		newUsage(conn), newActivities(conn), newInvoices(conn), newBudget(conn), newBuy(conn))
	conn.Register(cmd)
	return cmd
}

// newUsage returns the command berth billing usage.
func newUsage(conn *cli.Connection) *cobra.Command {
	var by, from, to string
	var asJSON, asCSV bool
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show who used how much",
		Long: `Usage sums up the organization's executions that were submitted in some time, this month
unless --from and --to say otherwise, by user, key, tag, profile, day or model. An
execution with several tags counts in the row of each; the total has it once. Tokens of
published models count when they are charged.`,
		Example: `  berth billing usage
  berth billing usage --by tag --from 2026-10-01 --to 2026-11-01
  berth billing usage --by model
  berth billing usage --by day --csv > november.csv`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := client.UsageQuery{GroupBy: by}
			for _, t := range []struct {
				flag, text string
				at         *compute.Instant
			}{{"from", from, &query.From}, {"to", to, &query.To}} {
				var err error
				if *t.at, err = parseDay(t.text); err != nil {
					return cli.UsageErrorf("--%s: %v", t.flag, err)
				}
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			if asCSV {
				table, err := c.UsageCSV(cmd.Context(), query)
				if err != nil {
					return err
				}
				if cli.IsTerminal(cmd.OutOrStdout()) {
					table = []byte(cli.Plain(string(table)))
				}
				_, err = cmd.OutOrStdout().Write(table)
				return err
			}
			return printUsage(cmd, c, query, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&by, "by", "user", "group rows by user, key, tag, profile, day or model")
	flags.StringVar(&from, "from", "", "count what was submitted since this `day` (2026-11-01, UTC) or time (RFC 3339)")
	flags.StringVar(&to, "to", "", "count what was submitted before this `day` or time")
	flags.BoolVar(&asCSV, "csv", false, "print comma-separated values")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.MarkFlagsMutuallyExclusive("csv", "json")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(
		[]string{"user", "key", "tag", "profile", "day", "model"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// parseDay returns a day or a time that a user gave, zero for none.
func parseDay(text string) (compute.Instant, error) {
	if text == "" {
		return 0, nil
	}
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		t, err = time.Parse(time.RFC3339, text)
	}
	if err != nil {
		return 0, fmt.Errorf("%q is not a day such as 2026-11-01 or a time in RFC 3339", text)
	}
	return compute.InstantOf(t), nil
}

// hours returns a time in hours with two decimals, or if they would be zeros and it is not with
// its first two digits.
func hours(seconds float64) string {
	const most = 12 // A thousandth of a GPU for a millisecond has its first digit before.
	h, decimals := seconds/3600, 2
	if h > 0 && h < 0.01 {
		for decimals = 3; h*math.Pow10(decimals) < 10 && decimals < most; decimals++ {
		}
	}
	return strconv.FormatFloat(h, 'f', decimals, 64)
}

// printUsage prints the use as a table, or as JSON.
func printUsage(cmd *cobra.Command, c *client.Client, query client.UsageQuery, asJSON bool) error {
	report, err := c.Usage(cmd.Context(), query)
	if err != nil {
		return err
	}
	if asJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), report)
	}
	t := cli.NewTable(report.GroupBy, "executions", "hours", "GPU hours", "prompt tokens", "completion tokens", "credits")
	names := make(map[string]int, len(report.Rows))
	for _, row := range report.Rows {
		names[row.Group]++
	}
	report.Total.Group = "(total)"
	for _, row := range append(report.Rows, report.Total) {
		name := cmp.Or(row.Group, "-") // Submitted without a key, tag or model.

		if row.ID != nil && names[name] > 1 { // Keys of different people may have the same name.
			name += " " + *row.ID
		}
		t.AppendRow(cli.Row(name, row.Executions, hours(row.Seconds), hours(row.GPUSeconds), row.PromptTokens,
			row.CompletionTokens, row.Credits))
	}
	return cli.PrintTable(cmd.OutOrStdout(), t)
}

// newActivities returns the command berth billing activities.
func newActivities(conn *cli.Connection) *cobra.Command {
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "activities", Short: "List grants and charges, newest first",
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > 1000 {
				return cli.UsageErrorf("-n: must be 1 to 1000")
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			page, err := c.Activities(cmd.Context(), 0, limit)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), page.Activities)
			}
			t := cli.NewTable("at", "type", "amount", "profile", "description")
			for _, a := range page.Activities {
				at := a.CreatedAt.Time().Format("2006-01-02 15:04:05")
				t.AppendRow(cli.Row(at, a.Type, a.Amount, cli.OrNone(a.Profile), a.Description))
			}
			return cli.PrintTable(cmd.OutOrStdout(), t)
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 50, "list at most this many")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// newInvoices returns the command berth billing invoices.
func newInvoices(conn *cli.Connection) *cobra.Command {
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "invoices [MONTH]",
		Short: "List monthly statements, or save one as PDF",
		Long: `Invoices lists a statement for each month in which the organization's ledger has lines.
With a month and -o it saves that statement as PDF.`,
		Example: `  berth billing invoices
  berth billing invoices 2026-10 -o october.pdf`,
		Args: cli.Arguments(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) > 0) != (file != "") {
				return cli.UsageErrorf("to save a statement give its month and -o FILE")
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			if file != "" {
				return savePDF(cmd, c, args[0], file)
			}
			list, err := c.Invoices(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), list.Invoices)
			}
			t := cli.NewTable("month", "status", "opening", "granted", "charged", "closing")
			for _, m := range list.Invoices {
				t.AppendRow(cli.Row(m.Month, m.Status, m.Opening, m.Granted, m.Credits, m.Closing))
			}
			return cli.PrintTable(cmd.OutOrStdout(), t)
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "`file` for the PDF")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// savePDF saves the statement of a month. It never replaces a file.
func savePDF(cmd *cobra.Command, c *client.Client, month, name string) error {
	list, err := c.Invoices(cmd.Context())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list.Invoices, func(m wire.Invoice) bool { return m.Month == month || m.ID == month })
	if i < 0 {
		return fmt.Errorf("there is no statement of %q: berth billing invoices lists those that exist", month)
	}
	text, err := c.InvoicePDF(cmd.Context(), list.Invoices[i].ID)
	if err != nil {
		return fmt.Errorf("statement of %s: %w", month, err)
	}
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("save statement: %w", err)
	}
	_, err = out.Write(text)
	if e := out.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("save statement: %w", err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "berth: the statement of %s is in %s\n", month, name)
	return nil
}
