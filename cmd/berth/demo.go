//go:build !client

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/cmd/berth/dev"
	"berth/cmd/berth/execution"
	"berth/compute"
	"berth/examples"
)

// demoTimeout is the time limit of each GPU type: the slowest takes about a
// minute.
const demoTimeout = 4 * time.Minute

// demoFlags are the flags of berth demo.
type demoFlags struct {
	keep       bool
	objective  string
	gpus       string
	jsonOutput bool
}

// newDemo returns the command berth demo.
func newDemo() *cobra.Command {
	f := &demoFlags{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Start a cluster, compare GPU types and print a recommendation",
		Long: `Demo starts a cluster of three node processes on this machine with simulated GPUs of
four types, signs in, and asks a follower on which type a matrix product runs best. It
takes about a minute and a half and cleans up. With --keep the cluster stays, in
.berth/demo, until berth dev down --dir .berth/demo.`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.keep, "keep", false, "leave the cluster running and print how to use it")
	execution.RegisterObjective(flags, &f.objective)
	flags.StringVar(&f.gpus, "gpus", "", "simulated `GPUs`, as for berth dev (default "+dev.DefaultGPUs+")")
	flags.BoolVar(&f.jsonOutput, "json", false, "print the result as JSON")
	return cmd
}

func (f *demoFlags) run(cmd *cobra.Command) error {
	if os.Geteuid() != 0 {
		return errors.New("executions are put into sandboxes, which takes root: run it with sudo")
	}
	program, err := dev.Program()
	if err != nil {
		return err
	}
	cfg := dev.Config{
		Dir: filepath.Join(".berth", "demo"), GPUs: f.gpus, Binary: program, Restart: true,
		Logger: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "Starting three nodes on this machine ...")
	if f.keep {
		return f.runKept(cmd, cfg)
	}
	cfg.Dir, err = os.MkdirTemp("", "berth-demo-")
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer os.RemoveAll(cfg.Dir)
	cluster, err := dev.Open(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	defer cluster.Close()
	return cluster.RunWhile(cmd.Context(), func() error {
		state, err := dev.ReadState(cfg.Dir)
		if err != nil {
			return err
		}
		return f.show(cmd, state)
	})
}

// runKept shows the demonstration on a cluster that continues to run.
func (f *demoFlags) runKept(cmd *cobra.Command, cfg dev.Config) error {
	state, err := dev.Detach(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	if err := f.show(cmd, state); err != nil {
		return err
	}
	out := cmd.ErrOrStderr()
	fmt.Fprintln(out, "\nThe cluster keeps running:")
	if err := printCluster(out, cfg.Dir, "", state); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, `
berth run examples/hello.py          executes code on it
berth dev down --dir %s     ends it
`, cfg.Dir)
	return err
}

// show signs in, submits the GPU selection to a follower and prints the result.
func (f *demoFlags) show(cmd *cobra.Command, state dev.State) error {
	result, err := f.ask(cmd, state)
	if err != nil {
		return err
	}
	if f.jsonOutput {
		err = cli.PrintJSON(cmd.OutOrStdout(), result)
	} else {
		err = execution.PrintSelection(cmd.OutOrStdout(), result)
	}
	if err == nil {
		err = shown(result)
	}
	return err
}

// shown returns an error unless every GPU type of the selection has completed.
// A GPU selection also completes without some types, but not in the
// demonstration.
func shown(s wire.Selection) error {
	if s.Status != compute.StatusCompleted {
		return fmt.Errorf("the GPU selection %s", s.Status)
	}
	var missing []string
	for _, row := range s.Rows {
		if row.Status != compute.StatusCompleted {
			missing = append(missing, fmt.Sprintf("%s %s", row.GPUType, row.Status))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("not every GPU type has completed: %s", strings.Join(missing, ", "))
	}
	if s.Recommendation == nil {
		return errors.New("the GPU selection recommends nothing")
	}
	return nil
}

func (f *demoFlags) ask(cmd *cobra.Command, state dev.State) (wire.Selection, error) {
	addrs := state.Followers()
	if len(addrs) == 0 {
		addrs = state.Addrs()
	}
	c, err := client.New(client.Config{Addrs: addrs})
	if err != nil {
		return wire.Selection{}, err
	}
	out := cmd.ErrOrStderr()
	session, err := c.Login(cmd.Context(), state.Email, state.Password)
	if err != nil {
		return wire.Selection{}, fmt.Errorf("sign in: %w", err)
	}
	fmt.Fprintf(out, "Signed in as %s.\n", state.Email)
	c = c.WithToken(session.AccessToken)
	stop := false // Each type runs to its end, to show its time and cost.
	started, err := c.SubmitSelection(cmd.Context(), client.StartSelection{
		Start: client.Start{
			Code: examples.Matmul, FileName: "matmul.py", Timeout: int(demoTimeout.Seconds()),
		},
		Objective: f.objective, EarlyStop: &stop,
	})
	if err != nil {
		return wire.Selection{}, fmt.Errorf("submit: %w", err)
	}
	fmt.Fprintf(out, "A follower, %s, took the GPU selection %s.\n", addrs[0], started.ExecutionID)
	fmt.Fprintln(out, "The same matrix product now executes on every GPU type:")
	return execution.Watch(cmd, c, started.ExecutionID)
}
