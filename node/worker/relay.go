package worker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"berth/api/edge"
	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/loop"
)

// methodRelay is the stream by which a worker has a server answer a request of
// its API. The server's answer is frames, each a length of four bytes and so
// many more: the head, then the body, then an empty one. Without that last
// frame the answer is not whole.
const methodRelay = "api.relay"

// Limits of relayed requests.
const (
	maxAnswerHead = 64 << 10
	maxAnswerPart = 1 << 20
	relayRetry    = 100 * time.Millisecond // Between tries to go on with a stream.

	// Requests with large bodies are handed on one of each credential at a time: each
	// is in memory three times on this side, and more often on the other.
	largeBody   = 1 << 20
	largeAtOnce = 4
)

// errCut is the end of an answer that is not whole.
var errCut = errors.New("the answer of the server ended early")

// ServeRelay answers what the APIs of workers hand on.
func ServeRelay(c *cluster.Cluster, server *edge.Server) {
	relays := relayCount{of: make(map[relayOwner]int)}
	c.HandleStream(methodRelay, cluster.Workers,
		func(ctx context.Context, peer rpc.Peer, req []byte, stream *rpc.Stream) error {
			codec := rpc.NewCodec()
			var in edge.Relayed
			if err := codec.Unmarshal(req, &in); err != nil {
				return compute.Errorf(compute.CodeInvalid, "The request cannot be read: %w", err)
			}
			owner := relayOwner{peer.ID, in.Class()}
			if !relays.begin(owner) {
				return compute.Errorf(compute.CodeUnavailable, "This node hands on too many requests.").Retry(time.Second)
			}
			defer relays.end(owner)
			in.Op = opOf(peer.ID, in.Op)
			// The worker reports the address: it must not use up another one's limit.
			in.IP = peer.ID.String() + " " + in.IP
			if err := stream.Accept(nil); err != nil {
				return err
			}
			body := &frameWriter{stream}
			err := server.Relayed(ctx, in, hangUp{stream}, func(head edge.RelayedHead) (io.Writer, error) {
				_, err := body.Write(codec.Marshal(head))
				return body, err
			})
			if err != nil {
				return err
			}
			return body.end()
		})
}

// hangUp closes a connection once a read sees that the other end has closed it, so
// that a write which waits for that end fails. The API reads while it answers.
type hangUp struct{ net.Conn }

func (h hangUp) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		err = errors.Join(err, h.Close())
	}
	return n, err
}

// relayOwner has the requests of one class that one worker relays.
type relayOwner struct {
	worker compute.NodeID
	class  edge.RelayClass
}

// relayCount counts the requests of each worker that a server answers.
type relayCount struct {
	mu sync.Mutex
	of map[relayOwner]int
}

// begin counts one more, unless it would be one too many.
func (c *relayCount) begin(owner relayOwner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[owner] >= owner.class.Limit() {
		return false
	}
	c.of[owner]++
	return true
}

// end counts one less.
func (c *relayCount) end(owner relayOwner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[owner]--; c.of[owner] <= 0 {
		delete(c.of, owner)
	}
}

// opOf names an operation of a worker so that it meets none of another's.
func opOf(worker compute.NodeID, op compute.UUID) compute.UUID {
	sum := sha256.Sum256(append(append([]byte("relayed\x00"), worker.UUID[:]...), op[:]...))
	u := compute.UUID(sum[:16])
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return u
}

// frameWriter makes a frame of each write.
type frameWriter struct{ w io.Writer }

func (f *frameWriter) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		part := p[done:min(done+maxAnswerPart, len(p))]
		frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(part)), uint32(len(part)))
		if _, err := f.w.Write(append(frame, part...)); err != nil {
			return done, err
		}
		done += len(part)
	}
	return done, nil
}

// end says that the answer is whole.
func (f *frameWriter) end() error {
	_, err := f.w.Write(make([]byte, 4))
	return err
}

// frameReader reads what a frameWriter wrote. It returns io.EOF behind the
// last frame only.
type frameReader struct {
	r    io.Reader
	left int
	over bool
}

func (f *frameReader) Read(p []byte) (int, error) {
	if f.left == 0 {
		n, err := f.next()
		if err != nil {
			return 0, err
		}
		f.left = n
	}
	n, err := f.r.Read(p[:min(len(p), f.left)])
	f.left -= n
	if err != nil {
		err = errors.Join(errCut, err)
	}
	return n, err
}

// next reads the length of the next frame.
func (f *frameReader) next() (int, error) {
	if f.over {
		return 0, io.EOF
	}
	var length [4]byte
	if _, err := io.ReadFull(f.r, length[:]); err != nil {
		return 0, errors.Join(errCut, noEOF(err))
	}
	n := binary.BigEndian.Uint32(length[:])
	switch {
	case n == 0:
		f.over = true
		return 0, io.EOF
	case n > maxAnswerPart:
		return 0, fmt.Errorf("a part of %d bytes is over the limit of %d", n, maxAnswerPart)
	}
	return int(n), nil
}

// noEOF returns err as one that io.EOF is not in: here it is no end.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// head reads the first frame.
func (f *frameReader) head(codec rpc.Codec) (edge.RelayedHead, error) {
	var head edge.RelayedHead
	n, err := f.next()
	if err != nil || n > maxAnswerHead {
		return head, errors.Join(errCut, noEOF(err))
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(f.r, data); err != nil {
		return head, errors.Join(errCut, noEOF(err))
	}
	return head, codec.Unmarshal(data, &head)
}

// Relay has servers answer what this worker's API is asked: edge.Relay.
type Relay struct {
	cluster *cluster.Cluster
	own     *Assignments
	codec   rpc.Codec
	large   *loop.FairLimiter[string] // By credential.
}

// NewRelay returns the relay of a worker.
func NewRelay(c *cluster.Cluster, own *Assignments) *Relay {
	return &Relay{
		cluster: c, own: own, codec: rpc.NewCodec(), large: loop.NewFairLimiter[string](largeAtOnce),
	}
}

// Status returns the values of this node for the headers of answers.
func (r *Relay) Status() edge.QueryMeta {
	_, index := r.own.Current()
	_, known := r.cluster.Leader()
	return edge.QueryMeta{Index: index, KnownLeader: known, LastContact: r.cluster.LastContact().Milliseconds()}
}

// Relay has a server answer in.
func (r *Relay) Relay(ctx context.Context, in edge.Relayed) (*edge.RelayedAnswer, error) {
	if len(in.Body) > largeBody {
		done, err := r.large.Take(ctx, in.Bearer)
		if err != nil {
			return nil, err
		}
		defer done()
	}
	answer, err := r.once(ctx, in)
	if err != nil || !answer.Stream || answer.Status != http.StatusOK {
		return answer, err
	}
	if answer.Events() {
		answer.Body = &relayedStream{relay: r, ctx: ctx, in: in, body: answer.Body}
	}
	return answer, nil
}

// once has one server after another answer, until one does. A server that
// says that it cannot is as good as none while another one can.
func (r *Relay) once(ctx context.Context, in edge.Relayed) (*edge.RelayedAnswer, error) {
	var answer *edge.RelayedAnswer
	stream, err := r.cluster.OpenSome(ctx, methodRelay, r.codec.Marshal(in), func(stream io.Reader) error {
		frames := &frameReader{r: stream}
		head, err := frames.head(r.codec)
		if err != nil {
			return err
		}
		answer = &edge.RelayedAnswer{RelayedHead: head, Body: io.NopCloser(frames)}
		if head.Stream {
			return nil
		}
		whole, err := io.ReadAll(frames) // A server may die in the middle.
		if err != nil {
			answer = nil
			return err
		}
		answer.Body = io.NopCloser(bytes.NewReader(whole))
		if head.Status == http.StatusServiceUnavailable {
			return compute.Errorf(compute.CodeUnavailable, "The server cannot answer now.")
		}
		return nil
	})
	switch {
	case err != nil && answer != nil:
		return answer, nil // Not one server could, and this is why.
	case err != nil:
		return nil, err
	case !answer.Stream:
		return answer, stream.Close()
	}
	answer.Body = &framedStream{answer.Body, stream}
	return answer, nil
}

// framedStream reads frames and closes what they come from.
type framedStream struct {
	io.Reader
	io.Closer
}
