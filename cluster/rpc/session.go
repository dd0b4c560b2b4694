package rpc

import (
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/yamux"
)

// Limits of sessions.
const (
	keepAlive      = 5 * time.Second
	writeTimeout   = 10 * time.Second
	closeTimeout   = 10 * time.Second
	acceptBacklog  = 1024             // Streams waiting to be accepted; more block their callers.
	streamWindow   = 256 << 10        // The least that yamux allows: the bytes that each slow reader makes its node hold.
	requestTimeout = 10 * time.Second // For the request, once the stream is open; each piece of it from a node.
	messagePiece   = 64 << 10         // Bytes that are sent within writeTimeout.
)

// muxConfig returns the settings of both ends of a session.
func muxConfig(logger *slog.Logger) *yamux.Config {
	cfg := yamux.DefaultConfig()
	cfg.AcceptBacklog = acceptBacklog
	cfg.KeepAliveInterval = keepAlive
	cfg.ConnectionWriteTimeout = writeTimeout
	cfg.StreamCloseTimeout = closeTimeout
	cfg.MaxStreamWindowSize = streamWindow
	cfg.LogOutput = muxLog{logger}
	return cfg
}

// patient gives each piece of a message the time of a small one: a large message over a
// slow link is not cut off, and a peer that has stopped is noticed.
type patient struct {
	stream interface {
		io.ReadWriter
		SetReadDeadline(at time.Time) error
		SetWriteDeadline(at time.Time) error
	}
}

// Write writes to the stream.
func (p patient) Write(data []byte) (written int, err error) {
	for piece := range slices.Chunk(data, messagePiece) {
		if err := p.stream.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return written, err
		}
		n, err := p.stream.Write(piece)
		if written += n; err != nil {
			return written, err
		}
	}
	return written, nil
}

// Read reads from the stream.
func (p patient) Read(data []byte) (int, error) {
	if err := p.stream.SetReadDeadline(time.Now().Add(requestTimeout)); err != nil {
		return 0, err
	}
	return p.stream.Read(data)
}

// muxLog logs yamux's messages at debug level: relevant failures are returned
// as errors of calls.
type muxLog struct{ logger *slog.Logger }

func (l muxLog) Write(line []byte) (int, error) {
	l.logger.Debug("connection multiplexer", "err", strings.TrimSpace(string(line)))
	return len(line), nil
}

// newServerSession starts the accepting side on conn. A peer without a certificate
// has one stream at a time.
func newServerSession(conn net.Conn, logger *slog.Logger, anonymous bool) (*mux, error) {
	cfg := muxConfig(logger)
	if anonymous {
		cfg.AcceptBacklog = 1
	}
	return newMux(frame(conn), func(conn net.Conn) (*yamux.Session, error) { return yamux.Server(conn, cfg) })
}
