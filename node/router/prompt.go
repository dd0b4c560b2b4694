package router

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// keptPrompt is how many bytes a prompt may have that stays as long as its answer.
const keptPrompt = 64 << 10

// errDropped is the error of a body that is asked for again after its answer has begun.
var errDropped = errors.New("the answer to the request has begun")

// prompt is the body of a request to a model. An http.Request stays as long as the body of
// its answer, which may be a long stream: the bytes are dropped once the answer has begun and
// nothing reads them.
type prompt struct {
	mu   sync.Mutex
	data []byte // Nil once the answer has begun.
}

// again implements http.Request.GetBody.
func (p *prompt) again() (io.ReadCloser, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.data == nil {
		return nil, errDropped
	}
	return &promptReader{left: p.data}, nil
}

// drop releases the bytes. Readers of them go on: an engine may answer before it has read all.
func (p *prompt) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.data = nil
}

// promptReader reads a prompt. It releases the bytes at its end and when it is closed.
type promptReader struct {
	mu     sync.Mutex
	left   []byte
	closed bool
}

// Read implements io.Reader.
func (r *promptReader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return 0, http.ErrBodyReadAfterClose
	case len(r.left) == 0:
		r.left = nil
		return 0, io.EOF
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// Close implements io.Closer.
func (r *promptReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left, r.closed = nil, true
	return nil
}
