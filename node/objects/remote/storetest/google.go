package storetest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// portTries is how often a port is chosen: another program may take it first.
const portTries = 5

// google is Google Cloud Storage, as fake-gcs-server serves it from a directory.
func google() Kind { return Kind{Scheme: "gs", Start: startGoogle, At: googleAt} }

func googleAt(tb testing.TB, host, bucket string) string {
	tb.Setenv("STORAGE_EMULATOR_HOST", host)
	return "gs://" + bucket
}

func startGoogle(tb testing.TB) *Store {
	tb.Helper()
	program := installed(tb, "fake-gcs-server")
	dir := tb.TempDir()
	if err := os.Mkdir(filepath.Join(dir, BucketName), 0o700); err != nil {
		tb.Fatal(err)
	}
	var err error
	for range portTries { // The program does not say which port it got, so it must be told one.
		host := freeHost(tb)
		_, port, _ := net.SplitHostPort(host)
		var stop func()
		_, stop, err = start(tb, "server started", exec.CommandContext(context.Background(), program,
			"-scheme", "http", "-host", "127.0.0.1", "-port", port, "-public-host", "127.0.0.1",
			"-backend", "filesystem", "-filesystem-root", dir))
		if err == nil {
			return &Store{URL: googleAt(tb, host, BucketName), Host: host, dir: dir, stop: stop}
		}
	}
	tb.Fatal(err)
	return nil
}

// freeHost returns the loopback address with a port that nothing listens on.
func freeHost(tb testing.TB) string {
	var listen net.ListenConfig
	l, err := listen.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
