package rpc

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/fxamacker/cbor/v2"

	"berth/compute"
)

// Limits of messages.
const (
	MaxRequest  = 9 << 20  // The largest body of the API, and its envelope.
	MaxJoin     = 64 << 10 // A request of a peer without a certificate.
	MaxResponse = 32 << 20
)

// Codec encodes values deterministically and decodes them within limits. The
// zero Codec is not usable; NewCodec returns one.
type Codec struct {
	enc cbor.EncMode
	dec cbor.DecMode
}

// NewCodec returns the codec that all messages between nodes use.
func NewCodec() Codec {
	encOptions := cbor.CoreDetEncOptions()
	encOptions.BinaryMarshaler = cbor.BinaryMarshalerByteString
	enc, err := encOptions.EncMode()
	if err != nil {
		panic("rpc: encoding options: " + err.Error())
	}
	dec, err := cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		MaxNestedLevels:   16,
		MaxArrayElements:  1 << 17,
		MaxMapPairs:       1 << 12,
		IndefLength:       cbor.IndefLengthForbidden,
		BinaryUnmarshaler: cbor.BinaryUnmarshalerByteString,
	}.DecMode()
	if err != nil {
		panic("rpc: decoding options: " + err.Error())
	}
	return Codec{enc: enc, dec: dec}
}

// Marshal returns the encoding of v, whose type must be encodable.
func (c Codec) Marshal(v any) []byte {
	data, err := c.enc.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("rpc: encode %T: %v", v, err))
	}
	return data
}

// Unmarshal decodes data into v.
func (c Codec) Unmarshal(data []byte, v any) error {
	if err := c.dec.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode %T: %w", v, err)
	}
	return nil
}

// request is the first message on a stream.
type request struct {
	Method    string `cbor:"1,keyasint"`
	TimeoutMS int64  `cbor:"2,keyasint"` // The caller's remaining time; 0 for stream methods.
	Payload   []byte `cbor:"3,keyasint,omitempty"`
}

// response is the answer to a request.
type response struct {
	Payload []byte         `cbor:"1,keyasint,omitempty"`
	Err     *compute.Error `cbor:"2,keyasint,omitempty"`
}

// write sends one message.
func (c Codec) write(w io.Writer, v any, limit int) error {
	body := c.Marshal(v)
	if len(body) > limit {
		return compute.Errorf(compute.CodeTooLarge, "The message of %d bytes is over the limit of %d.", len(body), limit)
	}
	head := binary.BigEndian.AppendUint32(make([]byte, 0, 4), uint32(len(body)))
	if len(body) <= oneWrite {
		_, err := w.Write(append(head, body...))
		return err
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	_, err := w.Write(body)
	return err
}

// writeRequest sends a request. It makes no copy of a large payload: that is the last
// field, so it follows the encoding of the others.
func (c Codec) writeRequest(w io.Writer, req request) error {
	size := len(req.Payload)
	if size <= oneWrite {
		return c.write(w, req, MaxRequest)
	}
	body := c.Marshal(request{Method: req.Method, TimeoutMS: req.TimeoutMS})
	body[0]++                       // A map with one more pair:
	body = append(body, 3, 2<<5|26) // a key, and a string of so many bytes as the next four say.
	body = binary.BigEndian.AppendUint32(body, uint32(size))
	size += len(body)
	if size > MaxRequest {
		return compute.Errorf(compute.CodeTooLarge, "The message of %d bytes is over the limit of %d.", size, MaxRequest)
	}
	head := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(size))
	if _, err := w.Write(append(head, body...)); err != nil {
		return err
	}
	_, err := w.Write(req.Payload)
	return err
}

// oneWrite is the size of the largest message that is copied to be one write.
const oneWrite = 64 << 10

// read receives one message.
func (c Codec) read(r io.Reader, v any, limit int) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if int64(n) > int64(limit) {
		return compute.Errorf(compute.CodeTooLarge, "The message of %d bytes is over the limit of %d.", n, limit)
	}
	body, err := readBody(r, int(n))
	if err != nil {
		return fmt.Errorf("read message: %w", err)
	}
	return c.Unmarshal(body, v)
}

// firstRead is the space for a message before any of it has come.
const firstRead = 16 << 10

// readBody reads n bytes. The space for them grows as they come, because a peer can
// announce more than it sends.
func readBody(r io.Reader, n int) ([]byte, error) {
	body := make([]byte, 0, min(n, firstRead))
	for len(body) < n {
		if len(body) == cap(body) {
			body = slices.Grow(body, min(n-len(body), len(body)))
		}
		end := min(cap(body), n)
		got, err := io.ReadFull(r, body[len(body):end])
		body = body[:len(body)+got]
		if err != nil {
			return nil, err
		}
	}
	return body, nil
}
