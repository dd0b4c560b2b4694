//go:build long

package exhaustion_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"time"
)

// claimAtPort opens streams without a certificate and announces messages that do not
// come.
func claimAtPort(ctx context.Context, a *attacker) {
	frame := func(kind, flags byte, stream, length uint32) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte{0, kind, 0, flags}, stream), length)
	}
	const window = 256 << 10
	claim := append(frame(1, 1, 1, 0), frame(0, 0, 1, window)...)
	claim = append(binary.BigEndian.AppendUint32(claim, 64<<10), make([]byte, 63<<10)...)
	together(ctx, 256, func(i int) {
		conn, err := dial(ctx, a.nodes[server].Config.RPC.Addr, i, false)
		if err != nil {
			return
		}
		defer conn.Close()
		secure := tls.Client(conn, &tls.Config{
			InsecureSkipVerify: true, //nolint:gosec // A stranger trusts anybody.
			NextProtos:         []string{"rpc/1"}, MinVersion: tls.VersionTLS13,
		})
		if _, err := secure.Write(claim); err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, secure) // Until it is closed.
	})
}

// holdHandshakes begins handshakes.
func holdHandshakes(ctx context.Context, a *attacker) {
	hello := []byte{0x16, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb, 3, 3}
	together(ctx, 1000, func(i int) {
		conn, err := dial(ctx, a.nodes[server].Config.RPC.Addr, i, false)
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := conn.Write(append(hello, make([]byte, 8<<10)...)); err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, conn) // Until it is closed.
	})
}

// sendGarbage sends what every port refuses, again and again.
func sendGarbage(ctx context.Context, a *attacker) {
	cfg := a.nodes[server].Config
	noise := []byte(strings.Repeat("\x00\xffgarbage\r\n", 500))
	together(ctx, 90, func(i int) {
		address := []string{cfg.RPC.Addr, cfg.Gossip.Addr, a.host(server)}[i%3]
		conn, err := dial(ctx, address, i, false)
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := conn.Write(noise); err == nil {
			_ = conn.SetReadDeadline(time.Now().Add(again)) // It never fails.
			_, _ = io.Copy(io.Discard, conn)                // Until it is closed.
		}
		if packet, err := net.Dial("udp", cfg.Gossip.Addr); err == nil {
			_, _ = packet.Write(noise[:1000]) // It may be refused.
			packet.Close()
		}
	})
}
