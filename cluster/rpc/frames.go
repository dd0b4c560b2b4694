package rpc

import (
	"encoding/binary"
	"net"
)

// Frames of yamux: a header of these bytes, and behind that of a data frame its content.
const (
	frameHeader = 12
	frameSize   = 8 // Where the header has the size of the payload.
)

// corker is a connection that can hold back written bytes, to send them at once.
type corker interface {
	Cork()
	Uncork() error
}

// framed sends the header and the content of a data frame, and all TLS records that they
// make, with one system call. yamux writes the two one after the other, from one
// goroutine.
type framed struct {
	net.Conn
	cork corker
	held bool // A header is held back, its content is written next.
}

// frame returns conn, sending whole frames if the connection below TLS can.
func frame(conn net.Conn) net.Conn {
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok {
		if cork, ok := over.NetConn().(corker); ok {
			return &framed{Conn: conn, cork: cork}
		}
	}
	return conn
}

// Write sends data, or holds a header back whose content is written next.
func (f *framed) Write(data []byte) (int, error) {
	if !f.held && hasContent(data) {
		f.cork.Cork()
		f.held = true
		return f.Conn.Write(data)
	}
	n, err := f.Conn.Write(data)
	if f.held {
		f.held = false
		if flushErr := f.cork.Uncork(); err == nil {
			err = flushErr
		}
	}
	return n, err
}

// hasContent reports whether data is the header of a data frame that is not empty.
func hasContent(data []byte) bool {
	return len(data) == frameHeader && data[0] == 0 && data[1] == 0 &&
		binary.BigEndian.Uint32(data[frameSize:]) > 0
}
