package statement

import (
	"fmt"
	"strings"
	"sync"

	"codeberg.org/go-fonts/liberation/liberationsansregular"
	"golang.org/x/image/font/sfnt"

	"berth/compute"
)

// nameFont is the family that names are printed in: Liberation Sans. It has Latin, Greek and
// Cyrillic letters with the sizes of Helvetica, which PDF readers have, with Latin letters only.
// The program has it already, for charts. A document contains the glyphs that it uses.
const nameFont = "LiberationSans"

const (
	noGlyph  = '□'    // Stands for a character that nameFont has not.
	lastRune = 0xffff // The last character that package fpdf can print.
)

//nolint:gochecknoglobals // A constant that is read at its first use.
var parsedFont = sync.OnceValues(func() (*sfnt.Font, error) { return sfnt.Parse(liberationsansregular.TTF) })

// withGlyphs returns a text in which noGlyph is in place of the characters that nameFont has not.
func withGlyphs(text string) (string, error) {
	font, err := parsedFont()
	if err != nil {
		return "", fmt.Errorf("read font: %w", err)
	}
	var buffer sfnt.Buffer
	return strings.Map(func(r rune) rune {
		if i, err := font.GlyphIndex(&buffer, r); err != nil || i == 0 || r > lastRune || compute.Unprintable(r) {
			return noGlyph
		}
		return r
	}, text), nil
}
