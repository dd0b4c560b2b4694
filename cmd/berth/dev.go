//go:build !client

package main

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
	"berth/cmd/berth/contexts"
	"berth/cmd/berth/dev"
)

// devFlags are the flags of berth dev.
type devFlags struct {
	cfg        dev.Config
	detach     bool
	noRestart  bool
	jsonOutput bool
}

// newDev returns the command berth dev.
func newDev() *cobra.Command {
	f := &devFlags{}
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole cluster on this machine",
		Long: `Dev runs a cluster of node processes on this machine, with simulated GPUs, until
Ctrl-C stops all of them. The state stays in the directory, and the next berth dev
continues with it.

DIR/cluster.json has the addresses and credentials while the cluster runs. Client
commands in this directory find it by themselves. Each node has its configuration in
DIR/NODE/berth.yaml and its log in DIR/NODE/node.log. A node that berth admin node
remove took out stays out; delete DIR/NODE/data and start again to let a new one join.
If you rotate the root token, write the new one to DIR/root_token.`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	cmd.PersistentFlags().StringVar(&f.cfg.Dir, "dir", filepath.Join(".berth", "dev"), "`directory` of the cluster")
	flags := cmd.Flags()
	flags.IntVar(&f.cfg.Nodes, "nodes", 0, "number of nodes (default: as in the previous run, or 3)")
	flags.IntVar(&f.cfg.Workers, "workers", 0,
		"how many of the nodes, the last ones, execute only (default: as before, or 0)")
	flags.StringVar(&f.cfg.GPUs, "gpus", "",
		"simulated `GPUs`, NODE=TYPE:COUNT,...;...; a type may be cut, as in a100.mig_1g_10gb:7 "+
			"(default: as before, or "+dev.DefaultGPUs+")")
	flags.StringArrayVar(&f.cfg.Set, "set", nil,
		"`KEY=VALUE` of a setting for every node, as in limits.timeout_max=168h; repeat (kept for later starts; "+
			"KEY= withdraws it)")
	flags.BoolVarP(&f.detach, "detach", "d", false, "return once the cluster is ready and leave it running")
	flags.BoolVar(&f.cfg.Profiles, "profiles", false,
		"serve /debug/pprof/ beside /metrics, at the addresses in cluster.json, to the token in DIR/profiles.token")
	flags.BoolVar(&f.noRestart, "no-restart", false, "do not restart a node that died")
	flags.BoolVar(&f.jsonOutput, "json", false, "print the content of cluster.json when the cluster is ready")
	cmd.AddCommand(newDevDown(&f.cfg.Dir), newDevGuard(&f.cfg.Dir))
	return cmd
}

func (f *devFlags) run(cmd *cobra.Command) error {
	program, err := dev.Program()
	if err != nil {
		return err
	}
	f.cfg.Binary, f.cfg.Restart = program, !f.noRestart
	f.cfg.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	if f.detach {
		state, err := dev.Detach(cmd.Context(), f.cfg)
		if err != nil {
			return err
		}
		return f.announce(cmd, state)
	}
	cluster, err := dev.Open(cmd.Context(), f.cfg)
	if err != nil {
		return err
	}
	defer cluster.Close()
	fmt.Fprintf(cmd.ErrOrStderr(), "berth: starting a cluster in %s\n", f.cfg.Dir)
	return cluster.RunWhile(cmd.Context(), func() error {
		state, err := dev.ReadState(f.cfg.Dir)
		if err != nil {
			return err
		}
		if err := f.announce(cmd, state); err != nil {
			return err
		}
		defer forgetDev(f.cfg.Dir)
		fmt.Fprintln(cmd.ErrOrStderr(), "berth: the cluster is ready; Ctrl-C ends it")
		<-cmd.Context().Done()
		fmt.Fprintln(cmd.ErrOrStderr(), "berth: ending the cluster")
		return nil
	})
}

// announce prints the addresses and the credentials of the cluster, and keeps it as
// a context, so that clients in other directories find it.
func (f *devFlags) announce(cmd *cobra.Command, state dev.State) error {
	name, err := keepDev(f.cfg.Dir)
	if err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "berth: no context is kept: %v\n", err)
	}
	if f.jsonOutput {
		return cli.PrintJSON(cmd.OutOrStdout(), state)
	}
	return printCluster(cmd.OutOrStdout(), f.cfg.Dir, name, state)
}

// keepDev keeps the cluster of a directory as a context, which becomes current if
// none is, and returns its name.
func keepDev(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	name := "dev"
	err = contexts.Update(func(f *contexts.File) error {
		for n := 2; ; n++ {
			known, taken := f.Contexts[name]
			if !taken || known.DevDir == dir {
				break
			}
			name = fmt.Sprintf("dev-%d", n)
		}
		f.Contexts[name] = contexts.Context{DevDir: dir}
		if f.Current == "" {
			f.Current = name
		}
		return nil
	})
	return name, err
}

// forgetDev removes the contexts of the cluster of a directory.
func forgetDev(dir string) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return
	}
	// A context that stays causes an error when it is used.
	_ = contexts.Update(func(f *contexts.File) error {
		maps.DeleteFunc(f.Contexts, func(_ string, c contexts.Context) bool { return c.DevDir == dir })
		return nil
	})
}

func printCluster(w io.Writer, dir, context string, state dev.State) error {
	t := cli.NewTable("node", "api", "pid", "gpus", "")
	for i, n := range state.Nodes {
		part := ""
		if n.ID == state.Leader {
			part = "leader"
		}
		t.AppendRow(cli.Row(fmt.Sprintf("n%d", i+1), n.API, n.PID, devGPUs(n), part))
	}
	if err := cli.PrintTable(w, t); err != nil {
		return err
	}
	elsewhere := ""
	if context != "" {
		elsewhere = "or as the same user:  berth context use " + context + "\n"
	}
	_, err := fmt.Fprintf(w, `
sign in with  %s  %s
API key       %s
root token    %s
all of it is  %s

In another directory, or as another user:

export BERTH_ADDR=%s BERTH_TOKEN=%s
%s
curl -s -H 'Authorization: Bearer %s' %s/api/v2/external/machine-types
`, state.Email, state.Password, state.APIKey, state.RootToken,
		filepath.Join(dir, "cluster.json"), strings.Join(state.Addrs(), ","), state.APIKey, elsewhere,
		state.APIKey, state.Nodes[0].API)
	return err
}

// devGPUs returns the node's GPUs by type, as in "h100:2 l40s:4".
func devGPUs(n dev.Node) string {
	types := make([]string, len(n.GPUs))
	for i, g := range n.GPUs {
		types[i] = g.Type
	}
	return cli.CountTypes(types)
}

// newDevDown returns the command berth dev down.
func newDevDown(dir *string) *cobra.Command {
	return cli.Reporting(&cobra.Command{
		Use:   "down",
		Short: "Stop the cluster of a directory",
		Args:  cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			running, err := dev.Down(cmd.Context(), *dir)
			forgetDev(*dir)
			switch {
			case err != nil:
			case running:
				cli.Report(cmd, cli.Done{Name: *dir, Done: "stopped"}, "the cluster in %s is stopped", *dir)
			default:
				cli.Report(cmd, cli.Done{Name: *dir, Done: "absent"}, "no cluster was running in %s", *dir)
			}
			return err
		},
	})
}

// newDevGuard returns the hidden command that package dev starts as the guard
// of a cluster.
func newDevGuard(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:    "guard",
		Short:  "Stop the cluster when standard input ends",
		Hidden: true,
		Args:   cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return dev.Guard(cmd.Context(), cmd.InOrStdin(), *dir)
		},
	}
}
