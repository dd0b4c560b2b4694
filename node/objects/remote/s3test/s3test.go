// Package s3test is for tests only: an S3 server of the module versitygw that keeps files
// in a directory.
package s3test

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3api"
	"github.com/versity/versitygw/s3api/middlewares"
)

// Access and Secret are the keys of every server of this package.
const (
	Access = "AKIAS3TEST"
	Secret = "s3test-secret"
)

// Server is a running server with one bucket.
type Server struct {
	URL string // The URL of the bucket, as package remote opens it.
	Dir string // Has the objects, as files.
}

// Start starts a server that ends with the test. The environment of this process gets its
// keys.
func Start(tb testing.TB) *Server {
	tb.Helper()
	root := tb.TempDir()
	for _, dir := range []string{"data/berth", "meta"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			tb.Fatal(err)
		}
	}
	sidecar, err := meta.NewSideCar(filepath.Join(root, "meta"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Chdir(filepath.Join(root, "data")) // Where New goes, but to return from it.
	be, err := posix.New(filepath.Join(root, "data"), sidecar, posix.PosixOpts{
		SideCarDir: filepath.Join(root, "meta"), CopyObjectThreshold: 5 << 30,
	})
	if err != nil {
		tb.Fatal(err)
	}
	iam := auth.NewIAMServiceSingle(auth.Account{Access: Access, Secret: Secret, Role: auth.RoleAdmin})
	listening := make(chan struct{})
	keys := middlewares.RootUserConfig{Access: Access, Secret: Secret}
	server, err := s3api.New(be, keys, "us-east-1", iam, nil, nil, nil, nil,
		s3api.WithQuiet(), s3api.WithKeepAlive(), s3api.WithConcurrencyLimiter(256, 64), s3api.WithMpMaxParts(10_000),
		s3api.WithOnListen(sync.OnceFunc(func() { close(listening) })))
	if err != nil {
		tb.Fatal(err)
	}
	socket := "@s3test-" + rand.Text()
	ended := make(chan error, 1)
	go func() { ended <- server.ServeMultiPort([]string{socket}) }()
	select {
	case <-listening:
	case err := <-ended:
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := server.ShutDown(); err != nil {
			tb.Log(err)
		}
	})
	tb.Setenv("AWS_ACCESS_KEY_ID", Access)
	tb.Setenv("AWS_SECRET_ACCESS_KEY", Secret)
	query := url.Values{"endpoint": {"http://" + forward(tb, socket)}, "use_path_style": {"true"}, "region": {"us-east-1"}}
	return &Server{URL: "s3://berth?" + query.Encode(), Dir: filepath.Join(root, "data", "berth")}
}

// forward returns an address of which connections go to a socket, because the server
// does not say which port it got.
func forward(tb testing.TB, socket string) string {
	var listen net.ListenConfig
	l, err := listen.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go pipe(conn, socket)
		}
	}()
	return l.Addr().String()
}

// pipe copies both directions until one of them ends.
func pipe(conn net.Conn, socket string) {
	defer conn.Close()
	inner, err := new(net.Dialer).DialContext(context.Background(), "unix", socket)
	if err != nil {
		return
	}
	defer inner.Close()
	go func() {
		defer inner.Close()
		_, _ = io.Copy(inner, conn)
	}()
	_, _ = io.Copy(conn, inner)
}
