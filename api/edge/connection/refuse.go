package connection

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"time"
)

// Limits of connections that are refused.
const (
	maxRefusing  = 64 // Answered at once. Others are answered without waiting for what they ask.
	refusalShare = 8  // The part of them that one customer may have: an eighth.
	refusalHead  = 8 << 10
	askTime      = time.Second // For the head of the request, which is not looked at.
)

// Limits are the limits of a Listener, and how it answers connections beyond them.
type Limits struct {
	All        int // Open connections.
	PerNetwork int // Those of one customer: an IPv4 address, or a /64 of IPv6.

	TLS *tls.Config // Nil for connections without TLS.
	// Answer returns the bytes of a refusal. Crowded is true where only the customer has too
	// many connections.
	Answer func(crowded bool) []byte
}

// refuse answers a connection and closes it, without holding up others. A connection that
// does not read or write takes a place for at most lingerTime.
func (l *Listener) refuse(conn halfConn, network string) {
	answer := l.limits.Answer(l.open.Exhausted(network))
	if !l.refusing.Take(network, 1) {
		if l.limits.TLS == nil && conn.SetWriteDeadline(time.Now().Add(askTime)) == nil {
			_, _ = conn.Write(answer) // It fits into the buffer of a new connection.
		}
		_ = conn.Close()
		return
	}
	l.waiting.Go(func() {
		defer l.refusing.Give(network, 1)
		defer conn.Close()
		defer context.AfterFunc(l.ctx, func() { conn.Close() })()
		l.explain(conn, answer)
	})
}

// explain sends a refusal once the client has asked, because some clients take what comes
// before that for the end of the connection.
func (l *Listener) explain(conn halfConn, answer []byte) {
	if conn.SetDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	client := conn
	if l.limits.TLS != nil {
		secured := tls.Server(conn, l.limits.TLS)
		if secured.HandshakeContext(l.ctx) != nil {
			return
		}
		client = secured
	}
	if conn.SetReadDeadline(time.Now().Add(askTime)) != nil {
		return
	}
	readHead(client)
	if _, err := client.Write(answer); err != nil || client.CloseWrite() != nil {
		return
	}
	if client != conn && conn.CloseWrite() != nil {
		return
	}
	rest := struct{ io.Reader }{io.LimitReader(conn, lingerBytes)}
	_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, rest, make([]byte, refusalHead)) // The rest is unread.
}

// readHead reads until the head of a request has ended, as far as it comes.
func readHead(conn net.Conn) {
	head := make([]byte, 0, refusalHead)
	for len(head) < cap(head) && !bytes.Contains(head, []byte("\r\n\r\n")) {
		n, err := conn.Read(head[len(head):cap(head)])
		if head = head[:len(head)+n]; err != nil {
			return
		}
	}
}
