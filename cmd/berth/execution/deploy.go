package execution

import (
	"context"
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

// NewDeploy returns the command berth deploy.
func NewDeploy() *cobra.Command {
	cmd := cli.Parent("deploy", "Serve models behind an OpenAI-compatible address",
		newDeployCreate(), newDeployUpdate(), newDeployLs(), newDeployShow(), newDeployLogs(),
		newDeployChange("stop", "Stop a deployment until it is started", (*client.Client).StopDeployment),
		newDeployChange("start", "Start a deployment that is stopped, paused or has failed",
			(*client.Client).StartDeployment),
		newDeployChange("rm", "Remove a deployment for good", (*client.Client).DeleteDeployment))
	cmd.Long = `A deployment is a model that is loaded by an engine, such as vLLM, in one or more replicas.
Every node answers at /openai/v1; the id of the deployment is the name of the model there.`
	return cmd
}

// deployFlags are the flags of berth deploy create.
type deployFlags struct {
	conn      cli.Connection
	in        wire.DeploymentCreate
	args      []string
	p95       time.Duration
	window    time.Duration
	tokenFile string
	gpu       string
	detach    bool
	asJSON    bool
}

// newDeployCreate returns the command berth deploy create.
func newDeployCreate() *cobra.Command {
	f := &deployFlags{}
	cmd := &cobra.Command{
		Use: "create MODEL", Short: "Deploy a model and wait until it is ready",
		Args: cli.Arguments(cobra.ExactArgs(1)),
		Long: `Create deploys a model, named as on the hub: owner/name, with @revision, and with :part for
the file whose name has that part. It prints the id of the deployment. Ctrl-C ends only this
command.`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.do(cmd, args[0]) },
	}
	f.conn.Register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.gpu, "gpu", "", "`GPU` type of each replica, or cpu (default: as the engine needs)")
	flags.IntVar(&f.in.GPUCount, "gpus", 1, "GPUs of each replica")
	flags.IntVar(&f.in.GPUVRAM, "min-vram-gb", 0, "memory that the GPU must have")
	flags.StringVar(&f.in.Engine, "engine", "", "`engine` of the nodes (default: vllm with GPUs, else the first there is)")
	flags.StringArrayVar(&f.args, "arg", nil, "further argument of the engine; repeatable")
	flags.Float64Var(&f.in.TargetRPS, "target-rps", 1, "requests a second that one replica is meant to answer")
	flags.DurationVar(&f.p95, "target-latency-p95", 2*time.Second, "time to the first byte of an answer, 95th percentile")
	flags.DurationVar(&f.window, "stabilisation-window", 5*time.Minute,
		"time for which fewer replicas must be enough before a scale-down")
	flags.IntVar(&f.in.MinReplicas, "min-replicas", 1, "fewest replicas")
	flags.IntVar(&f.in.MaxReplicas, "max-replicas", 1, "most replicas")
	flags.StringVar(&f.in.Name, "name", "", "name for people")
	flags.StringVar(&f.tokenFile, "hf-token-file", "", "`file` with the token for the hub")
	flags.BoolVarP(&f.detach, "detach", "d", false, "do not wait until it is ready")
	flags.BoolVar(&f.asJSON, "json", false, "print the deployment as JSON")
	return cmd
}

func (f *deployFlags) do(cmd *cobra.Command, model string) error {
	f.in.Model, f.in.GPUType, f.in.Args = model, f.gpu, strings.Join(f.args, " ")
	f.in.TargetP95, f.in.Window = int(f.p95.Milliseconds()), int(f.window.Seconds())
	if f.tokenFile != "" {
		data, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return err
		}
		f.in.Token = strings.TrimSpace(string(data))
	}
	c, err := f.conn.Client(cmd)
	if err != nil {
		return err
	}
	created, err := c.Deploy(cmd.Context(), f.in)
	if err != nil {
		return inspect.Unexecuted(err)
	}
	var d wire.Deployment
	for shown := ""; !f.detach; {
		if d, err = c.Deployment(cmd.Context(), created.ID); err != nil {
			return interruptedService(cmd.Context(), created.ID, err)
		}
		if now := deploymentState(&d); now != shown {
			shown = now
			fmt.Fprintf(cmd.ErrOrStderr(), "berth: deployment %s is %s\n", created.ID, shown)
		}
		if d.Status == "failed" {
			err := fmt.Errorf("the deployment has failed: %s", cli.OrNone(d.Detail))
			return &cli.ExitError{Code: cli.ExitFailed, Err: errors.Join(printEngine(cmd, true, d.EngineOutput), err)}
		}
		if d.Ready > 0 {
			break
		}
		if !loop.Sleep(cmd.Context(), servicePoll) {
			return interruptedService(cmd.Context(), created.ID, cmd.Context().Err())
		}
	}
	switch {
	case f.asJSON && f.detach:
		return cli.PrintJSON(cmd.OutOrStdout(), created)
	case f.asJSON:
		return cli.PrintJSON(cmd.OutOrStdout(), d)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), created.ID)
	return err
}

// deploymentState returns the status of a deployment, and what the first of its replicas
// that is not ready does.
func deploymentState(d *wire.Deployment) string {
	for _, row := range d.Rows {
		if !row.Ready && row.Detail != nil && d.Status != "failed" {
			return d.Status + ": " + *row.Detail
		}
	}
	return d.Status
}

// newDeployLs returns the command berth deploy ls.
func newDeployLs() *cobra.Command {
	conn := &cli.Connection{}
	var asJSON bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List the deployments", Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			list, err := c.Deployments(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), list)
			}
			t := cli.NewTable("id", "model", "engine", "status", "ready", "profile")
			for _, d := range list.Deployments {
				t.AppendRow(cli.Row(d.ID, d.Model, d.Engine, d.Status, fmt.Sprintf("%d/%d", d.Ready, d.Replicas), d.Profile))
			}
			return cli.PrintTable(cmd.OutOrStdout(), t)
		},
	}
	conn.Register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// newDeployShow returns the command berth deploy show.
func newDeployShow() *cobra.Command {
	return deploymentCommand("show ID", "Show a deployment with its replicas",
		func(cmd *cobra.Command, c *client.Client, id compute.ExecutionID, asJSON bool) error {
			d, err := c.Deployment(cmd.Context(), id)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), d)
			}
			t := cli.NewTable("replica", "id", "status", "ready", "node", "restarts", "detail")
			for _, row := range d.Rows {
				t.AppendRow(cli.Row(row.Number, row.ExecutionID, row.Status, row.Ready, cli.OrNone(row.Node), row.Restarts,
					cli.OrNone(row.Detail)))
			}
			if d.Update != nil {
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "Its replicas are replaced by %s with the arguments %q.\n",
					d.Update.Model, d.Update.Args); err != nil {
					return err
				}
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is %s on %s: %s\n%s\n",
				d.Model, d.Status, d.Engine, d.BaseURL, cli.Plain(cli.OrNone(d.Detail))); err != nil {
				return err
			}
			if err := printEngine(cmd, false, d.EngineOutput); err != nil {
				return err
			}
			return cli.PrintTable(cmd.OutOrStdout(), t)
		})
}

// newDeployLogs returns the command berth deploy logs.
func newDeployLogs() *cobra.Command {
	return deploymentCommand("logs ID", "Print the newest lines of a deployment's engines",
		func(cmd *cobra.Command, c *client.Client, id compute.ExecutionID, asJSON bool) error {
			found, err := c.DeploymentLogs(cmd.Context(), id)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), found)
			}
			lines := make([]string, len(found.Logs))
			for i, line := range found.Logs {
				lines[i] = line.Message
			}
			return printEngine(cmd, false, lines)
		})
}

// printEngine prints lines of engines as output is printed: with their colours.
func printEngine(cmd *cobra.Command, stderr bool, lines []string) error {
	out := cli.NewOutputPrinter(cmd, false)
	for _, line := range lines {
		if err := out.Print(client.Event{Stderr: stderr, Content: line + "\n"}); err != nil {
			return err
		}
	}
	return nil
}

// newDeployChange returns a command that changes a deployment.
func newDeployChange(
	verb, short string, change func(*client.Client, context.Context, compute.ExecutionID) (wire.DeploymentCreated, error),
) *cobra.Command {
	return deploymentCommand(verb+" ID", short, func(
		cmd *cobra.Command, c *client.Client, id compute.ExecutionID, asJSON bool,
	) error {
		out, err := change(c, cmd.Context(), id)
		if err != nil {
			return err
		}
		if asJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), out)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), out.Message)
		return err
	})
}

// deploymentCommand returns a command about one deployment.
func deploymentCommand(
	use, short string, do func(*cobra.Command, *client.Client, compute.ExecutionID, bool) error,
) *cobra.Command {
	conn := &cli.Connection{}
	var asJSON bool
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := compute.ParseExecutionID(args[0])
			if err != nil {
				return cli.UsageErrorf("%q is not a deployment id", args[0])
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			return do(cmd, c, id, asJSON)
		},
	}
	conn.Register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
