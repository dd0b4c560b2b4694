package composefile

import (
	"fmt"
	"strings"
)

// Fault is something in a Compose file that is refused.
type Fault struct { //nolint:errname // As in the 422 that has it.
	Line, Column int    // From 1; 0 if they are not known.
	Path         string // As in services.web.privileged; "" for the whole file.
	Why          string
}

// Error returns the fault as a line for people.
func (f Fault) Error() string {
	var b strings.Builder
	if f.Line > 0 {
		fmt.Fprintf(&b, "line %d, column %d: ", f.Line, f.Column)
	}
	if f.Path != "" {
		b.WriteString(f.Path + ": ")
	}
	b.WriteString(f.Why)
	return b.String()
}
