package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// MountsLimit is what an execution may cost on a machine with many foreign mounts, compared with one without.
const MountsLimit = 1.2

// mountsRounds is how often clusters without and with foreign mounts are measured, in turn.
const mountsRounds = 2

// Mounts compares executions on a machine without and with foreign mounts, which no execution asks for.
type Mounts struct {
	Mounts  int      `json:"mounts"`
	Without []Beside `json:"without"` // A cluster each.
	With    []Beside `json:"with"`
	Ratio   float64  `json:"ratio"`     // Ratio of the medians from submit to end,
	CPU     float64  `json:"cpu_ratio"` // and of the processor times.
	Limit   float64  `json:"limit"`     // MountsLimit.
}

// Beside has the figures of one of these clusters.
type Beside struct {
	P50MS float64 `json:"p50_ms"` // From the submit to the end, one after the other.
	CPUMS float64 `json:"cpu_ms"` // Processor time of each of many, of nodes and sandboxes.
}

// CompareMounts starts this program with the arguments of a benchmark that prints Executions, without and with
// so many mounts, in turn. With the arguments of place it makes the mounts in a directory.
func CompareMounts(
	ctx context.Context, mounts int, args []string, place func(dir string) []string, stderr io.Writer,
) (*Mounts, error) {
	out := &Mounts{Mounts: mounts, Limit: MountsLimit}
	for range mountsRounds {
		without, err := beside(ctx, args, stderr)
		if err != nil {
			return nil, err
		}
		dir, err := os.MkdirTemp("", "berth-bench-mounts-")
		if err != nil {
			return nil, fmt.Errorf("make directory: %w", err)
		}
		with, err := beside(ctx, append(args[:len(args):len(args)], place(dir)...), stderr)
		os.RemoveAll(dir)
		if err != nil {
			return nil, err
		}
		out.Without, out.With = append(out.Without, without), append(out.With, with)
	}
	var a, b Beside
	for i := range out.With {
		a.P50MS, a.CPUMS = a.P50MS+out.Without[i].P50MS, a.CPUMS+out.Without[i].CPUMS
		b.P50MS, b.CPUMS = b.P50MS+out.With[i].P50MS, b.CPUMS+out.With[i].CPUMS
	}
	out.Ratio, out.CPU = b.P50MS/a.P50MS, b.CPUMS/a.CPUMS
	return out, nil
}

// beside measures one cluster, in a mount namespace of its own.
func beside(ctx context.Context, args []string, stderr io.Writer) (b Beside, err error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // It ends its cluster.
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	text, err := cmd.Output()
	if err != nil {
		return b, fmt.Errorf("measure beside mounts: %w", err)
	}
	var r Executions
	if err := json.Unmarshal(text, &r); err != nil {
		return b, fmt.Errorf("measure beside mounts: %w", err)
	}
	return Beside{P50MS: r.Alone.P50MS, CPUMS: r.AllCPUMS}, nil
}

// MakeMounts makes mounts in a directory. They end with the mount namespace of this process, which
// CompareMounts has made.
func MakeMounts(dir string, mounts int) error {
	if err := unix.Mount("berth-bench", dir, "tmpfs", 0, "size=1m"); err != nil {
		return fmt.Errorf("make mounts: %w", err)
	}
	source := filepath.Join(dir, "source")
	if err := os.Mkdir(source, 0o700); err != nil {
		return fmt.Errorf("make mounts: %w", err)
	}
	for i := range mounts - 1 {
		at := filepath.Join(dir, strconv.Itoa(i))
		err := os.Mkdir(at, 0o700)
		if err == nil {
			err = unix.Mount(source, at, "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("make mounts: %w", err)
		}
	}
	return nil
}
