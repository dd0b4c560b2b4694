package cli

import (
	"strings"
	"testing"
)

// TestTerminalFilter passes text and colours on, and shows what would act on the
// terminal, however it is cut into pieces.
func TestTerminalFilter(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"text":               {"épée €\ttab\r\nline\n", "épée €\ttab\r\nline\n"},
		"colours":            {"\x1b[1;31mred\x1b[0m\x1b[m", "\x1b[1;31mred\x1b[0m\x1b[m"},
		"erase line":         {"10%\r\x1b[K20%", "10%\r\x1b[K20%"},
		"title":              {"\x1b]0;owned\x07", "^[]0;owned^G"},
		"clipboard":          {"\x1b]52;c;cm0gLXJm\x07", "^[]52;c;cm0gLXJm^G"},
		"clear screen":       {"\x1b[2J\x1b[H", "^[[2J^[[H"},
		"device report":      {"\x1b[6n\x1bZ", "^[[6n^[Z"},
		"C1 control":         {"\u009b2J\u0090q", "^[[2J^[Pq"},
		"twice":              {"\x1b\x1b[31mx", "^[\x1b[31mx"},
		"other controls":     {"a\x00\b\x0e\x7f", "a^@^H^N^?"},
		"not UTF-8":          {"\xc2\xc2x\xff", "\xc2\xc2x\xff"},
		"endless parameters": {"\x1b[" + strings.Repeat("1", 40) + "m", "^[[" + strings.Repeat("1", 40) + "m"},
	} {
		for _, size := range []int{1, 2, 3, 100} {
			var got strings.Builder
			f := &terminalFilter{w: &got}
			for rest := tt.in; rest != ""; {
				n := min(size, len(rest))
				if _, err := f.Write([]byte(rest[:n])); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if got.String() != tt.want {
				t.Errorf("%s in pieces of %d: got %q, want %q", name, size, got.String(), tt.want)
			}
		}
	}
}
