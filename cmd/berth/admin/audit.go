package admin

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/cmd/berth/cli"
)

// newAudit returns the command berth admin audit.
func newAudit(conn *cli.Connection) *cobra.Command {
	var org string
	var limit int
	var verify, asJSON bool
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show who changed what",
		Long: `Audit shows who changed what in the cluster, or in an organization, from where and when,
newest first. Each line contains the hash of the line before; --verify recomputes the
chain. Each trail keeps its newest 10,000 lines of administrators and 5,000
that any member can cause.`,
		Example: `  berth admin audit
  berth admin audit --org lab -n 200
  berth admin audit --org lab --verify`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return cli.UsageErrorf("-n: must be at least 1")
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			if verify {
				return verifyAudit(cmd, c, org, asJSON)
			}
			return printAudit(cmd, c, org, limit, asJSON)
		},
	}
	cmd.Flags().StringVar(&org, "org", "", "`slug` of an organization (default: the cluster's own trail)")
	cmd.Flags().IntVarP(&limit, "limit", "n", 50, "show at most this many")
	cmd.Flags().BoolVar(&verify, "verify", false, "verify the hash chain")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// auditPage is the most lines of one request.
const auditPage = 1000

// printAudit prints the newest lines of a trail.
func printAudit(cmd *cobra.Command, c *client.Client, org string, limit int, asJSON bool) error {
	all, err := c.AdminAudit(cmd.Context(), org, 0, min(limit, auditPage))
	for err == nil && len(all) > 0 && len(all) < limit && all[len(all)-1].Seq > 1 {
		more, failed := c.AdminAudit(cmd.Context(), org, all[len(all)-1].Seq, min(limit-len(all), auditPage))
		if err = failed; len(more) == 0 {
			break
		}
		all = append(all, more...)
	}
	if err != nil {
		return err
	}
	if asJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), all)
	}
	t := cli.NewTable("at", "who", "action", "target", "detail", "from")
	for i := range all {
		l := &all[i]
		at := l.At.Time().Format("2006-01-02 15:04:05")
		t.AppendRow(cli.Row(at, l.Actor, l.Action, cli.OrNone(l.Target), cli.OrNone(l.Detail), cli.OrNone(l.IP)))
	}
	return cli.PrintTable(cmd.OutOrStdout(), t)
}

// verifyAudit verifies the chain of a trail, and fails if it is broken.
func verifyAudit(cmd *cobra.Command, c *client.Client, org string, asJSON bool) error {
	check, err := c.VerifyAudit(cmd.Context(), org)
	if err != nil {
		return err
	}
	if asJSON {
		if err := cli.PrintJSON(cmd.OutOrStdout(), check); err != nil || check.Valid {
			return err
		}
	}
	if !check.Valid {
		return errors.New(check.Detail)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "valid: %d lines, of which %d are trimmed\n", check.Lines, check.Trimmed)
	return err
}
