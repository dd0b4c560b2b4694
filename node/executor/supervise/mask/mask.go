// Package mask hides known secrets in output.
//
// It hides a value wherever it is written as it is, in base64, or one of its lines
// alone, also when it is split over several writes. It is a guard against accidents:
// code that has a secret can print it in another form.
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
			add(base64.StdEncoding.EncodeToString([]byte(value)), line)
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

// Stream hides secrets in one stream of output.
type Stream struct {
	secrets *Secrets
	held    []byte // What may be the beginning of a text.
}

// Stream returns a stream that hides the texts. It hides nothing if s is nil.
func (s *Secrets) Stream() *Stream { return &Stream{secrets: s} }

// Next returns what can be shown of the output so far. The end of data that may be
// the beginning of a secret comes with a later call, or with Rest. The result is valid
// until data changes.
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
// be the beginning of one is held back.
func (s *Stream) scan(data []byte, last bool) []byte {
	var out []byte // Nil while everything is shown.
	from := 0      // The first byte that is not in out.
	for i := 0; i < len(data); {
		if !s.secrets.first[data[i]] {
			i++
			continue
		}
		text, partial := s.secrets.at(data[i:], last)
		switch {
		case partial:
			s.held = bytes.Clone(data[i:])
			return append(out, data[from:i]...)
		case text > 0:
			out = append(append(out, data[from:i]...), shown...)
			i += text
			from = i
		default:
			i++
		}
	}
	if out == nil {
		return data
	}
	return append(out, data[from:]...)
}

// Rest returns what was held back, at the end of the stream.
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
