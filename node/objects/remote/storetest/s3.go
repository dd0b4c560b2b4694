package storetest

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

// s3Access and s3Secret are the keys of every server.
const (
	s3Access = "AKIAS3TEST"
	s3Secret = "s3test-secret"
)

// s3 is S3, as the module versitygw serves it from a directory.
func s3() Kind { return Kind{Scheme: "s3", Start: startS3, At: s3At} }

func s3At(tb testing.TB, host, bucket string) string {
	tb.Setenv("AWS_ACCESS_KEY_ID", s3Access)
	tb.Setenv("AWS_SECRET_ACCESS_KEY", s3Secret)
	query := url.Values{"endpoint": {"http://" + host}, "use_path_style": {"true"}, "region": {"us-east-1"}}
	return "s3://" + bucket + "?" + query.Encode()
}

func startS3(tb testing.TB) *Store {
	tb.Helper()
	root := tb.TempDir()
	for _, dir := range []string{filepath.Join("data", BucketName), "meta"} {
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
	iam := auth.NewIAMServiceSingle(auth.Account{Access: s3Access, Secret: s3Secret, Role: auth.RoleAdmin})
	listening := make(chan struct{})
	keys := middlewares.RootUserConfig{Access: s3Access, Secret: s3Secret}
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
	stop := sync.OnceFunc(func() {
		if err := server.ShutDown(); err != nil {
			tb.Log(err)
		}
	})
	tb.Cleanup(stop)
	host := forward(tb, socket)
	return &Store{URL: s3At(tb, host, BucketName), Host: host, dir: filepath.Join(root, "data"), stop: stop}
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
