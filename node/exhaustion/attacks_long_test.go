//go:build long

package exhaustion_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth/loop"
)

// api is the path of the API.
const api = "/api/v2/external"

// How attackers behave.
const (
	smallBuffer = 4 << 10 // Bytes that a client buffers which does not read.
	again       = 50 * time.Millisecond
)

// attacker makes bounded attacks. Its connections come from addresses of their own.
type attacker struct{ *victims }

// host returns the address of a node without its scheme.
func (a *attacker) host(i int) string { return strings.TrimPrefix(a.nodes[i].URL, "http://") }

// server and worker are the nodes that clients attack: one that neither leads, as a
// rule, nor executes, and the one without a replica.
const (
	server = 1
	worker = 3
)

// together runs n clients until ctx ends. Each is called again when it returns.
func together(ctx context.Context, n int, client func(i int)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				client(i)
				loop.Sleep(ctx, again)
			}
		})
	}
}

// dial connects to an address. The connection ends with ctx. One with a small buffer
// makes its node wait early.
func dial(ctx context.Context, address string, i int, small bool) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%4))}}
	if small {
		d.Control = func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) {
				_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, smallBuffer) // A larger one does, too.
			})
		}
	}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	return conn, nil
}

// request returns the bytes of a request.
func request(method, path, credential, body string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: berth\r\n", method, path)
	if credential != "" {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", credential)
	}
	if body != "" {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n" + body)
	return b.Bytes()
}

// hold sends data over n connections and never reads what is answered. A connection
// that the node closes is made again.
func (a *attacker) hold(ctx context.Context, node, n int, data func(i int) []byte) {
	together(ctx, n, func(i int) {
		conn, err := dial(ctx, a.host(node), i, true)
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := conn.Write(data(i)); err != nil {
			return
		}
		awaitClose(ctx, conn)
	})
}

// awaitClose waits until the other side has closed conn or ctx ends, without reading.
func awaitClose(ctx context.Context, conn net.Conn) {
	for ctx.Err() == nil && loop.Sleep(ctx, time.Second) {
		if _, err := conn.Write(nil); err != nil {
			return
		}
		if tcp, ok := conn.(*net.TCPConn); ok && closed(tcp) {
			return
		}
	}
}

// closed reports whether the connection has an error.
func closed(conn *net.TCPConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	state := 0
	err = raw.Control(func(fd uintptr) { state, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR) })
	return err != nil || state != 0
}

// repeat has n clients send requests and read the answers.
func (a *attacker) repeat(ctx context.Context, node, n int, data func(i, k int) []byte) {
	together(ctx, n, func(i int) {
		conn, err := dial(ctx, a.host(node), i, false)
		if err != nil {
			return
		}
		defer conn.Close()
		answers := bufio.NewReader(conn)
		for k := 0; ctx.Err() == nil; k++ {
			if _, err := conn.Write(data(i, k)); err != nil {
				return
			}
			resp, err := http.ReadResponse(answers, nil)
			if err != nil {
				return
			}
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if err != nil || resp.Close {
				return
			}
		}
	})
}
