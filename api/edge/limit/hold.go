package limit

import (
	"errors"
	"io"
	"time"

	"berth/compute"
)

// Sizes of bodies and answers that are read to their ends.
const (
	// FreeAnswer is the size of the largest answer that needs no reservation.
	FreeAnswer = 16 << 10
	firstPiece = 1 << 10 // Bytes that are read at first of a body of unknown length.
)

// Hold is the part of a budget that a request has reserved for its body, or
// for that of its answer. The zero value has reserved nothing.
type Hold struct {
	Budget  *Budget
	Owner   string
	bytes   int
	Refusal func() error // Nil for ErrManyBodies.
}

// manyBytes is the code of errors about memory that the node does not have.
const manyBytes = "too_many_bytes"

// ErrManyBodies refuses a body that the node has no memory for.
func ErrManyBodies() error {
	return compute.Errorf(compute.CodeUnavailable,
		"This node holds too many large requests: repeat it later or at another node.").
		Named(manyBytes).Retry(time.Second)
}

// Reserve makes the reservation at least n bytes, or refuses.
func (h *Hold) Reserve(n int) error {
	more := n - h.bytes
	if more <= 0 {
		return nil
	}
	if !h.Budget.Take(h.Owner, more) {
		if h.Refusal != nil {
			return h.Refusal()
		}
		return ErrManyBodies()
	}
	h.bytes = n
	return nil
}

// ReserveUpToShare is Reserve for something that may be larger than the share of
// one owner: then it takes the whole share.
func (h *Hold) ReserveUpToShare(n int) error { return h.Reserve(min(n, h.Budget.share)) }

// Reserved reports whether anything is reserved.
func (h *Hold) Reserved() bool { return h.bytes > 0 }

// Move returns the reservation, which h has no longer.
func (h *Hold) Move() Hold {
	moved := *h
	h.bytes = 0
	return moved
}

// Shrink returns all but n bytes of the reservation.
func (h *Hold) Shrink(n int) {
	if h.bytes > n {
		h.Budget.Give(h.Owner, h.bytes-n)
		h.bytes = n
	}
}

// ErrManyAnswers refuses an answer that the node has no memory for.
func ErrManyAnswers() error {
	return compute.Errorf(compute.CodeUnavailable,
		"This node holds too many large answers: read them, and repeat the request later or at another node.").
		Named(manyBytes).Retry(time.Second)
}

// IsManyAnswers reports whether err is ErrManyAnswers.
func IsManyAnswers(err error) bool {
	e, coded := errors.AsType[*compute.Error](err)
	return coded && e.Detail == manyBytes
}

// ErrTooLarge is that an answer is larger than its limit.
var ErrTooLarge = errors.New("the answer of a server is too large")

// ReadAll returns all of body. Memory beyond FreeAnswer is reserved; a body larger
// than limit is ErrTooLarge.
func (h *Hold) ReadAll(body io.Reader, limit int) ([]byte, error) {
	data := make([]byte, 0, firstPiece)
	for {
		if len(data) == cap(data) {
			size := 2 * cap(data)
			// Both buffers exist while one is copied into the other.
			if size > FreeAnswer && h.Budget != nil {
				if err := h.ReserveUpToShare(cap(data) + size); err != nil {
					return nil, err
				}
			}
			larger := make([]byte, len(data), size)
			copy(larger, data)
			data = larger
			h.Shrink(size)
		}
		n, err := body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case len(data) > limit:
			return nil, ErrTooLarge
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			return nil, err
		}
	}
}
