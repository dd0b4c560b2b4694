package sandbox_test

import (
	"os"
	"path/filepath"
	"testing"

	"berth/node/executor/sandbox"
)

// TestHasProgram looks for programs as a sandbox that shows one directory of two, and another
// one below the second.
func TestHasProgram(t *testing.T) {
	root := t.TempDir()
	system, hidden, venv := filepath.Join(root, "usr"), filepath.Join(root, "home"), filepath.Join(root, "opt/venv")
	write := func(name, text string, mode os.FileMode) {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	link := func(name, target string) {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	write(system+"/bin/plain", "\x7fELF", 0o755)
	write(system+"/bin/data", "text", 0o644)
	write(system+"/bin/script", "#!"+system+"/bin/plain -x\n", 0o755)
	write(system+"/bin/foreign", "#!"+hidden+"/bin/python\n", 0o755)
	write(hidden+"/bin/python", "\x7fELF", 0o755)
	write(hidden+"/bin/vllm", "\x7fELF", 0o755)
	link(venv+"/bin/python", system+"/bin/plain")
	write(venv+"/bin/vllm", "#! "+venv+"/bin/python\n", 0o755)
	link(system+"/bin/relative", "../bin/plain")
	link(system+"/bin/out", hidden+"/bin/vllm")
	link(system+"/bin/venv", venv+"/bin/vllm")
	link(system+"/bin/circle", "circle")
	link(system+"/lib", hidden+"/bin")
	link(hidden+"/back", system+"/bin/plain")
	link(system+"/bin/through", hidden+"/back") // The sandbox has its end, and not the way.
	for _, test := range []struct {
		name          string
		plain, opened bool // Without, and with the other directory.
	}{
		{"plain", true, true},
		{"relative", true, true},
		{"script", true, true},
		{"data", false, false},
		{"none", false, false},
		{"bin/plain", false, false},
		{"foreign", false, false},
		{"out", false, false},
		{"circle", false, false},
		{"through", false, false},
		{"venv", false, true},
		{system + "/bin/plain", true, true},
		{system + "/lib/vllm", false, false},
		{hidden + "/bin/vllm", false, false},
		{venv + "/bin/vllm", false, true},
	} {
		search := []string{hidden + "/bin", system + "/bin"}
		if got := sandbox.HasProgram(test.name, search, []string{system}); got != test.plain {
			t.Errorf("%s: %t", test.name, got)
		}
		if got := sandbox.HasProgram(test.name, search, []string{system, venv}); got != test.opened {
			t.Errorf("%s with %s: %t", test.name, venv, got)
		}
	}
}
