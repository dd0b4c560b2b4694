package inspect

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// NewOutputs returns the command berth outputs.
func NewOutputs() *cobra.Command {
	return cli.Parent("outputs", "List and fetch the files that an execution left in outputs/",
		newOutputsLs(), newOutputsGet(), newOutputsStore())
}

// newOutputsLs returns the command berth outputs ls.
func newOutputsLs() *cobra.Command {
	conn, asJSON := &cli.Connection{}, false
	cmd := &cobra.Command{
		Use: "ls ID", Short: "List the files that an execution left", Args: cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, _, list, err := listOutputs(cmd, conn, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), list)
			}
			t := cli.NewTable("size", "sha256", "name")
			for _, o := range list {
				t.AppendRow(cli.Row(o.Size, o.SHA256.String()[:shownDigits], o.Name))
			}
			return cli.PrintTable(cmd.OutOrStdout(), t)
		},
	}
	conn.Register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// shownDigits is how much of a hash a table shows.
const shownDigits = 12

// listOutputs returns the outputs of an execution.
func listOutputs(cmd *cobra.Command, conn *cli.Connection, arg string) (
	c *client.Client, id compute.ExecutionID, list []wire.Output, err error,
) {
	if c, id, err = clientAndExecution(cmd, conn, arg); err != nil {
		return nil, id, nil, err
	}
	list, err = c.Outputs(cmd.Context(), id)
	return c, id, list, err
}

// getFlags are the flags of berth outputs get.
type getFlags struct {
	conn   cli.Connection
	dir    string
	force  bool
	asJSON bool
}

// newOutputsGet returns the command berth outputs get.
func newOutputsGet() *cobra.Command {
	f := &getFlags{}
	cmd := &cobra.Command{
		Use:   "get ID [NAME...]",
		Short: "Fetch files that an execution left, all of them without NAME",
		Long: `Get writes the files below --dir and checks their hashes. It goes on at another node
when one fails, and keeps a file only once it is whole.`,
		Args: cli.Arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.conn.Register(cmd)
	cmd.Flags().StringVar(&f.dir, "dir", ".", "`directory` to write to; it is made if it does not exist")
	cmd.Flags().BoolVar(&f.force, "force", false, "replace files that exist")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON: the files that were fetched")
	return cmd
}

func (f *getFlags) run(cmd *cobra.Command, args []string) error {
	c, id, list, err := listOutputs(cmd, &f.conn, args[0])
	if err != nil {
		return err
	}
	if list, err = chosen(list, args[1:]); err != nil {
		return err
	}
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(f.dir) // Names are the code's: they stay below.
	if err != nil {
		return err
	}
	defer root.Close()
	for i := range list {
		if err := f.fetch(cmd, c, id, root, &list[i]); err != nil {
			return fmt.Errorf("%s: %w", list[i].Name, err)
		}
		if !f.asJSON {
			fmt.Fprintln(cmd.OutOrStdout(), cli.Plain(path.Join(f.dir, list[i].Name)))
		}
	}
	if f.asJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), append([]wire.Output{}, list...))
	}
	return nil
}

// newOutputsStore returns the command berth outputs store.
func newOutputsStore() *cobra.Command {
	conn, asJSON := &cli.Connection{}, false
	cmd := &cobra.Command{
		Use: "store ID storage://FOLDER", Short: "Copy the files that an execution left to storage",
		Long: `Store copies the files within the cluster, to a folder of berth storage. They stay there
when the outputs of the execution expire.`,
		Example: "  berth outputs store 0198c1d2 storage://runs/7/",
		Args:    cli.Arguments(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix, is := strings.CutPrefix(args[1], "storage://")
			if !is {
				return cli.UsageErrorf("write the folder as storage://FOLDER")
			}
			c, id, err := clientAndExecution(cmd, conn, args[0])
			if err != nil {
				return err
			}
			out, err := c.StoreOutputs(cmd.Context(), id, prefix)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), out)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "stored %d files, %d bytes, below storage://%s\n", out.Files, out.Bytes, out.Prefix)
			return nil
		},
	}
	conn.Register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// chosen returns the outputs with names, all of them for none.
func chosen(list []wire.Output, names []string) ([]wire.Output, error) {
	if len(names) == 0 {
		return list, nil
	}
	byName := make(map[string]wire.Output, len(list))
	for _, o := range list {
		byName[o.Name] = o
	}
	out := make([]wire.Output, 0, len(names))
	for _, name := range names {
		o, ok := byName[name]
		if !ok {
			return nil, fmt.Errorf("the execution left no output %s; see berth outputs ls", name)
		}
		out = append(out, o)
	}
	return out, nil
}

// fetch writes one file.
func (f *getFlags) fetch(
	cmd *cobra.Command, c *client.Client, id compute.ExecutionID, root *os.Root, o *wire.Output,
) error {
	if why := compute.BadPath(o.Name); why != "" {
		return errors.New(why)
	}
	if _, err := root.Lstat(o.Name); err == nil && !f.force {
		return errors.New("exists already: choose another --dir, or replace it with --force")
	}
	if err := root.MkdirAll(path.Dir(o.Name), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	part := o.Name + ".part"
	file, err := root.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = c.Output(cmd.Context(), id, o.Name, 0, io.MultiWriter(file, sum))
	if err = errors.Join(err, file.Close()); err == nil && compute.Digest(sum.Sum(nil)) != o.SHA256 {
		err = errors.New("what came is not what was stored")
	}
	if err == nil {
		err = root.Rename(part, o.Name)
	}
	if err != nil {
		_ = root.Remove(part) // Half a file is of no use.
	}
	return err
}
