package world

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// commandLimit is the timeout of a system program.
const commandLimit = 60 * time.Second

// tools are the system programs that a world uses.
var tools = []string{ //nolint:gochecknoglobals // A constant.
	"ip", "nft", "tc", "nsenter", "mkfs.ext4", "losetup", "mount", "umount", "strace",
}

// Missing returns the programs that a world needs and this machine lacks.
func Missing() []string {
	var out []string
	for _, name := range tools {
		if _, err := exec.LookPath(toolPath(name)); err != nil {
			out = append(out, name)
		}
	}
	return out
}

// toolPath returns the path of a system program. Administration programs are
// not on every user's PATH.
func toolPath(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, dir := range []string{"/usr/sbin/", "/sbin/"} {
		if _, err := os.Stat(dir + name); err == nil {
			return dir + name
		}
	}
	return name
}

// command runs a system program with input. A failure's output is in the error.
func command(ctx context.Context, input, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, toolPath(name), args...)
	cmd.Stdin = strings.NewReader(input)
	var faults bytes.Buffer
	cmd.Stderr = &faults
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w: %s",
			name, strings.Join(args, " "), err, strings.TrimSpace(faults.String()))
	}
	return nil
}
