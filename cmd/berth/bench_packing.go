package main

import (
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/bench/packing"
)

// allPolicies compares all of them.
const allPolicies = "all"

// packingFlags are the flags of berth bench packing.
type packingFlags struct {
	config     packing.Config
	seeds      string
	jsonOutput bool
}

// newBenchPacking returns the command berth bench packing.
func newBenchPacking() *cobra.Command {
	f := &packingFlags{}
	cmd := &cobra.Command{
		Use:   "packing --nodes FILE --pods FILE",
		Short: "How much of the GPUs a placement policy can give away",
		Long: `Packing lets the pods of a trace arrive until they ask for 130 % of the GPUs, and
measures how much of them a policy has given away when 100 % was asked for. Pods
are placed at once or lost, and never leave. This is the protocol of the FGD paper
(USENIX ATC 2023); its figures stand beside ours where the trace is one of its.

The files are CSV as those of the openb trace:
  nodes   sn,cpu_milli,memory_mib,gpu,model
  pods    name,cpu_milli,memory_mib,num_gpu,gpu_milli, and gpu_spec if there is one

Berth's policy knows of the pods only those that have arrived, as a cluster does.

Several seeds are measured at once, one on each core. For times of decisions as a
quiet machine has them, add --parallel 1.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config.NodesFile, "nodes", "", "CSV `file` of the nodes")
	flags.StringVar(&f.config.PodsFile, "pods", "", "CSV `file` of the pods")
	flags.StringVar(&f.config.Policy, "policy", packing.Berth,
		"`policy`: "+strings.Join(packing.Policies(), ", ")+", or all to compare them")
	flags.BoolVar(&f.config.Oracle, "oracle", false,
		"tell Berth's policy the mix of the whole trace before the first pod, which no cluster knows")
	flags.StringVar(&f.seeds, "seeds", "42-51", "`seeds` of the orders of nodes and pods")
	flags.Float64SliceVar(&f.config.Churn, "churn", nil,
		"measure also with pods that leave, at these offered `loads`, as 0.90,0.95,1.00")
	flags.IntVar(&f.config.Arrivals, "arrivals", packing.DefaultArrivals, "`pods` that arrive in a run of churn")
	flags.IntVar(&f.config.Parallel, "parallel", runtime.GOMAXPROCS(0), "`runs` at once")
	flags.BoolVar(&f.jsonOutput, "json", false, "print JSON")
	return needFlags(cmd, "nodes", "pods")
}

func (f *packingFlags) run(cmd *cobra.Command) error {
	seeds, err := parseSeeds(f.seeds)
	if err != nil {
		return err
	}
	f.config.Seeds = seeds
	f.config.Now = time.Now
	f.config.Progress = benchProgress(cmd.ErrOrStderr())
	policies := []string{f.config.Policy}
	if f.config.Policy == allPolicies {
		policies = packing.Policies()
	} else if !slices.Contains(packing.Policies(), f.config.Policy) {
		return usageErrorf("--policy: no policy %q; there are %s, and all",
			f.config.Policy, strings.Join(packing.Policies(), ", "))
	}
	var reports []packing.Report
	for _, policy := range policies {
		f.config.Policy = policy
		report, err := packing.Run(cmd.Context(), f.config)
		if err != nil {
			return benchError(err)
		}
		reports = append(reports, report)
	}
	switch {
	case f.jsonOutput && len(reports) == 1:
		return printJSON(cmd.OutOrStdout(), reports[0])
	case f.jsonOutput:
		return printJSON(cmd.OutOrStdout(), map[string]any{"policies": reports})
	}
	return printPacking(cmd.OutOrStdout(), reports)
}

// printPacking writes the reports of policies on the same trace as a table.
func printPacking(w io.Writer, reports []packing.Report) error {
	header := []any{
		"policy", "alloc 100 %", "sd", "published", "bound", "alloc 130 %",
		"first refusal", "fragment 100 %", "p50 us", "p99 us", "mean us",
	}
	for _, c := range reports[0].Churn {
		header = append(header, fmt.Sprintf("refused at %.2f", c.Load))
	}
	t := newTable(header...)
	for i := range reports {
		r := &reports[i]
		m := &r.Mean
		cells := []any{
			r.Policy, percent(m.Alloc100), percent(m.Alloc100SD), publishedOf(r), bound(r), percent(m.Alloc130),
			orPercent(m.FirstRefusal), percent(m.Frag100),
			fmt.Sprintf("%.1f", m.DecisionUS.P50), fmt.Sprintf("%.1f", m.DecisionUS.P99),
			fmt.Sprintf("%.1f", m.DecisionUS.Mean),
		}
		for _, c := range r.Churn {
			cells = append(cells, percent(c.RefusedPct))
		}
		t.AppendRow(row(cells...))
	}
	if err := printTable(w, t); err != nil {
		return err
	}
	r := &reports[0]
	_, err := fmt.Fprintf(w, "\n%d nodes, %d GPUs, %d pods in the trace, means of %d seeds, all in percent of the GPUs.\n",
		r.Nodes, r.GPUs, r.Pods, len(r.Seeds))
	if name, best := bestPublished(r); err == nil && name != "" {
		_, err = fmt.Fprintf(w, "The best figure published for this trace at 100 %% is %s's %s.\n", name, percent(best))
	}
	if err == nil && r.Unplaceable > 0 {
		_, err = fmt.Fprintf(w, "No node could host %d of the pods, even when empty: they are refused by every policy.\n",
			r.Unplaceable)
	}
	return err
}

func percent(value float64) string { return fmt.Sprintf("%.2f", value) }

func orPercent(value *float64) string {
	if value == nil {
		return "-"
	}
	return percent(*value)
}

// bestPublished returns the policy with the highest published figure for the
// report's trace, "" when nothing was published.
func bestPublished(r *packing.Report) (name string, best float64) {
	if r.Published == nil {
		return "", 0
	}
	for _, policy := range slices.Sorted(maps.Keys(r.Published.Alloc100)) {
		if value := r.Published.Alloc100[policy]; value > best {
			name, best = policy, value
		}
	}
	return name, best
}

// publishedOf returns the published figure of the report's policy.
func publishedOf(r *packing.Report) string {
	if r.Published != nil {
		if value, ok := r.Published.Alloc100[r.Policy]; ok {
			return percent(value)
		}
	}
	return "-"
}

// bound returns what no policy can exceed.
func bound(r *packing.Report) string {
	if r.Published == nil {
		return "-"
	}
	return percent(r.Published.Bound)
}
