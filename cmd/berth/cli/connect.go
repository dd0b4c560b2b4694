package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/cmd/berth/dev"
)

// clusterDirs returns where a client without an address searches for a cluster.
func clusterDirs() []string {
	return []string{filepath.Join(".berth", "dev"), filepath.Join(".berth", "demo")}
}

// Connection holds the flags with which a client command reaches its cluster.
type Connection struct {
	addrs     string
	tokenFile string
	Operator  bool // The command needs the root token.
}

// Register adds the flags of the connection to cmd and its children.
func (c *Connection) Register(cmd *cobra.Command) {
	token := "API key"
	if c.Operator {
		token = "root token"
	}
	cmd.PersistentFlags().StringVar(&c.addrs, "addr", "",
		"`URLs` of one or more nodes, by comma ($BERTH_ADDR; default: the cluster of berth dev)")
	cmd.PersistentFlags().StringVar(&c.tokenFile, "token-file", "",
		"`file` with the "+token+" ($BERTH_TOKEN holds it; default: of the cluster of berth dev)")
}

// Client returns a client for the cluster that the flags name, else the
// variables, else a cluster of berth dev below the working directory.
func (c *Connection) Client(cmd *cobra.Command) (*client.Client, error) {
	cfg := client.Config{Token: strings.TrimSpace(os.Getenv("BERTH_TOKEN"))}
	if c.tokenFile != "" {
		data, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		cfg.Token = strings.TrimSpace(string(data))
	}
	addrs := c.addrs
	if addrs == "" {
		addrs = os.Getenv("BERTH_ADDR")
	}
	for addr := range strings.SplitSeq(addrs, ",") {
		if addr = strings.TrimSpace(addr); addr != "" {
			cfg.Addrs = append(cfg.Addrs, addr)
		}
	}
	if len(cfg.Addrs) == 0 {
		if err := c.local(cmd, &cfg); err != nil {
			return nil, err
		}
	}
	if cfg.Token == "" {
		return nil, UsageErrorf("no credential: set BERTH_TOKEN or --token-file")
	}
	return client.New(cfg)
}

// local fills cfg from the cluster of berth dev in one of clusterDirs.
func (c *Connection) local(cmd *cobra.Command, cfg *client.Config) error {
	for _, dir := range clusterDirs() {
		state, err := dev.ReadState(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "berth: using the cluster in %s\n", dir)
		cfg.Addrs = state.Addrs()
		if cfg.Token == "" {
			cfg.Token = state.APIKey
			if c.Operator {
				cfg.Token = state.RootToken
			}
		}
		return nil
	}
	return UsageErrorf("no cluster: set BERTH_ADDR or --addr, or start one with berth dev")
}
