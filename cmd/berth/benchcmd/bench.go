package benchcmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
)

// New returns the command berth bench. version and revision name this
// program in stored reports.
func New(version, revision string) *cobra.Command {
	return cli.Parent("bench", "Measure Berth, and test it under faults",
		newPacking(), newSchedule(), newSimulate(), newState(), newDST(),
		newFailpoints(), newFaults(version, revision), newWorkers(), newIdle(), newExecutions(), newAPI(), newStorage(),
		newInference(), newEchoEngine())
}

// maxSeeds is the largest number of seeds of one command.
const maxSeeds = 10_000

// parseSeeds returns the seeds that text names: "42", "42-51", "42-44,52".
func parseSeeds(text string) ([]uint64, error) {
	var out []uint64
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			to = from
		}
		first, err := strconv.ParseUint(strings.TrimSpace(from), 10, 64)
		last, err2 := strconv.ParseUint(strings.TrimSpace(to), 10, 64)
		if err := errors.Join(err, err2); err != nil {
			return nil, cli.UsageErrorf("--seeds: %q is not a seed or a range of seeds such as 42-51", part)
		}
		if last < first {
			return nil, cli.UsageErrorf("--seeds: %q ends before it begins; the lower seed comes first, as in %d-%d",
				part, last, first)
		}
		if last-first >= maxSeeds || len(out)+int(last-first) >= maxSeeds {
			return nil, cli.UsageErrorf("--seeds: %q: at most %d seeds", text, maxSeeds)
		}
		for seed := first; ; seed++ {
			if slices.Contains(out, seed) {
				return nil, cli.UsageErrorf("--seeds: %d is there twice", seed)
			}
			out = append(out, seed)
			if seed == last {
				break
			}
		}
	}
	return out, nil
}

// commandError converts the error of a benchmark to that of a command: a missing
// file is a usage error.
func commandError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &cli.ExitError{Code: cli.ExitUsage, Err: err}
	}
	return err
}

// progressTo returns a function that prints a line per step of a benchmark.
func progressTo(w io.Writer) func(done, all int, what string) {
	return func(done, all int, what string) {
		fmt.Fprintf(w, "berth: %d of %d: %s\n", done, all, what)
	}
}
