package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"berth/cmd/berth/cli"
)

// TestNamesArePrintedPlain prints a name that would clear a terminal and turn its text around: tables,
// JSON and errors show that, and JSON has the same name.
func TestNamesArePrintedPlain(t *testing.T) {
	const name, raw = "a\x1b[2J\u009b2J\u202eb\x7f\u2066", "\x1b\u009b\u202e\u2066\x7f"
	row := cli.NewTable("name", "next")
	row.AppendRow(cli.Row(name, `c:\x7f`))
	for what, write := range map[string]func(w *bytes.Buffer) error{
		"a table":        func(w *bytes.Buffer) error { return cli.PrintTable(w, row) },
		"JSON":           func(w *bytes.Buffer) error { return cli.PrintJSON(w, []string{name, `c:\x7f`}) },
		"a line of JSON": func(w *bytes.Buffer) error { return cli.PrintJSONLine(w, []string{name, `c:\x7f`}) },
		"an error":       func(w *bytes.Buffer) error { cli.PrintError(w, errors.New("no key "+name)); return nil },
	} {
		var out bytes.Buffer
		if err := write(&out); err != nil || strings.ContainsAny(out.String(), raw) || !strings.Contains(out.String(), `\u202e`) {
			t.Errorf("%s is %+q, %v", what, out.String(), err)
		}
		if !strings.Contains(what, "JSON") {
			continue
		}
		var back []string
		if err := json.Unmarshal(out.Bytes(), &back); err != nil || back[0] != name || back[1] != `c:\x7f` {
			t.Errorf("%s has the names %+q, %v", what, back, err)
		}
	}
}

// TestPlainKeepsLines keeps what arranges a text of several lines: line feeds and tabs.
func TestPlainKeepsLines(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "\n": "\n", "\ta\n\n\tb\t\n": "\ta\n\n\tb\t\n",
		"a\x1b[2J\tb\r\n": `a\u001b[2J` + "\tb" + `\u000d` + "\n",
	} {
		if got := cli.Plain(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}
