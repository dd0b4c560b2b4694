package rpc

import (
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/hashicorp/yamux"
)

// Limits of sessions.
const (
	keepAlive      = 5 * time.Second
	writeTimeout   = 10 * time.Second
	closeTimeout   = 10 * time.Second
	acceptBacklog  = 1024 // Streams waiting to be accepted; more block their callers.
	streamWindow   = 1 << 20
	requestTimeout = 10 * time.Second // For the request, once the stream is open.
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

// muxLog logs yamux's messages at debug level: relevant failures are returned
// as errors of calls.
type muxLog struct{ logger *slog.Logger }

func (l muxLog) Write(line []byte) (int, error) {
	l.logger.Debug("connection multiplexer", "err", strings.TrimSpace(string(line)))
	return len(line), nil
}

// minWindow is the smallest window that yamux allows.
const minWindow = 256 << 10

// newServerSession starts the accepting side on conn. A peer without a certificate
// has one stream at a time.
func newServerSession(conn net.Conn, logger *slog.Logger, anonymous bool) (*yamux.Session, error) {
	cfg := muxConfig(logger)
	if anonymous {
		cfg.AcceptBacklog, cfg.MaxStreamWindowSize = 1, minWindow
	}
	return yamux.Server(conn, cfg)
}
