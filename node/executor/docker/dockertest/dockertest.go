// Package dockertest makes the images of tests on a real Docker engine, which
// scripts/docker.sh starts. Tests never pull from outside.
package dockertest

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/moby/moby/client"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"berth/node/executor/docker"
)

// Image is the name of an image that has the program probe and nothing else.
const Image = "berth.test/probe:1"

// Host returns the address of the engine. Without one the test fails.
func Host(t testing.TB) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containers are made by root")
	}
	if _, err := docker.Probe(context.Background(), docker.DefaultHost); err != nil {
		t.Fatalf("%v: start one with scripts/docker.sh", err)
	}
	return docker.DefaultHost
}

// Client returns a client of the engine.
func Client(t testing.TB) *client.Client {
	t.Helper()
	api, err := client.New(client.WithHost(Host(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	return api
}

// Compose returns the program of Docker Compose, which scripts/docker.sh builds. Without
// it the test fails.
func Compose(t testing.TB) string {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	built := filepath.Join(filepath.Dir(here), "../../../../bin/tools/docker-compose")
	for _, name := range []string{built, ""} {
		if program, _, err := docker.FindCompose(t.Context(), name); err == nil {
			return program
		}
	}
	t.Fatal("no Docker Compose: build it with scripts/docker.sh")
	return ""
}

// Probe puts Image on the engine, once in a process.
func Probe(t testing.TB) string {
	t.Helper()
	once.Do(func() { Import(t, Image, runtime.GOARCH, `ENTRYPOINT ["/probe"]`) })
	return Image
}

var once sync.Once //nolint:gochecknoglobals // One engine serves all tests of a process.

// Import makes an image of the program probe, for an architecture, with changes as a
// Dockerfile has them.
func Import(t testing.TB, name, arch string, changes ...string) {
	t.Helper()
	answer, err := Client(t).ImageImport(t.Context(),
		client.ImageImportSource{Source: Root(t), SourceName: "-"}, name,
		client.ImageImportOptions{Changes: changes, Platform: ocispec.Platform{OS: runtime.GOOS, Architecture: arch}})
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	if _, err := new(bytes.Buffer).ReadFrom(answer); err != nil {
		t.Fatal(err)
	}
}

// Root returns the root file system of the image as a tar stream.
func Root(t testing.TB) *bytes.Buffer {
	t.Helper()
	program, err := os.ReadFile(build(t))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	write := func(h tar.Header, data []byte) {
		h.Size = int64(len(data))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	write(tar.Header{Name: "probe", Mode: 0o755, Typeflag: tar.TypeReg}, program)
	write(tar.Header{Name: "etc/", Mode: 0o755, Typeflag: tar.TypeDir}, nil)
	write(tar.Header{Name: "etc/passwd", Mode: 0o644, Typeflag: tar.TypeReg},
		[]byte("root:x:0:0:root:/root:/probe\nada:x:1234:1234:ada:/home/ada:/probe\n"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

// build compiles the program and returns its file.
func build(t testing.TB) string {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	file := filepath.Join(t.TempDir(), "probe")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w", "-o", file, "./probe")
	cmd.Dir, cmd.Env = filepath.Dir(here), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build probe: %v\n%s", err, out)
	}
	return file
}
