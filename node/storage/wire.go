package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"berth/compute"
)

// A stream between two nodes carries one operation. The request names it; the
// bytes of a put, or the names of blobs, follow the request. The answer is a result; the
// bytes of a get, or which blobs there are, follow the result.
//
//	request  version 1, operation 1, hash 32, size 8
//	result   length of code 1, code, length of message 2, message, size 8
const (
	wireVersion  = 1
	requestBytes = 2 + 32 + 8
	maxMessage   = 1 << 10
	peerTimeout  = 15 * time.Second // For one whole operation.
)

// operation is an operation that one node asks another to do.
type operation uint8

const (
	opPut operation = iota + 1
	opGet
	opDelete
	opHolds // Its data names blobs; the hash of the request is of no use.
)

// request is the first thing on a stream.
type request struct {
	op   operation
	hash compute.Hash
	size int
}

// encode returns the request's bytes.
func (q request) encode() []byte {
	b := append([]byte{wireVersion, byte(q.op)}, q.hash[:]...)
	return binary.BigEndian.AppendUint64(b, uint64(q.size))
}

// decodeRequest is the inverse of encode.
func decodeRequest(b []byte) (request, error) {
	if len(b) != requestBytes || b[0] != wireVersion {
		return request{}, compute.Errorf(compute.CodeInvalid, "not a blob request of version %d", wireVersion)
	}
	q := request{op: operation(b[1])}
	copy(q.hash[:], b[2:])
	size := binary.BigEndian.Uint64(b[34:])
	if q.op < opPut || q.op > opHolds {
		return request{}, compute.Errorf(compute.CodeInvalid, "unknown blob operation %d", q.op)
	}
	if size > MaxBlob {
		return request{}, compute.Errorf(compute.CodeTooLarge, "a blob may have at most %d bytes", MaxBlob)
	}
	q.size = int(size)
	return q, nil
}

// sendResult sends the result of an operation that returned data and err.
func sendResult(w io.Writer, data []byte, err error) error {
	_, sendErr := w.Write(encodeHead(data, err))
	if sendErr == nil && len(data) > 0 {
		_, sendErr = w.Write(data)
	}
	return sendErr
}

// encodeHead encodes the head of a result, which precedes its data.
func encodeHead(data []byte, err error) []byte {
	code, message := compute.CodeOf(err), compute.MessageOf(err)
	message = message[:min(len(message), maxMessage)]
	b := append([]byte{byte(len(code))}, code...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(message)))
	b = append(b, message...)
	return binary.BigEndian.AppendUint64(b, uint64(len(data)))
}

// readResult is the inverse of encodeResult.
func readResult(r io.Reader) ([]byte, error) {
	code, err := readSized(r, 1, 255)
	if err != nil {
		return nil, err
	}
	message, err := readSized(r, 2, maxMessage)
	if err != nil {
		return nil, err
	}
	data, err := readSized(r, 8, MaxBlob)
	if err != nil {
		return nil, err
	}
	if len(code) > 0 {
		return nil, compute.Errorf(compute.Code(code), "%s", message)
	}
	return data, nil
}

// readSized reads a length of width bytes and that many bytes.
func readSized(r io.Reader, width, limit int) ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[8-width:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint64(head[:])
	if n > uint64(limit) {
		return nil, fmt.Errorf("a field of %d bytes is over the limit of %d", n, limit)
	}
	return readN(r, int(n))
}

// readN reads n bytes, of at most MaxBlob. It allocates them at once: growing a buffer
// takes longer than all else that is done here, and a server that lies about n can as
// well send that much.
func readN(r io.Reader, n int) ([]byte, error) {
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, noEOF(err)
	}
	return data, nil
}

// noEOF returns an error of reading what has to be there.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// ask has another node do an operation.
func (b *Blobs) ask(ctx context.Context, node compute.NodeID, q request, data []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	stream, err := b.cfg.Peers.Open(ctx, node, q.encode())
	if err != nil {
		return nil, fmt.Errorf("ask node %s: %w", node, err)
	}
	unhook := context.AfterFunc(ctx, func() { _ = stream.Close() })
	sent := make(chan error, 1) // The buffer takes the only error, so that the sender never waits.
	go func() {
		_, err := stream.Write(data)
		sent <- err
	}()
	// The result is read meanwhile, because a refusal comes before the data is
	// taken.
	result, err := readResult(stream)
	unhook()
	_ = stream.Close() // Only the result matters.
	if sendErr := <-sent; err != nil {
		return nil, fmt.Errorf("ask node %s: %w", node, errors.Join(err, sendErr, ctx.Err()))
	}
	return result, nil
}

// Serve runs the operation of another node's Blobs on this node's disk.
func (b *Blobs) Serve(ctx context.Context, req []byte, stream io.ReadWriteCloser) error {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = stream.Close() })()
	data, err := b.serve(ctx, req, stream)
	if sendErr := sendResult(stream, data, err); err == nil {
		err = sendErr
	}
	if err != nil {
		return fmt.Errorf("serve blob: %w", err)
	}
	return nil
}

func (b *Blobs) serve(ctx context.Context, req []byte, stream io.Reader) ([]byte, error) {
	q, err := decodeRequest(req)
	if err != nil {
		return nil, err
	}
	if q.op == opHolds && q.size == 0 {
		return b.answerHolds(nil) // Also while the disk is busy.
	}
	release, err := acquire(ctx, b.serving)
	if err != nil {
		return nil, err
	}
	defer release()
	switch q.op {
	case opPut:
		return nil, b.receive(stream, q)
	case opGet:
		return b.getLocal(q.hash)
	case opDelete:
		return nil, b.cfg.Store.Delete(q.hash)
	case opHolds:
		if q.size > maxAsked*len(q.hash) {
			return nil, compute.Errorf(compute.CodeTooLarge, "a question names at most %d blobs", maxAsked)
		}
		question, err := readN(stream, q.size)
		if err != nil {
			return nil, err
		}
		return b.answerHolds(question)
	}
	return nil, compute.Errorf(compute.CodeInvalid, "unknown blob operation %d", q.op)
}

// receive makes the blob durable that a request announced.
func (b *Blobs) receive(stream io.Reader, q request) error {
	buf := received.Get().(*[]byte)
	defer received.Put(buf)
	if cap(*buf) < q.size {
		*buf = make([]byte, q.size)
	}
	data := (*buf)[:q.size]
	if _, err := io.ReadFull(stream, data); err != nil {
		return noEOF(err)
	}
	return b.putLocal(q.hash, data)
}

// received has buffers for blobs that come from other nodes.
var received = sync.Pool{New: func() any { return new([]byte) }} //nolint:gochecknoglobals // Memory, shared.
