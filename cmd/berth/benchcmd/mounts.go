package benchcmd

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"berth/bench/load"
	"berth/cmd/berth/cli"
)

// placeFlag names the directory of foreign mounts to the commands that compareMounts starts.
const placeFlag = "mounts-at"

// compareMounts measures executions without and with foreign mounts, and prints how they compare.
func compareMounts(cmd *cobra.Command, cfg load.ExecutionsConfig, mounts int, asJSON bool) error {
	args := []string{
		"bench", "executions", "--json", "--alone", strconv.Itoa(cfg.Alone), "--many", strconv.Itoa(cfg.Many),
		"--clients", strconv.Itoa(cfg.Clients), "--python", cfg.Python, "--lines=1", "--output=1", "--waiting=0",
	}
	place := func(dir string) []string {
		return []string{"--foreign-mounts", strconv.Itoa(mounts), "--" + placeFlag, dir}
	}
	r, err := load.CompareMounts(cmd.Context(), mounts, args, place, cmd.ErrOrStderr())
	if err != nil || asJSON {
		return errors.Join(err, printIf(cmd, err == nil, r))
	}
	t := cli.NewTable("figure", "without", fmt.Sprintf("with %d mounts", mounts), "ratio")
	each := func(figure string, of func(load.Beside) float64, ratio string) {
		texts := func(all []load.Beside) string {
			var texts []string
			for _, b := range all {
				texts = append(texts, fmt.Sprintf("%.1f", of(b)))
			}
			return strings.Join(texts, ", ") + " ms"
		}
		t.AppendRow(cli.Row(figure, texts(r.Without), texts(r.With), ratio))
	}
	each("submit to end, one after the other, p50", func(b load.Beside) float64 { return b.P50MS },
		fmt.Sprintf("%.2f, limit %.1f", r.Ratio, r.Limit))
	each("processor time of nodes, supervisors and sandboxes for each",
		func(b load.Beside) float64 { return b.CPUMS }, fmt.Sprintf("%.2f, limit %.1f", r.CPU, r.Limit))
	return cli.PrintTable(cmd.OutOrStdout(), t)
}
