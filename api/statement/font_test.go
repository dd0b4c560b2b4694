package statement_test

import (
	"bytes"
	"compress/zlib"
	"io"
	"strings"
	"testing"
	"unicode/utf16"

	"golang.org/x/image/font/sfnt"

	"berth/api/statement"
	"berth/compute"
)

// streams returns the streams of a PDF that are not images, inflated.
func streams(t *testing.T, pdf []byte) (out [][]byte) {
	t.Helper()
	for _, part := range bytes.Split(pdf, []byte("stream\n"))[1:] {
		raw, _, _ := bytes.Cut(part, []byte("\nendstream"))
		if r, err := zlib.NewReader(bytes.NewReader(raw)); err == nil {
			raw, err = io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, raw)
	}
	return out
}

// shownAs returns a text as a page has it: two bytes a character, and backslashes before some.
func shownAs(text string) []byte {
	var out []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		for _, b := range []byte{byte(unit >> 8), byte(unit)} {
			if strings.ContainsRune(`()\`, rune(b)) {
				out = append(out, '\\')
			}
			if b == '\r' {
				out = append(out, '\\')
				b = 'r'
			}
			out = append(out, b)
		}
	}
	return out
}

// TestPDFNames prints names in letters that are not Latin: the page has their characters, the font
// in the document has their glyphs and those of few others, and what it cannot print is a box.
func TestPDFNames(t *testing.T) {
	month := statement.Month{Hash: compute.Hash{1}}
	for name, want := range map[string]string{
		"Müller": "Müller (lab)", "Δίκτυο": "Δίκτυο (lab)", "Лаборатория": "Лаборатория (lab)",
		"実験室 1": "□□□ 1 (lab)", "a😀b": "a□b (lab)", "ab\u202egnp": "ab□gnp (lab)", `a(b)\`: `a(b)\ (lab)`,
		" a\n b ": "a b (lab)",
	} {
		pdf := mustPDF(t, &month, statement.Heading{ID: "1", Name: name, Slug: "lab"})
		var page bool
		var font *sfnt.Font
		for _, stream := range streams(t, pdf) {
			page = page || bytes.Contains(stream, shownAs(want))
			if bytes.HasPrefix(stream, []byte{0, 1, 0, 0}) {
				var err error
				if font, err = sfnt.Parse(stream); err != nil {
					t.Fatalf("%s: the font: %v", name, err)
				}
			}
		}
		if !page || font == nil {
			t.Fatalf("%s: the page has %q: %v; the document has a font: %v", name, want, page, font != nil)
		}
		var buffer sfnt.Buffer
		for _, r := range want {
			if i, err := font.GlyphIndex(&buffer, r); err != nil || i == 0 {
				t.Errorf("%s: the font has no glyph for %q, %v", name, r, err)
			}
		}
		if n := font.NumGlyphs(); n > 50 || len(pdf) > 64<<10 {
			t.Errorf("%s: the font has %d glyphs, the document %d bytes", name, n, len(pdf))
		}
	}
}
