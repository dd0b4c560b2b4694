package benchcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/bench/packing"
	"berth/cmd/berth/cli"
)

// allPolicies selects all policies.
const allPolicies = "all"

// packingFlags are the flags of berth bench packing.
type packingFlags struct {
	config     packing.Config
	seeds      string
	variants   bool
	jsonOutput bool
}

// newPacking returns the command berth bench packing.
func newPacking() *cobra.Command {
	f := &packingFlags{}
	cmd := &cobra.Command{
		Use:   "packing --nodes FILE --pods FILE",
		Short: "Measure GPU allocation by placement policy",
		Long: `Packing lets the pods of a trace arrive until they request 130 % of the GPUs, and
measures how much a policy has allocated when 100 % was requested. Pods are placed at
once or refused, and never leave. This is the protocol of the FGD paper (USENIX ATC
2023); its figures are printed beside ours for its traces.

The files are CSV as those of the openb trace:
  nodes   sn,cpu_milli,memory_mib,gpu,model
  pods    name,cpu_milli,memory_mib,num_gpu,gpu_milli, and gpu_spec if there is one

--vary changes the pods first, to see where a policy loses: it multiplies the work of
one kind (cpu-only, shares, whole, multi-gpu), the vCPU of work with GPUs (vcpu) or all
memory (memory), or sets the part of the pods that name a model (types). --variants
compares Berth with best-fit and FGD on many such changes.

Berth's policy knows of the pods only those that have arrived, as a cluster does.

Several seeds are measured at once, one on each core. For times of decisions as a
quiet machine has them, add --parallel 1.`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config.NodesFile, "nodes", "", "CSV `file` of the nodes")
	flags.StringVar(&f.config.PodsFile, "pods", "", "CSV `file` of the pods")
	flags.StringVar(&f.config.Policy, "policy", packing.Berth,
		"`policy`: "+strings.Join(packing.Policies(), ", ")+", or all to compare them")
	flags.StringVar(&f.config.Vary, "vary", "", "change the pods first: `changes`, as cpu-only=3,types=0.33")
	flags.BoolVar(&f.variants, "variants", false, "compare best-fit, fgd and berth on many variants of the trace")
	flags.BoolVar(&f.config.Oracle, "oracle", false,
		"give Berth's policy the mix of the whole trace before the first pod, which no cluster knows")
	flags.StringVar(&f.seeds, "seeds", "42-51", "`seeds` of the orders of nodes and pods")
	flags.Float64SliceVar(&f.config.Churn, "churn", nil,
		"measure also with pods that leave, at these offered `loads`, as 0.90,0.95,1.00")
	flags.IntVar(&f.config.Arrivals, "arrivals", packing.DefaultArrivals, "`pods` that arrive in a churn run")
	flags.IntVar(&f.config.Parallel, "parallel", runtime.GOMAXPROCS(0), "`runs` at once")
	flags.BoolVar(&f.jsonOutput, "json", false, "print JSON")
	return cli.NeedFlags(cmd, "nodes", "pods")
}

func (f *packingFlags) run(cmd *cobra.Command) error {
	seeds, err := parseSeeds(f.seeds)
	if err != nil {
		return err
	}
	f.config.Seeds = seeds
	f.config.Now = time.Now
	f.config.Progress = progressTo(cmd.ErrOrStderr())
	if f.variants {
		if f.config.Vary != "" {
			return cli.UsageErrorf("--vary or --variants, not both")
		}
		return f.compare(cmd)
	}
	policies := []string{f.config.Policy}
	if f.config.Policy == allPolicies {
		policies = packing.Policies()
	} else if !slices.Contains(packing.Policies(), f.config.Policy) {
		return cli.UsageErrorf("--policy: no policy %q; there are %s, and all",
			f.config.Policy, strings.Join(packing.Policies(), ", "))
	}
	reports, err := f.reports(cmd, policies)
	if err != nil {
		return err
	}
	switch {
	case f.jsonOutput && len(reports) == 1:
		return cli.PrintJSON(cmd.OutOrStdout(), reports[0])
	case f.jsonOutput:
		return cli.PrintJSON(cmd.OutOrStdout(), map[string]any{"policies": reports})
	}
	return printPacking(cmd.OutOrStdout(), reports)
}

// reports measures policies.
func (f *packingFlags) reports(cmd *cobra.Command, policies []string) ([]packing.Report, error) {
	var out []packing.Report
	for _, f.config.Policy = range policies {
		report, err := packing.Run(cmd.Context(), f.config)
		if err != nil {
			return nil, commandError(err)
		}
		out = append(out, report)
	}
	return out, nil
}

// variant is the result of policies on one change of the trace.
type variant struct {
	Vary     string           `json:"vary"`
	Policies []packing.Report `json:"policies"`
}

// compare measures best-fit, FGD and Berth on changes of the trace.
func (f *packingFlags) compare(cmd *cobra.Command) error {
	var all []variant
	for _, vary := range packing.Variants() {
		f.config.Vary = vary
		reports, err := f.reports(cmd, []string{packing.BestFit, packing.FGD, packing.Berth})
		if errors.Is(err, packing.ErrNoDemand) {
			continue // The change removes all work of the trace.
		}
		if err != nil {
			return err
		}
		all = append(all, variant{vary, reports})
	}
	if f.jsonOutput {
		return cli.PrintJSON(cmd.OutOrStdout(), map[string]any{"variants": all})
	}
	t := cli.NewTable("change", "best-fit", "fgd", "berth", "berth less fgd", "worst seed", "best seed")
	for _, v := range all {
		fgd, berth := &v.Policies[1], &v.Policies[2]
		var less []float64
		for i := range berth.Seeds {
			less = append(less, berth.Seeds[i].Alloc100-fgd.Seeds[i].Alloc100)
		}
		t.AppendRow(cli.Row(cmp.Or(v.Vary, "none"), percent(v.Policies[0].Mean.Alloc100), percent(fgd.Mean.Alloc100),
			percent(berth.Mean.Alloc100), signed(berth.Mean.Alloc100-fgd.Mean.Alloc100),
			signed(slices.Min(less)), signed(slices.Max(less))))
	}
	if err := cli.PrintTable(cmd.OutOrStdout(), t); err != nil {
		return err
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(),
		"\nGPU allocation at 100 %% arrived, means of %d seeds, in percent of the GPUs.\n", len(f.config.Seeds))
	return err
}

func signed(value float64) string { return fmt.Sprintf("%+.2f", value) }

// printPacking writes the reports of policies on the same trace as a table.
func printPacking(w io.Writer, reports []packing.Report) error {
	header := []any{
		"policy", "alloc 100 %", "sd", "published", "bound", "alloc 130 %",
		"first refusal", "fragment 100 %", "p50 us", "p99 us", "mean us",
	}
	for _, c := range reports[0].Churn {
		header = append(header, fmt.Sprintf("refused at %.2f", c.Load))
	}
	t := cli.NewTable(header...)
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
		t.AppendRow(cli.Row(cells...))
	}
	if err := cli.PrintTable(w, t); err != nil {
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
// report's trace, "" without published figures.
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

// bound returns the upper bound of any policy.
func bound(r *packing.Report) string {
	if r.Published == nil {
		return "-"
	}
	return percent(r.Published.Bound)
}
