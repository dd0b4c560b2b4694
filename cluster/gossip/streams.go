package gossip

import (
	"container/list"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Limits of the connections of gossip. Any host that reaches the port can open them, and
// memberlist only decrypts a message once it is whole.
const (
	maxStreams      = 128
	maxStreamBytes  = 4 << 20  // Bytes of one exchange: some thousand nodes and an inventory.
	maxStreamsBytes = 16 << 20 // Bytes of all open connections.
)

// Beginnings of a message of memberlist: an optional label, then the type, the length
// of the encrypted part, and the version of the encryption.
const (
	labelType     = 244
	encryptedType = 10
	encryptedVsn  = 1
	encryptedLeft = 1 + 12 + 16 // Length of an empty message: version, nonce and tag.
)

// Errors that end a connection.
var (
	errTooMuch = errors.New("gossip: too many bytes")
	errMessage = errors.New("gossip: not an encrypted message")
)

// transport is memberlist's transport with limits for its connections.
type transport struct {
	*memberlist.NetTransport
	streams streams
	accept  chan net.Conn
	closed  chan struct{}
}

func newTransport(inner *memberlist.NetTransport) *transport {
	return &transport{NetTransport: inner, accept: make(chan net.Conn), closed: make(chan struct{})}
}

// run passes connections on until Shutdown.
func (t *transport) run() {
	for {
		select {
		case <-t.closed:
			return
		case conn := <-t.NetTransport.StreamCh():
			select {
			case t.accept <- t.streams.add(conn):
			case <-t.closed:
				conn.Close()
			}
		}
	}
}

// StreamCh returns the channel of connections of others.
func (t *transport) StreamCh() <-chan net.Conn { return t.accept }

// DialAddressTimeout connects to another node. Its answers have the same limits.
func (t *transport) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	conn, err := t.NetTransport.DialAddressTimeout(to, timeout)
	if err != nil {
		return nil, err
	}
	return t.streams.add(conn), nil
}

// Shutdown closes the port. memberlist takes connections until it returns.
func (t *transport) Shutdown() error {
	err := t.NetTransport.Shutdown()
	close(t.closed)
	return err
}

// streams are the open connections. When there are too many, the oldest is closed. When
// they have received too many bytes, the one that received most is closed.
type streams struct {
	mu    sync.Mutex
	order list.List // Elements are *stream, the oldest first.
	bytes int
}

// stream is one connection.
type stream struct {
	net.Conn
	of   *streams
	at   *list.Element // Nil once it is closed.
	read int           // Bytes received.
	head []byte        // Bytes received, until they are known to begin a message.
	good bool          // They do.
}

func (s *streams) add(conn net.Conn) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.order.Len() >= maxStreams {
		s.evict(s.order.Front().Value.(*stream))
	}
	n := &stream{Conn: conn, of: s}
	n.at = s.order.PushBack(n)
	return n
}

// count adds bytes that a stream received, closes streams that received too many, and
// reports whether this one is still open.
func (s *streams) count(n *stream, bytes int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.at == nil {
		return false
	}
	n.read += bytes
	s.bytes += bytes
	if n.read > maxStreamBytes {
		s.evict(n)
	}
	for s.bytes > maxStreamsBytes {
		most := n
		for at := s.order.Front(); at != nil; at = at.Next() {
			if other := at.Value.(*stream); most.at == nil || other.read > most.read {
				most = other
			}
		}
		s.evict(most)
	}
	return n.at != nil
}

func (s *streams) remove(n *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(n)
}

func (s *streams) evict(n *stream) {
	n.Conn.Close()
	s.drop(n)
}

func (s *streams) drop(n *stream) {
	if n.at == nil {
		return
	}
	s.order.Remove(n.at)
	n.at = nil
	s.bytes -= n.read
}

// Read reads from the connection, if that is within the limits and begins as a
// message does.
func (n *stream) Read(p []byte) (int, error) {
	got, err := n.Conn.Read(p)
	if !n.of.count(n, got) {
		return 0, errTooMuch
	}
	if !n.good {
		n.head = append(n.head, p[:got]...)
		good, bad := beginsMessage(n.head)
		n.good = good
		if bad {
			return 0, errMessage
		}
		if n.good {
			n.head = nil
		}
	}
	return got, err
}

// Close closes the connection.
func (n *stream) Close() error {
	n.of.remove(n)
	return n.Conn.Close()
}

// beginsMessage reports whether head begins an encrypted message that is neither
// empty, for which memberlist is not prepared, nor too long. Neither is reported
// while head is too short.
func beginsMessage(head []byte) (good, bad bool) {
	if len(head) > 0 && head[0] == labelType {
		if len(head) < 2 || len(head) < 2+int(head[1]) {
			return false, false
		}
		head = head[2+int(head[1]):]
	}
	if len(head) > 0 && head[0] != encryptedType {
		return false, true
	}
	if len(head) < 6 {
		return false, false
	}
	length := binary.BigEndian.Uint32(head[1:])
	good = length > encryptedLeft && length <= maxStreamBytes && head[5] == encryptedVsn
	return good, !good
}
