package inspect

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
)

// NewMetrics returns the command berth metrics.
func NewMetrics() *cobra.Command {
	conn := &cli.Connection{}
	var since, step time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "metrics ID",
		Short: "Draw what an execution did with its GPUs, processors and memory",
		Long: `Metrics draws a line for each metric of an execution, from its start to its end or to
now, with the least, mean and largest value. Values are measured each second.`,
		Args: cli.Arguments(cobra.ExactArgs(1)), ValidArgsFunction: CompleteExecutions(conn, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			if step != 0 && step < time.Second {
				return cli.UsageErrorf("--step: must be at least 1s")
			}
			c, id, err := clientAndExecution(cmd, conn, args[0])
			if err != nil {
				return err
			}
			q := client.MetricsQuery{Step: step}
			if since > 0 {
				q.Start = time.Now().Add(-since) //nolint:forbidigo // Points have the instants of the day.
			}
			m, err := c.Metrics(cmd.Context(), id, q)
			if took := m.TimeRange.End.Sub(m.TimeRange.Start); err == nil && step == 0 && !asJSON {
				q.Step = max(time.Second, (took / sparkWidth).Truncate(time.Second))
				m, err = c.Metrics(cmd.Context(), id, q)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), m)
			}
			return printMetrics(cmd, &m)
		},
	}
	conn.Register(cmd)
	cmd.Flags().DurationVar(&since, "since", 0, "show only what was measured within this `time`, such as 10m")
	cmd.Flags().DurationVar(&step, "step", 0, "show the means over steps of this `time`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// sparkWidth is how many columns a line of a metric has.
const sparkWidth = 48

// printMetrics draws the metrics that were measured.
func printMetrics(cmd *cobra.Command, m *wire.ExecutionMetrics) error {
	t := cli.NewTable("metric", "", "min", "mean", "max")
	rows := 0
	add := func(name string, points []wire.MetricPoint, scale, top float64) {
		if len(points) == 0 {
			return
		}
		least, most, sum := math.Inf(1), math.Inf(-1), 0.0
		values := make([]float64, len(points))
		for i, p := range points {
			values[i] = p.Value / scale
			least, most, sum = min(least, values[i]), max(most, values[i]), sum+values[i]
		}
		rows++
		mean := sum / float64(len(values))
		t.AppendRow(cli.Row(name, spark(values, max(top, most)), number(least), number(mean), number(most)))
	}
	memory := 0.0
	if n := len(m.MemoryTotal); n > 0 {
		memory = m.MemoryTotal[n-1].Value / (1 << 20)
	}
	add("GPU %", m.GPUUtilization, 1, 100)
	add("GPU memory %", m.GPUMemoryUtilization, 1, 100)
	add("GPU power W", m.GPUPower, 1, 0)
	add("GPU temperature C", m.GPUTemperature, 1, 100)
	add("GPU clock MHz", m.GPUClockSM, 1, 0)
	add("PCIe received MB/s", m.PCIeReceive, 1e6, 0)
	add("PCIe sent MB/s", m.PCIeTransmit, 1e6, 0)
	add("CPU %", m.CPUUsage, 1, 100)
	add("memory MiB", m.MemoryUsed, 1<<20, memory)
	for _, w := range m.Warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "berth: %s\n", w)
	}
	if rows == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "Nothing was measured: it has not run for a second.")
		return err
	}
	if m.Simulated {
		fmt.Fprintln(cmd.ErrOrStderr(), "berth: the GPUs are simulated")
	}
	return cli.PrintTable(cmd.OutOrStdout(), t)
}

// number formats a value for a table.
func number(v float64) string {
	if math.Abs(v) >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

// spark draws values from 0 to top in at most sparkWidth columns.
func spark(values []float64, top float64) string {
	sparks := []rune(" ▁▂▃▄▅▆▇█") // From nothing to full.
	columns := min(len(values), sparkWidth)
	var b strings.Builder
	for c := range columns {
		from, to := c*len(values)/columns, (c+1)*len(values)/columns
		sum := 0.0
		for _, v := range values[from:to] {
			sum += v
		}
		level := 0
		if top > 0 {
			level = int(math.Ceil(sum / float64(to-from) / top * float64(len(sparks)-1)))
		}
		b.WriteRune(sparks[min(max(level, 0), len(sparks)-1)])
	}
	return b.String()
}
