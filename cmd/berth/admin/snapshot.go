//go:build !client

package admin

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
	"berth/node/repair"
)

// newSnapshot returns the command berth admin snapshot.
func newSnapshot(conn *cli.Connection) *cobra.Command {
	cmd := cli.Parent("snapshot", "Save, verify and restore backups of the state",
		newSnapshotSave(conn), newSnapshotVerify(), newSnapshotRestore())
	cmd.Long = `A backup is one file with the whole state of the cluster: organizations, users and
keys, executions, ledgers. It does not hold
  ` + strings.Join(repair.NotInBackup(), "\n  ")
	return cmd
}

// newSnapshotSave returns the command berth admin snapshot save.
func newSnapshotSave(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "save [FILE]",
		Short: "Save a backup of the state",
		Long: `Save writes everything that was acknowledged before the command to FILE, through any
node, and verifies it. Only you can read the file. The default name contains the
time. An existing file is not overwritten. - is standard output.`,
		Args: cli.Arguments(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := time.Now().UTC().Format("berth-20060102T150405Z.backup") //nolint:forbidigo // A file name.
			if len(args) > 0 {
				path = args[0]
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			save := func(w io.Writer) error { return c.SaveSnapshot(cmd.Context(), w) }
			if path == "-" {
				return save(cmd.OutOrStdout())
			}
			saved, err := saveBackup(path, save)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), saved)
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "berth: %s holds the state up to entry %d in %d bytes\n",
				path, saved.Header.Index, saved.Bytes)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// savedBackup is a backup file that was saved and checked.
type savedBackup struct {
	repair.Backup

	Bytes int64 `json:"bytes"`
}

// saveBackup has save write a new file and verifies the result on disk. The
// file appears under its name only once it is complete.
func saveBackup(path string, save func(io.Writer) error) (saved savedBackup, err error) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return saved, fmt.Errorf("%s is there already: name another file", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".part*") // Its mode is 0600.
	if err != nil {
		return saved, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	if err := save(f); err != nil {
		return saved, err
	}
	if err := f.Sync(); err != nil {
		return saved, err
	}
	if saved.Bytes, err = f.Seek(0, io.SeekCurrent); err != nil {
		return saved, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return saved, err
	}
	saved.File = path
	if saved.Header, err = repair.CheckBackup(f); err != nil {
		return saved, fmt.Errorf("what the node sent is not whole, save it again: %w", err)
	}
	if err := os.Link(f.Name(), path); err != nil { // Unlike a rename, it replaces nothing.
		return saved, err
	}
	return saved, syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// newSnapshotVerify returns the command berth admin snapshot verify.
func newSnapshotVerify() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Verify a backup, without a cluster",
		Long: `Verify checks the file's checksum, reads its state as a restore would, checks every
invariant and each organization's ledger, and prints a summary.`,
		Args: cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := repair.VerifyBackup(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), b)
			}
			return printBackup(cmd.OutOrStdout(), b)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printBackup writes the contents of a backup, and names what it omits.
func printBackup(w io.Writer, b repair.Backup) error {
	t := cli.NewTable()
	h, s := b.Header, b.State
	var statuses []string
	for status, n := range s.ByStatus {
		statuses = append(statuses, fmt.Sprintf("%d %s", n, status))
	}
	slices.Sort(statuses)
	t.AppendRow(cli.Row("cluster", fmt.Sprintf("%s, epoch %d", h.Cluster, h.Epoch)))
	t.AppendRow(cli.Row("saved", fmt.Sprintf("%s by version %s", h.At, h.Version)))
	t.AppendRow(cli.Row("state", fmt.Sprintf("up to entry %d of term %d, format %d", h.Index, h.Term, h.Format)))
	t.AppendRow(cli.Row("hash", s.Hash))
	t.AppendRow(cli.Row("nodes", s.Nodes))
	t.AppendRow(cli.Row("people", fmt.Sprintf("%d organizations, %d users, %d API keys", s.Orgs, s.Users, s.Keys)))
	executions := fmt.Sprintf("%d (%s), %d live attempts", s.Executions, strings.Join(statuses, ", "), s.Live)
	t.AppendRow(cli.Row("executions", executions))
	t.AppendRow(cli.Row("archives",
		fmt.Sprintf("%d with %d executions, whose blobs are not in the backup", s.Archives, s.Archived)))
	t.AppendRow(cli.Row("ledgers", fmt.Sprintf("%d lines, every chain is whole and adds up", s.Entries)))
	t.AppendRow(cli.Row("credits", fmt.Sprintf("%s granted - %s charged = %s, of which %s are held",
		s.Granted, s.Charged, s.Balance, s.Held)))
	if err := cli.PrintTable(w, t); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nNot in it, to be kept beside it:\n  %s\n", strings.Join(repair.NotInBackup(), "\n  "))
	return err
}
