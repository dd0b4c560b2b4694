// Package mask hides known secrets in output.
//
// It hides a value as it is, in base64 of any kind, and each of its lines alone. It also
// finds values that are split over several writes or overlap each other. It is a guard
// against accidents: code that has a secret can print it in another form.
package mask

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
)

const (
	shortest = 4      // Bytes; hiding less would garble other output and reveal the value.
	line     = 8      // Bytes of a line of a longer value that is hidden by itself.
	shown    = "****" // In place of a value.
	maxLines = 1000   // Lines that are hidden by themselves, of all values together: each costs time for all output.
)

// Secrets are the texts to hide.
type Secrets struct {
	texts [][]byte // Longest first.
	first [256]bool
}

// New returns the texts to hide for some values.
func New(values []string) *Secrets {
	s := new(Secrets)
	known := make(map[string]bool)
	add := func(text string, least int) {
		if len(text) >= least && !known[text] {
			known[text] = true
			s.texts = append(s.texts, []byte(text))
			s.first[text[0]] = true
		}
	}
	lines := 0
	for _, value := range values {
		add(value, shortest)
		if len(value) >= shortest {
			addBase64(value, func(text string) { add(text, line) })
		}
		parts := strings.FieldsFunc(value, func(r rune) bool { return r == '\n' || r == '\r' })
		for _, one := range parts {
			if lines++; len(parts) > 1 && lines <= maxLines {
				add(one, line)
			}
		}
	}
	slices.SortFunc(s.texts, func(a, b []byte) int { return len(b) - len(a) })
	return s
}

// Columns at which programs wrap base64.
const (
	pemColumns  = 64
	mimeColumns = 76
)

// addBase64 adds the forms that a value has in base64, standard and for URLs: alone, with
// a line feed behind it, wrapped, and as part of a longer text. In a longer text only the
// characters that depend on the value alone are known.
func addBase64(value string, add func(text string)) {
	for _, form := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		add(form.EncodeToString([]byte(value)))
		add(form.EncodeToString([]byte(value + "\n")))
		bare := form.WithPadding(base64.NoPadding)
		for before := range 3 { // Bytes in front of it, modulo 3.
			text := bare.EncodeToString(append(make([]byte, before), value...))
			first, last := (before*8+5)/6, (before+len(value))*8/6
			if first < last {
				text = text[first:last]
			}
			add(text)
			for _, columns := range []int{pemColumns, mimeColumns} {
				for at := 0; before == 0 && len(text) > columns && at+line <= len(text); at += columns {
					add(text[at:min(at+columns, len(text))])
				}
			}
		}
	}
}

// Stream hides secrets in one stream of output.
type Stream struct {
	secrets *Secrets
	held    []byte // Bytes that may be the beginning of a text.
	covered int    // How much of held is hidden in any case: the text before ends in it.
}

// Stream returns a stream that hides the texts. It hides nothing if s is nil.
func (s *Secrets) Stream() *Stream { return &Stream{secrets: s} }

// Next returns the part of the output that can be shown so far. The end of data that
// may be the beginning of a secret comes with a later call, or with Rest. The result
// is valid until data changes.
func (s *Stream) Next(data []byte) []byte {
	if s.secrets == nil || len(s.secrets.texts) == 0 {
		return data
	}
	if len(s.held) > 0 {
		data = append(s.held, data...)
		s.held = nil
	}
	return s.scan(data, false)
}

// scan returns data without secrets. Unless it is the last of the stream, what may
// be the beginning of one is held back. Secrets that overlap are hidden as one.
func (s *Stream) scan(data []byte, last bool) []byte {
	var out []byte // Nil while everything is shown.
	until := s.covered
	s.covered = 0
	from := until // The first byte that is not in out.
	if until > 0 {
		out = make([]byte, 0, len(data))
	}
	for i := range data {
		if !s.secrets.first[data[i]] {
			continue
		}
		text, partial := s.secrets.at(data[i:], last)
		if partial {
			s.held = bytes.Clone(data[i:])
			if i < until {
				s.covered = until - i
				return out
			}
			return append(out, data[from:i]...)
		}
		if text == 0 || i+text <= until {
			continue
		}
		if i >= until {
			out = append(append(out, data[from:i]...), shown...)
		}
		until = i + text
		from = until
	}
	if out == nil {
		return data
	}
	return append(out, data[from:]...)
}

// Rest returns the bytes that were held back, at the end of the stream.
func (s *Stream) Rest() []byte {
	if len(s.held) == 0 {
		return nil
	}
	rest := s.scan(s.held, true)
	s.held = nil
	return rest
}

// at returns the length of the text at the beginning of data, or, unless it is the
// last, whether data may be the beginning of a longer one.
func (s *Secrets) at(data []byte, last bool) (length int, partial bool) {
	for _, text := range s.texts { // A longer one first: it may contain the next.
		if len(data) < len(text) {
			if !last && bytes.HasPrefix(text, data) {
				return 0, true
			}
		} else if bytes.HasPrefix(data, text) {
			return len(text), false
		}
	}
	return 0, false
}
