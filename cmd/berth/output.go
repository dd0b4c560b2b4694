package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// printJSON writes value as indented JSON.
func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// newTable returns a table without lines, which tools can also split. The
// header is optional.
func newTable(header ...any) table.Writer {
	t := table.NewWriter()
	t.SetStyle(plainStyle())
	if len(header) > 0 {
		t.AppendHeader(header)
	}
	return t
}

func plainStyle() table.Style {
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "   "
	style.Format.Header = text.FormatUpper
	return style
}

// row converts values to text, because a table would align Go numbers to the
// right.
func row(values ...any) table.Row {
	texts := make(table.Row, len(values))
	for i, v := range values {
		texts[i] = fmt.Sprint(v)
	}
	return texts
}

// printTable writes the table.
func printTable(w io.Writer, t table.Writer) error {
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// ago returns the time since t, in one unit.
func ago(now, t time.Time) string {
	d := now.Sub(t)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// orNone returns the value at p, "-" for nil.
func orNone[T any](p *T) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprint(*p)
}

// countTypes returns the count of each type, as in "h100:2 l40s:4", in order of
// first appearance; "-" for none.
func countTypes(types []string) string {
	counts := map[string]int{}
	var order []string
	for _, t := range types {
		if counts[t]++; counts[t] == 1 {
			order = append(order, t)
		}
	}
	if len(order) == 0 {
		return "-"
	}
	for i, t := range order {
		order[i] = fmt.Sprintf("%s:%d", t, counts[t])
	}
	return strings.Join(order, " ")
}
