package source_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/source"
	"berth/compute"
)

// write makes files below dir, and their directories.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func scan(t *testing.T, dir string) *source.Tree {
	t.Helper()
	tree, err := source.Scan(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func paths(tree *source.Tree) (out []string) {
	for _, f := range tree.Files {
		out = append(out, f.Path)
	}
	slices.Sort(out)
	return out
}

// TestScan checks what of a directory is sent.
func TestScan(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		".gitignore": "*.log\nbuild/\n/only_root\n!keep.log\n", ".berthignore": "data/raw\n# comment\n\n!build2\n",
		"a.py": "1", "x.log": "", "keep.log": "k", "build/out": "", "sub/build/out": "", "only_root": "", "sub/only_root": "s",
		"data/raw/big": "", "data/kept": "d", ".git/config": "", ".berth/dev/root_token": "secret",
		"sub/.gitignore": "inner\n", "sub/inner": "", "inner": "i", "bin": "\xff\x00",
	})
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, "empty"), 0o700), os.Chmod(filepath.Join(dir, "a.py"), 0o755),
		os.Symlink("data/kept", filepath.Join(dir, "link")), os.Symlink("/etc/passwd", filepath.Join(dir, "absolute")),
		os.Symlink("../..", filepath.Join(dir, "sub", "up")), os.Symlink("loop", filepath.Join(dir, "loop")),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600), os.WriteFile(filepath.Join(dir, "new\nline"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	tree := scan(t, dir)
	want := []string{
		".berthignore", ".gitignore", "a.py", "bin", "data/kept", "empty", "inner", "keep.log", "link", "loop",
		"sub/.gitignore", "sub/only_root",
	}
	if got := paths(tree); !slices.Equal(got, want) {
		t.Errorf("sent are\n%v, want\n%v", got, want)
	}
	if warned := strings.Join(tree.Warnings, "\n"); len(tree.Warnings) != 4 || !strings.Contains(warned, "pipe is left out") ||
		!strings.Contains(warned, "sub/up is left out: it is a link to ../..") || !strings.Contains(warned, `"new\nline"`) {
		t.Errorf("the warnings are\n%s", warned)
	}
	for _, f := range tree.Files {
		if f.Path == "a.py" && *f.Mode != 0o755 || f.Path == "empty" && (!f.Dir || *f.Mode != 0o700) || f.Path == "link" && f.Link != "data/kept" {
			t.Errorf("%s is sent as %+v", f.Path, f)
		}
	}
	checked := &compute.Tree{}
	for i := range tree.Files {
		data, err := json.Marshal(wire.NewBundle{Files: tree.Files[i : i+1]})
		if err != nil {
			t.Fatal(err)
		}
		one, err := wire.DecodeTree(data)
		if err != nil {
			t.Fatal(err)
		}
		checked.Entries = append(checked.Entries, one.Entries...)
	}
	if err := checked.Check(1 << 30); err != nil {
		t.Error(err)
	}
}

// cluster is an API that takes bundles of one organization.
type cluster struct {
	mu    sync.Mutex
	have  map[string]bool
	puts  int
	files []wire.BundleFile
}

func (c *cluster) serve(t *testing.T) *client.Client {
	t.Helper()
	const root, id = "/api/v2/external/bundles", "0198c0de-0000-7000-8000-000000000001"
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+root, func(w http.ResponseWriter, r *http.Request) {
		var in wire.NewBundle
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.files = in.Files
		missing := []string{}
		for _, f := range in.Files {
			for _, chunk := range f.Chunks {
				if name := chunk.String(); !c.have[name] && !slices.Contains(missing, name) {
					missing = append(missing, name)
				}
			}
		}
		text, err := json.Marshal(map[string]any{"bundle_id": id, "missing": missing})
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(text)
	})
	mux.HandleFunc("PUT "+root+"/", func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		name := path.Base(r.URL.Path)
		if compute.Digest(sha256.Sum256(data)).String() != name || len(data) > compute.MaxChunk {
			t.Errorf("%d bytes are sent as %s", len(data), name)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.have[name] = true
		c.puts++
		fmt.Fprintf(w, `{"received":%d}`, len(data))
	})
	mux.HandleFunc("POST "+root+"/"+id+"/commit", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"bundle_id":%q,"files":1,"size":1}`, id)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	api, err := client.New(client.Config{Addrs: []string{server.URL}, Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func send(t *testing.T, tree *source.Tree, api *client.Client) (total, sent int64, err error) {
	t.Helper()
	var mu sync.Mutex
	_, err = tree.Send(t.Context(), api, func(n int64) { total = n }, func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		sent += n
	})
	return total, sent, err
}

// TestSecondSendIsSmall sends ten thousand files, changes one, and sends them
// again. Only about the blob that has it follows.
func TestSecondSendIsSmall(t *testing.T) {
	dir := t.TempDir()
	var large strings.Builder
	for i := 0; large.Len() < 5<<20; i++ {
		fmt.Fprintln(&large, i)
	}
	files := map[string]string{"large.bin": large.String()}
	for i := range 10_000 {
		files[fmt.Sprintf("d%02d/f%03d.txt", i%100, i/100)] = strings.Repeat(fmt.Sprintln("file", i), 20)
	}
	write(t, dir, files)
	c := &cluster{have: map[string]bool{}}
	api := c.serve(t)
	first := scan(t, dir)
	total, sent, err := send(t, first, api)
	if err != nil || total != first.Bytes || sent != total {
		t.Fatalf("%d of %d bytes are sent of %d, %v", sent, total, first.Bytes, err)
	}
	if len(first.Files) != 10_001 || c.puts > 200 {
		t.Errorf("%d files in %d blobs", len(first.Files), c.puts)
	}
	before := c.puts
	if total, _, err := send(t, scan(t, dir), api); err != nil || total != 0 || c.puts != before {
		t.Errorf("nothing has changed, and %d bytes are sent, %v", total, err)
	}
	write(t, dir, map[string]string{"d50/f050.txt": "changed", "d50/f050b.txt": "new"})
	if total, _, err := send(t, scan(t, dir), api); err != nil || c.puts-before > 4 || total > 2<<20 {
		t.Errorf("of two changed files %d blobs with %d bytes are sent, %v", c.puts-before, total, err)
	}
}

// TestChangedFiles checks that a file that changes between the scan and the
// sending is named, and nothing is committed.
func TestChangedFiles(t *testing.T) {
	for name, change := range map[string]func(file string) error{
		"other bytes": func(file string) error { return os.WriteFile(file, []byte("two"), 0o644) },
		"shorter":     func(file string) error { return os.Truncate(file, 1) },
		"gone":        os.Remove,
	} {
		dir := t.TempDir()
		write(t, dir, map[string]string{"a/file": "one"})
		c := &cluster{have: map[string]bool{}}
		tree := scan(t, dir)
		if err := change(filepath.Join(dir, "a/file")); err != nil {
			t.Fatal(err)
		}
		_, _, err := send(t, tree, c.serve(t))
		if err == nil || !strings.Contains(err.Error(), "a/file changed while it was sent") || c.puts != 0 {
			t.Errorf("%s: %v, %d blobs are sent", name, err, c.puts)
		}
	}
}
