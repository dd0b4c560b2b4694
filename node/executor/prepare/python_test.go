package prepare

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSlowInterpreterIsNamed checks that the log names an interpreter whose start costs
// every execution. A wrapper counts as what it starts.
func TestSlowInterpreterIsNamed(t *testing.T) {
	found, err := findPython(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	burn := "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done\n"
	slow := filepath.Join(dir, "slow")
	script("slow", `case "$*" in *json*) echo '{"executable":"`+slow+`","version":"3.0","prefixes":["/usr"]}'; exit;; esac`+"\n"+burn)
	for _, name := range []string{slow, script("wrapper", burn+"exec "+found.Executable+` "$@"`)} {
		p, err := findPython(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		p.log(slog.New(slog.NewTextHandler(&out, nil)))
		if got := strings.Contains(out.String(), "starts slowly"); got != (p.start > slowStart) || name == slow && !got {
			t.Errorf("%s: %s", name, out.String())
		}
		if !strings.Contains(out.String(), p.Executable) || name != slow && p.Executable != found.Executable {
			t.Errorf("%s is taken for %s: %s", name, p.Executable, out.String())
		}
	}
}
