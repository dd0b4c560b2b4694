package gateway

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/versity/versitygw/s3api"
	"github.com/versity/versitygw/s3api/middlewares"
	"golang.org/x/sys/unix"

	"berth/compute"
	"berth/loop"
)

// Limits of a node.
const (
	maxConns    = 1024
	maxRequests = 256
	idleConn    = 2 * time.Minute // Without a byte in either direction.

	acceptAgain, maxAcceptWait = 5 * time.Millisecond, time.Second // After an error.
)

// Gateway serves S3 on connections.
type Gateway struct {
	server *s3api.S3ApiServer
	store  *store
	end    context.CancelFunc
	places chan struct{} // Holds one token per connection.

	customers *Customers

	// versitygw has its own listener, a socket in the abstract namespace. The first request,
	// for the path learn, gives us the server behind it, which then serves our connections.
	socket    string
	learn     string
	listening chan struct{}
	conns     connServer // Known once ready is closed.
	ready     chan struct{}

	// mu separates the end of the gateway from new connections of Dial: none is made behind it.
	mu sync.Mutex

	dialed sync.WaitGroup // One for each connection of Dial that is served.
}

// connServer answers the requests of a connection.
type connServer interface{ ServeConn(conn net.Conn) error }

// New returns a Gateway that serves nothing yet.
func New(cfg Config) (*Gateway, error) {
	life, end := context.WithCancel(context.Background())
	g := &Gateway{
		store: &store{cfg: cfg, logger: cfg.Logger.With("part", "s3"), life: life}, end: end,
		socket: "@berth-s3-" + rand.Text(), learn: "/" + rand.Text(),
		listening: make(chan struct{}), ready: make(chan struct{}), places: make(chan struct{}, maxConns),
		customers: NewCustomers(maxConns),
	}
	iam := service{accounts: accounts{cfg.Keys, cfg.View}}
	var err error
	root := middlewares.RootUserConfig{Access: rand.Text(), Secret: rand.Text()} // Nobody has it.
	g.server, err = s3api.New(g.store, root, Region, iam, nil, nil, nil, nil,
		s3api.WithMiddleware("/", knownTrailer), s3api.WithMiddleware("/", plainVersion),
		s3api.WithMiddleware("/", unprefixed),
		s3api.WithMiddleware("/", sentConditions),
		s3api.WithQuiet(), s3api.WithKeepAlive(), s3api.WithDisableACL(),
		s3api.WithConcurrencyLimiter(2*maxConns, maxRequests), s3api.WithMpMaxParts(compute.MaxObjectParts),
		s3api.WithRoute(http.MethodGet, g.learn, g.learned()),
		s3api.WithOnListen(sync.OnceFunc(func() { close(g.listening) })))
	if err != nil {
		return nil, fmt.Errorf("make s3 server: %w", err)
	}
	return g, nil
}

// Run serves until ctx ends, and waits for the connections of Dial. Those of Serve and of
// ServeConn are their callers'.
func (g *Gateway) Run(ctx context.Context) error {
	defer g.dialed.Wait()
	defer g.stop()
	ended := make(chan error, 1)
	go func() { ended <- g.server.ServeMultiPort([]string{g.socket}) }()
	select {
	case <-g.listening: // Before, it cannot be shut down.
	case err := <-ended:
		return fmt.Errorf("serve s3: %w", err)
	}
	err := g.ask(ctx)
	select {
	case <-g.ready:
	default:
		if err = cmp.Or(err, errors.New("the server behind it is not known")); ctx.Err() == nil {
			_ = g.server.ShutDown() // It fails by the error that is returned.
			return fmt.Errorf("serve s3: %w", err)
		}
	}
	select {
	case err := <-ended:
		return fmt.Errorf("serve s3: %w", err)
	case <-ctx.Done():
	}
	g.stop()
	if err := g.server.ShutDown(); err != nil {
		g.store.logger.Warn("requests cut off by shutdown", "err", err)
	}
	<-ended //nolint:errcheck // As above.
	return nil
}

// stop ends the connections of Dial.
func (g *Gateway) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end()
}

// learned returns the handler of the request by which Gateway learns of what serves
// connections.
func (g *Gateway) learned() fiber.Handler {
	var once sync.Once
	return func(ctx fiber.Ctx) error {
		once.Do(func() {
			g.conns = ctx.App().Server()
			close(g.ready)
		})
		return nil
	}
}

// ask makes the first request.
func (g *Gateway) ask(ctx context.Context) error {
	conn, err := g.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://s3"+g.learn, http.NoBody)
	if err != nil {
		return err
	}
	if err := req.Write(conn); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Dial returns a connection to the gateway, which ends with Run.
func (g *Gateway) Dial(ctx context.Context) (net.Conn, error) {
	select {
	case <-g.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	client, server, err := connected()
	if err != nil {
		return nil, fmt.Errorf("reach s3 server: %w", err)
	}
	if err := g.serveDialed(server); err != nil {
		client.Close()
		server.Close()
		return nil, err
	}
	return client, nil
}

// serveDialed begins to serve a connection of Dial.
func (g *Gateway) serveDialed(conn net.Conn) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.store.life.Err() != nil {
		return compute.Errorf(compute.CodeUnavailable, "The node stops.")
	}
	g.dialed.Go(func() {
		if err := g.serveDirectly(g.store.life, conn); err != nil {
			g.store.logger.Debug("connection error", "err", err)
		}
	})
	return nil
}

// connected returns both ends of a connection.
func connected() (a, b net.Conn, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	var conns [2]net.Conn
	for i, fd := range pair {
		file := os.NewFile(uintptr(fd), "s3")
		conn, failed := net.FileConn(file) // A copy of it.
		conns[i], err = conn, errors.Join(err, failed, file.Close())
	}
	if err != nil {
		for _, conn := range conns {
			if conn != nil {
				conn.Close()
			}
		}
		return nil, nil, err
	}
	return conns[0], conns[1], nil
}

func (g *Gateway) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	inner, err := d.DialContext(ctx, "unix", g.socket)
	if err != nil {
		return nil, fmt.Errorf("reach s3 server: %w", err)
	}
	return inner, nil
}

// Serve answers requests from l until it is closed or ctx ends.
func (g *Gateway) Serve(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		conn, err := Accept(ctx, l)
		if err != nil {
			return err
		}
		if conn == nil {
			return nil
		}
		release, ok := g.customers.Take(conn)
		if !ok {
			conn.Close()
			continue
		}
		conns.Go(func() {
			defer release()
			if err := g.ServeConn(ctx, conn); err != nil {
				g.store.logger.Debug("connection error", "err", err)
			}
		})
	}
}

// Accept returns the next connection, nil when ctx ends. It retries after errors that
// pass, such as a lack of file descriptors.
func Accept(ctx context.Context, l net.Listener) (net.Conn, error) {
	for wait := acceptAgain; ; wait = min(2*wait, maxAcceptWait) {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				conn.Close()
			}
			return nil, nil
		}
		if err == nil {
			return conn, nil
		}
		if errors.Is(err, net.ErrClosed) {
			return nil, fmt.Errorf("accept s3 connection: %w", err)
		}
		loop.Sleep(ctx, wait)
	}
}

// ServeConn answers requests on a connection until it, or ctx, ends.
func (g *Gateway) ServeConn(ctx context.Context, conn io.ReadWriteCloser) error {
	defer conn.Close()
	select {
	case g.places <- struct{}{}:
		defer func() { <-g.places }()
	default:
		return compute.Errorf(compute.CodeUnavailable, "too many S3 connections")
	}
	select {
	case <-g.ready:
	case <-ctx.Done():
		return nil
	}
	if direct, ok := conn.(net.Conn); ok {
		return g.serveDirectly(ctx, direct)
	}
	inner, err := g.Dial(ctx)
	if err != nil {
		return err
	}
	Pipe(ctx, conn, inner)
	return nil
}

// serveDirectly answers requests on a connection until it, or ctx, ends.
func (g *Gateway) serveDirectly(ctx context.Context, conn net.Conn) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	err := g.conns.ServeConn(&timed{Conn: conn})
	linger(conn)
	return err
}

// lingerTime and lingerBytes bound what is read of a client that was answered before it had
// sent its request: closing a connection with unread bytes resets it, and the client might
// never read why it was refused.
const (
	lingerTime  = 3 * time.Second
	lingerBytes = 64 << 20
)

// linger reads on until the client has closed a connection, within the limits.
func linger(conn net.Conn) {
	closeWrite(conn)
	if conn.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
		_, _ = io.CopyN(io.Discard, conn, lingerBytes) // Nobody needs it.
	}
}

// closeWrite ends the direction to a client, where that is possible.
func closeWrite(conn io.Closer) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // The client has gone, then.
	}
}

// timed ends when little moves for a while in the direction that is waited for. However it
// ends, a request that is not complete reads as one that the client has cut. To close it does
// nothing: the connection lingers. One goroutine uses it.
type timed struct {
	net.Conn

	left time.Duration // For what is waited for: a request, or a piece of one,
	came int           // of which so many bytes have come; answers count as leastPiece.
}

// Pieces that have to move in time.
const (
	timedPiece = 256 << 10 // Written at once.
	leastPiece = 4 << 10   // Read, or all that came of a request: less would hold a place for hours.
)

// Close implements io.Closer.
func (*timed) Close() error { return nil }

// Read implements io.Reader.
func (c *timed) Read(p []byte) (int, error) {
	if c.left <= 0 || c.came >= leastPiece {
		c.left, c.came = idleConn, 0
	}
	begun := time.Now() //nolint:forbidigo // A limit of a connection.
	if err := c.SetReadDeadline(begun.Add(c.left)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	if c.left -= time.Since(begun); c.came == 0 { // Until the first byte of it, nothing was late.
		c.left = idleConn
	}
	c.came += n
	if err != nil {
		err = io.EOF
	}
	return n, err
}

// Write implements io.Writer.
func (c *timed) Write(p []byte) (n int, err error) {
	c.came = leastPiece
	for n < len(p) && err == nil {
		if err = c.SetWriteDeadline(time.Now().Add(idleConn)); err != nil {
			return n, err
		}
		var wrote int
		wrote, err = c.Conn.Write(p[n:min(n+timedPiece, len(p))])
		n += wrote
	}
	return n, err
}

// Pipe copies both directions between a client and a server until one of them ends, ctx does,
// or nothing moves for a while. A client whose server has ended may go on for a moment, so
// that it reads its answer.
func Pipe(ctx context.Context, client, server io.ReadWriteCloser) {
	shut := sync.OnceFunc(func() {
		client.Close()
		server.Close()
	})
	defer context.AfterFunc(ctx, shut)()
	idle := time.AfterFunc(idleConn, shut)
	defer idle.Stop()
	var late *time.Timer
	var group sync.WaitGroup
	group.Go(func() {
		defer shut()
		if _, err := io.Copy(server, stirring{client, idle}); err != nil { // The server reads no more.
			_, _ = io.Copy(io.Discard, client)
		}
	})
	group.Go(func() {
		_, _ = io.Copy(client, stirring{server, idle})
		closeWrite(client)
		late = time.AfterFunc(lingerTime, shut)
	})
	group.Wait()
	late.Stop()
}

// stirring puts off the end of an idle connection with each piece that is read.
type stirring struct {
	io.Reader
	idle *time.Timer
}

func (s stirring) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if n > 0 {
		s.idle.Reset(idleConn)
	}
	return n, err
}
