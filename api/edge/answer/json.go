package answer

import (
	"bytes"
	"encoding/json"
)

// Text is an answer other than JSON.
type Text struct {
	ContentType string
	Body        []byte
	Shared      bool // The node keeps Body anyway: it takes no memory for each client.
}

// NotModified answers a client that already has the newest version.
type NotModified struct{}

// Encode returns v as JSON. HTML in it is not escaped: no browser reads it as
// anything but JSON.
func Encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
