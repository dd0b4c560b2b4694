package compute

import (
	"fmt"
	"strings"
	"unicode"
)

// brailleBlank is a letter to Unicode, and looks like a space.
const brailleBlank = '\u2800'

// BadName returns why people may not give a thing this name, "" if they may. Names are shown to
// others: a name that nobody sees, that moves the cursor or that turns the text behind it around
// could pass for another one.
func BadName(name string) string {
	switch {
	case HasUnprintable(name):
		return "a name has no control characters, and none that change the direction of text"
	case strings.TrimFunc(name, invisible) == "":
		return "a name is not blank"
	}
	return ""
}

// HasUnprintable reports whether a text has a character that Printable replaces.
func HasUnprintable(text string) bool { return strings.ContainsFunc(text, Unprintable) }

// Unprintable reports whether r is a control character, ends a line or changes the direction of
// text.
func Unprintable(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// Printable returns a text for a terminal: unprintable characters are replaced by their escapes
// in JSON, such as \u202e.
func Printable(text string) string {
	if !HasUnprintable(text) {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if Unprintable(r) {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// invisible reports whether r alone shows nothing.
func invisible(r rune) bool {
	return unicode.IsSpace(r) || r == brailleBlank ||
		unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
