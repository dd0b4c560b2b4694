package account

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"berth/api/wire"
	"berth/cmd/berth/cli"
)

// maxEnvironmentBytes is the largest file of requirements that is read. The cluster has
// its own limit.
const maxEnvironmentBytes = 1 << 20

// NewEnv returns the command berth env.
func NewEnv() *cobra.Command {
	conn := &cli.Connection{}
	cmd := cli.Parent("env", "Manage named environments", newEnvCreate(conn), newEnvList(conn), newEnvRemove(conn))
	cmd.Long = `A named environment is a set of Python packages that the nodes have ready, so that
executions with --environment NAME start at once. Admins make those of their organization;
operators make those that every organization may use.`
	conn.Register(cmd)
	return cmd
}

// newEnvCreate returns the command berth env create.
func newEnvCreate(conn *cli.Connection) *cobra.Command {
	var env wire.NewEnvironment
	var file string
	var shared, asJSON bool
	cmd := &cobra.Command{
		Use:   "create NAME -r FILE | --path DIR",
		Short: "Create an environment, which the nodes prepare",
		Long: `Create makes an environment. With -r, every node installs the requirements of the
file; berth env ls shows how far they are, and why one failed. With --path, nodes that
have the directory offer it as it is: a virtual environment, or a directory with
packages. Only operators name paths, and those environments are for everybody.`,
		Example: `  berth env create torch24 -r requirements.txt
  berth env create conda --path /opt/conda/envs/lab
  berth run --environment torch24 train.py`,
		Args: cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (file == "") == (env.Path == "") {
				return cli.UsageErrorf("give either -r FILE or --path DIR")
			}
			env.Name = args[0]
			if file != "" {
				text, err := os.ReadFile(file)
				if err != nil {
					return cli.UsageErrorf("--requirements: %w", err)
				}
				if len(text) > maxEnvironmentBytes {
					return cli.UsageErrorf("--requirements: %s has more than %d bytes", file, maxEnvironmentBytes)
				}
				env.Requirements = string(text)
			}
			everybody := shared || env.Path != ""
			conn.Operator = everybody
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			made, err := c.CreateEnvironment(cmd.Context(), env, everybody)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), made)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"%s is made; the nodes prepare it (berth env ls)\n", made.Name)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&file, "requirements", "r", "", "`FILE` with the packages to install, in the format of pip")
	flags.StringVar(&env.Path, "path", "", "`DIR` of the nodes, in place of packages; for operators")
	flags.StringVar(&env.Interpreter, "interpreter", "",
		"`FILE` below --path that is its interpreter (default bin/python3, if there is one)")
	flags.BoolVar(&shared, "shared", false, "let every organization use it; for operators")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// newEnvList returns the command berth env ls.
func newEnvList(conn *cli.Connection) *cobra.Command {
	var shared, asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the environments, and how far the nodes are",
		Args:  cli.Arguments(cobra.NoArgs), Example: `  berth env ls`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn.Operator = shared
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			all, err := c.Environments(cmd.Context(), shared)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), all)
			}
			t := cli.NewTable("name", "status", "of", "nodes", "MiB", "content")
			for i := range all {
				t.AppendRow(cli.Row(all[i].Name, all[i].Status, ownerOf(&all[i]), nodesOf(&all[i]),
					all[i].Size>>20, contentOf(&all[i])))
			}
			return cli.PrintTable(cmd.OutOrStdout(), t)
		},
	}
	cmd.Flags().BoolVar(&shared, "shared", false, "list those of the cluster, as an operator")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// ownerOf returns whose an environment is.
func ownerOf(e *wire.Environment) string {
	if e.Shared {
		return "the cluster"
	}
	return "the organization"
}

// nodesOf returns how far the nodes are with an environment, and why the first failed.
func nodesOf(e *wire.Environment) string {
	count := map[string]int{}
	for i := range e.Nodes {
		count[e.Nodes[i].Status.String()]++
	}
	var parts []string
	for _, status := range []string{"ready", "preparing", "failed"} {
		if count[status] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[status], status))
		}
	}
	text := strings.Join(parts, ", ")
	if e.Error != nil {
		text += ": " + *e.Error
	}
	return text
}

// contentOf returns the content of an environment, on one line.
func contentOf(e *wire.Environment) string {
	switch {
	case e.Path != nil:
		return *e.Path
	case e.Requirements != nil:
		return strings.Join(strings.Fields(*e.Requirements), " ")
	}
	return ""
}

// newEnvRemove returns the command berth env rm.
func newEnvRemove(conn *cli.Connection) *cobra.Command {
	var shared bool
	cmd := &cobra.Command{
		Use:   "rm NAME...",
		Short: "Delete environments that no execution needs",
		Args:  cli.Arguments(cobra.MinimumNArgs(1)), Example: `  berth env rm torch24`,
		RunE: func(cmd *cobra.Command, args []string) error {
			conn.Operator = shared
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			return cli.Each(cmd, args, func(name string) error {
				err := c.DeleteEnvironment(cmd.Context(), name, shared)
				if err == nil {
					cli.Report(cmd, cli.Done{Name: name, Done: "deleted"}, "the environment %s is deleted", name)
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&shared, "shared", false, "delete those of the cluster, as an operator")
	return cli.Reporting(cmd)
}
