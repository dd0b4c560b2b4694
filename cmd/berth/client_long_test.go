//go:build long

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestClientsAreBuilt builds the client for each system that it is for, and asks the one
// of this machine for its version.
func TestClientsAreBuilt(t *testing.T) {
	dir := t.TempDir()
	for _, target := range []string{"darwin/arm64", "darwin/amd64", "windows/amd64", "linux/arm64", "linux/amd64"} {
		system, machine, _ := strings.Cut(target, "/")
		program := filepath.Join(dir, system+"-"+machine)
		cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", "client", "-o", program, ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+machine)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", target, err, out)
		}
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "linux-amd64"), "version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "berth") {
		t.Errorf("%v: %s", err, out)
	}
}
