package berth

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// streamEvent is the data of an event: either output, a part of one line, or the end.
type streamEvent struct {
	Output *struct {
		Content string `json:"content"`
	} `json:"output"`
	Stream   string     `json:"stream"`
	At       *time.Time `json:"at"`
	Finished *struct {
		Job struct {
			Result struct {
				ReturnCode string  `json:"returnCode"`
				Error      *string `json:"error"`
			} `json:"result"`
		} `json:"job"`
	} `json:"jobFinished"`
	Missing string `json:"output_missing"`
}

// contentStart is how nodes begin an event of output.
const contentStart = `{"output":{"content":"`

// decodeEvent decodes the data of an event. Output, which is most of what a stream carries,
// is decoded without the two passes of encoding/json; the rest of such an event is not.
func decodeEvent(data []byte) (event streamEvent, err error) {
	if text, rest, ok := decodeContent(data); ok {
		small := append([]byte(contentStart+`\u0000"`), rest...)
		if err = json.Unmarshal(small, &event); err != nil {
			return event, err
		}
		if event.Output != nil && event.Output.Content == "\x00" {
			event.Output.Content = text
			return event, nil
		}
		event = streamEvent{} // The event has its content twice.
	}
	return event, json.Unmarshal(data, &event)
}

// decodeContent returns the output of an event as nodes write it, and what follows its
// closing quote. It reports false for any other event, and for a text with other escapes.
func decodeContent(data []byte) (text string, rest []byte, ok bool) {
	rest, ok = bytes.CutPrefix(data, []byte(contentStart))
	if !ok {
		return "", nil, false
	}
	var out strings.Builder
	out.Grow(len(rest))
	for {
		n := bytes.IndexByte(rest, '\\')
		plain := rest
		if n >= 0 {
			plain = rest[:n]
		}
		if end := bytes.IndexByte(plain, '"'); end >= 0 {
			out.Write(plain[:end])
			return out.String(), rest[end+1:], utf8.ValidString(out.String())
		}
		if n < 0 {
			return "", nil, false
		}
		out.Write(plain)
		c, size := unescape(rest[n:])
		if size == 0 {
			return "", nil, false
		}
		out.WriteByte(c)
		rest = rest[n+size:]
	}
}

// unescape returns the character that begins text, escaped as nodes do it, and the size of
// the escape: 0 for any other.
func unescape(text []byte) (c byte, size int) {
	if len(text) < 2 {
		return 0, 0
	}
	switch c = text[1]; c {
	case '"', '\\':
		return c, 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		if len(text) < len(`\u0000`) {
			return 0, 0
		}
		n, err := strconv.ParseUint(string(text[2:6]), 16, 7)
		if err != nil {
			return 0, 0
		}
		return byte(n), 6
	}
	return 0, 0
}
