//go:build !client

package admin

import (
	"encoding/hex"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
	"berth/node/repair"
)

// newRaftSkip returns the command berth admin raft skip.
func newRaftSkip() *cobra.Command {
	var dir, hash string
	var entry uint64
	var force, yes, asJSON bool
	cmd := &cobra.Command{
		Use:   "skip",
		Short: "Make a stopped server skip a log entry that crashes every server",
		Long: `Skip makes the stopped server in --data-dir leave out the log entry --entry at every
start. Use it for an entry that crashes every server at each start and that no
version of Berth can apply: the servers' last log lines name it and this command.
Nothing in such an entry was acknowledged. Its sender must not repeat it unchanged.

Stop all servers, run skip on every one of them, then start them. A server without
the skip crashes at the entry. A server that has applied it, with another version of
Berth, is refused: make the others rejoin empty instead. Skip prints the content of
the entry and refuses if its SHA-256 is not --hash. --force accepts an entry that this
server has not received yet. Without --yes it changes nothing.

  berth admin raft skip --data-dir /var/lib/berth --entry N
  berth admin raft skip --data-dir /var/lib/berth --entry N --hash SHA256 --yes`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if yes && hash == "" {
				return cli.UsageErrorf("--hash: name the SHA-256 of the entry, as the servers do when they end")
			}
			if _, err := hex.DecodeString(hash); err != nil || len(hash) != 0 && len(hash) != 64 {
				return cli.UsageErrorf("--hash: %q is not a SHA-256 hash, which has 64 digits", hash)
			}
			cli.KeepPrivate()
			s, err := repair.SkipEntry(dir, entry, hash, force, yes)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), s)
			}
			return printSkipped(cmd.OutOrStdout(), s, dir)
		},
	}
	cmd.Flags().Uint64Var(&entry, "entry", 0, "`index` of the entry")
	cmd.Flags().StringVar(&hash, "hash", "", "`SHA-256` of its bytes")
	cmd.Flags().BoolVar(&force, "force", false, "skip the entry even if this server has not received it yet")
	offline(cmd, &dir, &yes, &asJSON)
	return cli.NeedFlags(cmd, "data-dir", "entry")
}

func printSkipped(w io.Writer, s repair.Skipped, dir string) error {
	if s.Held {
		t := cli.NewTable("#", "command", "bytes", "organization", "operation")
		for i, f := range s.Commands {
			command, org, op := f.Command, "-", "-"
			if command == "" {
				command = "unreadable"
			}
			if !f.Org.IsZero() {
				org = f.Org.String()
			}
			if !f.Op.IsZero() {
				op = f.Op.String()
			}
			t.AppendRow(cli.Row(i+1, command, f.Bytes, org, op))
		}
		if err := cli.PrintTable(w, t); err != nil {
			return err
		}
	}
	if s.Done {
		_, err := fmt.Fprintf(w, `
Done: server %s leaves out entry %d from its next start on.
Do this on every server, then start them.
`, s.Node, s.Entry)
		return err
	}
	if s.Listed {
		_, err := fmt.Fprintf(w, "\nServer %s leaves out entry %d already.\n", s.Node, s.Entry)
		return err
	}
	force := ""
	if !s.Held {
		force = " --force"
	}
	_, err := fmt.Fprintf(w, `
Nothing is changed yet. Server %s would leave out entry %d, of %d that it has, and with it all of these commands:
  berth admin raft skip --data-dir %s --entry %d --hash %s%s --yes
Do this on every server, then start them.
`, s.Node, s.Entry, s.Last, dir, s.Entry, s.Hash, force)
	return err
}
