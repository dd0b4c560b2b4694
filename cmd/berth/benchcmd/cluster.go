package benchcmd

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"berth/bench/load"
	"berth/cmd/berth/dev"
)

// withCluster starts a cluster of node processes in a directory of its own, and calls use
// once all nodes are ready. The cluster ends, and its directory goes, when use returns.
func withCluster(cmd *cobra.Command, cfg dev.Config, use func(state *dev.State) error) error {
	program, err := dev.Program()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "berth-bench-")
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer os.RemoveAll(dir)
	cfg.Dir, cfg.Binary = dir, program
	cfg.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	cluster, err := dev.Open(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	defer cluster.Close()
	return cluster.RunWhile(cmd.Context(), func() error {
		state, err := dev.ReadState(dir)
		if err != nil {
			return err
		}
		return use(&state)
	})
}

// loadServers is the number of servers of the clusters that package load measures.
const loadServers = 3

// withLoad is withCluster for package load. The settings are KEY=VALUE, of every node.
func withLoad(cmd *cobra.Command, use func(c *load.Cluster) error, settings ...string) error {
	return withServers(cmd, loadServers, use, settings...)
}

// withServers is withLoad with a number of servers.
func withServers(cmd *cobra.Command, servers int, use func(c *load.Cluster) error, settings ...string) error {
	fmt.Fprintf(cmd.ErrOrStderr(), "berth: starting %d servers\n", servers)
	return withCluster(cmd, dev.Config{Nodes: servers, Set: settings}, func(state *dev.State) error {
		c := &load.Cluster{RootToken: state.RootToken, APIKey: state.APIKey, Org: state.OrgSlug}
		for i, n := range state.Nodes {
			c.Nodes = append(c.Nodes, load.Node{
				Name: fmt.Sprintf("n%d", i+1), URL: n.API, PID: n.PID, Leader: n.ID == state.Leader,
			})
		}
		return use(c)
	})
}
