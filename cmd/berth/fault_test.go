package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"berth/fault"
)

// TestNoFaultsWithoutTheTag holds that a program that is built as usual has
// neither failpoints nor planted bugs: this one has all of the product within,
// and the linker leaves out what nothing calls.
func TestNoFaultsWithoutTheTag(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Joined here, so that this text is not itself what is looked for.
	has := func(parts ...string) bool { return bytes.Contains(program, []byte(strings.Join(parts, "."))) }
	if !has("berth/fsm", "(*state)", "applyEntry") {
		t.Fatal("the names of functions are not found in the program")
	}
	for _, name := range [][]string{
		{"berth/fault", "(*injector)", "hit"},
		{"berth/fault", "mustInjector"},
		{"berth/fsm", "(*state)", "applyInMapOrder"},
		{"berth/fsm", "(*state)", "newestAttempt"},
	} {
		if has(name...) != fault.Enabled {
			t.Errorf("%s is in the program: %v", strings.Join(name, "."), !fault.Enabled)
		}
	}
}
