package storage

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// syncFlags are the flags of berth storage sync.
type syncFlags struct {
	*options
	remove bool
	dry    bool
}

// newSync returns the command berth storage sync.
func (o *options) newSync() *cobra.Command {
	f := &syncFlags{options: o}
	cmd := &cobra.Command{
		Use: "sync SOURCE DESTINATION", Short: "Make a folder of storage like a directory, or the reverse",
		Long: `Sync moves the files that differ, by size and content, from a directory to a folder of
storage or from there to a directory. Repeated after a failure it goes on with what is
missing. Large files go in parts, as with berth storage put. Keys that cannot be names of
files, and files whose names cannot be keys, are left out: the command then fails at its end.`,
		Example: "  berth storage sync ./data storage://data\n  berth storage sync storage://results ./results --delete",
		Args:    cli.Arguments(cobra.ExactArgs(2)),
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0], args[1]) },
	}
	cmd.Flags().BoolVar(&f.remove, "delete", false, "delete from the destination what the source does not have")
	cmd.Flags().BoolVar(&f.dry, "dry-run", false, "only print what would be done")
	return o.registerJobs(cmd)
}

func (f *syncFlags) run(cmd *cobra.Command, from, to string) error {
	if isStored(from) == isStored(to) {
		return cli.UsageErrorf("one of the two is a directory, the other %sFOLDER; see berth storage sync --help", scheme)
	}
	if err := f.check(); err != nil {
		return err
	}
	c, err := f.conn.Client(cmd)
	if err != nil {
		return err
	}
	if isStored(to) {
		return f.up(cmd, c, from, folder(keyOf(to)))
	}
	return f.down(cmd, c, folder(keyOf(from)), to)
}

// folder returns the prefix of the keys in a folder, "" for all.
func folder(key string) string {
	if key = strings.TrimRight(key, "/"); key == "" {
		return ""
	}
	return key + "/"
}

// partial matches what partName returns.
var partial = regexp.MustCompile(`\.[0-9a-f]{12}(\.of[0-9]+)?\.part$`)

// local returns the sizes of the files below a directory, by their names with slashes.
// Links are left out, and what fetch has of files that did not come whole.
func local(dir string) (map[string]int64, error) {
	files := map[string]int64{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !entry.Type().IsRegular() || partial.MatchString(path) {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		files[filepath.ToSlash(name)] = info.Size()
		return err
	})
	return files, err
}

// same reports whether a file of this machine has the content of a stored one.
func (m *mover) same(path string, size int64, f wire.File) (bool, error) {
	if size != f.Size {
		return false, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	has, known, err := m.hasTag(file, size, f.ETag)
	if err != nil || known {
		return has, err
	}
	info, err := file.Stat() // Its parts have another size: only the times can be compared.
	return err == nil && compute.InstantOf(info.ModTime()) <= f.LastModified, err
}

// up makes a folder of storage like a directory.
func (f *syncFlags) up(cmd *cobra.Command, c *client.Client, dir, prefix string) error {
	here, err := local(dir)
	if err != nil {
		return cli.UsageErrorf("%w", err)
	}
	stored, err := list(cmd.Context(), c, prefix)
	if err != nil {
		return err
	}
	var extra []wire.File
	for _, s := range stored {
		name := strings.TrimPrefix(s.Key, prefix)
		size, is := here[name]
		if !is {
			if !partial.MatchString(name) { // The directory may have it: local leaves it out.
				extra = append(extra, s)
			}
			continue
		}
		equal, err := f.newMover(c, nil).same(filepath.Join(dir, filepath.FromSlash(name)), size, s)
		if err != nil {
			return err
		}
		if equal {
			delete(here, name)
		}
	}
	var jobs []job
	var total int64
	odd := leftOut{errors: cmd.ErrOrStderr()}
	for name, size := range here {
		if bad := compute.BadObjectKey(prefix + name); bad != "" {
			odd.add(name, fmt.Errorf("%q cannot be stored: %s", name, bad))
			continue
		}
		jobs = append(jobs, job{wire.File{Key: prefix + name, Size: size}, name})
		total += size
	}
	err = f.move(cmd, c, jobs, total, "sending", func(ctx context.Context, j job, m *mover) (moved, error) {
		return m.send(ctx, filepath.Join(dir, filepath.FromSlash(j.name)), j.file.Key)
	}, func() ([]moved, error) { return deleteAll(cmd.Context(), c, f.chosen(extra)) })
	return odd.errorOf(err, "files cannot be stored")
}

// leftOut are the files that a sync leaves out, because the other side cannot have them.
type leftOut struct {
	errors io.Writer
	names  []string
}

// add says why a file is left out.
func (l *leftOut) add(name string, why error) {
	fmt.Fprintln(l.errors, "left out:", cli.Plain(why.Error()))
	l.names = append(l.names, name)
}

// errorOf returns the error of a sync, which is not whole if it has left out something.
func (l *leftOut) errorOf(err error, what string) error {
	if err != nil || len(l.names) == 0 {
		return err
	}
	return fmt.Errorf("%d %s and were left out, such as %q", len(l.names), what, l.names[0])
}

// chosen returns files if they are to be deleted.
func (f *syncFlags) chosen(files []wire.File) []wire.File {
	if !f.remove {
		return nil
	}
	return files
}

// down makes a directory like a folder of storage.
func (f *syncFlags) down(cmd *cobra.Command, c *client.Client, prefix, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	here, err := local(dir)
	if err != nil {
		return err
	}
	stored, err := list(cmd.Context(), c, prefix)
	if err != nil {
		return err
	}
	var jobs []job
	var total int64
	odd := leftOut{errors: cmd.ErrOrStderr()}
	names := make(map[string]bool, len(stored))
	for _, s := range stored {
		names[strings.TrimPrefix(s.Key, prefix)] = true
	}
	for _, s := range stored {
		name, err := localName(s.Key, prefix)
		if err == nil {
			err = belowFile(name, names)
		}
		if err != nil {
			odd.add(s.Key, err)
			continue
		}
		size, is := here[name]
		delete(here, name)
		if is {
			equal, err := f.newMover(c, nil).same(filepath.Join(dir, filepath.FromSlash(name)), size, s)
			if err != nil {
				return err
			}
			if equal {
				continue
			}
		}
		jobs = append(jobs, job{s, name})
		total += s.Size
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	err = f.move(cmd, c, jobs, total, "fetching", func(ctx context.Context, j job, m *mover) (moved, error) {
		return m.fetch(ctx, j.file, root, j.name)
	}, func() ([]moved, error) { return f.removeLocal(root, here) })
	return odd.errorOf(err, "keys cannot be files of this machine")
}

// belowFile returns why a name cannot be a file: one of its directories is a file too.
func belowFile(name string, names map[string]bool) error {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if names[dir] {
			return fmt.Errorf("%q cannot be a file of this machine: %q is one", name, dir)
		}
	}
	return nil
}

// removeLocal removes files below a directory, if they are to be deleted.
func (f *syncFlags) removeLocal(root *os.Root, files map[string]int64) (done []moved, err error) {
	if !f.remove {
		return nil, nil
	}
	for name, size := range files {
		if err := root.Remove(name); err != nil {
			return done, err
		}
		done = append(done, moved{Key: name, Size: size, Action: "deleted"})
	}
	return done, nil
}

// move does jobs several at a time, and afterwards what remains.
func (f *syncFlags) move(
	cmd *cobra.Command, c *client.Client, jobs []job, total int64, verb string,
	one func(context.Context, job, *mover) (moved, error), rest func() ([]moved, error),
) error {
	var mu sync.Mutex
	var done []moved
	if f.dry {
		for _, j := range jobs {
			done = append(done, moved{Key: j.file.Key, Size: j.file.Size, Action: "would move"})
		}
		return f.print(cmd, done...)
	}
	bar := cli.NewBar(cmd.ErrOrStderr(), verb)
	bar.Total(total)
	mover := f.newMover(c, bar)
	err := atOnce(cmd.Context(), f.jobs, jobs, func(ctx context.Context, j job) error {
		m, err := one(ctx, j, mover)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			done = append(done, m)
		}
		return err
	})
	bar.Close()
	if err != nil {
		return err
	}
	removed, err := rest()
	if err != nil {
		return err
	}
	return f.print(cmd, append(done, removed...)...)
}
