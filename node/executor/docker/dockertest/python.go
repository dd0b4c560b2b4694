package dockertest

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// PythonImage is the name of an image that has this machine's Python, the libraries of the
// machine that it needs, the usual part of its own library, and nothing else.
const PythonImage = "berth.test/python:1"

const (
	python         = "/usr/bin/python3"
	maxPythonBytes = 40 << 20
)

// pythonParts are the directories of the standard library that the image has, beside the
// modules that are a file.
var pythonParts = []string{ //nolint:gochecknoglobals // A constant list.
	"asyncio", "collections", "concurrent", "email", "encodings", "html", "http", "importlib", "json", "lib-dynload",
	"logging", "re", "urllib",
}

// Python puts PythonImage on the engine, once in a process. An engine that has the same
// image from before keeps it.
func Python(t testing.TB) string {
	t.Helper()
	pythonOnce.Do(func() {
		layer := tarOf(t, pythonFiles(t))
		if layer.Len() > maxPythonBytes {
			t.Fatalf("this machine's Python has %d bytes, more than %d: name less in pythonParts", layer.Len(), maxPythonBytes)
		}
		settings := map[string]any{"Env": []string{"PATH=/usr/bin", "PYTHONDONTWRITEBYTECODE=1"}, "Cmd": []string{"python3"}}
		image, id := save(t, PythonImage, runtime.GOARCH, settings, layer)
		known, err := Client(t).ImageInspect(t.Context(), PythonImage)
		if err != nil || known.ID != id {
			load(t, image)
		}
	})
	return PythonImage
}

var pythonOnce sync.Once //nolint:gochecknoglobals // As once.

// pythonFiles returns the program of Python, the libraries of the machine that it needs,
// and its own library.
func pythonFiles(t testing.TB) (files []entry) {
	t.Helper()
	said := command(t, python, "-I", "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))")
	library := strings.TrimSpace(said)
	add := func(path string, mode int64) {
		data, err := os.ReadFile(path) // It follows links.
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, entry{strings.TrimPrefix(path, "/"), mode, data})
	}
	add(python, 0o755)
	for word := range strings.FieldsSeq(command(t, "ldd", python)) {
		if filepath.IsAbs(word) {
			add(word, 0o755)
		}
	}
	modules, err := filepath.Glob(filepath.Join(library, "*.py"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range modules {
		add(path, 0o644)
	}
	for _, part := range pythonParts {
		err := filepath.WalkDir(filepath.Join(library, part), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && filepath.Ext(path) != ".pyc" {
				add(path, 0o644)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// command returns the output of a program.
func command(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).Output()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return string(out)
}
