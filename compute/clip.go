package compute

import (
	"strings"
	"unicode/utf8"
)

// Clip returns text for people as records may hold it: UTF-8 in at most limit
// bytes, cut between characters. What is no UTF-8, such as the name of a file in
// an error, shows as a replacement character: no replica decodes anything else.
func Clip(text string, limit int) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
