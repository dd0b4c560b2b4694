package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// widest is the length of the longest line of help.
const widest = 100

// TestHelp holds that every command has an example, that examples have the flags
// that they use, and that lines of help fit.
func TestHelp(t *testing.T) {
	root := newRoot()
	for _, cmd := range append(commandsBelow(root), root) {
		var help bytes.Buffer
		cmd.SetOut(&help)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(help.String()) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > widest {
				t.Errorf("%s: %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
		if cmd.HasSubCommands() {
			continue
		}
		if cmd.Example == "" {
			t.Errorf("%s has no example: add one, or a row to examplesByPath", cmd.CommandPath())
		}
		if first := cmd.Short[:1]; first != strings.ToUpper(first) || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: %q is not a phrase with a capital and without a full stop", cmd.CommandPath(), cmd.Short)
		}
		checkExample(t, root, cmd.Example)
	}
	known := map[string]bool{}
	for _, cmd := range commandsBelow(root) {
		known[strings.TrimPrefix(cmd.CommandPath(), "berth ")] = true
	}
	for path := range examplesByPath() {
		if !known[path] {
			t.Errorf("an example is of %q, which is no command", path)
		}
	}
}

// checkExample fails if a line of an example is no command with the flags that it
// uses.
func checkExample(t *testing.T, root *cobra.Command, example string) {
	t.Helper()
	word := regexp.MustCompile(`'[^']*'|[^ ]+`)
	for line := range strings.Lines(example) {
		_, rest, ok := strings.Cut(strings.TrimSpace(line), "berth ")
		if !ok || strings.Contains(line, "go run") {
			continue
		}
		rest, _, _ = strings.Cut(strings.TrimRight(rest, ")"), " > ")
		args := word.FindAllString(rest, -1)
		cmd, left, err := root.Find(args)
		if err != nil || cmd == root {
			t.Errorf("%s: %v", line, err)
			continue
		}
		cmd.InitDefaultHelpFlag()
		for _, arg := range left {
			if arg == "--" {
				break // The rest is the code's.
			}
			name, _, _ := strings.Cut(arg, "=")
			if strings.HasPrefix(name, "--") && cmd.Flags().Lookup(name[2:]) == nil && cmd.InheritedFlags().Lookup(name[2:]) == nil ||
				len(name) == 2 && name[0] == '-' && cmd.Flags().ShorthandLookup(name[1:]) == nil {
				t.Errorf("%s: %s has no flag %s", line, cmd.CommandPath(), name)
			}
		}
	}
}

// TestReference holds that docs/cli.md is what the commands say. With -update it
// writes the page.
func TestReference(t *testing.T) {
	var page strings.Builder
	page.WriteString("# Commands\n\n`go test ./cmd/berth -run TestReference -update` writes this page from the commands. " +
		"`berth COMMAND --help` shows\nthe same.\n")
	root := newRoot()
	for _, cmd := range commandsBelow(root) {
		describe(&page, cmd)
	}
	path := filepath.Join("..", "..", "docs", "cli.md")
	if f := flag.Lookup("update"); f != nil && f.Value.String() == "true" {
		if err := os.WriteFile(path, []byte(page.String()), 0o644); err != nil { //nolint:gosec // A page of the documentation.
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil || string(data) != page.String() {
		t.Errorf("docs/cli.md is not what the commands say (%v): go test ./cmd/berth -run TestReference -update", err)
	}
}

// describe writes the section of a command.
func describe(w *strings.Builder, cmd *cobra.Command) {
	long := cmd.Long
	if long == "" {
		long = cmd.Short + "."
	}
	fmt.Fprintf(w, "\n## %s\n\n%s\n", cmd.CommandPath(), code(long))
	if cmd.Runnable() && !cmd.HasSubCommands() {
		fmt.Fprintf(w, "\n```\n%s\n```\n", cmd.UseLine())
	}
	if cmd.Example != "" {
		fmt.Fprintf(w, "\n```\n%s\n```\n", cmd.Example)
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			flags.AddFlag(f)
		}
	})
	if flags.HasFlags() {
		fmt.Fprintf(w, "\n```\n%s```\n", flags.FlagUsagesWrapped(widest))
	}
}

// code marks the indented lines of a text as code.
func code(text string) string {
	var out []string
	inside := false
	for line := range strings.SplitSeq(text, "\n") {
		indented := strings.HasPrefix(line, "  ")
		if indented != inside && line != "" {
			out = append(out, "```")
			inside = indented
		}
		out = append(out, line)
	}
	if inside {
		out = append(out, "```")
	}
	return strings.Join(out, "\n")
}

// TestUnknownCommands holds that mistyped commands get a suggestion, and that
// --version prints the version.
func TestUnknownCommands(t *testing.T) {
	for args, want := range map[string]string{
		"runn": "did you mean run?", "admin usr": "did you mean user?", "qqqqqq": `unknown command "qqqqqq" for "berth"; see`,
	} {
		if r := execute(t, "", strings.Fields(args)...); r.Code != 2 || !strings.Contains(r.Errors, want) {
			t.Errorf("%s: got %+v", args, r)
		}
	}
	if r := execute(t, "", "--version"); r.Code != 0 || r.Out != execute(t, "", "version").Out {
		t.Errorf("got %+v", r)
	}
}
