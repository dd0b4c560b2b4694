package timing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

const (
	// MaxFsync is the slowest disk of a fast server. An election makes up to four
	// votes durable, one after the other, and has 300 ms.
	MaxFsync = 20 * time.Millisecond
	// MaxRoundTrip is the longest round trip of a fast network. A leader of such a
	// network hears from its followers every 60 ms and 10 ms, and gives up
	// leadership after 200 ms without most of them.
	MaxRoundTrip = 10 * time.Millisecond

	fsyncs      = 9
	fsyncBytes  = 4096
	dials       = 3 // The quickest counts: a busy machine answers some late.
	dialTimeout = time.Second
	probeFile   = "timing.tmp"
)

// Measured is what a server measured.
type Measured struct {
	Fsync     time.Duration // Median of durable writes of 4 KiB.
	RoundTrip time.Duration // To the farthest server that answered; 0 if none did.
	Servers   int           // How many answered.
}

// Fast reports whether disk and network are fast enough for short timers. Without
// another server only the disk decides.
func (m Measured) Fast() bool { return m.Fsync <= MaxFsync && m.RoundTrip <= MaxRoundTrip }

// String implements fmt.Stringer, for logs.
func (m Measured) String() string {
	text := fmt.Sprintf("fsync takes %v", m.Fsync.Round(10*time.Microsecond))
	if m.Servers == 0 {
		return text + "; no other server was measured"
	}
	return text + fmt.Sprintf("; round trip to the farthest of %d servers %v", m.Servers, m.RoundTrip.Round(10*time.Microsecond))
}

// Dial opens a TCP connection.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Measure measures the disk of dir and the round trips to the servers, given as
// host:port. A server that does not answer within a second is left out: it may be
// down. dir must exist. Nothing remains in it.
func Measure(ctx context.Context, dir string, servers []string, dial Dial) (Measured, error) {
	var m Measured
	var mu sync.Mutex
	var wait sync.WaitGroup
	for _, server := range servers {
		wait.Go(func() {
			took, err := roundTrip(ctx, server, dial)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			m.RoundTrip = max(m.RoundTrip, took)
			m.Servers++
		})
	}
	wait.Wait() // Before the disk, so that neither delays the other.
	var err error
	m.Fsync, err = fsync(filepath.Join(dir, probeFile))
	return m, err
}

// roundTrip returns the shortest time that a TCP handshake with the server took,
// which is one round trip.
func roundTrip(ctx context.Context, server string, dial Dial) (time.Duration, error) {
	limited, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	best := dialTimeout
	for range dials {
		begin := time.Now()
		conn, err := dial(limited, "tcp", server)
		if err != nil {
			return 0, fmt.Errorf("measure round trip: %w", err)
		}
		best = min(best, time.Since(begin))
		conn.Close()
	}
	return best, nil
}

// fsync returns the median time of a durable write to a file of that name.
func fsync(name string) (median time.Duration, err error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, fmt.Errorf("measure disk: %w", err)
	}
	defer func() {
		if e := errors.Join(file.Close(), os.Remove(name)); err == nil && e != nil {
			err = fmt.Errorf("measure disk: %w", e)
		}
	}()
	took := make([]time.Duration, fsyncs)
	for i := range took {
		begin := time.Now()
		if _, err := file.Write(make([]byte, fsyncBytes)); err != nil {
			return 0, fmt.Errorf("measure disk: %w", err)
		}
		if err := file.Sync(); err != nil {
			return 0, fmt.Errorf("measure disk: %w", err)
		}
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}
