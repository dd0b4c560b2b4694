package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/cmd/berth/contexts"
	"berth/cmd/berth/devstate"
)

// firstContact is after how long an unreachable cluster is reported.
const firstContact = 2500 * time.Millisecond

// renewBefore is how long before its end a session is renewed.
const renewBefore = 30 * time.Second

// rootTokenMark is how root tokens begin.
const rootTokenMark = "brt_"

// clusterDirs returns where a client without an address searches for a cluster.
func clusterDirs() []string {
	return []string{filepath.Join(".berth", "dev"), filepath.Join(".berth", "demo")}
}

// Connection holds the flags with which a client command reaches its cluster.
type Connection struct {
	addrs     string
	tokenFile string
	context   string
	org       string
	caCert    string
	Operator  bool // The command needs the root token, or an operator.
}

// Register adds the flags of the connection to cmd and its children.
func (c *Connection) Register(cmd *cobra.Command) {
	token := "API key"
	if c.Operator {
		token = "root token, or an operator's key"
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&c.addrs, "addr", "", "`URLs` of one or more nodes, by comma ($BERTH_ADDR)")
	flags.StringVar(&c.tokenFile, "token-file", "", "`file` with the "+token+" ($BERTH_TOKEN holds it)")
	flags.StringVar(&c.caCert, "cacert", "", "`file` with the authorities to trust, PEM ($BERTH_CACERT)")
	if !c.Operator {
		flags.StringVar(&c.org, "org", "", "`slug` of the organization to act in ($BERTH_ORG)")
	}
	c.RegisterContext(cmd)
}

// RegisterContext adds only the flag that chooses a context.
func (c *Connection) RegisterContext(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&c.context, "context", "", "`name` of the context to use ($BERTH_CONTEXT)")
	names := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return ContextNames(), cobra.ShellCompDirectiveNoFileComp
	}
	must(cmd.RegisterFlagCompletionFunc("context", names))
}

// must panics on an error that only a mistake of this program can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// ContextNames returns the names of the contexts, sorted.
func ContextNames() []string {
	f, err := contexts.Load()
	if err != nil {
		return nil
	}
	var names []string
	for name := range f.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// TokenFile returns the file that --token-file names.
func (c *Connection) TokenFile() string { return c.tokenFile }

// ContextName returns the context that the flag or the variable names.
func (c *Connection) ContextName() string { return orEnv(c.context, "BERTH_CONTEXT") }

// Target is a cluster with the credential to use it.
type Target struct {
	Addrs []string
	Token string
	Org   string
	Name  string // Name of the context that it is from, "" for none.
	Saved contexts.Context

	caCert string // PEM.
}

// Client returns a client for the cluster that the flags name, else the
// variables, else a cluster of berth dev below the working directory, else the
// current context.
func (c *Connection) Client(cmd *cobra.Command) (*client.Client, error) {
	t, err := c.Target(cmd)
	if err != nil {
		return nil, err
	}
	if t.Token == "" {
		return nil, UsageErrorf("no credential for %s: sign in with berth login --addr %s, "+
			"or set BERTH_TOKEN or --token-file",
			strings.Join(t.Addrs, ","), t.Addrs[0])
	}
	if !c.Operator && strings.HasPrefix(t.Token, rootTokenMark) {
		return nil, UsageErrorf("the root token is for berth admin: sign in with berth login, or use an API key")
	}
	return t.Client(cmd.Context())
}

// Target returns the cluster that Client uses. The token may be empty.
func (c *Connection) Target(cmd *cobra.Command) (Target, error) {
	t, err := c.Given()
	if err != nil {
		return t, err
	}
	if len(t.Addrs) > 0 && t.Token != "" {
		return t, nil
	}
	saved, err := c.saved(cmd)
	if err != nil && len(t.Addrs) == 0 {
		return t, err
	}
	if len(t.Addrs) > 0 && !slices.ContainsFunc(saved.Addrs, func(a string) bool { return slices.Contains(t.Addrs, a) }) {
		return t, nil // Its credential is for another cluster.
	}
	if len(t.Addrs) == 0 {
		t.Addrs = saved.Addrs
	}
	if t.caCert == "" {
		t.caCert = saved.caCert
	}
	if t.Token == "" {
		t.Token, t.Name, t.Saved = saved.Token, saved.Name, saved.Saved
		if t.Org == "" {
			t.Org = saved.Org
		}
	}
	return t, nil
}

// Given returns the target that flags and variables name.
func (c *Connection) Given() (Target, error) {
	t := Target{Token: strings.TrimSpace(os.Getenv("BERTH_TOKEN")), Org: orEnv(c.org, "BERTH_ORG")}
	if c.Operator {
		t.Org = ""
	}
	if c.tokenFile != "" {
		data, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return t, UsageErrorf("--token-file: %w", err)
		}
		if t.Token = strings.TrimSpace(string(data)); t.Token == "" {
			return t, UsageErrorf("--token-file: %s is empty", c.tokenFile)
		}
	}
	for addr := range strings.SplitSeq(orEnv(c.addrs, "BERTH_ADDR"), ",") {
		if addr = strings.TrimRight(strings.TrimSpace(addr), "/"); addr != "" {
			t.Addrs = append(t.Addrs, addr)
		}
	}
	if path := orEnv(c.caCert, "BERTH_CACERT"); path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return t, UsageErrorf("--cacert: %w", err)
		}
		t.caCert = string(data)
	}
	return t, nil
}

// orEnv returns value, or that of an environment variable if it is empty.
func orEnv(value, name string) string {
	if value != "" {
		return value
	}
	return os.Getenv(name)
}

// saved returns the cluster of a context, or of berth dev below the working
// directory.
func (c *Connection) saved(cmd *cobra.Command) (Target, error) {
	file, err := contexts.Load()
	if err != nil {
		return Target{}, &ExitError{Code: ExitUsage, Err: err}
	}
	name := c.ContextName()
	if name != "" {
		saved, ok := file.Contexts[name]
		if !ok {
			return Target{}, UsageErrorf("no context %q: see berth context list, or sign in with berth login", name)
		}
		return c.fromContext(name, saved)
	}
	for _, dir := range clusterDirs() {
		t, err := c.fromDev(dir)
		switch {
		case err == nil:
			fmt.Fprintf(cmd.ErrOrStderr(), "berth: using the cluster in %s\n", dir)
			return t, nil
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission) && file.Current != "":
		case errors.Is(err, fs.ErrPermission):
			return t, UsageErrorf("%w: berth dev runs as another user, so use the export line that it prints", err)
		default:
			return t, err
		}
	}
	if file.Current != "" {
		return c.fromContext(file.Current, file.Contexts[file.Current])
	}
	return Target{}, UsageErrorf(
		"no cluster: sign in with berth login --addr URL, set BERTH_ADDR and BERTH_TOKEN, or start one with berth dev")
}

// fromDev returns the running cluster of berth dev in a directory.
func (c *Connection) fromDev(dir string) (Target, error) {
	state, err := devstate.Read(dir)
	if err != nil {
		return Target{}, err
	}
	token := state.APIKey
	if c.Operator {
		token = state.RootToken
	}
	return Target{Addrs: state.Addrs(), Token: token}, nil
}

// fromContext returns the cluster of a context.
func (c *Connection) fromContext(name string, saved contexts.Context) (Target, error) {
	if saved.DevDir != "" {
		t, err := c.fromDev(saved.DevDir)
		if errors.Is(err, fs.ErrNotExist) {
			err = UsageErrorf("context %s: no cluster of berth dev runs in %s", name, saved.DevDir)
		}
		return t, err
	}
	if len(saved.Addrs) == 0 {
		return Target{}, UsageErrorf("context %s has no address: sign in again with berth login", name)
	}
	return Target{
		Addrs: saved.Addrs, Token: saved.Token(), Org: saved.Org, Name: name, Saved: saved, caCert: saved.CACert,
	}, nil
}

// SetCACert sets the authorities to trust, as PEM; "" for those of the system.
func (t *Target) SetCACert(pem string) { t.caCert = pem }

// CACert returns the authorities to trust, as PEM; "" for those of the system.
func (t *Target) CACert() string { return t.caCert }

// Client returns a client for the target. A session that ends soon is renewed.
func (t *Target) Client(ctx context.Context) (*client.Client, error) {
	cfg := client.Config{
		Addrs: t.Addrs, Token: t.Token, Org: t.Org, FirstContact: firstContact, Proxy: http.ProxyFromEnvironment,
	}
	if t.caCert != "" {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM([]byte(t.caCert)) {
			return nil, UsageErrorf("--cacert: no certificate in PEM form")
		}
	}
	if t.Name == "" || t.Saved.RefreshToken == "" {
		return newClient(cfg)
	}
	session := &session{name: t.Name, cfg: cfg}
	cfg.Renew = session.renew
	now := time.Now() //nolint:forbidigo // The end of a session is an instant of the day.
	if t.Saved.ExpiresAt.Sub(now) < renewBefore {
		token, err := session.renew(ctx, t.Token)
		if err != nil {
			return nil, err
		}
		cfg.Token = token
	}
	return newClient(cfg)
}

// newClient returns a client. Wrong settings are a usage error.
func newClient(cfg client.Config) (*client.Client, error) {
	c, err := client.New(cfg)
	if err != nil {
		return nil, &ExitError{Code: ExitUsage, Err: err}
	}
	return c, nil
}

// session renews the session of a context.
type session struct {
	name string
	cfg  client.Config
}

// renew returns the access token to use in place of one that was refused or ends
// soon. It reads the file again under its lock: another command may have renewed
// the session.
func (s *session) renew(ctx context.Context, refused string) (string, error) {
	cfg := s.cfg
	cfg.Token, cfg.Renew, cfg.Org = "", nil, ""
	c, err := newClient(cfg)
	if err != nil {
		return "", err
	}
	token := ""
	err = contexts.Update(func(f *contexts.File) error {
		saved, ok := f.Contexts[s.name]
		if !ok {
			return UsageErrorf("context %s is gone: sign in again with berth login", s.name)
		}
		if saved.AccessToken != refused && saved.AccessToken != "" {
			token = saved.AccessToken
			return nil
		}
		fresh, err := c.Refresh(ctx, saved.RefreshToken)
		if _, answered := errors.AsType[*client.Error](err); err != nil && !answered && ctx.Err() == nil {
			fresh, err = c.Refresh(ctx, saved.RefreshToken) // The answer was lost: soon, the same one comes again.
		}
		if e, ok := errors.AsType[*client.Error](err); ok && e.Status == http.StatusUnauthorized {
			return &ExitError{Code: ExitFailed, Err: fmt.Errorf(
				"the session of context %s has ended: sign in again with berth login --context %s", s.name, s.name)}
		}
		if err != nil {
			return err
		}
		saved.Keep(fresh.AccessToken, fresh.RefreshToken, fresh.ExpiresIn)
		f.Contexts[s.name], token = saved, saved.AccessToken
		return nil
	})
	return token, err
}
