package handler

import (
	"strconv"
	"strings"
)

// TableNumber returns a number as a field of a table.
func TableNumber(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// TableText returns text as a field of a table, which a spreadsheet does not take for a
// formula.
func TableText(s string) string {
	if s != "" && strings.IndexByte("=+-@\t\r", s[0]) >= 0 {
		return "'" + s
	}
	return s
}
