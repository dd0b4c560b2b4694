package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"berth/compute"
)

// PrintJSON writes value as indented JSON.
func PrintJSON(w io.Writer, value any) error { return printJSON(w, value, "  ") }

// PrintJSONLine writes value as JSON in one line.
func PrintJSONLine(w io.Writer, value any) error { return printJSON(w, value, "") }

// printJSON writes value as JSON, in which what a terminal would obey is escaped.
func printJSON(w io.Writer, value any, indent string) error {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetIndent("", indent)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := io.WriteString(w, Plain(out.String())) // Only strings have such characters.
	return err
}

// Plain returns a text of one or more lines for a terminal: control characters other than line
// feeds and tabs, and those that change the direction of text, are shown and not sent.
func Plain(text string) string {
	var out strings.Builder
	for piece := range strings.SplitAfterSeq(text, "\n") {
		line, ends := strings.CutSuffix(piece, "\n")
		for i, column := range strings.Split(line, "\t") {
			if i > 0 {
				out.WriteByte('\t')
			}
			out.WriteString(compute.Printable(column))
		}
		if ends {
			out.WriteByte('\n')
		}
	}
	return out.String()
}

// NewTable returns a table without lines, which tools can also split. The
// header is optional.
func NewTable(header ...any) table.Writer {
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

// Row converts values to text, because a table would align Go numbers to the
// right, without what a terminal would obey: names are other people's.
func Row(values ...any) table.Row {
	texts := make(table.Row, len(values))
	for i, v := range values {
		texts[i] = compute.Printable(fmt.Sprint(v))
	}
	return texts
}

// PrintTable writes the table, without spaces at the ends of lines.
func PrintTable(w io.Writer, t table.Writer) error {
	if width := terminalWidth(w); width > 0 {
		t.Style().Size.WidthMax = width
	}
	var out strings.Builder
	for line := range strings.Lines(t.Render() + "\n") {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// terminalWidth returns the columns of a terminal, 0 for other writers.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// A returns a word with its indefinite article.
func A(word string) string {
	if word != "" && strings.ContainsRune("aeiou", rune(word[0])) {
		return "an " + word
	}
	return "a " + word
}

// OrNone returns the value at p, "-" for nil.
func OrNone[T any](p *T) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprint(*p)
}

// CountTypes returns the count of each type, as in "h100:2 l40s:4", in order of
// first appearance; "-" for none.
func CountTypes(types []string) string {
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
