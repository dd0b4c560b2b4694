package compute

import (
	"strings"
	"unicode/utf8"
)

// Clip returns text for people as valid UTF-8 in at most limit bytes, cut
// between characters. Invalid bytes, such as in a file name in an error, become
// replacement characters, because no replica decodes anything else.
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
