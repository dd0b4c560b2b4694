package transport

import (
	"context"
	"net"
	"sync"
	"time"
)

// dialStagger is how long an address has to answer before the next one is tried
// concurrently: an address that drops packets must not delay the others.
const dialStagger = 250 * time.Millisecond

// dialled is the result of dialling one of several addresses.
type dialled struct {
	at   int // Position of the address.
	conn net.Conn
	err  error
}

// DialFirst dials each address once the one before has failed or has taken
// dialStagger. It returns the first connection, or the error of each address. When
// it returns, all dialling has ended and all other connections are closed.
func DialFirst(
	ctx context.Context, addresses []string, dial func(ctx context.Context, address string) (net.Conn, error),
) (net.Conn, []error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var dialing sync.WaitGroup
	results := make(chan dialled, len(addresses)) // Buffered for all, so that none blocks.
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
