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
	"sync"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/versity/versitygw/s3api"
	"github.com/versity/versitygw/s3api/middlewares"

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

	// versitygw has its own listener, a socket in the abstract namespace. The first request,
	// for the path learn, gives us the server behind it, which then serves our connections.
	socket    string
	learn     string
	listening chan struct{}
	conns     connServer // Known once ready is closed.
	ready     chan struct{}
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
	}
	iam := service{accounts: accounts{cfg.Keys, cfg.View}}
	var err error
	root := middlewares.RootUserConfig{Access: rand.Text(), Secret: rand.Text()} // Nobody has it.
	g.server, err = s3api.New(g.store, root, Region, iam, nil, nil, nil, nil,
		s3api.WithMiddleware("/", unprefixed), s3api.WithMiddleware("/", sentConditions),
		s3api.WithQuiet(), s3api.WithKeepAlive(), s3api.WithDisableACL(),
		s3api.WithConcurrencyLimiter(2*maxConns, maxRequests), s3api.WithMpMaxParts(compute.MaxObjectParts),
		s3api.WithRoute(http.MethodGet, g.learn, g.learned()),
		s3api.WithOnListen(sync.OnceFunc(func() { close(g.listening) })))
	if err != nil {
		return nil, fmt.Errorf("make s3 server: %w", err)
	}
	return g, nil
}

// Run serves until ctx ends.
func (g *Gateway) Run(ctx context.Context) error {
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
	g.end()
	if err := g.server.ShutDown(); err != nil {
		g.store.logger.Warn("requests cut off by shutdown", "err", err)
	}
	<-ended //nolint:errcheck // As above.
	return nil
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

// Dial returns a connection to the gateway.
func (g *Gateway) Dial(ctx context.Context) (net.Conn, error) {
	select {
	case <-g.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return g.dial(ctx)
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
		conns.Go(func() {
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
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		return g.conns.ServeConn(timed{direct})
	}
	inner, err := g.dial(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	Pipe(ctx, conn, inner)
	return nil
}

// timed ends when nothing moves for a while in the direction that is waited for. However it
// ends, a request that is not complete reads as one that the client has cut.
type timed struct{ net.Conn }

// timedPiece is how much is written at once, and has to go in time.
const timedPiece = 256 << 10

// Read implements io.Reader.
func (c timed) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(idleConn)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	if err != nil {
		err = io.EOF
	}
	return n, err
}

// Write implements io.Writer.
func (c timed) Write(p []byte) (n int, err error) {
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

// Pipe copies both directions between two connections until one of them ends, ctx does,
// or nothing moves for a while.
func Pipe(ctx context.Context, a, b io.ReadWriteCloser) {
	shut := sync.OnceFunc(func() {
		a.Close()
		b.Close()
	})
	defer context.AfterFunc(ctx, shut)()
	idle := time.AfterFunc(idleConn, shut)
	defer idle.Stop()
	var group sync.WaitGroup
	for _, way := range [][2]io.ReadWriteCloser{{a, b}, {b, a}} {
		group.Go(func() {
			defer shut()
			_, _ = io.Copy(way[0], stirring{way[1], idle})
		})
	}
	group.Wait()
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
