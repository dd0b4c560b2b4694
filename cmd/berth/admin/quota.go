package admin

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// newQuota returns the command berth admin quota.
func newQuota(conn *cli.Connection) *cobra.Command {
	cmd := cli.Parent("quota", "Manage quotas of organizations, API keys, tags and hardware profiles",
		newQuotaList(conn), newQuotaSet(conn), newQuotaRemove(conn))
	cmd.Long = `A quota limits how many executions of an organization, of one of its API keys, with one
of its tags or on a hardware profile run at once, and how many GPUs those hold. Executions over
it wait, for the reason org_concurrency, key_concurrency, tag_concurrency, profile_concurrency or
quota_gpus. An organization may be denied a hardware profile: its work there is refused. It also
has a weight of fair share: one of 200 gets twice as much as one of 100.`
	return cmd
}

// quotaFlags name the owner of a quota: an organization, a key, a tag or a hardware profile.
type quotaFlags struct {
	org, key, tag, profile string

	asJSON bool
}

func (f *quotaFlags) register(cmd *cobra.Command) *cobra.Command {
	flags := cmd.Flags()
	flags.StringVar(&f.org, "org", "", "`slug` of the organization")
	flags.StringVar(&f.key, "key", "", "apply to this API key (`id`) of the organization")
	flags.StringVar(&f.tag, "tag", "", "apply to this `tag` of the organization")
	flags.StringVar(&f.profile, "profile", "", "apply to this hardware `profile`: gpu.h100.8x, or gpu.h100 for all sizes")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	return cli.NeedFlags(cli.FilledFlags(cmd, "org", "key", "tag", "profile"), "org")
}

// part reports whether the flags name a part of an organization.
func (f *quotaFlags) part() bool { return f.key != "" || f.tag != "" || f.profile != "" }

// check refuses flags that name no owner or two owners, and completes the name of a
// hardware profile.
func (f *quotaFlags) check() error {
	if f.key != "" && f.tag != "" || f.profile != "" && (f.key != "" || f.tag != "") {
		return cli.UsageErrorf("--key, --tag and --profile exclude each other: a quota is of one of them")
	}
	if f.profile != "" {
		p, err := compute.ParseProfile(f.profile)
		if err != nil {
			return cli.UsageErrorf("--profile: %v", err)
		}
		f.profile = p.String()
	}
	if f.key != "" {
		if _, err := compute.ParseKeyID(f.key); err != nil {
			return cli.UsageErrorf("--key: %q is not the id of an API key; "+
				"berth admin quota list shows those with a quota", f.key)
		}
	}
	return nil
}

// find returns the row of the owner that the flags name.
func (f *quotaFlags) find(known wire.OrgQuotas) (wire.Limit, bool) {
	i := slices.IndexFunc(known.Limits, func(l wire.Limit) bool {
		switch {
		case f.key != "":
			return l.KeyID != nil && strings.EqualFold(l.KeyID.String(), f.key)
		case f.tag != "":
			return l.Tag != nil && *l.Tag == f.tag
		case f.profile != "":
			return l.Profile != nil && *l.Profile == f.profile
		}
		return l.KeyID == nil && l.Tag == nil && l.Profile == nil
	})
	if i < 0 {
		return wire.Limit{}, false
	}
	return known.Limits[i], true
}

// name returns a readable name of the owner.
func (f *quotaFlags) name() string {
	switch {
	case f.key != "":
		return "the API key " + f.key
	case f.tag != "":
		return fmt.Sprintf("the tag %q", f.tag)
	case f.profile != "":
		return "the hardware profile " + f.profile
	}
	return "the organization " + f.org
}

func (f *quotaFlags) print(cmd *cobra.Command, known wire.OrgQuotas) error {
	if f.asJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), known)
	}
	return printQuotas(cmd.OutOrStdout(), known)
}

// newQuotaList returns the command berth admin quota list.
func newQuotaList(conn *cli.Connection) *cobra.Command {
	var org string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the quotas and usage of an organization, its keys, tags and hardware profiles",
		Args:  cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			known, err := c.OrgQuotas(cmd.Context(), org)
			if err != nil {
				return err
			}
			return (&quotaFlags{asJSON: asJSON}).print(cmd, known)
		},
	}
	cmd.Flags().StringVar(&org, "org", "", "`slug` of the organization")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cli.NeedFlags(cmd, "org")
}

// newQuotaSet returns the command berth admin quota set.
func newQuotaSet(conn *cli.Connection) *cobra.Command {
	f := &quotaFlags{}
	var concurrent, weight int
	var gpus string
	var deny bool
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Set the quota of an organization, an API key, a tag or a hardware profile",
		Long: `Set changes the limits that its flags name and keeps the others. It takes effect
with the next scheduling decision; running executions continue.

  berth admin quota set --org lab --max-gpus 8 --weight 200
  berth admin quota set --org lab --tag sweep --max-concurrent 4
  berth admin quota set --org lab --profile gpu.h100 --deny`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			named := func(name string) bool { return cmd.Flags().Changed(name) }
			if err := f.checkSet(named); err != nil {
				return err
			}
			milli, err := parseMilliGPU(gpus)
			if err != nil {
				return err
			}
			return f.change(cmd, conn, func(q *wire.NewQuota, _ bool) error {
				if named("max-concurrent") {
					q.MaxConcurrent = concurrent
				}
				if named("max-gpus") {
					q.MaxGPUMilli = milli
				}
				if named("weight") {
					q.Weight = weight
				}
				if named("deny") {
					q.Allowed = nil
				}
				if deny {
					q.Allowed, q.MaxConcurrent, q.MaxGPUMilli = new(false), 0, 0
				}
				return nil
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&concurrent, "max-concurrent", 0,
		"`executions` at once; 0 for any number, of an organization: for the cluster's limit")
	flags.StringVar(&gpus, "max-gpus", "0", "`GPUs` held at once, such as 8 or 2.5; 0 for any number")
	flags.BoolVar(&deny, "deny", false, "refuse work on the hardware profile; --deny=false allows it")
	flags.IntVar(&weight, "weight", 0, "fair-share `weight`, 1 to 10000; 0 for the default of 100")
	return f.register(cmd)
}

// checkSet refuses flags of berth admin quota set that do not go together.
func (f *quotaFlags) checkSet(named func(flag string) bool) error {
	switch {
	case !named("max-concurrent") && !named("max-gpus") && !named("weight") && !named("deny"):
		return cli.UsageErrorf("nothing to set: name --max-concurrent, --max-gpus, --weight or --deny")
	case named("deny") && f.profile == "":
		return cli.UsageErrorf("--deny is of a hardware profile: name --profile")
	case named("weight") && f.part():
		return cli.UsageErrorf("--weight is an organization's: leave --key, --tag and --profile out")
	}
	return nil
}

// newQuotaRemove returns the command berth admin quota remove.
func newQuotaRemove(conn *cli.Connection) *cobra.Command {
	f := &quotaFlags{}
	cmd := &cobra.Command{
		Use:   "remove",
		Short: "Remove a quota, so that the cluster's limits apply again",
		Args:  cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.change(cmd, conn, func(q *wire.NewQuota, exists bool) error {
				if !exists {
					return fmt.Errorf("%s has no quota of its own; berth admin quota list --org %s shows what there is",
						f.name(), f.org)
				}
				q.MaxConcurrent, q.MaxGPUMilli, q.Weight, q.Allowed = 0, 0, 0, nil
				return nil
			})
		},
	}
	return f.register(cmd)
}

// change reads the quota that the flags name, applies edit to it, and prints
// all quotas of the organization. It passes edit whether the quota exists.
func (f *quotaFlags) change(cmd *cobra.Command, conn *cli.Connection, edit func(*wire.NewQuota, bool) error) error {
	if err := f.check(); err != nil {
		return err
	}
	c, err := conn.Client(cmd)
	if err != nil {
		return err
	}
	known, err := f.apply(cmd, c, edit)
	if err != nil {
		return err
	}
	return f.print(cmd, known)
}

func (f *quotaFlags) apply(cmd *cobra.Command, c *client.Client, edit func(*wire.NewQuota, bool) error,
) (wire.OrgQuotas, error) {
	known, err := c.OrgQuotas(cmd.Context(), f.org)
	if err != nil {
		return known, err
	}
	limit, listed := f.find(known)
	quota := wire.NewQuota{}
	if listed {
		quota = ownQuota(limit)
	}
	exists := quota != wire.NewQuota{}
	quota.Org, quota.KeyID, quota.Tag, quota.Profile = f.org, f.key, f.tag, f.profile
	if err := edit(&quota, exists); err != nil {
		return known, err
	}
	return c.SetQuota(cmd.Context(), quota)
}

// ownQuota returns the limits of a row without those that it inherits from the
// cluster's configuration.
func ownQuota(l wire.Limit) wire.NewQuota {
	q := wire.NewQuota{MaxConcurrent: l.MaxConcurrent, MaxGPUMilli: int(l.MaxGPUMilli)}
	if l.Weight != nil {
		q.Weight = *l.Weight
	}
	if slices.Contains(l.Inherited, "max_concurrent") {
		q.MaxConcurrent = 0
	}
	if slices.Contains(l.Inherited, "weight") {
		q.Weight = 0
	}
	if l.Profile != nil && !l.Allowed {
		q.Allowed = new(false)
	}
	return q
}

// parseMilliGPU parses a decimal number of GPUs and returns thousandths.
func parseMilliGPU(text string) (int, error) {
	whole, part, _ := strings.Cut(text, ".")
	empty := whole+part == ""
	part = strings.TrimRight(part, "0")
	milli, err := strconv.ParseUint(whole+part+strings.Repeat("0", max(milliDigits-len(part), 0)), 10, 32)
	if err != nil || empty || len(part) > milliDigits || milli > 1e9 {
		return 0, cli.UsageErrorf("--max-gpus: %q is not a number of GPUs from 0 to 1000000, "+
			"at most thousandths of one", text)
	}
	return int(milli), nil
}

// milliDigits is the number of decimal places of thousandths.
const milliDigits = 3

// printQuotas writes a row for each quota.
func printQuotas(w io.Writer, known wire.OrgQuotas) error {
	t := cli.NewTable("of", "executing", "at most", "gpus held", "at most", "weight")
	for _, l := range known.Limits {
		of := known.Org
		switch {
		case l.KeyID != nil:
			of = "key " + l.KeyID.String()
		case l.Tag != nil:
			of = "tag " + *l.Tag
		case l.Profile != nil:
			of = "hardware " + *l.Profile
		}
		concurrent := atMost(float64(l.MaxConcurrent), slices.Contains(l.Inherited, "max_concurrent"))
		if l.Profile != nil && !l.Allowed {
			concurrent = "denied"
		}
		weight := cli.OrNone(l.Weight)
		if slices.Contains(l.Inherited, "weight") {
			weight += " (default)"
		}
		t.AppendRow(cli.Row(of, l.InUse, concurrent,
			decimal(float64(l.GPUMilliInUse)/compute.WholeGPU), atMost(float64(l.MaxGPUMilli)/compute.WholeGPU, false), weight))
	}
	return cli.PrintTable(w, t)
}

// atMost returns a readable limit.
func atMost(limit float64, inherited bool) string {
	switch {
	case limit == 0:
		return "any"
	case inherited:
		return decimal(limit) + " (default)"
	}
	return decimal(limit)
}

// decimal returns a number without an exponent.
func decimal(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
