package execution

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/cmd/berth/inspect"
	"berth/compute"
	"berth/loop"
)

// updateFlags are the flags of berth deploy update.
type updateFlags struct {
	conn      cli.Connection
	in        wire.DeploymentUpdate
	args      []string
	noArgs    bool
	rps       float64
	p95       time.Duration
	window    time.Duration
	min, max  int
	tokenFile string
	detach    bool
	asJSON    bool
}

// newDeployUpdate returns the command berth deploy update.
func newDeployUpdate() *cobra.Command {
	f := &updateFlags{}
	cmd := &cobra.Command{
		Use: "update ID", Short: "Change a deployment without an interruption",
		Args: cli.Arguments(cobra.ExactArgs(1)),
		Long: `Update changes the model, the arguments of its engine, the token for the hub, or the limits
and targets of a deployment; what no flag names stays. Replicas are replaced one after the
other, each once another one is ready, so that one more replica needs capacity meanwhile. If the
new engine ends as often as a new deployment may, the earlier replicas go on.`,
		Example: `  berth deploy update ID --min-replicas 2
  berth deploy update ID --model lab/llama@v2 --max-replicas 4`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.do(cmd, args[0]) },
	}
	f.conn.Register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.in.Model, "model", "", "another `model`, or another revision of it")
	flags.StringArrayVar(&f.args, "arg", nil, "argument of the engine, in place of those before; repeatable")
	flags.BoolVar(&f.noArgs, "no-args", false, "remove the arguments of the engine")
	flags.StringVar(&f.tokenFile, "hf-token-file", "", "`file` with another token for the hub")
	flags.Float64Var(&f.rps, "target-rps", 0, "requests a second that one replica is meant to answer")
	flags.DurationVar(&f.p95, "target-latency-p95", 0, "time to the first byte of an answer, 95th percentile")
	flags.DurationVar(&f.window, "stabilisation-window", 0,
		"time for which fewer replicas must be enough before a scale-down")
	flags.IntVar(&f.min, "min-replicas", 0, "fewest replicas")
	flags.IntVar(&f.max, "max-replicas", 0, "most replicas")
	flags.BoolVarP(&f.detach, "detach", "d", false, "do not wait until all replicas are replaced")
	flags.BoolVar(&f.asJSON, "json", false, "print the deployment as JSON")
	return cmd
}

// body returns the body for the flags.
func (f *updateFlags) body(cmd *cobra.Command) (wire.DeploymentUpdate, error) {
	in, given := f.in, cmd.Flags().Changed
	if given("arg") && f.noArgs {
		return in, cli.UsageErrorf("--arg and --no-args exclude each other")
	}
	if given("arg") || f.noArgs {
		in.Args = new(strings.Join(f.args, " "))
	}
	if given("target-rps") {
		in.TargetRPS = &f.rps
	}
	if given("target-latency-p95") {
		in.TargetP95 = new(int(f.p95.Milliseconds()))
	}
	if given("stabilisation-window") {
		in.Window = new(int(f.window.Seconds()))
	}
	if given("min-replicas") {
		in.MinReplicas = &f.min
	}
	if given("max-replicas") {
		in.MaxReplicas = &f.max
	}
	if f.tokenFile != "" {
		data, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return in, err
		}
		in.Token = strings.TrimSpace(string(data))
	}
	if in == (wire.DeploymentUpdate{}) {
		return in, cli.UsageErrorf("nothing to change: see berth deploy update --help")
	}
	return in, nil
}

func (f *updateFlags) do(cmd *cobra.Command, text string) error {
	id, err := compute.ParseExecutionID(text)
	if err != nil {
		return cli.UsageErrorf("%q is not a deployment id", text)
	}
	in, err := f.body(cmd)
	if err != nil {
		return err
	}
	c, err := f.conn.Client(cmd)
	if err != nil {
		return err
	}
	out, err := c.UpdateDeployment(cmd.Context(), id, in)
	if err != nil {
		return inspect.Unexecuted(err)
	}
	if f.detach || !in.Replaces() {
		if f.asJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), out)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), out.Message)
		return err
	}
	d, err := f.wait(cmd, c, id)
	if err != nil {
		return err
	}
	if f.asJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), d)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), "The deployment is changed.")
	return err
}

// wait returns a deployment once its update has ended, and says on the way what becomes
// of it.
func (f *updateFlags) wait(cmd *cobra.Command, c *client.Client, id compute.ExecutionID) (wire.Deployment, error) {
	for shown := ""; ; {
		d, err := c.Deployment(cmd.Context(), id)
		if err != nil {
			return d, interruptedService(cmd.Context(), id, err)
		}
		if now := fmt.Sprintf("%s, %d of %d replicas ready", d.Status, d.Ready, d.Replicas); now != shown {
			shown = now
			fmt.Fprintf(cmd.ErrOrStderr(), "berth: deployment %s is %s\n", id, now)
		}
		switch {
		case d.Detail != nil && d.Update == nil && d.Status != "scaling":
			return d, &cli.ExitError{Code: cli.ExitFailed, Err: errors.New(*d.Detail)}
		case d.Status != "scaling" && d.Status != "starting" && d.Status != "pending":
			return d, nil
		}
		if !loop.Sleep(cmd.Context(), servicePoll) {
			return d, interruptedService(cmd.Context(), id, cmd.Context().Err())
		}
	}
}
