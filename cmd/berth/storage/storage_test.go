package storage_test

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/cmd/berth/clitest"
	"berth/cmd/berth/storage"
	"berth/node/nodetest"
)

func TestMain(m *testing.M) { nodetest.Main(m) }

// shell executes commands against a follower.
type shell struct {
	t   *testing.T
	dir string
}

func (s shell) do(args ...string) clitest.Result {
	s.t.Helper()
	return clitest.Execute(s.t.Context(), clitest.Root(storage.New()), "", append([]string{"storage"}, args...)...)
}

func (s shell) must(args ...string) string {
	s.t.Helper()
	r := s.do(args...)
	if r.Code != 0 {
		s.t.Fatalf("berth storage %s: %d %s", strings.Join(args, " "), r.Code, r.Errors)
	}
	return r.Out
}

func (s shell) path(name string) string { return filepath.Join(s.dir, filepath.FromSlash(name)) }

func (s shell) write(name, text string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Dir(s.path(name)), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(s.path(name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s shell) read(name string) string {
	data, err := os.ReadFile(s.path(name))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// keys returns the keys that ls lists.
func (s shell) keys(args ...string) (keys []string) {
	s.t.Helper()
	var files []struct{ Key string }
	if err := json.Unmarshal([]byte(s.must(append([]string{"ls", "--json"}, args...)...)), &files); err != nil {
		s.t.Fatal(err)
	}
	for _, f := range files {
		keys = append(keys, f.Key)
	}
	return keys
}

func newShell(t *testing.T) shell {
	c := nodetest.New(t, 3)
	t.Setenv("BERTH_ADDR", c.Follower().URL())
	t.Setenv("BERTH_TOKEN", c.MustAccount("acme").Key)
	return shell{t, t.TempDir()}
}

func noise(n int) string {
	out := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{9})
	_, _ = rng.Read(out)
	return string(out)
}

// TestStorageCommands moves files to and from a follower: one by one, as copies and as
// directories, and goes on with one that came in part.
func TestStorageCommands(t *testing.T) {
	s := newShell(t)
	big := noise(5 << 20)
	s.write("a.txt", "text")
	s.write("big.bin", big)
	s.must("put", s.path("a.txt"))
	s.must("put", s.path("big.bin"), "models/")
	s.must("cp", s.path("a.txt"), "storage://in/b.txt")
	s.must("cp", "storage://in/b.txt", "storage://in/c.txt")
	if got := s.keys(); !slices.Equal(got, []string{"a.txt", "in/b.txt", "in/c.txt", "models/big.bin"}) {
		t.Errorf("stored are %q", got)
	}
	if out := s.must("ls", "in/"); !strings.Contains(out, "in/c.txt") || strings.Contains(out, "models") {
		t.Errorf("ls prints %s", out)
	}
	if out := s.must("get", "in/c.txt", "-"); out != "text" {
		t.Errorf("get prints %q", out)
	}
	s.must("get", "models/big.bin", s.path("again.bin"))
	if s.read("again.bin") != big {
		t.Error("what came is not what was sent")
	}
	var listed []struct{ ETag string }
	if err := json.Unmarshal([]byte(s.must("ls", "--json", "models/")), &listed); err != nil {
		t.Fatal(err)
	}
	s.write("resumed.bin."+listed[0].ETag[:12]+".part", big[:3<<20])
	s.must("get", "models/big.bin", s.path("resumed.bin"))
	if s.read("resumed.bin") != big {
		t.Error("what came after a part is not what was sent")
	}
	s.write("wrong.bin."+listed[0].ETag[:12]+".part", strings.Repeat("x", 100))
	if r := s.do("get", "models/big.bin", s.path("wrong.bin")); r.Code != cli.ExitFailed || s.read("wrong.bin") == big {
		t.Errorf("after a part of something else: %+v", r)
	}
	if r := s.do("get", "nothing"); r.Code != cli.ExitFailed || !strings.Contains(r.Errors, "there is no file nothing") {
		t.Errorf("of a file that is not there: %+v", r)
	}
	if r := s.do("cp", "a", "b"); r.Code != cli.ExitUsage {
		t.Errorf("between two files of this machine: %+v", r)
	}
	s.must("rm", "a.txt")
	s.must("rm", "-r", "in")
	if got := s.keys(); !slices.Equal(got, []string{"models/big.bin"}) {
		t.Errorf("left are %q", got)
	}
	if out := s.must("usage"); !strings.Contains(out, "5242880") {
		t.Errorf("usage prints %s", out)
	}
	t.Run("parts", func(t *testing.T) { s.t = t; s.parts() })
	t.Run("sync", func(t *testing.T) { s.t = t; s.sync() })
}

// sync makes folders and directories alike.
func (s shell) sync() {
	for name, text := range map[string]string{"d/1": "one", "d/sub/2": "two", "d/sub/3": "three", "d/empty": ""} {
		s.write(name, text)
	}
	if got := strings.Count(s.must("sync", s.path("d"), "storage://data"), "sent"); got != 4 {
		s.t.Errorf("%d files were sent", got)
	}
	s.write("d/1", "uno")
	if out := s.must("sync", s.path("d"), "storage://data/"); out != "sent data/1\n" {
		s.t.Errorf("after one has changed: %q", out)
	}
	if err := os.Remove(s.path("d/sub/3")); err != nil {
		s.t.Fatal(err)
	}
	if out := s.must("sync", s.path("d"), "storage://data", "--dry-run", "--delete"); out != "" {
		s.t.Errorf("it would do %q", out)
	}
	if out := s.must("sync", s.path("d"), "storage://data", "--delete"); out != "deleted data/sub/3\n" {
		s.t.Errorf("after one was removed: %q", out)
	}
	s.write("e/extra", "x")
	s.must("sync", "storage://data", s.path("e"), "--delete")
	if s.read("e/1") != "uno" || s.read("e/sub/2") != "two" || !strings.Contains(s.read("e/extra"), "no such file") {
		s.t.Errorf("fetched are %q, %q, %q", s.read("e/1"), s.read("e/sub/2"), s.read("e/extra"))
	}
	if out := s.must("sync", "storage://data", s.path("e")); out != "" {
		s.t.Errorf("again: %q", out)
	}
	if r := s.do("sync", s.path("d"), s.path("e")); r.Code != cli.ExitUsage {
		s.t.Errorf("between two directories: %+v", r)
	}
}

// result is what a command prints as JSON of a file that it moved.
type result struct {
	ETag    string
	Resumed int64
}

func (s shell) mustJSON(args ...string) result {
	s.t.Helper()
	var out []result
	if err := json.Unmarshal([]byte(s.must(append(args, "--json")...)), &out); err != nil || len(out) != 1 {
		s.t.Fatalf("%q: %v, %v", args, out, err)
	}
	return out[0]
}

// parts moves a file in parts, of which some have come with an earlier try.
func (s shell) parts() {
	const mib = 1 << 20
	text := noise(16 * mib)
	s.write("large.bin", text)
	c, err := client.New(client.Config{Addrs: []string{os.Getenv("BERTH_ADDR")}, Token: os.Getenv("BERTH_TOKEN")})
	if err != nil {
		s.t.Fatal(err)
	}
	begun, err := c.StartUpload(s.t.Context(), wire.NewUpload{Key: "large.bin"})
	if err != nil {
		s.t.Fatal(err)
	}
	for number, data := range map[int]string{2: text[5*mib : 10*mib], 3: strings.Repeat("other", mib)} {
		_, err := c.UploadPart(s.t.Context(), begun.UploadID, number, int64(len(data)), func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(data)), nil
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}
	sent := s.mustJSON("put", s.path("large.bin"), "--part-size", "5")
	if sent.Resumed != 5*mib || !strings.HasSuffix(sent.ETag, "-4") {
		s.t.Errorf("after one right and one wrong part: %+v", sent)
	}
	if left, err := c.Uploads(s.t.Context(), ""); err != nil || len(left) != 0 {
		s.t.Errorf("uploads %v are left, %v", left, err)
	}
	part := s.path("back.bin." + sent.ETag[:12] + ".of4.part")
	half := []byte(text[:10*mib] + strings.Repeat("\x00", 6*mib) + "\x01\x01\x00\x00")
	if err := os.WriteFile(part, half, 0o600); err != nil {
		s.t.Fatal(err)
	}
	got := s.mustJSON("get", "large.bin", s.path("back.bin"), "--part-size", "5")
	if got.Resumed != 10*mib || s.read("back.bin") != text {
		s.t.Errorf("after two parts: %+v", got)
	}
	half[0] ^= 1
	if err := os.WriteFile(part, half, 0o600); err != nil {
		s.t.Fatal(err)
	}
	if r := s.do("get", "large.bin", s.path("back.bin"), "--part-size", "5"); r.Code != cli.ExitFailed {
		s.t.Errorf("after a part of something else: %+v", r)
	}
	s.write("tree/large.bin", text)
	if out := s.must("sync", s.path("tree"), "storage://"); out != "" {
		s.t.Errorf("sync of what came in parts: %q", out)
	}
	if r := s.do("put", s.path("large.bin"), "--part-size", "4"); r.Code != cli.ExitUsage {
		s.t.Errorf("with parts of 4 MiB: %+v", r)
	}
	s.must("rm", "large.bin")
}
