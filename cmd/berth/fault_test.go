package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"berth/fault"
)

// TestNoFaultsWithoutTheTag checks that a program built without the tag has
// neither failpoints nor planted bugs. The test binary links the whole product,
// and the linker omits unused code.
func TestNoFaultsWithoutTheTag(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Joined at run time, so that this test does not contain the searched text.
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
