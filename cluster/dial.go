package cluster

import (
	"context"
	"net"
	"sync"
	"time"
)

// dialStagger is how long an address has to answer before the next one is tried
// beside it: one that drops what comes uses up nobody's time.
const dialStagger = 250 * time.Millisecond

// dialled is how dialing one of several addresses ended.
type dialled struct {
	at   int // Of the address.
	conn net.Conn
	err  error
}

// dialFirst dials addresses, each once the one before has failed or has taken
// dialStagger, and returns the first connection, or why each address has none. When
// it returns, nothing is dialled any more, and the other connections are closed.
func dialFirst(
	ctx context.Context, addresses []string, dial func(ctx context.Context, address string) (net.Conn, error),
) (net.Conn, []error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var dialing sync.WaitGroup
	results := make(chan dialled, len(addresses)) // Room for all, so that none blocks.
	next := time.NewTimer(0)
	defer next.Stop()
	errs := make([]error, len(addresses))
	var first net.Conn
	for begun, ended := 0, 0; ended < len(addresses) && first == nil; {
		select {
		case <-next.C:
			if at := begun; at < len(addresses) {
				begun++
				dialing.Go(func() {
					conn, err := dial(ctx, addresses[at])
					results <- dialled{at, conn, err}
				})
				next.Reset(dialStagger)
			}
		case r := <-results:
			ended++
			first, errs[r.at] = r.conn, r.err
			next.Reset(0)
		}
	}
	cancel()
	dialing.Wait()
	close(results)
	for late := range results {
		if late.conn != nil {
			late.conn.Close()
		}
	}
	return first, errs
}
