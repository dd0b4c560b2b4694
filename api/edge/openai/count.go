package openai

import "io"

// CountedEvents counts the events of a stream that passes, without that of its end.
// Engines send an event for each token.
type CountedEvents struct {
	io.ReadCloser

	events int64
	event  eventParser
	ended  func(events int64)
}

// NewCountedEvents returns the events of from. ended gets their number when they are closed.
func NewCountedEvents(from io.ReadCloser, ended func(events int64)) *CountedEvents {
	return &CountedEvents{ReadCloser: from, ended: ended}
}

// Read implements io.Reader.
func (e *CountedEvents) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	for _, b := range p[:n] {
		if e.event.next(b) {
			e.events++
		}
	}
	return n, err
}

// eventParser finds the events of a stream: one ends with an empty line and has data. Lines
// end with \n, \r\n or \r.
type eventParser struct {
	column int  // Bytes of the line so far.
	field  bool // They are the beginning of eventField.
	data   bool // The event has data.
	cr     bool // The last byte was \r.
}

// eventField begins the lines with the data of an event.
const eventField = "data:"

// next reads a byte, and reports whether it ends an event.
func (e *eventParser) next(b byte) (ends bool) {
	if b == '\n' && e.cr {
		e.cr = false // It belongs to the end of the line before.
		return false
	}
	e.cr = b == '\r'
	if b == '\n' || b == '\r' {
		if e.column == 0 {
			ends, e.data = e.data, false
		}
		e.column = 0
		return ends
	}
	if e.column < len(eventField) {
		e.field = (e.column == 0 || e.field) && b == eventField[e.column]
		if e.column++; e.field && e.column == len(eventField) {
			e.data = true
		}
	}
	return false
}

// Close implements io.Closer.
func (e *CountedEvents) Close() error {
	if e.ended != nil {
		e.ended(max(e.events-1, 0))
		e.ended = nil
	}
	return e.ReadCloser.Close()
}
