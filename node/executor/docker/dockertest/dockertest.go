// Package dockertest makes the images of tests on a real Docker engine, which
// scripts/docker.sh starts. Tests never pull from outside.
package dockertest

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/moby/moby/client"

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
	once.Do(func() { Import(t, Image, runtime.GOARCH, "/probe") })
	return Image
}

var once sync.Once //nolint:gochecknoglobals // One engine serves all tests of a process.

// Import makes an image of the program probe for an architecture, with this entry point.
func Import(t testing.TB, name, arch string, entrypoint ...string) {
	t.Helper()
	load(t, archive(t, name, arch, entrypoint))
}

// SGLang puts an image on the engine whose python3 stands for SGLang, and returns its name.
func SGLang(t testing.TB) string {
	t.Helper()
	const name = "berth.test/sglang:1"
	layer := tarOf(t, []entry{{"bin/python3", 0o755, program(t)}})
	image, _ := save(t, name, runtime.GOARCH, map[string]any{"Env": []string{"PATH=/bin"}}, layer)
	load(t, image)
	return name
}

// load puts an image on the engine that is written as docker save does.
func load(t testing.TB, image *bytes.Buffer) {
	t.Helper()
	loaded, err := Client(t).ImageLoad(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	defer loaded.Close()
	if _, err := new(bytes.Buffer).ReadFrom(loaded); err != nil {
		t.Fatal(err)
	}
}

// archive returns an image of the program probe as docker save writes it.
func archive(t testing.TB, name, arch string, entrypoint []string) *bytes.Buffer {
	t.Helper()
	layer := tarOf(t, []entry{
		{"probe", 0o755, program(t)},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/probe\nada:x:1234:1234:ada:/home/ada:/probe\n")},
	})
	image, _ := save(t, name, arch, map[string]any{"Entrypoint": entrypoint}, layer)
	return image
}

// save returns an image of one layer as docker save writes it, and the id that an engine
// gives it.
func save(
	t testing.TB, name, arch string, settings map[string]any, layer *bytes.Buffer,
) (image *bytes.Buffer, id string) {
	t.Helper()
	config, err := json.Marshal(map[string]any{
		"architecture": arch, "os": runtime.GOOS, "config": settings,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digestOf(layer.Bytes())}},
	})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := json.Marshal([]any{map[string]any{
		"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return tarOf(t, []entry{
		{"config.json", 0o644, config}, {"layer.tar", 0o644, layer.Bytes()}, {"manifest.json", 0o644, manifest},
	}), digestOf(config)
}

// entry is a file of an archive.
type entry struct {
	name string
	mode int64
	data []byte
}

// tarOf returns an archive of files. Its times are fixed, so that the same files make the
// same image.
func tarOf(t testing.TB, entries []entry) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		err := w.WriteHeader(&tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.data)), Typeflag: tar.TypeReg})
		if err == nil {
			_, err = w.Write(e.data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

// program returns the program of the images, which is compiled once in a process.
func program(t testing.TB) []byte {
	t.Helper()
	compiled.Do(func() {
		_, here, _, _ := runtime.Caller(0)
		file := filepath.Join(t.TempDir(), "probe")
		cmd := exec.CommandContext(
			t.Context(), "go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", file, "./probe")
		cmd.Dir, cmd.Env = filepath.Dir(here), append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build probe: %v\n%s", err, out)
		}
		var err error
		if probe, err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	})
	if len(probe) == 0 {
		t.Fatal("the program of the images could not be built")
	}
	return probe
}

//nolint:gochecknoglobals // As once.
var (
	compiled sync.Once
	probe    []byte
)
