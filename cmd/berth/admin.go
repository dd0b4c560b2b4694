package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// newAdmin returns the command berth admin.
func newAdmin() *cobra.Command {
	conn := &cli.Connection{Operator: true}
	cmd := cli.Parent("admin", "Operate a cluster",
		cli.Parent("token", "Manage join tokens", newTokenCreate(conn)),
		cli.Parent("user", "Manage users", newUserCreate(conn)),
		newNodes(conn), newAdminNode(conn), newRaft(conn), newSnapshot(conn), newGrant(conn), newQuota(conn), newBrake(conn))
	cmd.Long = `The commands of an operator take the cluster's root token, which the first node
left in its data directory, or the API key of a user who is an operator.`
	conn.Register(cmd)
	return cmd
}

// newTokenCreate returns the command berth admin token create.
func newTokenCreate(conn *cli.Connection) *cobra.Command {
	var token wire.NewJoinToken
	var ttl time.Duration
	var out string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a join token",
		Args:  cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			token.TTL = int(ttl.Seconds())
			made, err := c.CreateJoinToken(cmd.Context(), token)
			if err != nil {
				return err
			}
			return saveToken(cmd, out, made)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&token.Role, "role", compute.RoleServer.String(),
		"what the machine may be: server, which holds the state, or worker, which executes only")
	flags.DurationVar(&ttl, "ttl", time.Hour, "lifetime of the token, at most 1h")
	flags.IntVar(&token.Uses, "uses", 1, "how many machines may join with it")
	flags.StringVar(&out, "out", "", "`file` to write the token to, readable only by you; - for standard output")
	return cli.NeedFlags(cmd, "out")
}

// saveToken writes the token's text to a new file that only its owner can read.
func saveToken(cmd *cobra.Command, out string, made wire.JoinToken) error {
	if out == "-" {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), made.Token)
		return err
	}
	f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	_, err = fmt.Fprintln(f, made.Token)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "berth: token for %d %s in %s, good until %s\n",
		made.Uses, made.Role, out, made.ExpiresAt)
	return err
}

// newUserCreate returns the command berth admin user create.
func newUserCreate(conn *cli.Connection) *cobra.Command {
	var user wire.NewUser
	var passwordFile string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a user with an organization",
		Long: `Create makes a user who owns a new organization. It reads the password from a
file, or asks for it on a terminal.`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			if user.Password, err = readPassword(cmd, passwordFile); err != nil {
				return err
			}
			made, err := c.CreateUser(cmd.Context(), user)
			if err != nil {
				return err
			}
			return cli.PrintJSON(cmd.OutOrStdout(), made)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&user.Email, "email", "", "the user's `address`, to sign in with")
	flags.StringVar(&user.OrgSlug, "org", "", "`slug` of the new organization")
	flags.StringVar(&user.OrgName, "org-name", "", "its name (default: the slug)")
	flags.StringVar(&user.FullName, "name", "", "the user's name")
	flags.BoolVar(&user.Operator, "operator", false, "the user may use berth admin")
	flags.StringVar(&passwordFile, "password-file", "", "`file` with the password; - for standard input")
	return cli.NeedFlags(cmd, "email", "org")
}

// readPassword returns the password from the file, or from the terminal.
func readPassword(cmd *cobra.Command, file string) (string, error) {
	const limit = 4096
	switch {
	case file == "-":
		text, err := cli.ReadLimited(cmd.InOrStdin(), "standard input", limit)
		return strings.TrimRight(text, "\r\n"), err
	case file != "":
		text, err := cli.ReadFile(file, limit)
		return strings.TrimRight(text, "\r\n"), err
	case !term.IsTerminal(int(os.Stdin.Fd())):
		return "", cli.UsageErrorf("no terminal to ask for the password on: use --password-file")
	}
	var typed [2][]byte
	for i, prompt := range []string{"Password: ", "Again: "} {
		fmt.Fprint(cmd.ErrOrStderr(), prompt)
		var err error
		typed[i], err = term.ReadPassword(int(os.Stdin.Fd()))
		fmt.Fprintln(cmd.ErrOrStderr())
		if err != nil {
			return "", fmt.Errorf("read password: %w", err)
		}
	}
	if !bytes.Equal(typed[0], typed[1]) {
		return "", cli.UsageErrorf("the two passwords differ")
	}
	return string(typed[0]), nil
}

// newNodes returns the command berth admin nodes.
func newNodes(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "List the nodes and their GPUs",
		Args:  cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			return printNodes(cmd, c, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printNodes(cmd *cobra.Command, c *client.Client, asJSON bool) error {
	nodes, err := c.Nodes(cmd.Context())
	if err != nil {
		return err
	}
	slices.SortFunc(nodes, func(a, b wire.Node) int { return strings.Compare(a.Name, b.Name) })
	if asJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), nodes)
	}
	peers, err := c.Peers(cmd.Context())
	if err != nil {
		return err
	}
	t := cli.NewTable("name", "state", "part", "gpus", "api", "version", "id")
	for _, n := range nodes {
		state := n.State.String()
		if n.Drained {
			state += ", drained"
		}
		state += clockOf(n)
		t.AppendRow(cli.Row(n.Name, state, partOf(n, peers), gpusOf(n), n.API, n.Version, n.ID))
	}
	return cli.PrintTable(cmd.OutOrStdout(), t)
}

// clockOf describes by how much the node's clock differs, "" for a negligible
// difference.
func clockOf(n wire.Node) string {
	if n.ClockAhead == nil {
		return ""
	}
	ahead := time.Duration(*n.ClockAhead) * time.Millisecond
	if ahead.Abs() <= compute.ClockDrift {
		return ""
	}
	return ", clock " + compute.AheadText(ahead)
}

// partOf returns the node's role in the replication of the state.
func partOf(n wire.Node, peers []wire.Peer) string {
	for _, p := range peers {
		switch {
		case p.ID != n.ID:
		case p.Leader:
			return "leader"
		case p.Voter:
			return "voter"
		default:
			return "replica"
		}
	}
	return n.Role.String()
}

// gpusOf returns the node's GPUs by type. A star marks simulated ones.
func gpusOf(n wire.Node) string {
	types := make([]string, len(n.GPUs))
	for i, g := range n.GPUs {
		types[i] = g.Type
		if g.Simulated {
			types[i] += "*"
		}
	}
	return cli.CountTypes(types)
}

// newGrant returns the command berth admin grant.
func newGrant(conn *cli.Connection) *cobra.Command {
	var org, credits, reason string
	cmd := &cobra.Command{
		Use:   "grant",
		Short: "Grant credits to an organization",
		Args:  cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			amount, err := compute.ParseCredits(credits)
			if err != nil {
				return cli.UsageErrorf("--credits: %w", err)
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			return c.Grant(cmd.Context(), org, amount, reason)
		},
	}
	cmd.Flags().StringVar(&org, "org", "", "`slug` of the organization")
	cmd.Flags().StringVar(&credits, "credits", "", "`credits` to grant")
	cmd.Flags().StringVar(&reason, "reason", "", "`text` for its ledger")
	return cli.NeedFlags(cmd, "org", "credits")
}
