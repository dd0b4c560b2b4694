package berth_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const program = `package main

import (
	"fmt"

	berth "berth/sdk/go"
)

func main() {
	c, err := berth.New(berth.Config{Addrs: []string{"http://127.0.0.1:1"}})
	fmt.Println(c.Addrs(), err)
}
`

// TestModuleStandsAlone builds a program in a module of its own, which takes nothing of
// Berth but this directory.
func TestModuleStandsAlone(t *testing.T) {
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := map[string]string{
		"main.go": program,
		"go.mod":  "module example.com/lab\n\ngo 1.26.0\n\nrequire berth/sdk/go v0.0.0\n\nreplace berth/sdk/go => " + here + "\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if got := run("run", "."); got != "[http://127.0.0.1:1] <nil>\n" {
		t.Errorf("the program printed %q", got)
	}
	if got := run("list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "."); got != "berth/sdk/go\nexample.com/lab\n" {
		t.Errorf("the program is made of %q", got)
	}
}
