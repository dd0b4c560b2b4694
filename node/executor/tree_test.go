package executor_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"berth/compute"
	"berth/node/executor"
)

// memory keeps blobs in memory.
type memory struct {
	mu    sync.Mutex
	blobs map[compute.Hash][]byte
	full  bool // Every put fails.
}

func newMemory() *memory { return &memory{blobs: map[compute.Hash][]byte{}} }

func (m *memory) Get(_ context.Context, hash compute.Hash) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if data, ok := m.blobs[hash]; ok {
		return data, nil
	}
	return nil, compute.Errorf(compute.CodeNotFound, "There is no such blob.")
}

func (m *memory) Put(_ context.Context, data []byte) (compute.Hash, error) {
	hash := compute.Hash(sha256.Sum256(data))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.full {
		return hash, compute.Errorf(compute.CodeNoSpace, "The disks are full.")
	}
	m.blobs[hash] = bytes.Clone(data)
	return hash, nil
}

// files stores a tree whose files have the texts given, and returns what an
// execution refers to.
func (m *memory) files(t *testing.T, entries []compute.TreeEntry, texts map[string]string) *compute.Files {
	t.Helper()
	tree := &compute.Tree{Entries: entries}
	for i := range tree.Entries {
		e := &tree.Entries[i]
		if text := texts[e.Path]; text != "" {
			hash, err := m.Put(t.Context(), []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			e.Size, e.Chunks = int64(len(text)), []compute.Digest{compute.Digest(hash)}
		}
	}
	data, err := tree.Encode()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := m.Put(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	return &compute.Files{Manifest: manifest, Bytes: tree.Bytes(), Count: len(tree.Entries)}
}

// kept returns the outputs in an outcome by path.
func (m *memory) kept(t *testing.T, o compute.Outcome) map[string]string {
	t.Helper()
	out := map[string]string{}
	if o.Outputs == nil || o.Outputs.Manifest == (compute.Hash{}) {
		return out
	}
	read := func(hash compute.Hash) ([]byte, error) { return m.Get(t.Context(), hash) }
	data, err := read(o.Outputs.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := compute.DecodeTree(data)
	if err == nil {
		err = tree.Check(compute.MaxOutputBytes)
	}
	if err != nil {
		t.Fatal(err)
	}
	reader := compute.NewTreeReader(read)
	for i := range tree.Entries {
		e := &tree.Entries[i]
		var text bytes.Buffer
		if err := reader.Copy(&text, e, tree.ChunkSize, 0, e.Size); err != nil {
			t.Fatal(err)
		}
		if e.SHA256 != sha256.Sum256(text.Bytes()) {
			t.Errorf("%s has another hash", e.Path)
		}
		out[e.Path] = text.String()
	}
	if len(out) != o.Outputs.Count || tree.Bytes() != o.Outputs.Bytes {
		t.Errorf("%d outputs of %d bytes, counted %d and %d", len(out), tree.Bytes(), o.Outputs.Count, o.Outputs.Bytes)
	}
	return out
}

// TestPrograms executes uploaded files as scripts, modules and commands.
func TestPrograms(t *testing.T) {
	t.Parallel()
	blobs := newMemory()
	n := newNode(t, func(c *executor.Config) { c.Blobs = blobs })
	shared := "#!/bin/sh\necho \"$0 $# $2\"; cat\nimport sys\nprint(sys.argv, __name__)\n"
	script := strings.Index(shared, "import")
	files := blobs.files(t, []compute.TreeEntry{
		{Path: "run.sh", Mode: 0o755},
		{Path: "empty", Dir: true, Mode: 0o500},
		{Path: "data/big.bin", Mode: 0o440},
		{Path: "pkg/deep/mod.py", Mode: 0o644},
		{Path: "link", Link: "data/big.bin"},
		{Path: "main.py", Mode: 0o644},
		{Path: "none.txt", Mode: 0o600},
	}, map[string]string{
		"run.sh": shared[:script], "data/big.bin": strings.Repeat("\xff\x00", 1<<20), "pkg/deep/mod.py": shared[script:],
		"main.py": "print('not this one')",
	})
	check := `
import os, stat, sys
def mode(p): return stat.S_IMODE(os.lstat(p).st_mode)
assert mode('run.sh') == 0o755 and mode('empty') == 0o500 and mode('data/big.bin') == 0o440, 'modes'
assert os.readlink('link') == 'data/big.bin' and len(open('link', 'rb').read()) == 2 << 20
assert os.listdir('empty') == [] and os.stat('none.txt').st_size == 0
assert os.stat('pkg').st_uid == os.getuid() and os.stat('link').st_uid == os.getuid()
assert sys.argv == ['/work/main.py', '-c', ''], sys.argv
assert sys.stdin.buffer.read() == b'\xff\n'
print('checked')
`
	for _, test := range []struct {
		name   string
		bundle compute.Bundle
		code   int
		want   string // A part of the output.
	}{
		{"code over files", compute.Bundle{Code: check, Args: []string{"-c", ""}, Stdin: []byte("\xff\n")}, 0, "checked\n"},
		{"script", compute.Bundle{Script: "pkg/deep/mod.py", Args: []string{"--lr", "0.1"}}, 0, "['pkg/deep/mod.py', '--lr', '0.1'] __main__\n"},
		{"module", compute.Bundle{Module: "pkg.deep.mod", Args: []string{"x"}}, 0, "['/work/pkg/deep/mod.py', 'x'] __main__\n"},
		{"command", compute.Bundle{Command: []string{"./run.sh", "a b", "$HOME"}, Stdin: []byte("input")}, 0, "./run.sh 2 $HOME\ninput"},
		{"command in PATH", compute.Bundle{Command: []string{"echo", "-n", "hi"}}, 0, "hi"},
		{"no such command", compute.Bundle{Command: []string{"nowhere"}}, 127, "nowhere: not found"},
		{"no such script", compute.Bundle{Script: "nowhere.py"}, 2, "No such file"},
		{"no input", compute.Bundle{Command: []string{"cat"}}, 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			o, output := n.as(t).execute(test.bundle, func(w *compute.Work) { w.Execution.Files = files })
			if o.ExitCode != test.code || !o.Ran || !strings.Contains(output, test.want) {
				t.Errorf("ended as %s %q code %d, want %d, with output\n%s", o.Status, o.Detail, o.ExitCode, test.code, output)
			}
		})
	}
	lost := &compute.Files{Manifest: compute.Hash{1}}
	o, _ := n.execute(compute.Bundle{Code: "1"}, func(w *compute.Work) { w.Execution.Files = lost })
	ending{compute.StatusSystemFailure, compute.ReasonInputsLost, "no such blob", 0}.check(t, o)
}

// TestOutputs checks which files of an execution are kept, however it ends.
func TestOutputs(t *testing.T) {
	t.Parallel()
	blobs := newMemory()
	n := newNode(t, func(c *executor.Config) { c.Blobs = blobs })
	made := "import os, time\nos.makedirs('outputs/a/b')\nopen('outputs/a/b/c.txt', 'w').write('c')\n"
	big := "open('outputs/big', 'wb').write(bytes(9 << 20))\n"
	for _, test := range []struct {
		name, code string
		change     func(*compute.Work)
		status     compute.Status
		kept       []string
		warning    string
	}{
		{"none", "print(1)", nil, compute.StatusCompleted, nil, ""},
		{"empty directory", "import os\nos.mkdir('outputs')", nil, compute.StatusCompleted, nil, ""},
		{"some", made + big + "open('outputs/empty', 'w')", nil, compute.StatusCompleted, []string{"a/b/c.txt", "big", "empty"}, ""},
		{"failure", made + "raise SystemExit(3)", nil, compute.StatusFailed, []string{"a/b/c.txt"}, ""},
		{"time limit", made + "time.sleep(600)", timeout(handlerSet), compute.StatusFailed, []string{"a/b/c.txt"}, ""},
		{"killed with its sandbox", made + "while True: os.fork()", timeout(handlerSet), compute.StatusFailed, []string{"a/b/c.txt"}, ""},
		{
			"links and more", made + "os.symlink('/etc/passwd', 'outputs/passwd')\nos.mkfifo('outputs/pipe')\n" +
				"os.symlink('a', 'outputs/dir')\nopen('outputs/x\\ny', 'w')", nil,
			compute.StatusCompleted,
			[]string{"a/b/c.txt"},
			`"passwd" is a link`,
		},
		{
			"a link in its place", "import os\nos.symlink('/etc', 'outputs')", nil,
			compute.StatusCompleted, nil, `"outputs" is not a directory`,
		},
		{
			"sparse and too large", made + "os.truncate(os.open('outputs/huge', os.O_CREAT | os.O_RDWR), 5 << 30)", nil,
			compute.StatusCompleted,
			[]string{"a/b/c.txt"},
			"over the limit of 4294967296 bytes",
		},
		{
			"unreadable for others", made + "os.chmod('outputs/a/b/c.txt', 0)\nos.chmod('outputs/a', 0)", nil,
			compute.StatusCompleted,
			[]string{"a/b/c.txt"},
			"",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			o, output := n.as(t).execute(compute.Bundle{Code: test.code}, test.change)
			kept := blobs.kept(t, o)
			if o.Status != test.status || len(kept) != len(test.kept) {
				t.Fatalf("ended as %s %q with outputs %v (%+v) and output\n%s", o.Status, o.Detail, len(kept), o.Outputs, output)
			}
			for _, name := range test.kept {
				if text, ok := kept[name]; !ok || name == "big" && text != strings.Repeat("\x00", 9<<20) ||
					name == "a/b/c.txt" && text != "c" {
					t.Errorf("%s is kept: %v, with %d bytes", name, ok, len(text))
				}
			}
			warning := ""
			if o.Outputs != nil {
				warning = o.Outputs.Warning
			}
			if !strings.Contains(warning, test.warning) || test.warning == "" && warning != "" {
				t.Errorf("the warning is %q, want %q", warning, test.warning)
			}
			await(t, "the removal of the collected files", func() bool {
				left, err := filepath.Glob(filepath.Join(n.cfg.DataDir, "attempts", o.Execution.String(), "*", "outputs*"))
				return err == nil && len(left) == 0
			})
		})
	}
}

// TestOutputsOnFullDisks checks that an execution ends, and says what is lost,
// when its outputs cannot be stored.
func TestOutputsOnFullDisks(t *testing.T) {
	t.Parallel()
	blobs := newMemory()
	blobs.full = true
	n := newNode(t, func(c *executor.Config) { c.Blobs = blobs })
	o, _ := n.execute(compute.Bundle{Code: "import os\nos.mkdir('outputs')\nopen('outputs/x', 'w').write('x')"}, nil)
	if o.Status != compute.StatusCompleted || o.Outputs == nil || !strings.Contains(o.Outputs.Warning, "lost, because they could not be stored") ||
		!strings.Contains(o.Outputs.Warning, "disks are full") {
		t.Errorf("ended as %s with %+v", o.Status, o.Outputs)
	}
}

// TestOutputsOfAnEarlierProcess ends the node's process while code runs. The next
// one stores what the code left.
func TestOutputsOfAnEarlierProcess(t *testing.T) {
	t.Parallel()
	blobs := newMemory()
	n := newNode(t, func(c *executor.Config) { c.Blobs = blobs })
	w := n.newWork(compute.Bundle{Code: "import os, time\nos.mkdir('outputs')\nopen('outputs/x', 'w').write('x')\n" +
		"while not os.path.exists('/tmp/never'): time.sleep(0.1)"})
	w.Execution.Timeout = handlerSet
	id := w.Execution.ID
	n.place(w)
	await(t, "the start", func() bool { return n.started(id) })
	n.stop()
	dir := filepath.Join(n.cfg.DataDir, "attempts", id.String(), "1")
	await(t, "the end", func() bool {
		data, err := os.ReadFile(filepath.Join(dir, "journal"))
		return err == nil && strings.Contains(string(data), `"ended"`)
	})
	n.run()
	await(t, "the report", func() bool { return n.outcome(id) != nil })
	if kept := blobs.kept(t, *n.outcome(id)); kept["x"] != "x" {
		t.Errorf("kept are %v", kept)
	}
}
