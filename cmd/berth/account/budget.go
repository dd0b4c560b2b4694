package account

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// newBudget returns the command berth billing budget.
func newBudget(conn *cli.Connection) *cobra.Command {
	cmd := cli.Parent("budget", "Limit what the organization, its members and its API keys spend",
		newBudgetList(conn), newBudgetSet(conn), newBudgetRemove(conn))
	cmd.Long = `A budget counts the credits that the organization, one of its members or one of its API
keys is charged, from when it was set, or in each month. Its callback URL is notified at
50, 80 and 100 percent; once, with the highest, when a charge passes several of them. With
--enforce it is a ceiling: work that may exceed it is refused, and long work is stopped
before it does. Owners set budgets of the organization and of members, admins those of
keys.`
	return cmd
}

// spender is whose budget a command is about.
type spender struct{ key, member string }

// register adds the flags that name a spender.
func (s *spender) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.key, "key", "", "API `key`: its identifier or name")
	cmd.Flags().StringVar(&s.member, "member", "", "member: the `email` address")
	cmd.MarkFlagsMutuallyExclusive("key", "member")
	cli.FilledFlags(cmd, "key", "member")
}

// find returns the organization's slug and the identifiers that the flags name.
func (s *spender) find(cmd *cobra.Command, c *client.Client) (slug, keyID, userID string, err error) {
	if s.key != "" {
		keys, slug, err := keysOf(cmd, c)
		if err != nil {
			return "", "", "", err
		}
		k, err := find(keys, s.key)
		if gone, e := compute.ParseKeyID(s.key); err != nil && e == nil { // Its budget outlives a key.
			return slug, gone.String(), "", nil
		}
		return slug, k.ID.String(), "", err
	}
	if slug, err = slugOf(cmd, c); err != nil || s.member == "" {
		return slug, "", "", err
	}
	members, err := c.Members(cmd.Context(), slug)
	if err != nil {
		return "", "", "", err
	}
	for _, m := range members {
		if strings.EqualFold(m.Email, s.member) || m.UserID.String() == s.member {
			return slug, "", m.UserID.String(), nil
		}
	}
	if gone, err := compute.ParseUserID(s.member); err == nil { // Its budget outlives a membership.
		return slug, "", gone.String(), nil
	}
	return "", "", "", fmt.Errorf("%s is not a member of %s", s.member, slug)
}

// newBudgetList returns the command berth billing budget list.
func newBudgetList(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List budgets with what is spent",
		Example: `  berth billing budget list`,
		Args:    cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			keys, slug, err := keysOf(cmd, c)
			if err != nil {
				return err
			}
			all, err := c.Budgets(cmd.Context(), slug)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), all)
			}
			members, err := c.Members(cmd.Context(), slug)
			if err != nil {
				return err
			}
			t := cli.NewTable("of", "id", "max credits", "per", "charged", "held", "ceiling", "level")
			for i := range all {
				b := &all[i]
				ceiling := "no"
				if b.Enforce {
					ceiling = "yes"
				}
				level := fmt.Sprintf("%d %%", b.Level)
				name, id := payerOf(b, keys, members)
				t.AppendRow(cli.Row(name, id, b.MaxCredits, b.Period, b.Charged, b.Held, ceiling, level))
			}
			return cli.PrintTable(cmd.OutOrStdout(), t)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// payerOf returns whose a budget is, by name where there is one, and the identifier.
func payerOf(b *wire.Budget, keys []key, members []wire.Member) (name, id string) {
	switch {
	case b.KeyID != nil:
		for _, k := range keys {
			if k.ID == *b.KeyID {
				return "key " + k.Name, b.KeyID.String()
			}
		}
		return "key", b.KeyID.String()
	case b.UserID != nil:
		for _, m := range members {
			if m.UserID == *b.UserID {
				return "member " + m.Email, b.UserID.String()
			}
		}
		return "member", b.UserID.String()
	}
	return "organization", "-"
}

// budgetName says whose a budget is.
func budgetName(b *wire.Budget) string {
	switch {
	case b.KeyID != nil:
		return "key " + b.KeyID.String()
	case b.UserID != nil:
		return "member " + b.UserID.String()
	}
	return "organization"
}

// newBudgetSet returns the command berth billing budget set.
func newBudgetSet(conn *cli.Connection) *cobra.Command {
	var of spender
	var b wire.NewBudget
	var monthly, asJSON bool
	cmd := &cobra.Command{
		Use: "set CREDITS", Short: "Set a budget, or change it",
		Long: `Set makes a budget, or changes the amount of one and what flags name; the rest stays.
--enforce=false, --monthly=false and --callback= take away what it had.`,
		Example: `  berth billing budget set 500 --monthly --callback https://example.com/budget
  berth billing budget set 20 --member bea@example.com --enforce
  berth billing budget set 5 --key ci --enforce`,
		Args: cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			amount, err := cli.Amount("", args[0])
			if err != nil {
				return err
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			b.MaxCredits = amount
			slug, keyID, userID, err := of.find(cmd, c)
			if err != nil {
				return err
			}
			b.KeyID, b.UserID, b.Period = keyID, userID, wire.BudgetPeriod(monthly)
			if err := keepRest(cmd, c, slug, &b); err != nil {
				return err
			}
			set, err := c.SetBudget(cmd.Context(), slug, b)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), set)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s of %s credits are charged\n",
				cli.Plain(budgetName(&set)), set.Charged, set.MaxCredits)
			return err
		},
	}
	of.register(cmd)
	cmd.Flags().BoolVar(&monthly, "monthly", false, "reset each month, UTC")
	cmd.Flags().BoolVar(&b.Enforce, "enforce", false, "make it a ceiling that is never exceeded")
	cmd.Flags().StringVar(&b.CallbackURL, "callback", "", "https `URL` that is notified at 50, 80 and 100 percent")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// keepRest completes a budget with what no flag names of the one that it replaces, so that
// a ceiling that is raised stays a ceiling.
func keepRest(cmd *cobra.Command, c *client.Client, slug string, b *wire.NewBudget) error {
	all, err := c.Budgets(cmd.Context(), slug)
	if err != nil {
		return err
	}
	for i := range all {
		known := &all[i]
		if _, id := payerOf(known, nil, nil); id != cmp.Or(b.KeyID+b.UserID, "-") {
			continue
		}
		flags := cmd.Flags()
		if !flags.Changed("monthly") {
			b.Period = known.Period
		}
		if !flags.Changed("enforce") {
			b.Enforce = known.Enforce
		}
		if !flags.Changed("callback") && known.CallbackURL != nil {
			b.CallbackURL = *known.CallbackURL
		}
	}
	return nil
}

// newBudgetRemove returns the command berth billing budget remove.
func newBudgetRemove(conn *cli.Connection) *cobra.Command {
	var of spender
	cmd := &cobra.Command{
		Use: "remove", Short: "Remove a budget",
		Example: `  berth billing budget remove --key ci`,
		Args:    cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			slug, keyID, userID, err := of.find(cmd, c)
			if err != nil {
				return err
			}
			id := keyID + userID
			if id == "" {
				id = "organization"
			}
			if err := c.RemoveBudget(cmd.Context(), slug, id); err != nil {
				return err
			}
			cli.Report(cmd, cli.Done{Name: id, Done: "removed"}, "the budget is removed")
			return nil
		},
	}
	of.register(cmd)
	return cli.Reporting(cmd)
}

// newBuy returns the command berth billing buy.
func newBuy(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "buy CREDITS", Short: "Buy credits through the operator's payment provider",
		Long: `Buy starts a purchase and prints the URL of the payment provider's page. The credits are
there once the provider has confirmed the payment.`,
		Example: `  berth billing buy 100`,
		Args:    cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			amount, err := cli.Amount("", args[0])
			if err != nil {
				return err
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			session, err := c.Checkout(cmd.Context(), amount)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), session)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), session.URL)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
