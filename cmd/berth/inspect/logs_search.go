package inspect

import (
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
)

// Limits of a search, which the API has too.
const (
	executionLines, executionHours = 10_000, 168
	userLines, userHours           = 5000, 24
)

// search prints the lines of an execution that match the flags, or of all the
// caller's executions for arg "".
func (f *LogsFlags) search(cmd *cobra.Command, arg string) error {
	limit, hours := executionLines, executionHours
	if arg == "" {
		limit, hours = userLines, userHours
	}
	since := time.Duration(hours) * time.Hour
	switch {
	case f.Follow || f.after > 0:
		return cli.UsageErrorf("--mine, --level and --grep search lines already written: leave out -f and --after")
	case f.since > since:
		return cli.UsageErrorf("--since: at most %dh", hours)
	case f.Tail > limit:
		return cli.UsageErrorf("--tail: at most %d", limit)
	case f.since > 0:
		since = f.since
	}
	if f.Tail >= 0 {
		limit = f.Tail
	}
	q := client.LogQuery{
		Limit: max(limit, 1), Hours: int(math.Ceil(since.Hours())), Level: f.level, Search: f.grep,
	}
	found, err := f.find(cmd, arg, q)
	if err != nil {
		return err
	}
	from := time.Now().Add(-since) //nolint:forbidigo // Output has the instants of the day.
	kept := []wire.LogLine{}
	for _, l := range found.Logs {
		if !l.Timestamp.Time().Before(from) && limit > 0 {
			kept = append(kept, l)
		}
	}
	if len(kept) < len(found.Logs) {
		found.Total = len(kept) // The others are older than asked for.
	}
	found.Logs = kept
	return f.printLines(cmd, found, arg == "")
}

// find asks for the lines.
func (f *LogsFlags) find(cmd *cobra.Command, arg string, q client.LogQuery) (wire.Logs, error) {
	if arg == "" {
		c, err := f.Conn.Client(cmd)
		if err != nil {
			return wire.Logs{}, err
		}
		return c.UserLogs(cmd.Context(), q)
	}
	c, id, err := clientAndExecution(cmd, &f.Conn, arg)
	if err != nil {
		return wire.Logs{}, err
	}
	return c.ExecutionLogs(cmd.Context(), id, q)
}

// printLines prints lines, and with several executions which one each is of.
func (f *LogsFlags) printLines(cmd *cobra.Command, found wire.Logs, several bool) error {
	if f.JSON {
		return cli.PrintJSON(cmd.OutOrStdout(), found)
	}
	out := cli.NewOutputPrinter(cmd, f.Raw)
	for _, l := range found.Logs {
		text := l.Message + "\n"
		if several {
			text = fmt.Sprintf("%s %s %-7s %s", cli.ShortID(cmd, l.ExecutionID),
				l.Timestamp.Time().Format(time.RFC3339), l.Level, text)
		}
		if err := out.Print(client.Event{Content: text}); err != nil {
			return err
		}
	}
	if more := found.Total - len(found.Logs); more > 0 && len(found.Logs) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "berth: %d earlier lines match, too\n", more)
	}
	for _, w := range found.Warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "berth: lines may be missing: %s\n", w)
	}
	return nil
}
