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
	"syscall"
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

// Measured has the measurements of a server.
type Measured struct {
	Fsync     time.Duration // Median of durable writes of 4 KiB.
	RoundTrip time.Duration // To the farthest server that answered; 0 if none did.
	Servers   int           // Servers that answered.
	Asked     int           // Servers that were asked.
}

// Fast reports whether disk and network are fast enough for short timers. A server
// that did not answer may be far away. Without another server only the disk decides.
func (m Measured) Fast() bool {
	return m.Fsync <= MaxFsync && m.RoundTrip <= MaxRoundTrip && m.Servers == m.Asked
}

// String implements fmt.Stringer, for logs.
func (m Measured) String() string {
	text := fmt.Sprintf("fsync takes %v", m.Fsync.Round(10*time.Microsecond))
	if m.Asked == 0 {
		return text + "; no other server is known"
	}
	return text + fmt.Sprintf("; %d of %d servers answered, the farthest after %v",
		m.Servers, m.Asked, m.RoundTrip.Round(10*time.Microsecond))
}

// Dial opens a TCP connection.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Measure measures the disk of dir and the round trips to the servers, given as
// host:port. A machine whose server is down answers too, by refusing the connection.
// dir must exist. Nothing remains in it.
func Measure(ctx context.Context, dir string, servers []string, dial Dial) (Measured, error) {
	m := Measured{Asked: len(servers)}
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

// roundTrip returns the shortest time in which the server's machine accepted or
// refused a connection, which is one round trip.
func roundTrip(ctx context.Context, server string, dial Dial) (best time.Duration, err error) {
	for range dials {
		took, e := dialOnce(ctx, server, dial)
		switch {
		case e != nil:
			err = e
		case best == 0 || took < best:
			best = took
		}
	}
	if best == 0 {
		return 0, fmt.Errorf("measure round trip: %w", err)
	}
	return best, nil
}

func dialOnce(ctx context.Context, server string, dial Dial) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	begin := time.Now() //nolint:forbidigo // A stopwatch.
	conn, err := dial(ctx, "tcp", server)
	took := max(time.Since(begin), 1)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return took, nil
	}
	if err != nil {
		return 0, err
	}
	return took, conn.Close()
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
		begin := time.Now() //nolint:forbidigo // A stopwatch.
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
