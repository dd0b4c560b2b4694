package api_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"testing"

	"berth/api/handler"
	"berth/compute"
	"berth/fsm/command"
)

// instantProposer accepts each submit at once and applies nothing.
type instantProposer struct{ *world }

func (p instantProposer) Propose(ctx context.Context, cmd command.Command) (command.Result, uint64, error) {
	submit, is := cmd.(command.Submit)
	if !is {
		return p.world.Propose(ctx, cmd)
	}
	if _, err := command.Encode(cmd); err != nil {
		return command.Result{}, 0, err
	}
	id := submit.Execution.ID
	return command.Result{Execution: id, Status: compute.StatusQueued, ID: id.UUID}, p.index, nil
}

// BenchmarkSubmitRequest measures a node's part in a submit, without Raft and the state machine.
func BenchmarkSubmitRequest(b *testing.B) {
	w := newWorld(b, func(c *handler.Config) { c.Proposer = instantProposer{c.Proposer.(*world)} })
	const body = `{"code":"pass","timeout":60}`
	text := fmt.Sprintf("POST /api/v2/external/execution/streaming/start HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nIdempotency-Key: %%026d\r\nContent-Length: %d\r\n\r\n%s", w.adaKey, len(body), body)
	var conn net.Conn
	buf := make([]byte, 64<<10)
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		if n%9000 == 0 { // A connection has a limit of requests.
			var err error
			conn, err = w.dial()
			w.ok(err)
			defer conn.Close()
		}
		_, err := fmt.Fprintf(conn, text, n)
		w.ok(err)
		length, err := conn.Read(buf)
		w.ok(err)
		if !bytes.HasPrefix(buf[:length], []byte("HTTP/1.1 20")) {
			b.Fatalf("answered %s", buf[:length])
		}
	}
}
