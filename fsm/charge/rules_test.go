package charge_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/fsm/charge"
)

var updateDocs = flag.Bool("update-docs", false, "write the table of charges in docs/operations.md instead of comparing")

// TestChargesAreDocumented holds the table in docs/operations.md to that of the code.
func TestChargesAreDocumented(t *testing.T) {
	var table strings.Builder
	table.WriteString("| what | charged |\n|---|---|\n")
	for _, rule := range append(charge.Rules(), charge.FreeAttempts()...) {
		fmt.Fprintf(&table, "| %s | %s |\n", rule.Case, rule.Charge)
	}
	path := filepath.Join("..", "..", "docs", "operations.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- charges -->\n", "<!-- end of charges -->\n"
	before, rest, ok := strings.Cut(string(data), begin)
	old, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatal("docs/operations.md has no place for the table of charges")
	}
	if *updateDocs {
		if err := os.WriteFile(path, []byte(before+begin+table.String()+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != table.String() {
		t.Errorf("docs/operations.md has\n%s\nthe code\n%s\n(go test ./fsm/charge -run TestChargesAreDocumented -update-docs)", old, table.String())
	}
}
