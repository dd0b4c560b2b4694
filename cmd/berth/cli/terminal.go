package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"berth/api/client"
)

// OutputPrinter prints pieces of an execution's output. On a terminal it shows
// control characters instead of sending them: they could set the title, write to the
// clipboard or hide what was printed before.
type OutputPrinter struct {
	stdout, stderr io.Writer
}

// NewOutputPrinter returns a printer for output of code; raw passes every byte on.
func NewOutputPrinter(cmd *cobra.Command, raw bool) *OutputPrinter {
	harmless := func(w io.Writer) io.Writer {
		if raw || !IsTerminal(w) {
			return w
		}
		return &terminalFilter{w: w}
	}
	return &OutputPrinter{stdout: harmless(cmd.OutOrStdout()), stderr: harmless(cmd.ErrOrStderr())}
}

// Print prints a piece of output, or that output before the end is missing.
func (p *OutputPrinter) Print(event client.Event) error {
	if event.Finished != nil && event.Finished.Missing != "" {
		_, err := fmt.Fprintf(p.stderr, "berth: output may be missing here: %s\n", event.Finished.Missing)
		return err
	}
	out := p.stdout
	if event.Stderr {
		out = p.stderr
	}
	_, err := io.WriteString(out, event.Content)
	return err
}

// RawHelp describes the flag --raw.
const RawHelp = "send control characters in the output to the terminal instead of showing them"

// maxSequence is the length of the longest control sequence that is passed on.
const maxSequence = 32

// terminalFilter passes text, tabs, line feeds, carriage returns, colours (CSI m) and
// the erasure of the current line (CSI K) on. It shows all other control characters
// of ECMA-48 as ^ and a letter.
type terminalFilter struct {
	w    io.Writer
	held []byte // The start of what may become an allowed sequence, or a C1 control.
}

// Write filters p. A sequence may be split over several calls.
func (f *terminalFilter) Write(p []byte) (int, error) {
	var out []byte
	for _, b := range p {
		out = f.next(out, b)
	}
	if _, err := f.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// next appends what the byte b makes visible.
func (f *terminalFilter) next(out []byte, b byte) []byte {
	switch {
	case len(f.held) == 0 && (b == 0x1b || b == 0xc2):
		f.held = append(f.held, b)
		return out
	case len(f.held) == 0:
		return appendVisible(out, b)
	case f.held[0] == 0xc2: // U+0080 to U+00BF.
		f.held = f.held[:0]
		if b >= 0x80 && b < 0xa0 {
			return append(out, '^', '[', b-0x40) // A C1 control is ESC and this letter.
		}
		return f.next(append(out, 0xc2), b)
	}
	f.held = append(f.held, b)
	switch n := len(f.held); {
	case n == 2 && b == '[', n > 2 && (b >= '0' && b <= '9' || b == ';' || b == ':') && n < maxSequence:
		return out // Not complete yet.
	case n > 2 && (b == 'm' || b == 'K'):
		out = append(out, f.held...)
		f.held = f.held[:0]
		return out
	}
	shown := f.held
	f.held = nil
	for i, c := range shown {
		if i > 0 && (c == 0x1b || c == 0xc2) { // Only the last byte can be one.
			return f.next(out, c)
		}
		out = appendVisible(out, c)
	}
	return out
}

// appendVisible appends one byte, a control character in caret notation.
func appendVisible(out []byte, b byte) []byte {
	if b >= ' ' && b != 0x7f || b == '\n' || b == '\t' || b == '\r' {
		return append(out, b)
	}
	return append(out, '^', b^0x40)
}
