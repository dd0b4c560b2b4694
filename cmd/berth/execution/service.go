package execution

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
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

// servicePoll is how often a service that starts is asked for.
const servicePoll = 500 * time.Millisecond

// NewService returns the command berth service.
func NewService() *cobra.Command {
	cmd := cli.Parent("service", "Run programs that answer requests",
		newServiceRun(), newServiceLs(), newServiceLogs(), newServiceScale(), newServiceRm())
	cmd.Long = `A service is a program that listens on a port and runs until it is removed. It has one or
more replicas, which are started again when they end and placed again when their node is
lost. Any node passes requests to a replica that is ready, at the URL of the service.`
	return cmd
}

// serviceRunFlags are the flags of berth service run.
type serviceRunFlags struct {
	run        runFlags
	start      client.StartService
	readiness  time.Duration
	detach     bool
	jsonOutput bool
}

// newServiceRun returns the command berth service run.
func newServiceRun() *cobra.Command {
	f := &serviceRunFlags{readiness: compute.DefaultReadinessTimeout}
	cmd := &cobra.Command{
		Use:   "run " + programUse,
		Short: "Start a service and print its URL once it is ready",
		Long: `Run starts a service. Its program listens on the port in its variable PORT, at 127.0.0.1 or
at any address. Code and files are given as with berth run. Ctrl-C ends only this command.

The URL takes the credentials of the API: a bearer token, or ?token= once in a browser.

` + programHelp,
		Args: cli.Arguments(programArgs),
		RunE: func(cmd *cobra.Command, args []string) error { return f.do(cmd, args) },
	}
	f.run.conn.Register(cmd)
	f.run.code.register(cmd)
	f.run.image.register(cmd)
	flags := cmd.Flags()
	for _, name := range f.unused() {
		cli.Must(flags.MarkHidden(name))
	}
	flags.StringVar(&f.run.gpu, "gpu", "", "`GPU` type and count of each replica, such as h100 or a100:2")
	flags.StringVar(&f.run.profile, "profile", "", "hardware `profile`, such as cpu.4x or gpu.a100.500m (default cpu)")
	flags.IntVar(&f.start.Port, "port", 8000, "TCP port on which the program listens")
	flags.StringVar(&f.start.HealthPath, "health-path", "",
		"`path` that answers GET with 200 to 399 once the program is ready (default: the port accepts a connection)")
	flags.IntVar(&f.start.Replicas, "replicas", 1, "number of replicas")
	flags.StringVar(&f.start.Restart, "restart", "always",
		"whether a replica that ended is started again: always, on-failure or never")
	flags.Var((*limit)(&f.readiness), "readiness-timeout", "time in which a replica must be ready; else it fails")
	flags.BoolVarP(&f.detach, "detach", "d", false, "print the service's id and do not wait")
	flags.BoolVar(&f.jsonOutput, "json", false, "print the service as JSON")
	cli.Must(cmd.RegisterFlagCompletionFunc("restart", cobra.FixedCompletions(
		[]string{"always", "on-failure", "never"}, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// unused returns the flags of code that mean nothing for a service.
func (f *serviceRunFlags) unused() []string {
	return []string{"timeout", "max-credits", "max-retries", "preemptible", "compose", "stop-grace"}
}

func (f *serviceRunFlags) do(cmd *cobra.Command, args []string) error {
	for _, name := range f.unused() {
		if cmd.Flags().Changed(name) {
			return cli.UsageErrorf("--%s does not go with a service", name)
		}
	}
	f.run.code.image = f.run.image.ref != ""
	start, tree, err := f.run.code.start(cmd, args)
	if err != nil {
		return err
	}
	f.start.Image, f.start.RunUser = f.run.image.ref, f.run.image.user
	if f.start.Registry, err = f.run.image.registry.read(); err != nil {
		return err
	}
	if start.ExecutionType, start.GPUTypes, err = f.run.hardware(); err != nil {
		return err
	}
	start.Timeout = 0
	f.start.Start, f.start.ReadinessTimeout = start, int(f.readiness.Seconds())
	c, err := f.run.conn.Client(cmd)
	if err != nil {
		return err
	}
	if f.start.BundleID, err = sendTree(cmd, c, tree); err != nil {
		return inspect.Unexecuted(err)
	}
	started, err := c.SubmitService(cmd.Context(), f.start)
	if err != nil {
		return inspect.Unexecuted(err)
	}
	if f.detach {
		if f.jsonOutput {
			return cli.PrintJSON(cmd.OutOrStdout(), started)
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), started.ExecutionID)
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "berth: service %s\n", started.ExecutionID)
	s, err := awaitService(cmd, c, started.ExecutionID)
	if err != nil {
		return err
	}
	if f.jsonOutput {
		return cli.PrintJSON(cmd.OutOrStdout(), s)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), s.URL)
	return err
}

// awaitService waits until a replica of a service is ready, and prints why it is not
// yet. A service that ends before is an error.
func awaitService(cmd *cobra.Command, c *client.Client, id compute.ExecutionID) (s wire.Service, err error) {
	shown := ""
	for {
		if s, err = c.Service(cmd.Context(), id); err != nil {
			return s, interruptedService(cmd.Context(), id, err)
		}
		switch {
		case s.Status.Terminal():
			return s, &cli.ExitError{Code: cli.ExitFailed, Err: fmt.Errorf("the service is %s: %s", s.Status,
				strings.Join(strings.Fields(cli.OrNone(s.StatusDetails)+" "+*cmp.Or(s.Detail, new(string))), " "))}
		case s.Ready > 0:
			return s, nil
		}
		if why := serviceState(&s); why != shown {
			shown = why
			fmt.Fprintf(cmd.ErrOrStderr(), "berth: %s\n", why)
		}
		loop.Sleep(cmd.Context(), servicePoll)
	}
}

// serviceState returns the state of the first replica of a service, for people.
func serviceState(s *wire.Service) string {
	if len(s.Rows) == 0 {
		return "its replicas are being created"
	}
	return inspect.ReplicaState(&s.Rows[0])
}

// interruptedService prints how to see the service if only the command has ended.
func interruptedService(ctx context.Context, id compute.ExecutionID, err error) error {
	if ctx.Err() == nil {
		return inspect.Unexecuted(err)
	}
	return &cli.ExitError{Code: cli.ExitInterrupted, Err: fmt.Errorf(`the service goes on
  to see it:  berth service ls
  to end it:  berth service rm %s`, id)}
}

// newServiceLs returns the command berth service ls.
func newServiceLs() *cobra.Command {
	conn := &cli.Connection{}
	var asJSON, wide bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List the services", Args: cli.Arguments(cobra.NoArgs),
		Long: `Ls lists the services that have not ended, with how many of their replicas are ready. With
--replicas it lists the replicas.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			list, err := c.Services(cmd.Context())
			switch {
			case err != nil:
				return err
			case asJSON:
				return cli.PrintJSON(cmd.OutOrStdout(), list)
			case wide:
				return printReplicas(cmd, list)
			}
			t := cli.NewTable("id", "name", "status", "ready", "profile", "url")
			for _, s := range list {
				t.AppendRow(cli.Row(s.ExecutionID, cli.OrNone(s.Name), s.Status,
					fmt.Sprintf("%d/%d", s.Ready, s.Replicas), s.HardwareProfile, s.URL))
			}
			return cli.PrintTable(cmd.OutOrStdout(), t)
		},
	}
	conn.Register(cmd)
	cmd.Flags().BoolVar(&wide, "replicas", false, "list the replicas of each")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printReplicas prints a row per replica.
func printReplicas(cmd *cobra.Command, list []wire.Service) error {
	t := cli.NewTable("service", "replica", "id", "status", "ready", "node", "restarts", "detail")
	for _, s := range list {
		for _, row := range s.Rows {
			detail := cli.OrNone(row.Detail)
			if row.NextStart != nil {
				detail = "starts again at " + row.NextStart.Time().Local().Format(time.TimeOnly) + ": " + detail
			}
			t.AppendRow(cli.Row(cmp.Or(*cmp.Or(s.Name, new(string)), s.ExecutionID.String()), row.Number, row.ExecutionID,
				row.Status, row.Ready, cli.OrNone(row.Node), row.Restarts, detail))
		}
	}
	return cli.PrintTable(cmd.OutOrStdout(), t)
}

// newServiceLogs returns the command berth service logs.
func newServiceLogs() *cobra.Command {
	f := &inspect.LogsFlags{Tail: -1}
	replica := 1
	cmd := &cobra.Command{
		Use: "logs ID", Short: "Show the output of a replica of a service", Args: cli.Arguments(cobra.ExactArgs(1)),
		Long: `Logs shows the output so far of the newest execution of a replica; -f follows it until it
ends. The output of the ones before is shown by berth logs with the id of each.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.Conn.Client(cmd)
			if err != nil {
				return err
			}
			s, err := findService(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			for _, row := range s.Rows {
				if row.Number == replica && !row.ExecutionID.IsZero() {
					return f.Run(cmd, row.ExecutionID.String())
				}
			}
			return cli.UsageErrorf("the service has no replica %d yet", replica)
		},
	}
	f.Conn.Register(cmd)
	cmd.Flags().IntVar(&replica, "replica", 1, "`number` of the replica")
	cmd.Flags().BoolVarP(&f.Follow, "follow", "f", false, "follow the output until the replica has ended")
	cmd.Flags().IntVarP(&f.Tail, "tail", "n", -1, "show only the last `lines`")
	cmd.Flags().BoolVar(&f.Raw, "raw", false, cli.RawHelp)
	cmd.Flags().BoolVar(&f.JSON, "json", false, "print one JSON object per piece of output")
	return cmd
}

// newServiceScale returns the command berth service scale.
func newServiceScale() *cobra.Command {
	conn := &cli.Connection{}
	var asJSON bool
	cmd := &cobra.Command{
		Use: "scale ID REPLICAS", Short: "Change how many replicas of a service run", Args: cli.Arguments(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 0 || n > compute.MaxReplicas {
				return cli.UsageErrorf("%q is not a number of replicas, 0 to %d", args[1], compute.MaxReplicas)
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			s, err := findService(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if s, err = c.ScaleService(cmd.Context(), s.ExecutionID, n); err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), s)
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "berth: %s is scaled to %d\n", s.ExecutionID, s.Replicas)
			return err
		},
	}
	conn.Register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// newServiceRm returns the command berth service rm.
func newServiceRm() *cobra.Command {
	conn := &cli.Connection{}
	cmd := &cobra.Command{
		Use: "rm ID...", Short: "End services", Args: cli.Arguments(cobra.MinimumNArgs(1)),
		Long: `Rm ends services: their replicas get SIGTERM, and after the grace SIGKILL. Their records stay
in berth ps -a.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			return cli.Each(cmd, args, func(arg string) error {
				s, err := findService(cmd.Context(), c, arg)
				if err == nil {
					_, err = c.DeleteService(cmd.Context(), s.ExecutionID)
				}
				if err == nil {
					cli.Report(cmd, cli.Done{Name: s.ExecutionID.String(), Done: "stopping"}, "%s is asked to end", s.ExecutionID)
				}
				return err
			})
		},
	}
	conn.Register(cmd)
	return cli.Reporting(cmd)
}

// findService returns the service that an argument names: by its identifier, the end
// of that, or its name.
func findService(ctx context.Context, c *client.Client, arg string) (wire.Service, error) {
	list, err := c.Services(ctx)
	if err != nil {
		return wire.Service{}, err
	}
	return cli.Unique("service", arg, list, func(s wire.Service) []string {
		return []string{s.ExecutionID.String(), *cmp.Or(s.Name, new(string))}
	})
}
