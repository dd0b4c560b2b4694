package account

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/cmd/berth/contexts"
)

// rootMark is how root tokens begin.
const rootMark = "brt_"

// loginFlags are the flags of berth login.
type loginFlags struct {
	conn         cli.Connection
	email        string
	passwordFile string
	askKey       bool
	oidc         bool
	create       bool
	orgName      string
	jsonOutput   bool
}

// NewLogin returns the command berth login.
func NewLogin() *cobra.Command {
	f := &loginFlags{}
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Sign in to a cluster and remember it",
		Long: `Login signs in with an email address and a password, or with an API key, and keeps the
address and the credential as a context that later commands use. Sessions are renewed
as needed. The file is ` + "`$XDG_CONFIG_HOME/berth/contexts.json`" + `, readable by you only.

With --oidc you sign in at the cluster's identity provider: login prints a URL and a code,
and waits. With --create it makes an account with an organization first, where the
operator allows that. With --key it asks for an API key; --token-file reads one from a file. The name of the
context is --context, else the slug of the organization.`,
		Example: `  berth login --addr https://gpu-1.example.org:6470 --email bea@example.org
  berth login --addr https://gpu-1.example.org:6470 --oidc
  berth login --addr https://gpu-1.example.org:6470 --key
  berth login --addr http://10.0.0.5:6470 --token-file key.txt --context ci`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.conn.Register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.email, "email", "", "`address` to sign in with (default: ask)")
	flags.StringVar(&f.passwordFile, "password-file", "", "`file` with the password; - for standard input (default: ask)")
	flags.BoolVar(&f.askKey, "key", false, "ask for an API key, or read it from standard input, in place of a password")
	flags.BoolVar(&f.oidc, "oidc", false, "sign in at the cluster's identity provider")
	flags.BoolVar(&f.create, "create", false, "make an account, and sign in to it")
	flags.StringVar(&f.orgName, "org-name", "", "with --create: `name` of your organization (default: from your address)")
	flags.BoolVar(&f.jsonOutput, "json", false, "print JSON")
	for _, pair := range [][]string{
		{"key", "email"},
		{"key", "token-file", "oidc", "create"},
		{"email", "token-file"},
		{"oidc", "email"},
		{"oidc", "password-file"},
	} {
		cmd.MarkFlagsMutuallyExclusive(pair...)
	}
	return cmd
}

// signedIn is the user who has signed in, as berth login and whoami print it.
type signedIn struct {
	Context   string   `json:"context,omitempty"`
	Addrs     []string `json:"addrs"`
	Email     string   `json:"email,omitempty"` // None for the root token.
	Org       string   `json:"org,omitempty"`   // Slug.
	Role      string   `json:"role,omitempty"`
	Operator  bool     `json:"root_token,omitempty"`
	Temporary bool     `json:"password_temporary,omitempty"`
}

func (f *loginFlags) run(cmd *cobra.Command) error {
	t, err := f.target(cmd)
	if err != nil {
		return err
	}
	saved := contexts.Context{Addrs: t.Addrs, Org: t.Org, CACert: t.CACert()}
	who := signedIn{Addrs: t.Addrs}
	password := ""
	switch {
	case f.askKey || f.conn.TokenFile() != "":
		saved.Key = t.Token
	case f.oidc:
		err = f.signInWithProvider(cmd, &t, &saved)
	case f.create:
		err = f.signUp(cmd, &t, &saved)
	default:
		password, err = f.signIn(cmd, &t, &saved, &who)
	}
	if err != nil {
		return err
	}
	if t.Token = saved.Token(); strings.ContainsAny(t.Token, " \r\n\t") || t.Token == "" {
		return cli.UsageErrorf("the API key is empty or has a space")
	}
	c, err := t.Client(cmd.Context())
	if err != nil {
		return err
	}
	if err := identify(cmd.Context(), c, &t, &who); err != nil {
		return err
	}
	saved.Email = who.Email
	if who.Context, err = f.keep(saved, who); err != nil {
		return err
	}
	if err := f.print(cmd, who); err != nil || !who.Temporary {
		return err
	}
	return replaceFirst(cmd, c, password)
}

// target returns the cluster to sign in to, with the key that was given.
func (f *loginFlags) target(cmd *cobra.Command) (cli.Target, error) {
	t, err := f.conn.Given()
	if err != nil {
		return t, err
	}
	if f.conn.TokenFile() == "" {
		t.Token = ""
	}
	if len(t.Addrs) == 0 {
		if known, err := f.conn.Target(cmd); err == nil {
			t.Addrs = known.Addrs
			t.SetCACert(known.CACert())
		}
	}
	if len(t.Addrs) == 0 {
		addr, err := cli.AskLine(cmd, "Address of a node, such as http://10.0.0.5:6470", "addr")
		if err != nil {
			return t, err
		}
		t.Addrs = []string{strings.TrimRight(addr, "/")}
	}
	if f.askKey {
		secret := cli.Secret{Prompt: "API key", Flag: "token-file"}
		if !cli.CanAsk() {
			secret.File = "-"
		}
		if t.Token, err = secret.Read(cmd); err != nil {
			return t, err
		}
		t.Token = strings.TrimSpace(t.Token)
	}
	return t, nil
}

// signIn exchanges the address and the password for a session.
func (f *loginFlags) signIn(cmd *cobra.Command, t *cli.Target, saved *contexts.Context, who *signedIn) (string, error) {
	email := f.email
	if email == "" {
		var err error
		if email, err = cli.AskLine(cmd, "Email", "email"); err != nil {
			return "", err
		}
	}
	password, err := cli.Secret{Prompt: "Password", File: f.passwordFile, Flag: "password-file"}.Read(cmd)
	if err != nil {
		return "", err
	}
	anonymous := *t
	anonymous.Org = ""
	c, err := anonymous.Client(cmd.Context())
	if err != nil {
		return "", err
	}
	session, err := c.Login(cmd.Context(), email, password)
	if err != nil {
		return "", err
	}
	saved.Keep(session.AccessToken, session.RefreshToken, session.ExpiresIn)
	who.Temporary = session.Temporary
	return password, nil
}

// identify fills in whose the credential of c is.
func identify(ctx context.Context, c *client.Client, t *cli.Target, who *signedIn) error {
	if strings.HasPrefix(t.Token, rootMark) {
		who.Operator = true
		_, err := c.Nodes(ctx)
		return err
	}
	status, err := c.UserStatus(ctx)
	if client.CodeOf(err) == "no_org" {
		return fmt.Errorf("%w Ask an operator for berth admin user add", err)
	}
	if err != nil {
		return err
	}
	who.Email = status.Email
	orgs, err := c.Orgs(ctx)
	at := slices.IndexFunc(orgs, func(o wire.Org) bool { return o.ID == status.OrgID })
	if at >= 0 {
		who.Org, who.Role = orgs[at].Slug, orgs[at].Role.String()
	}
	return err
}

// keep stores the context as the current one and returns its name.
func (f *loginFlags) keep(saved contexts.Context, who signedIn) (string, error) {
	name := f.conn.ContextName()
	if name != "" {
		if err := contexts.CheckName(name); err != nil {
			return "", cli.UsageErrorf("--context: %w", err)
		}
	}
	err := contexts.Update(func(file *contexts.File) error {
		if name == "" {
			name = freeName(file, saved.Addrs, who)
		}
		file.Contexts[name], file.Current = saved, name
		return nil
	})
	return name, err
}

// freeName returns the name of a context: the organization's slug, with the host
// where another cluster has that name.
func freeName(file *contexts.File, addrs []string, who signedIn) string {
	name := who.Org
	if who.Operator {
		name = "root"
	}
	taken := func(name string) bool {
		other, ok := file.Contexts[name]
		return ok && !slices.ContainsFunc(other.Addrs, func(a string) bool { return slices.Contains(addrs, a) })
	}
	if !taken(name) {
		return name
	}
	if u, err := url.Parse(addrs[0]); err == nil && contexts.CheckName(name+"-"+u.Hostname()) == nil {
		name += "-" + u.Hostname()
	}
	for base, n := name, 2; taken(name); n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	return name
}

func (f *loginFlags) print(cmd *cobra.Command, who signedIn) error {
	if f.jsonOutput {
		return cli.PrintJSON(cmd.OutOrStdout(), who)
	}
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), "berth: signed in as %s; the context %s is current\n",
		who.describe(), who.Context)
	return err
}

// describe returns the user, for people.
func (s signedIn) describe() string {
	switch {
	case s.Operator:
		return "the root token"
	case s.Org == "":
		return s.Email
	}
	return fmt.Sprintf("%s, %s of %s", s.Email, cli.A(s.Role), s.Org)
}

// replaceFirst has the user replace a password that an operator made.
func replaceFirst(cmd *cobra.Command, c *client.Client, old string) error {
	if !cli.CanAsk() {
		_, err := fmt.Fprintln(cmd.ErrOrStderr(), "berth: an operator made your password: change it with berth password")
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "berth: an operator made your password: choose a new one of at least 10 characters")
	fresh, err := cli.Secret{Prompt: "New password", Twice: true}.Read(cmd)
	if err == nil {
		err = c.ChangePassword(cmd.Context(), old, fresh)
	}
	if err != nil {
		return errors.Join(err, errors.New("you are signed in, and the old password stays: change it with berth password"))
	}
	_, err = fmt.Fprintln(cmd.ErrOrStderr(), "berth: the password is changed")
	return err
}
