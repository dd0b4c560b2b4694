package storage

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// scheme begins the names of stored files where a path could stand too.
const scheme = "storage://"

// options are the flags that all commands share.
type options struct {
	conn cli.Connection
	json bool
	jobs int
	part int // MiB.
}

func (o *options) register(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

// registerJobs adds the flags of commands that move files.
func (o *options) registerJobs(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().IntVar(&o.jobs, "jobs", 4, "how many `files` or parts to move at a time")
	cmd.Flags().IntVar(&o.part, "part-size", 32, "`MiB` of a part; a file of twice as many goes in parts")
	return o.register(cmd)
}

// check returns an error if a flag that registerJobs adds is wrong.
func (o *options) check() error {
	if o.jobs < 1 || o.part*mib < compute.MinObjectPart {
		return cli.UsageErrorf("--jobs is at least 1, --part-size at least %d", compute.MinObjectPart/mib)
	}
	return nil
}

// New returns the command berth storage.
func New() *cobra.Command {
	o := &options{}
	cmd := cli.Parent("storage", "Store files, list them and fetch them",
		o.newList(), o.newPut(), o.newGet(), o.newRemove(), o.newCopy(), o.newSync(), o.newUsage())
	cmd.Long = `Storage keeps files for your organization on several nodes, encrypted. A file is named by
its key, which may have slashes. A command that names files of both kinds writes stored
ones as storage://KEY.`
	o.conn.Register(cmd)
	return cmd
}

// newList returns the command berth storage ls.
func (o *options) newList() *cobra.Command {
	return o.register(&cobra.Command{
		Use: "ls [PREFIX]", Short: "List stored files", Args: cli.Arguments(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.conn.Client(cmd)
			if err != nil {
				return err
			}
			files, err := list(cmd.Context(), c, keyOf(strings.Join(args, "")))
			if err != nil {
				return err
			}
			if o.json {
				return cli.PrintJSON(cmd.OutOrStdout(), append([]wire.File{}, files...))
			}
			t := cli.NewTable("size", "modified", "key")
			for _, f := range files {
				t.AppendRow(cli.Row(f.Size, f.LastModified.Time().UTC().Format("2006-01-02 15:04:05Z"), f.Key))
			}
			return cli.PrintTable(cmd.OutOrStdout(), t)
		},
	})
}

// keyOf returns a key without the scheme.
func keyOf(arg string) string { return strings.TrimPrefix(arg, scheme) }

// isStored reports whether an argument names a stored file.
func isStored(arg string) bool { return strings.HasPrefix(arg, scheme) }

// newPut returns the command berth storage put.
func (o *options) newPut() *cobra.Command {
	cmd := &cobra.Command{
		Use: "put FILE [KEY]", Short: "Store a file",
		Long: `Put stores a file under KEY, or under its own name. A KEY that ends with a slash is a
folder. The file is there once all of it is, in place of one with the same key. A large
one goes in parts, several at a time. Repeated after a failure, also
from another machine, put sends the parts that have not come yet; they are kept for a week.`,
		Example: "  berth storage put model.bin models/\n  berth storage put out.csv results/2026/run-7.csv",
		Args:    cli.Arguments(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			key := ""
			if len(args) == 2 {
				key = keyOf(args[1])
			}
			return o.sendOne(cmd, args[0], key)
		},
	}
	return o.registerJobs(cmd)
}

// sendOne stores a file under a key, below a folder, or under its own name.
func (o *options) sendOne(cmd *cobra.Command, name, key string) error {
	if key == "" || strings.HasSuffix(key, "/") {
		key += filepath.Base(name)
	}
	if err := o.check(); err != nil {
		return err
	}
	c, err := o.conn.Client(cmd)
	if err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return cli.UsageErrorf("%w", err)
	}
	bar := cli.NewBar(cmd.ErrOrStderr(), "sending")
	bar.Total(info.Size())
	defer bar.Close()
	done, err := o.newMover(c, bar).send(cmd.Context(), name, key)
	if err != nil {
		return err
	}
	return o.print(cmd, done)
}

// print prints what was done.
func (o *options) print(cmd *cobra.Command, done ...moved) error {
	if o.json {
		return cli.PrintJSON(cmd.OutOrStdout(), append([]moved{}, done...))
	}
	for _, m := range done {
		fmt.Fprintln(cmd.OutOrStdout(), m.Action, cli.Plain(m.Key))
	}
	return nil
}

// newGet returns the command berth storage get.
func (o *options) newGet() *cobra.Command {
	cmd := &cobra.Command{
		Use: "get KEY [FILE]", Short: "Fetch a stored file",
		Long: `Get writes a stored file to FILE, or to its own name in this directory; - is standard
output. A large file comes in parts, several at a time. Repeated after a failure, get
fetches what has not come yet, also from another node.`,
		Args: cli.Arguments(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) == 2 {
				name = args[1]
			}
			return o.fetchOne(cmd, keyOf(args[0]), name)
		},
	}
	return o.registerJobs(cmd)
}

// fetchOne writes a stored file to a path, into a directory, or to its own name.
func (o *options) fetchOne(cmd *cobra.Command, key, name string) error {
	if err := o.check(); err != nil {
		return err
	}
	c, err := o.conn.Client(cmd)
	if err != nil {
		return err
	}
	if name == "-" {
		_, err := c.Download(cmd.Context(), key, "", 0, cmd.OutOrStdout())
		return err
	}
	f, err := find(cmd.Context(), c, key)
	if err != nil {
		return err
	}
	if info, err := os.Stat(name); name == "" || err == nil && info.IsDir() {
		base, err := localName(path.Base(key), "")
		if err != nil {
			return err
		}
		name = filepath.Join(name, base)
	}
	root, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return cli.UsageErrorf("%w", err)
	}
	defer root.Close()
	bar := cli.NewBar(cmd.ErrOrStderr(), "fetching")
	bar.Total(f.Size)
	defer bar.Close()
	done, err := o.newMover(c, bar).fetch(cmd.Context(), f, root, filepath.Base(name))
	if err != nil {
		return err
	}
	return o.print(cmd, done)
}

// newRemove returns the command berth storage rm.
func (o *options) newRemove() *cobra.Command {
	recursive := false
	cmd := &cobra.Command{
		Use: "rm KEY...", Short: "Delete stored files", Args: cli.Arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.conn.Client(cmd)
			if err != nil {
				return err
			}
			var done []moved
			err = cli.Each(cmd, args, func(arg string) error {
				if !recursive {
					done = append(done, moved{Key: keyOf(arg), Action: "deleted"})
					return c.DeleteFile(cmd.Context(), keyOf(arg))
				}
				n, err := c.DeleteFolder(cmd.Context(), strings.TrimRight(keyOf(arg), "/"))
				if err == nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "berth: %d files are deleted\n", n)
				}
				return err
			})
			if err != nil {
				return err
			}
			return o.print(cmd, done...)
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "delete all files below each KEY, as a folder")
	return o.register(cmd)
}

// newCopy returns the command berth storage cp.
func (o *options) newCopy() *cobra.Command {
	return o.registerJobs(&cobra.Command{
		Use: "cp SOURCE DESTINATION", Short: "Copy a file to, from or within storage",
		Example: "  berth storage cp data.csv storage://in/\n  berth storage cp storage://a storage://b",
		Args:    cli.Arguments(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, to := args[0], args[1]
			switch {
			case isStored(from) && isStored(to):
				return o.copyOne(cmd, keyOf(from), keyOf(to))
			case isStored(from):
				return o.fetchOne(cmd, keyOf(from), to)
			case isStored(to):
				return o.sendOne(cmd, from, keyOf(to))
			}
			return cli.UsageErrorf("write a stored file as %sKEY; see berth storage cp --help", scheme)
		},
	})
}

// copyOne copies a stored file within the cluster.
func (o *options) copyOne(cmd *cobra.Command, from, to string) error {
	if to == "" || strings.HasSuffix(to, "/") {
		to += path.Base(from)
	}
	c, err := o.conn.Client(cmd)
	if err != nil {
		return err
	}
	out, err := c.CopyFile(cmd.Context(), from, to)
	if err != nil {
		return err
	}
	return o.print(cmd, moved{Key: out.Key, Size: out.Size, ETag: out.ETag, Action: "copied"})
}

// newUsage returns the command berth storage usage.
func (o *options) newUsage() *cobra.Command {
	return o.register(&cobra.Command{
		Use: "usage", Short: "Show what your organization stores", Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.conn.Client(cmd)
			if err != nil {
				return err
			}
			u, err := c.StorageUsage(cmd.Context())
			if err != nil {
				return err
			}
			if o.json {
				return cli.PrintJSON(cmd.OutOrStdout(), u)
			}
			t := cli.NewTable("", "used", "limit")
			t.AppendRow(cli.Row("files", u.Files, u.MaxFiles))
			t.AppendRow(cli.Row("bytes", u.Bytes, orUnlimited(u.MaxBytes)))
			t.AppendRow(cli.Row("your bytes", u.OwnBytes, orUnlimited(u.OwnMaximum)))
			return cli.PrintTable(cmd.OutOrStdout(), t)
		},
	})
}

func orUnlimited(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// job is a file to be moved.
type job struct {
	file wire.File // The stored one.
	name string    // Below the directory.
}

// deleteAll deletes stored files.
func deleteAll(ctx context.Context, c *client.Client, files []wire.File) (done []moved, err error) {
	for _, f := range files {
		if err := c.DeleteFile(ctx, f.Key); err != nil {
			return done, err
		}
		done = append(done, moved{Key: f.Key, Size: f.Size, Action: "deleted"})
	}
	return done, nil
}
