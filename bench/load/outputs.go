package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/api/client"
	"berth/compute"
)

// Containers has the times of a container that does nothing, submitted to a follower.
type Containers struct {
	Alone     Spread  `json:"alone"`  // From the submit to the terminal status.
	Reference Spread  `json:"docker"` // docker run of the same image.
	Ratio     float64 `json:"ratio"`  // Ratio of the two medians.
}

// containers executes an image and has Docker execute it, in turn.
func containers(ctx context.Context, user *client.Client, cfg ExecutionsConfig) (out Containers, err error) {
	run := append([]string{"run", "--rm", cfg.Image}, cfg.Command...)
	docker := func(ctx context.Context) error { return exec.CommandContext(ctx, "docker", run...).Run() }
	own := func(ctx context.Context) error {
		started, err := user.SubmitImage(ctx, client.StartImage{Image: cfg.Image, RunCommand: cfg.Command})
		if err != nil {
			return err
		}
		return completed(ctx, user, started.ExecutionID)
	}
	var ours, theirs []time.Duration
	for range cfg.Alone {
		for into, do := range map[*[]time.Duration]func(context.Context) error{&ours: own, &theirs: docker} {
			took, err := times(ctx, 1, upTo(1), do)
			if err != nil {
				return out, fmt.Errorf("execute %s: %w", cfg.Image, err)
			}
			*into = append(*into, took...)
		}
	}
	out.Alone, out.Reference = spreadOf(ours), spreadOf(theirs)
	out.Ratio = out.Alone.P50MS / out.Reference.P50MS
	return out, nil
}

// completed waits for the end of an execution, which must be the usual one.
func completed(ctx context.Context, c *client.Client, id compute.ExecutionID) error {
	e, err := c.Finished(ctx, id)
	if err == nil && e.Status != compute.StatusCompleted {
		err = fmt.Errorf("execution %s ended as %s: %v", id, e.Status, e.Errors)
	}
	return err
}

// Output is how fast code can print, in MiB a second.
type Output struct {
	Disk     float64 `json:"disk_mib_s"`     // As the code that prints sees it.
	Follower float64 `json:"follower_mib_s"` // To a client of a node that does not execute it.
	Pipe     float64 `json:"pipe_mib_s"`     // The same code into a pipe that cat copies to a file.
}

// flood is code that prints so many MiB of lines, and how many nanoseconds that took.
const flood = `import os, time
block = (b"x" * 127 + b"\n") * 512
begun = time.monotonic_ns()
for _ in range(%d * 16):
    left = memoryview(block)
    while left:
        left = left[os.write(1, left):]
os.write(2, b"%%d" %% (time.monotonic_ns() - begun))
`

const floodTimeout = 300

// output has code print, first without a reader, then with a client of another node.
func output(ctx context.Context, c *Cluster, cfg ExecutionsConfig) (out Output, err error) {
	code := fmt.Sprintf(flood, cfg.OutputMiB)
	user, err := c.client(c.APIKey)
	if err != nil {
		return out, err
	}
	started, err := user.Submit(ctx, client.Start{Code: code, Timeout: floodTimeout})
	if err != nil {
		return out, err
	}
	if err := completed(ctx, user, started.ExecutionID); err != nil {
		return out, err
	}
	e, err := user.Execution(ctx, started.ExecutionID, 0)
	if err != nil {
		return out, err
	}
	if out.Disk, err = rate(cfg.OutputMiB, e.Stderr); err != nil {
		return out, err
	}
	if out.Follower, err = followed(ctx, c, user, code); err != nil {
		return out, err
	}
	if out.Pipe, err = piped(ctx, cfg, code); err != nil {
		return out, err
	}
	return out, nil
}

// rate returns MiB a second from a text with nanoseconds.
func rate(mib int, text string) (float64, error) {
	took, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || took <= 0 {
		return 0, fmt.Errorf("the code printed %q in place of the time it took", text)
	}
	return float64(mib) / time.Duration(took).Seconds(), nil
}

// followed returns how fast a client of another node gets the output of code.
func followed(ctx context.Context, c *Cluster, user *client.Client, code string) (float64, error) {
	started, err := user.Submit(ctx, client.Start{Code: code, Timeout: floodTimeout})
	if err != nil {
		return 0, err
	}
	other, err := c.clientBeside(ctx, user, started.ExecutionID)
	if err != nil {
		return 0, err
	}
	var begun, last time.Time
	bytes := 0
	for event, err := range other.Stream(ctx, started.ExecutionID, 0) {
		if err != nil {
			return 0, err
		}
		if event.Content == "" {
			continue
		}
		last = time.Now() //nolint:forbidigo // Real processes have real time.
		if begun.IsZero() {
			begun = last
		}
		bytes += len(event.Content)
	}
	if !last.After(begun) {
		return 0, errors.New("the stream had no output")
	}
	return float64(bytes) / (1 << 20) / last.Sub(begun).Seconds(), nil
}

// piped returns how fast the code alone prints into a pipe from which cat writes a file.
func piped(ctx context.Context, cfg ExecutionsConfig, code string) (float64, error) {
	dir, err := os.MkdirTemp("", "berth-bench-pipe-")
	if err != nil {
		return 0, fmt.Errorf("make directory: %w", err)
	}
	defer os.RemoveAll(dir)
	cmd := exec.CommandContext(ctx, "sh", "-c", `"$0" -c "$1" | cat >"$2"`, cfg.Python, code, filepath.Join(dir, "output"))
	var took strings.Builder
	cmd.Stderr = &took
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("start %s: %w", cfg.Python, err)
	}
	return rate(cfg.OutputMiB, took.String())
}

// wheelMaker is code that makes a package that installs nothing but a name.
const wheelMaker = `import sys, zipfile
with zipfile.ZipFile(sys.argv[1] + "/berthbench-1.0-py3-none-any.whl", "w") as z:
    info = "berthbench-1.0.dist-info/"
    z.writestr("berthbench.py", "value = 1\n")
    z.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: berthbench\nVersion: 1.0\n")
    z.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: berth\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr(info + "RECORD", "berthbench.py,,\n%sMETADATA,,\n%sWHEEL,,\n%sRECORD,,\n" % (info, info, info))
`

// MakePackage makes the package of MeasureExecutions in a directory, from which the nodes
// are to install.
func MakePackage(ctx context.Context, python, dir string) error {
	if out, err := exec.CommandContext(ctx, python, "-c", wheelMaker, dir).CombinedOutput(); err != nil {
		return fmt.Errorf("make package: %w: %s", err, out)
	}
	return nil
}

// installed executes code with a package that the nodes have installed before, and the same
// without it, in turn, and returns both spreads. Once on each node installs it.
func installed(
	ctx context.Context, c *Cluster, user *client.Client, cfg ExecutionsConfig,
) (with, without Spread, err error) {
	one := func(requirements string) func(context.Context) error {
		return func(ctx context.Context) error {
			started, err := user.Submit(ctx, client.Start{Code: noop, Timeout: noopTimeout, Requirements: requirements})
			if err != nil {
				return err
			}
			return completed(ctx, user, started.ExecutionID)
		}
	}
	const requirement = "berthbench==1.0"
	// Several at once are spread over the nodes.
	for range 2 {
		if _, err := times(ctx, 2*len(c.Nodes), upTo(4*len(c.Nodes)), one(requirement)); err != nil {
			return with, without, err
		}
	}
	var a, b []time.Duration
	for range cfg.Alone {
		for into, requirements := range map[*[]time.Duration]string{&a: requirement, &b: ""} {
			took, err := times(ctx, 1, upTo(1), one(requirements))
			if err != nil {
				return with, without, err
			}
			*into = append(*into, took...)
		}
	}
	return spreadOf(a), spreadOf(b), nil
}
