package execution

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/cmd/berth/inspect"
	"berth/cmd/berth/source"
	"berth/compute"
)

// Limits of the input of one start. The node has its own limits.
const (
	maxCodeBytes   = 1 << 20
	maxImportBytes = 8 << 20
)

// placeWait is how long the node delays its answer while an execution waits.
const placeWait = 10 * time.Second

// runFlags are the flags of berth run.
type runFlags struct {
	conn       cli.Connection
	code       codeFlags
	gpu        string
	profile    string
	cell       string
	image      imageFlags
	detach     bool
	raw        bool
	jsonOutput bool
}

// NewRun returns the command berth run.
func NewRun() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run " + programUse,
		Short: "Run code on the cluster and show its output",
		Long: `Run sends Python code, or a command, to the cluster and shows its live output,
standard output and standard error apart. Ctrl-C ends only this command: the execution
continues, and the commands that follow or stop it are printed.

` + programHelp + `
` + cli.ExitHelp,
		Example: `  berth run train.py -- --lr 0.1 data/
  berth run --gpu a100 -m package.train -- --epochs 3
  berth run --dir . src/train.py
  berth run --dir . --gpu h100 -- ./run.sh
  berth run -- nvidia-smi
  berth run --image python:3.12-slim -- python -c 'print(1)'
  berth run --compose compose.yaml --env TAG=3
  berth run --cell notebook.state -c 'x = 1'
  berth run -c 'import sys; print(sys.stdin.read())' < notes.txt`,
		Args: cli.Arguments(programArgs),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.conn.Register(cmd)
	f.code.register(cmd)
	f.image.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.gpu, "gpu", "", "`GPU` type and count, such as h100 or a100:2;"+
		" any, or several as in a100,h100:2, for the cheapest that is free")
	flags.StringVar(&f.profile, "profile", "", "hardware `profile`, such as cpu.4x or gpu.a100.500m (default cpu)")
	flags.StringVar(&f.cell, "cell", "",
		"execute it as a notebook cell: with the globals in `FILE`, which are saved there again")
	flags.BoolVarP(&f.detach, "detach", "d", false, "print the execution's id and do not wait")
	flags.BoolVar(&f.raw, "raw", false, cli.RawHelp)
	flags.BoolVar(&f.jsonOutput, "json", false, "print the execution as JSON once it has ended, and no output before")
	return cmd
}

func (f *runFlags) run(cmd *cobra.Command, args []string) error {
	if f.image.ref != "" && f.image.compose != "" {
		return cli.UsageErrorf("--image and --compose exclude each other")
	}
	f.code.image, f.code.compose = f.image.ref != "", f.image.compose != ""
	start, tree, err := f.code.start(cmd, args)
	if err != nil {
		return err
	}
	if start.ExecutionType, start.GPUTypes, err = f.hardware(); err != nil {
		return err
	}
	if f.cell != "" {
		if f.detach {
			return cli.UsageErrorf("--cell waits for the end of the cell: it does not go with --detach")
		}
		if err := readCell(&start, f.cell); err != nil {
			return err
		}
	}
	c, err := f.conn.Client(cmd)
	if err != nil {
		return err
	}
	if start.BundleID, err = sendTree(cmd, c, tree); err != nil {
		return inspect.Unexecuted(err)
	}
	started, err := f.submit(cmd, c, start)
	if err != nil {
		return err
	}
	switch {
	case f.detach && f.jsonOutput:
		return cli.PrintJSON(cmd.OutOrStdout(), started)
	case f.detach:
		_, err := fmt.Fprintln(cmd.OutOrStdout(), started.ExecutionID)
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "berth: execution %s\n", started.ExecutionID)
	return f.await(cmd, c, started.ExecutionID)
}

// await shows the output of an execution until its end, and keeps its notebook cell.
func (f *runFlags) await(cmd *cobra.Command, c *client.Client, id compute.ExecutionID) error {
	if !f.jsonOutput {
		if err := awaitPlace(cmd, c, id); err != nil {
			return err
		}
		if err := follow(cmd, c, id, 0, f.raw); err != nil {
			return err
		}
	}
	if f.cell != "" {
		if err := keepCell(cmd, c, id, f.cell); err != nil {
			return err
		}
	}
	return inspect.Finish(cmd, c, id, f.jsonOutput)
}

// submit starts the execution: of code, or of an image.
func (f *runFlags) submit(cmd *cobra.Command, c *client.Client, start client.Start) (wire.Started, error) {
	var started wire.Started
	var err error
	switch {
	case f.image.compose != "":
		var compose client.StartCompose
		if compose, err = f.image.startCompose(cmd, start); err != nil {
			return started, err
		}
		started, err = c.SubmitCompose(cmd.Context(), compose)
	case f.image.ref == "":
		started, err = c.Submit(cmd.Context(), start)
	default:
		var image client.StartImage
		if image, err = f.image.start(cmd, start); err != nil {
			return started, err
		}
		started, err = c.SubmitImage(cmd.Context(), image)
	}
	if err != nil {
		return started, inspect.Unexecuted(err)
	}
	return started, nil
}

// hardware returns the hardware profile that --gpu or --profile names, and the GPU
// types of a list.
func (f *runFlags) hardware() (profile string, types []string, err error) {
	if f.gpu != "" && f.profile != "" {
		return "", nil, cli.UsageErrorf("--gpu and --profile mean the same: use one of them")
	}
	if f.gpu == "" {
		return f.profile, nil, nil
	}
	kind, count, counted := strings.Cut(f.gpu, ":")
	if strings.Contains(kind, ",") {
		types, kind = strings.Split(kind, ","), compute.AnyGPU
	}
	for _, name := range types {
		if _, err := compute.ParseProfile("gpu." + name); err != nil || strings.Contains(name, ".") {
			return "", nil, cli.UsageErrorf("--gpu: %q is not a GPU type; the number is last, as in a100,h100:2", name)
		}
	}
	profile = "gpu." + kind
	if counted && count != "1" {
		profile += "." + count + "x"
	}
	if _, err := compute.ParseProfile(profile); err != nil {
		return "", nil, cli.UsageErrorf("--gpu: %w", err)
	}
	return profile, types, nil
}

// codeFlags are the flags of commands that send code.
type codeFlags struct {
	code       string
	module     string
	name       string
	dir        string
	timeout    time.Duration
	env        []string
	files      []string
	tags       []string
	callbacks  []string
	priority   int
	maxCredits string
	maxRetries int
	network    string
	minVRAM    string
	capability string
	image      bool // An image says what is executed: what follows -- are its arguments.
	compose    bool // A Compose file says what is executed.
	space      spaceFlags

	preemptible     bool
	disconnectGrace time.Duration
}

func (f *codeFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.code, "code", "c", "", "Python `code`, instead of a file")
	flags.StringVarP(&f.module, "module", "m", "", "Python `module` to execute, instead of a file")
	flags.StringVar(&f.dir, "dir", "", "`directory` to send: the work directory of the code; see below")
	flags.StringVar(&f.name, "name", "", "a `name` for it; need not be unique")
	flags.Var((*limit)(&f.timeout), "timeout",
		"time limit of the execution, as in 90, 90s or 5m (default the operator's, 1m or 1h)")
	flags.StringArrayVar(&f.env, "env", nil, "`NAME=VALUE` in its environment, or NAME for the value here; repeat")
	flags.StringArrayVar(&f.files, "file", nil, "`PATH` of a file to put beside the code, or NAME=PATH; repeat")
	flags.StringArrayVar(&f.tags, "tag", nil, "a free `word` kept with the record; repeat")
	flags.StringArrayVar(&f.callbacks, "callback", nil, "an https `URL` to notify when it has ended; repeat")
	flags.IntVar(&f.priority, "priority", 50, "0 to 100, higher first")
	flags.StringVar(&f.maxCredits, "max-credits", "", "ceiling on what it may cost, in `credits`")
	flags.IntVar(&f.maxRetries, "max-retries", 0,
		"retries after a system failure, 0 to 10; code that fails is never retried")
	f.space.register(flags)
	flags.StringVar(&f.minVRAM, "min-vram", "",
		"least `memory` of each GPU, such as 24g; a card counts by its maker's size")
	flags.StringVar(&f.capability, "min-compute-capability", "",
		"least CUDA compute `capability` of its GPUs, such as 8.0")
	flags.BoolVar(&f.preemptible, "preemptible", false,
		"let urgent work end it; it is queued again, and that attempt is free")
	flags.Var((*limit)(&f.disconnectGrace), "disconnect-grace",
		"how long it may continue on a node that the cluster has lost, as in 90s or 1h (default 10m)")
	flags.StringVar(&f.network, "network", "",
		"network access: `egress`, the outside, or none (default egress; a node may give none to all)")
}

// limit is a duration flag that also accepts a bare number of seconds, as the
// API does.
type limit time.Duration

// String returns the limit in the syntax of Set, "" for none.
func (l *limit) String() string {
	if *l == 0 {
		return ""
	}
	return time.Duration(*l).String()
}

// Type returns the name of the type in help.
func (l *limit) Type() string { return "duration" }

// Set parses 90, 90s or 1m30s.
func (l *limit) Set(text string) error {
	if seconds, err := strconv.Atoi(text); err == nil {
		text = strconv.Itoa(seconds) + "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("want seconds or a duration such as 5m")
	}
	*l = limit(d)
	return nil
}

// start returns the request that the flags and the argument describe, and the
// files to send before; nil for none.
func (f *codeFlags) start(cmd *cobra.Command, args []string) (client.Start, *source.Tree, error) {
	start := client.Start{
		Name: f.name, Tags: f.tags, CallbackURLs: f.callbacks, Network: f.network, MaxRetries: f.maxRetries,
		Preemptible: f.preemptible, MinCapability: f.capability,
	}
	if cmd.Flags().Changed("disconnect-grace") {
		seconds := int(f.disconnectGrace.Seconds())
		start.DisconnectGrace = &seconds
	}
	tree, err := f.program(cmd, args, &start)
	if err != nil {
		return start, nil, err
	}
	if f.timeout%time.Second != 0 || f.timeout < time.Second && cmd.Flags().Changed("timeout") {
		return start, nil, cli.UsageErrorf("--timeout: %s is not a number of whole seconds, at least 1", f.timeout)
	}
	start.Timeout = int(f.timeout.Seconds())
	if start.Env, err = f.variables(); err != nil {
		return start, nil, err
	}
	if start.ImportFiles, err = f.imports(); err != nil {
		return start, nil, err
	}
	if start.MinVRAMGB, err = parseGiB("--min-vram", f.minVRAM); err != nil {
		return start, nil, err
	}
	if err := f.space.apply(&start); err != nil {
		return start, nil, err
	}
	if start.OutputsPrefix != "" && (f.image || f.compose) {
		return start, nil, cli.UsageErrorf("--outputs-to goes with Python code: containers leave no outputs/")
	}
	if cmd.Flags().Changed("priority") {
		start.Priority = &f.priority
	}
	if cmd.Flags().Changed("max-credits") { // An empty one is a mistake, and not work without a ceiling.
		ceiling, err := cli.Amount("max-credits", f.maxCredits)
		if err != nil {
			return start, nil, err
		}
		start.MaxCredits = &ceiling
	}
	return start, tree, nil
}

// maxGiB is the most memory or disk space that can be asked for.
const maxGiB = 1 << 20

// parseGiB parses the value of a flag: 24, 24g, 24GB or 24GiB.
func parseGiB(flag, text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	digits := strings.TrimRight(strings.ToLower(text), "gib")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > maxGiB {
		return 0, cli.UsageErrorf("%s: %q is not a number of gigabytes such as 24g", flag, text)
	}
	return n, nil
}

// variables returns the environment variables of --env.
func (f *codeFlags) variables() (map[string]string, error) {
	env := map[string]string{}
	for _, pair := range f.env {
		name, value, found := strings.Cut(pair, "=")
		if !found {
			if value, found = os.LookupEnv(name); !found {
				return nil, cli.UsageErrorf("--env: %s is not set here", name)
			}
		}
		env[name] = value
	}
	return env, nil
}

// imports returns the files of --file in the form of the API: a JSON object
// from path to text, as text.
func (f *codeFlags) imports() (string, error) {
	if len(f.files) == 0 {
		return "", nil
	}
	files, size := map[string]string{}, 0
	for _, arg := range f.files {
		name, path, found := strings.Cut(arg, "=")
		if !found {
			name, path = filepath.ToSlash(filepath.Clean(arg)), arg
		}
		text, err := cli.ReadFile(path, maxImportBytes)
		if err != nil {
			return "", err
		}
		if size += len(text); size > maxImportBytes {
			return "", cli.UsageErrorf("--file: more than %d bytes together", maxImportBytes)
		}
		files[name] = text
	}
	data, err := json.Marshal(files)
	return string(data), err
}

// awaitPlace waits until the execution has a node, and prints each new reason
// for the wait.
func awaitPlace(cmd *cobra.Command, c *client.Client, id compute.ExecutionID) error {
	var shown string
	for {
		e, err := c.Execution(cmd.Context(), id, placeWait)
		if err != nil {
			return inspect.Interrupted(cmd.Context(), id, err)
		}
		if e.Status != compute.StatusPending && e.Status != compute.StatusQueued {
			return nil
		}
		if why := e.PendingReason; why != nil && *why != shown && *why != compute.ReasonScheduling.String() {
			shown = *why
			fmt.Fprintf(cmd.ErrOrStderr(), "berth: it waits: %s\n", shown)
		}
	}
}

// follow prints the output of the execution until it has ended.
func follow(cmd *cobra.Command, c *client.Client, id compute.ExecutionID, after uint64, raw bool) error {
	out := cli.NewOutputPrinter(cmd, raw)
	for event, err := range c.Stream(cmd.Context(), id, after) {
		if err != nil {
			return inspect.Interrupted(cmd.Context(), id, err)
		}
		if err := out.Print(event); err != nil {
			return err
		}
	}
	return nil
}
