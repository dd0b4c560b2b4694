//go:build !client

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/cmd/berth/cli"
	"berth/node"
	"berth/node/config"
)

// defaultConfigFile is read if it exists and no other file is named.
const defaultConfigFile = "/etc/berth/berth.yaml"

// rootTokenFile is the file in the data directory to which a node that
// bootstraps a cluster writes its root token.
const rootTokenFile = "root_token"

// rootTokenPoll is the poll interval for that file.
const rootTokenPoll = 100 * time.Millisecond

// newNode returns the command berth node.
func newNode() *cobra.Command {
	var file string
	var promoteAfter time.Duration
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run one node of a cluster",
		Long: `Node runs one node of a cluster until SIGTERM or Ctrl-C. Its state is in data_dir.
Executions keep running while the node is stopped, and its next start adopts them. A
node that the cluster has removed ends with exit code 3, now and at each start.

Without join.hosts the first start creates a new cluster and writes its root token to
DATA_DIR/root_token. To add a machine, create a token there
  berth admin token create --role server --out token
copy the file to the machine and start
  berth node --join.hosts FIRST:6471 --join.token_file token

Each setting can be given, in this order of precedence, as a flag, as a variable
(api.addr is BERTH_API_ADDR) and in the file (berth config check FILE). One is
for the file alone: executor.mounts, a list of {name, path, ro}, the directories
of this machine that every execution sees as /mnt/NAME.`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(file, cmd.Flags())
			if err != nil {
				return err
			}
			return runNode(cmd, cfg, promoteAfter)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration `file` (default: "+defaultConfigFile+" if it is there)")
	addSettings(cmd.Flags())
	cmd.Flags().DurationVar(&promoteAfter, "promote-after", 0, "how long a new server must have kept up before it votes")
	if err := cmd.Flags().MarkHidden("promote-after"); err != nil {
		panic(err) // The flag is defined above.
	}
	cmd.Flags().SortFlags = false
	return cmd
}

// runNode runs the node until the command's context ends. promoteAfter serves
// clusters on one machine, which need no delay.
func runNode(cmd *cobra.Command, cfg config.Config, promoteAfter time.Duration) error {
	cli.KeepPrivate()
	ctx, stop := context.WithCancel(cmd.Context())
	var announcer sync.WaitGroup
	defer announcer.Wait()
	defer stop()
	announcer.Go(func() { announceRootToken(ctx, cmd.OutOrStdout(), cfg) })
	logger := config.NewLogger(cfg.Log, cmd.ErrOrStderr())
	config.RedirectLibraries(logger)
	err := node.Run(ctx, cfg, node.Options{
		Version: version, Build: build, Logger: logger,
		PromoteAfter: promoteAfter, Alone: true,
	})
	if node.Removed(err) {
		return &cli.ExitError{Code: cli.ExitRemoved, Err: fmt.Errorf("this node was removed from its cluster, for good: "+
			"to have the machine join again, move %s away and start it with a new join token", cfg.DataDir)}
	}
	return err
}

// announceRootToken prints the location of the cluster's root token if this
// node creates it, which happens once.
func announceRootToken(ctx context.Context, w io.Writer, cfg config.Config) {
	path := filepath.Join(cfg.DataDir, rootTokenFile)
	if _, err := os.Stat(path); len(cfg.Join.Hosts) > 0 || !errors.Is(err, fs.ErrNotExist) {
		return
	}
	ticker := time.NewTicker(rootTokenPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if token, err := os.ReadFile(path); err == nil {
			printRootToken(w, path, token)
			return
		}
	}
}

// printRootToken prints the token itself only to a terminal. Anything else is a
// journal or a log, which is kept and which other users may read.
func printRootToken(w io.Writer, path string, token []byte) {
	fmt.Fprintf(w, "This is a new cluster. Its root token is in %s\n", path)
	if cli.IsTerminal(w) {
		fmt.Fprintf(w, "%s\n", bytes.TrimSpace(token))
	}
}

// addSettings adds a flag for each setting of a node. Flags hold text, because
// the node's package parses and checks the values of all sources.
func addSettings(flags *pflag.FlagSet) {
	for _, key := range config.Keys() {
		usage := fmt.Sprintf("%s [$%s]", key.Usage, key.Env())
		if key.Default != "" {
			usage += fmt.Sprintf(" (default %s)", key.Default)
		}
		flags.String(key.Path, "", usage)
	}
}

// loadConfig returns the configuration from the file, the variables and the
// flags.
func loadConfig(file string, flags *pflag.FlagSet) (config.Config, error) {
	if file == "" {
		if _, err := os.Stat(defaultConfigFile); !errors.Is(err, fs.ErrNotExist) {
			file = defaultConfigFile
		}
	}
	given := map[string]string{}
	flags.Visit(func(f *pflag.Flag) {
		if f.Name != "config" && f.Name != "promote-after" {
			given[f.Name] = f.Value.String()
		}
	})
	cfg, err := config.Load(file, os.Environ(), given)
	if err != nil {
		return cfg, &cli.ExitError{Code: cli.ExitUsage, Err: fmt.Errorf("configuration:\n%w", err)}
	}
	return cfg, nil
}
