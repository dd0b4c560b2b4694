package account

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// NewKeys returns the command berth keys.
func NewKeys() *cobra.Command {
	conn := &cli.Connection{}
	cmd := cli.Parent("keys", "Manage API keys",
		newKeyCreate(conn), newKeyList(conn), newKeyRevoke(conn),
		newKeyToggle(conn, "disable", "Refuse API keys until they are enabled again", false),
		newKeyToggle(conn, "enable", "Accept disabled API keys again", true))
	cmd.Long = `An API key is a credential for programs. It acts as you in one organization, until it
expires, is revoked, or you leave. Keys with --shared belong to the organization: its
admins see and revoke them. A key is named by its identifier, the end of that, or its
name, where that is unique.`
	conn.Register(cmd)
	return cmd
}

// key is a key of either kind.
type key struct {
	wire.UserKey

	Shared bool `json:"shared"`
}

// slugOf returns the slug of the organization that the caller acts in.
func slugOf(cmd *cobra.Command, c *client.Client) (string, error) {
	status, err := c.UserStatus(cmd.Context())
	if err != nil {
		return "", err
	}
	orgs, err := c.Orgs(cmd.Context())
	if err != nil {
		return "", err
	}
	for _, o := range orgs {
		if o.ID == status.OrgID {
			return o.Slug, nil
		}
	}
	return "", errors.New("you are a member of no organization")
}

// keysOf returns the caller's own keys and those of the organization.
func keysOf(cmd *cobra.Command, c *client.Client) (all []key, slug string, err error) {
	own, err := c.UserKeys(cmd.Context())
	if err != nil {
		return nil, "", err
	}
	for _, k := range own {
		all = append(all, key{UserKey: k})
	}
	if slug, err = slugOf(cmd, c); err != nil {
		return nil, "", err
	}
	shared, err := c.Keys(cmd.Context(), slug)
	for _, k := range shared {
		all = append(all, key{Shared: true, UserKey: wire.UserKey{
			ID: k.ID, Name: k.Name, Prefix: k.Prefix, IsActive: k.IsActive, CreatedAt: k.CreatedAt,
			ExpiresAt: k.ExpiresAt, LastUsedAt: k.LastUsedAt, Scopes: k.Scopes, MaxCredits: k.MaxCredits,
		}})
	}
	return all, slug, err
}

// newKeyCreate returns the command berth keys create.
func newKeyCreate(conn *cli.Connection) *cobra.Command {
	var expires, out, ceiling string
	var scopeNames []string
	var shared, asJSON bool
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an API key",
		Long: `Create makes an API key and prints it, this once. With --out it is written to a file.
A key with --scope does only what its scopes are for; without, it does what you may.`,
		Example: `  berth keys create laptop
  berth keys create ci --expires 90d --scope executions:write --out key.txt
  export BERTH_TOKEN=$(berth keys create script --expires 8h)`,
		Args: cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := wantedKey(args[0], expires, scopeNames)
			if err == nil && cmd.Flags().Changed("max-credits") { // Zero would be sent as no ceiling at all.
				wanted.MaxCredits, err = cli.Amount("max-credits", ceiling)
			}
			if err != nil {
				return err
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			keep, err := cli.OpenSecret(cmd, "key", out)
			if err != nil {
				return err
			}
			made, text, err := createKey(cmd, c, wanted, shared)
			if err != nil {
				return errors.Join(err, keep.Drop())
			}
			if asJSON {
				return keep.Show(text, cli.PrintJSON(cmd.OutOrStdout(), struct {
					key

					Value string `json:"api_key"`
				}{made, text}))
			}
			return printKey(cmd, keep, out, made, text)
		},
	}
	cmd.Flags().StringVar(&expires, "expires", "",
		"`time` after which the key expires, such as 8h or 90d (default: never)")
	cmd.Flags().StringSliceVar(&scopeNames, "scope", nil,
		"restrict the key to `scopes`: executions:read, executions:write, billing:read, storage, inference, admin")
	cmd.Flags().StringVar(&ceiling, "max-credits", "",
		"the most `credits` that executions submitted with the key may cost together (default: no limit)")
	cmd.Flags().BoolVar(&shared, "shared", false, "make a key of the organization, which its admins can revoke")
	cmd.Flags().StringVar(&out, "out", "-", "`file` to write the key to, readable only by you; - for standard output")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.MarkFlagsMutuallyExclusive("out", "json")
	return cli.FilledFlags(cmd, "expires", "scope", "max-credits")
}

// wantedKey returns the key that the flags of berth keys create ask for.
func wantedKey(name, expires string, scopes []string) (wire.NewKey, error) {
	for _, name := range scopes {
		if !slices.Contains(compute.Scopes(), compute.Scope(name)) {
			return wire.NewKey{}, cli.UsageErrorf("--scope: there is no %q: the scopes are %v", name, compute.Scopes())
		}
	}
	until, err := expiry(expires)
	return wire.NewKey{Name: name, ExpiresAt: until, Scopes: scopes}, err
}

// createKey makes a key of either kind.
func createKey(
	cmd *cobra.Command, c *client.Client, wanted wire.NewKey, shared bool,
) (made key, text string, err error) {
	if !shared {
		k, err := c.CreateUserKeyWith(cmd.Context(), wire.NewUserKey(wanted))
		return key{UserKey: k.UserKey}, k.Value, err
	}
	slug, err := slugOf(cmd, c)
	if err != nil {
		return key{}, "", err
	}
	k, err := c.CreateKeyWith(cmd.Context(), slug, wanted)
	return key{Shared: true, UserKey: wire.UserKey{
		ID: k.ID, Name: k.Name, Prefix: k.Prefix, IsActive: k.IsActive, CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt,
		Scopes: k.Scopes, MaxCredits: k.MaxCredits,
	}}, k.PlaintextKey, err
}

// printKey prints the key, or writes it to a new file that only its owner can read.
func printKey(cmd *cobra.Command, keep *cli.SecretOutput, out string, made key, text string) error {
	if err := keep.Keep(text); err != nil {
		return err
	}
	said := "this is the key " + made.Name + ", shown this once"
	if out != "-" {
		said = "the key " + made.Name + " is in " + out
	}
	_, err := fmt.Fprintln(cmd.ErrOrStderr(), "berth: "+cli.Plain(said))
	return err
}

// expiry returns the instant after a time such as 90d, zero for "".
func expiry(text string) (compute.Instant, error) {
	if text == "" {
		return 0, nil
	}
	hours := strings.TrimSuffix(text, "d")
	d, err := time.ParseDuration(text)
	if hours != text {
		d, err = time.ParseDuration(hours + "h")
		d *= 24
	}
	if err != nil || d <= 0 {
		return 0, cli.UsageErrorf("--expires: %q is not a time such as 8h or 90d", text)
	}
	now := time.Now() //nolint:forbidigo // The cluster wants an instant of the day.
	return compute.InstantOf(now.Add(d)), nil
}

// scopesOf returns the scopes of a key, for people.
func scopesOf(k key) string {
	if len(k.Scopes) == 0 {
		return "all"
	}
	return strings.Join(k.Scopes, " ")
}

// newKeyList returns the command berth keys list.
func newKeyList(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List your API keys and those of the organization", Example: `  berth keys list`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			keys, _, err := keysOf(cmd, c)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), append([]key{}, keys...))
			}
			t := cli.NewTable("id", "name", "prefix", "kind", "state", "scopes", "max credits", "created", "expires",
				"last used")
			now := compute.InstantOf(time.Now()) //nolint:forbidigo // Keys expire at an instant of the day.
			for _, k := range keys {
				kind := "own"
				if k.Shared {
					kind = "shared"
				}
				t.AppendRow(cli.Row(k.ID, k.Name, k.Prefix, kind, stateOf(k, now), scopesOf(k), cli.OrNone(k.MaxCredits),
					day(&k.CreatedAt), minute(k.ExpiresAt), day(k.LastUsedAt)))
			}
			return cli.PrintTable(cmd.OutOrStdout(), t)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// stateOf returns whether a key is good, and why not.
func stateOf(k key, now compute.Instant) string {
	switch {
	case k.ExpiresAt != nil && *k.ExpiresAt <= now:
		return "expired"
	case !k.IsActive:
		return "disabled"
	}
	return "active"
}

// minute returns the minute of an instant, "-" for none.
func minute(at *compute.Instant) string {
	if at == nil {
		return "-"
	}
	return at.Time().Format("2006-01-02 15:04")
}

// day returns the day of an instant, "-" for none.
func day(at *compute.Instant) string {
	if at == nil {
		return "-"
	}
	return at.Time().Format("2006-01-02")
}

// find returns the key that arg names.
func find(keys []key, arg string) (key, error) {
	return cli.Unique("API key", arg, keys, func(k key) []string { return []string{k.ID.String(), k.Name} })
}

// newKeyRevoke returns the command berth keys revoke.
func newKeyRevoke(conn *cli.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use: "revoke KEY...", Short: "Delete API keys, which are refused from the next request on",
		Example: `  berth keys revoke laptop`, Args: cli.Arguments(cobra.MinimumNArgs(1)),
	}
	cmd.ValidArgsFunction = completeKey(conn)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return eachKey(cmd, conn, args, func(c *client.Client, slug string, k key) (string, error) {
			if k.Shared {
				return "revoked", c.DeleteKey(cmd.Context(), slug, k.ID)
			}
			return "revoked", c.DeleteUserKey(cmd.Context(), k.ID)
		})
	}
	return cli.Reporting(cmd)
}

// newKeyToggle returns the command berth keys disable or enable.
func newKeyToggle(conn *cli.Connection, verb, short string, active bool) *cobra.Command {
	cmd := &cobra.Command{
		Use: verb + " KEY...", Short: short, Example: "  berth keys " + verb + " laptop",
		Args: cli.Arguments(cobra.MinimumNArgs(1)),
	}
	cmd.ValidArgsFunction = completeKey(conn)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return eachKey(cmd, conn, args, func(c *client.Client, slug string, k key) (string, error) {
			var err error
			switch {
			case k.IsActive == active:
			case k.Shared:
				_, err = c.ToggleKey(cmd.Context(), slug, k.ID)
			default:
				_, err = c.ToggleUserKey(cmd.Context(), k.ID)
			}
			return verb + "d", err
		})
	}
	return cli.Reporting(cmd)
}

// eachKey does something with each key that is named, and prints what was done.
func eachKey(
	cmd *cobra.Command, conn *cli.Connection, args []string,
	do func(c *client.Client, slug string, k key) (done string, err error),
) error {
	c, err := conn.Client(cmd)
	if err != nil {
		return err
	}
	keys, slug, err := keysOf(cmd, c)
	if err != nil {
		return err
	}
	return cli.Each(cmd, args, func(arg string) error {
		k, err := find(keys, arg)
		if err != nil {
			return err
		}
		done, err := do(c, slug, k)
		if err != nil {
			return err
		}
		cli.Report(cmd, cli.Done{Name: k.Name, Done: done}, "the key %s is %s", k.Name, done)
		return nil
	})
}

// completeKey completes the name of a key.
func completeKey(conn *cli.Connection) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		c, err := conn.Client(cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		keys, _, err := keysOf(cmd, c)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, k := range keys {
			names = append(names, k.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
