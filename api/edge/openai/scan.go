package openai

import (
	"bytes"
	"encoding/json"
)

// Requests to models may have megabytes. These functions find the fields of a body without
// copying it. The text is valid JSON, which json.Valid has checked in one pass.

// eachField calls visit with the keys of a JSON object and the positions of their values, in
// their order, until it returns false. It does nothing for other values.
func eachField(text []byte, visit func(key string, from, to int) bool) {
	at := skipSpace(text, 0)
	if at >= len(text) || text[at] != '{' {
		return
	}
	for at = skipSpace(text, at+1); at < len(text) && text[at] != '}'; {
		end := skipString(text, at)
		from := skipSpace(text, skipSpace(text, end)+1) // Behind the colon.
		to := skipValue(text, from)
		if !visit(plainString(text[at:end]), from, to) {
			return
		}
		at = skipComma(text, to)
	}
}

// eachElement calls visit with the positions of the elements of a JSON array, in their order,
// until it returns false. It does nothing for other values.
func eachElement(text []byte, visit func(from, to int) bool) {
	at := skipSpace(text, 0)
	if at >= len(text) || text[at] != '[' {
		return
	}
	for at = skipSpace(text, at+1); at < len(text) && text[at] != ']'; {
		to := skipValue(text, at)
		if !visit(at, to) {
			return
		}
		at = skipComma(text, to)
	}
}

// skipComma returns where the next member begins, or its object or array ends.
func skipComma(text []byte, at int) int {
	if at = skipSpace(text, at); at < len(text) && text[at] == ',' {
		at = skipSpace(text, at+1)
	}
	return at
}

// plainString returns the text of a JSON string.
func plainString(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var text string
	_ = json.Unmarshal(quoted, &text) // It is valid.
	return text
}

func skipSpace(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r') {
		at++
	}
	return at
}

// skipString returns the end of the string that begins at a quote.
func skipString(text []byte, at int) int {
	for at++; at < len(text); {
		quote := bytes.IndexByte(text[at:], '"')
		if quote < 0 {
			break
		}
		at += quote + 1
		escapes := at - 2
		for text[escapes] == '\\' {
			escapes-- // The quote at the beginning stops this.
		}
		if (at-2-escapes)%2 == 0 {
			return at
		}
	}
	return len(text)
}

// skipValue returns the end of the value that begins at a position.
func skipValue(text []byte, at int) int {
	for depth := 0; at < len(text); {
		switch text[at] {
		case '"':
			at = skipString(text, at)
		case '{', '[':
			depth++
			at++
			continue
		case '}', ']':
			depth--
			at++
		case ',', ':', ' ', '\n', '\t', '\r':
			at++
			continue
		default:
			for at < len(text) && !endsLiteral(text[at]) {
				at++
			}
		}
		if depth == 0 {
			return at
		}
	}
	return at
}

// endsLiteral reports whether a byte ends a number, true, false or null.
func endsLiteral(b byte) bool {
	return b == ',' || b == ']' || b == '}' || b == ' ' || b == '\n' || b == '\t' || b == '\r'
}
