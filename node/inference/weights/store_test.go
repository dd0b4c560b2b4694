package weights_test

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // As Git does.
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/compute"
	"berth/node/inference/weights"
)

// hub is a hub of models with one model a/b, whose connections break after cut bytes.
type hub struct {
	*httptest.Server

	mu     sync.Mutex
	files  map[string]string
	served map[string]int // Requests by file.
	ranges []string
	cut    int
	wrong  int // So many answers have other bytes than the listing says.
	down   atomic.Bool
	token  string

	version string // The newest of the model; "" for v1.

	bare   bool              // Its listing has sizes and no hashes,
	header map[string]string // and answers with a file may have these headers.
	moved  bool              // Files are elsewhere: requests are redirected, with these headers,
	within bool              // or without, and the file has them.
}

func newHub(t *testing.T, files map[string]string) *hub {
	h := &hub{files: files, served: make(map[string]int)}
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(h.Close)
	return h
}

func (h *hub) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case h.down.Load():
		w.WriteHeader(http.StatusBadGateway)
		return
	case h.token != "" && r.Header.Get("Authorization") != "Bearer "+h.token:
		w.WriteHeader(http.StatusUnauthorized)
		return
	case r.URL.Path == "/api/models/a/b/revision/main":
		type lfs struct {
			SHA256 string `json:"sha256"`
			Size   int    `json:"size"`
		}
		type sibling struct {
			Name string `json:"rfilename"`
			Size int    `json:"size"`
			LFS  *lfs   `json:"lfs,omitempty"`
		}
		var list []sibling
		for name, text := range h.files {
			sum := sha256.Sum256([]byte(text))
			one := sibling{name, len(text), &lfs{hex.EncodeToString(sum[:]), len(text)}}
			if h.bare {
				one.LFS = nil
			}
			list = append(list, one)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"sha": cmp.Or(h.version, "v1"), "siblings": list, "gated": h.token != ""})
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/a/b/resolve/"+cmp.Or(h.version, "v1")+"/")
	text, known := h.files[name]
	if !ok || !known {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	h.mu.Lock()
	h.served[name]++
	if v := r.Header.Get("Range"); v != "" {
		h.ranges = append(h.ranges, v)
	}
	redirects := h.moved && r.URL.RawQuery == ""
	if redirects != h.within || !h.moved { // Within itself, the hub names the hash where the file is.
		for key, value := range h.header {
			w.Header().Set(key, value)
		}
	}
	if redirects {
		h.mu.Unlock()
		http.Redirect(w, r, r.URL.Path+"?moved", http.StatusFound)
		return
	}
	first, cut, wrong := h.served[name] == 1, h.cut, h.wrong > 0
	h.wrong--
	h.mu.Unlock()
	if wrong {
		text = strings.Repeat("?", len(text))
	}
	if first && cut > 0 && cut < len(text) {
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		_, _ = w.Write([]byte(text[:cut]))
		panic(http.ErrAbortHandler)
	}
	http.ServeContent(w, r, name, time.Time{}, strings.NewReader(text))
}

func newStore(t *testing.T, h *hub, change ...func(*weights.Config)) *weights.Store {
	t.Helper()
	cfg := weights.Config{
		Dir: t.TempDir(), KeepMiB: 100, InUse: func() []weights.Use { return nil }, Logger: slog.New(slog.DiscardHandler),
		Sources: []weights.Source{&weights.Hub{URL: h.URL, Client: h.Client()}}, Now: time.Now, Pause: time.Millisecond,
	}
	for _, f := range change {
		f(&cfg)
	}
	return weights.New(cfg)
}

func silent(string) {}

// TestFetch fetches the files that an engine needs and none that could be code, continues
// where a connection broke, and asks nothing twice.
func TestFetch(t *testing.T) {
	big := strings.Repeat("weights ", 1000)
	h := newHub(t, map[string]string{
		"model.safetensors": big, "config.json": "{}", "evil.py": "import os", "pytorch_model.bin": "pickle", "x/y.json": "{}",
	})
	h.cut = 3000
	s := newStore(t, h)
	var said []string
	m, err := s.Get(t.Context(), weights.Want{Name: "a/b"}, []string{"safetensors"}, func(text string) { said = append(said, text) })
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(m.Dir, "model.safetensors"))
	if err != nil || string(data) != big || m.File != "" {
		t.Errorf("got %d bytes, %v, file %q", len(data), err, m.File)
	}
	entries, _ := os.ReadDir(m.Dir)
	if len(entries) != 2 {
		t.Errorf("the directory has %v", entries)
	}
	if !slices.Contains(h.ranges, "bytes=3000-") {
		t.Errorf("continued at %v", h.ranges)
	}
	if len(said) == 0 || !strings.Contains(said[len(said)-1], "fetched") {
		t.Errorf("said %q", said)
	}
	before := h.served["model.safetensors"]
	h.down.Store(true)
	if _, err := s.Get(t.Context(), weights.Want{Name: "a/b"}, []string{"safetensors"}, silent); err != nil {
		t.Errorf("from the cache, with the hub down: %v", err)
	}
	if h.served["model.safetensors"] != before {
		t.Error("it was fetched again")
	}
	if _, err := s.Get(t.Context(), weights.Want{Name: "a/c"}, []string{"safetensors"}, silent); compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("another one, with the hub down: %v", err)
	}
}

// TestShare has concurrent starts share one download.
func TestShare(t *testing.T) {
	h := newHub(t, map[string]string{"model.gguf": strings.Repeat("x", 100_000)})
	s := newStore(t, h)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			m, err := s.Get(t.Context(), weights.Want{Name: "a/b"}, []string{"safetensors", "gguf"}, silent)
			if err != nil || m.File != "model.gguf" {
				t.Errorf("%+v, %v", m, err)
			}
		})
	}
	group.Wait()
	if n := h.served["model.gguf"]; n != 1 {
		t.Errorf("fetched %d times", n)
	}
}

// TestDamage refuses bytes that do not match the listing, for good after some tries, and
// keeps nothing of them.
func TestDamage(t *testing.T) {
	for _, test := range []struct{ wrong, want int }{{2, 3}, {99, 5}} {
		h := newHub(t, map[string]string{"model.gguf": "right"})
		h.wrong = test.wrong
		s := newStore(t, h)
		_, err := s.Get(t.Context(), weights.Want{Name: "a/b"}, []string{"gguf"}, silent)
		if failed := test.wrong >= test.want; failed != (err != nil) {
			t.Errorf("after %d wrong answers: %v", test.wrong, err)
		}
		h.mu.Lock()
		if n := h.served["model.gguf"]; n != test.want {
			t.Errorf("after %d wrong answers it was fetched %d times", test.wrong, n)
		}
		h.mu.Unlock()
	}
}

// TestHashOfTheAnswer checks files without a hash in the listing against the hash that the
// hub names with the file: its own in Git, or that of a large file, which is elsewhere.
func TestHashOfTheAnswer(t *testing.T) {
	const text = "right"
	sum, git := sha256.Sum256([]byte(text)), sha1.Sum([]byte("blob 5\x00"+text))
	right, blob := hex.EncodeToString(sum[:]), hex.EncodeToString(git[:])
	for name, test := range map[string]struct {
		header     map[string]string
		moved      bool
		within     bool
		unverified bool
		served     int // Requests for the file until it is fetched or refused.
		code       compute.Code
		warns      bool
	}{
		"blob":             {map[string]string{"ETag": `"` + blob + `"`}, false, false, false, 1, "", false},
		"weak":             {map[string]string{"ETag": `W/"` + strings.ToUpper(blob) + `"`}, false, false, false, 1, "", false},
		"another blob":     {map[string]string{"ETag": `"` + strings.Repeat("0", 40) + `"`}, false, false, false, 5, compute.CodeUnavailable, false},
		"elsewhere":        {map[string]string{"X-Linked-Etag": `"` + right + `"`, "ETag": `"` + strings.Repeat("0", 64) + `"`}, true, false, false, 2, "", false},
		"other elsewhere":  {map[string]string{"X-Linked-Etag": `"` + strings.Repeat("0", 64) + `"`}, true, false, false, 10, compute.CodeUnavailable, false},
		"renamed":          {map[string]string{"ETag": `"` + blob + `"`}, true, true, false, 2, "", false},
		"other renamed":    {map[string]string{"ETag": `"` + strings.Repeat("0", 40) + `"`}, true, true, false, 10, compute.CodeUnavailable, false},
		"redirect's own":   {map[string]string{"ETag": `"` + strings.Repeat("0", 40) + `"`}, true, false, false, 2, compute.CodeInvalid, false},
		"none":             {nil, false, false, false, 1, compute.CodeInvalid, false},
		"MD5":              {map[string]string{"ETag": `"` + strings.Repeat("0", 32) + `"`}, false, false, false, 1, compute.CodeInvalid, false},
		"none is accepted": {nil, false, false, true, 1, "", true},
		"one is checked":   {map[string]string{"ETag": `"` + blob + `"`}, false, false, true, 1, "", false},
		"and refused":      {map[string]string{"ETag": `"` + strings.Repeat("0", 64) + `"`}, false, false, true, 5, compute.CodeUnavailable, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, map[string]string{"model.gguf": text})
			h.bare, h.header, h.moved, h.within = true, test.header, test.moved, test.within
			s := newStore(t, h, func(c *weights.Config) { c.Unverified = test.unverified })
			warned := 0
			for range 2 { // The second time it is in the cache, if it is accepted.
				_, err := s.Get(t.Context(), weights.Want{Name: "a/b"}, []string{"gguf"}, func(said string) {
					if strings.Contains(said, "model.gguf was not verified") {
						warned++
					}
				})
				if compute.CodeOf(err) != test.code && (err != nil || test.code != "") {
					t.Errorf("got %v", err)
				}
				if test.code != "" {
					break
				}
			}
			if h.served["model.gguf"] != test.served || warned > 0 != test.warns || test.warns && warned != 2 {
				t.Errorf("asked %d times, warned %d times", h.served["model.gguf"], warned)
			}
		})
	}
}

// TestSizeIsNotListed refuses a model whose source does not say how large its files are.
func TestSizeIsNotListed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"sha":"v1","siblings":[{"rfilename":"model.gguf"}]}`))
	}))
	defer server.Close()
	s := newStore(t, &hub{Server: server})
	_, err := s.Get(t.Context(), weights.Want{Name: "a/b"}, []string{"gguf"}, silent)
	if compute.CodeOf(err) != compute.CodeInvalid || !strings.Contains(err.Error(), "how large model.gguf is") {
		t.Errorf("got %v", err)
	}
}

// TestSources asks the operator's directory before the hub, and says what is missing.
func TestSources(t *testing.T) {
	h := newHub(t, map[string]string{"a-Q8_0.gguf": "8", "a-q4_k_m.gguf": "4", "README.md": ""})
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "own", "model"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "own", "model", "m.gguf"), []byte("own"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, h, func(c *weights.Config) { c.Models = dir })
	for name, want := range map[string]string{"own/model": "m.gguf", "a/b": "a-q4_k_m.gguf", "a/b:q8": "a-Q8_0.gguf"} {
		if m, err := s.Get(t.Context(), weights.Want{Name: name}, []string{"gguf"}, silent); err != nil || m.File != want {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	for name, code := range map[string]compute.Code{
		"a/none": compute.CodeNotFound, "a/b:q2": compute.CodeInvalid, "../own/model": compute.CodeInvalid,
		"a/../b": compute.CodeInvalid, "/etc": compute.CodeInvalid, "a/b@../x": compute.CodeInvalid, "": compute.CodeInvalid,
	} {
		if _, err := s.Get(t.Context(), weights.Want{Name: name}, []string{"gguf"}, silent); compute.CodeOf(err) != code {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := s.Get(t.Context(), weights.Want{Name: "a/b"}, []string{"safetensors"}, silent); compute.CodeOf(err) != compute.CodeInvalid {
		t.Errorf("of the other format: %v", err)
	}
}

// TestStorageIsAskedFirst takes a model from the organization's storage although the
// operator has one of the name.
func TestStorageIsAskedFirst(t *testing.T) {
	h := newHub(t, map[string]string{"stored.gguf": "stored"})
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a", "b", "m.gguf"), []byte("own"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, h, func(c *weights.Config) { c.Models, c.Stored, c.Sources = dir, c.Sources[0], nil })
	if m, err := s.Get(t.Context(), weights.Want{Name: "a/b"}, []string{"gguf"}, silent); err != nil || m.File != "stored.gguf" {
		t.Errorf("got %+v, %v", m, err)
	}
}

// TestPrivate keeps files that were fetched with a token from other organizations.
func TestPrivate(t *testing.T) {
	h := newHub(t, map[string]string{"m.gguf": "secret"})
	h.token = "hf_x"
	s := newStore(t, h)
	one := compute.OrgID{UUID: compute.UUID{1}}
	m, err := s.Get(t.Context(), weights.Want{Name: "a/b", Org: one, Token: "hf_x"}, []string{"gguf"}, silent)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), weights.Want{Name: "a/b"}, []string{"gguf"}, silent); compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("without the token: %v", err)
	}
	h.down.Store(true)
	if _, err := s.Get(t.Context(), weights.Want{Name: "a/b"}, []string{"gguf"}, silent); err == nil {
		t.Error("another organization has it from the cache")
	}
	if _, err := s.Get(t.Context(), weights.Want{Name: "a/b", Org: one}, []string{"gguf"}, silent); err != nil {
		t.Errorf("its own: %v", err)
	}
	_ = filepath.WalkDir(filepath.Dir(filepath.Dir(m.Dir)), func(name string, d os.DirEntry, err error) error {
		if data, _ := os.ReadFile(name); err == nil && strings.Contains(string(data)+name, "hf_x") {
			t.Errorf("%s has the token", name)
		}
		return nil
	})
}

// TestEvict removes the longest unused models that nothing uses.
func TestEvict(t *testing.T) {
	h := newHub(t, map[string]string{"1.gguf": strings.Repeat("1", 600<<10), "2.gguf": strings.Repeat("2", 600<<10)})
	inUse := []weights.Use{{Name: "a/b:1"}}
	s := newStore(t, h, func(c *weights.Config) {
		c.KeepMiB = 1
		c.InUse = func() []weights.Use { return inUse }
	})
	get := func(name string) (weights.Model, error) {
		return s.Get(t.Context(), weights.Want{Name: name}, []string{"gguf"}, silent)
	}
	first, err := get("a/b:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := get("a/b:2"); compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("beside a model in use: %v", err)
	}
	inUse = nil
	if _, err := get("a/b:2"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(first.Dir); !os.IsNotExist(err) {
		t.Errorf("the first is still there: %v", err)
	}
}

// TestUnreachedModelIsUsed marks a model as used whose source is not reached: another one
// is evicted before it.
func TestUnreachedModelIsUsed(t *testing.T) {
	h := newHub(t, map[string]string{
		"1.gguf": strings.Repeat("1", 300<<10), "2.gguf": strings.Repeat("2", 300<<10), "3.gguf": strings.Repeat("3", 600<<10),
	})
	now := time.Now().Add(time.Hour) // A manifest that was just written is older.
	s := newStore(t, h, func(c *weights.Config) {
		c.KeepMiB = 1
		c.Now = func() time.Time { return now }
	})
	dirs := make(map[string]string)
	get := func(part string) {
		t.Helper()
		m, err := s.Get(t.Context(), weights.Want{Name: "a/b:" + part}, []string{"gguf"}, silent)
		if err != nil {
			t.Fatal(err)
		}
		dirs[part] = m.Dir
		now = now.Add(time.Hour)
	}
	get("1")
	get("2")
	get("1")
	get("2")
	h.down.Store(true)
	get("1")
	h.down.Store(false)
	get("3")
	if _, err := os.Stat(dirs["1"]); err != nil {
		t.Errorf("the model that was used last is evicted: %v", err)
	}
	if _, err := os.Stat(dirs["2"]); !os.IsNotExist(err) {
		t.Errorf("the longest unused model is still there: %v", err)
	}
}

// TestEvictOldVersions removes the versions of a model that nothing uses any more, and keeps
// the one that a replica loaded.
func TestEvictOldVersions(t *testing.T) {
	h := newHub(t, map[string]string{"1.gguf": strings.Repeat("1", 600<<10)})
	var inUse []weights.Use
	s := newStore(t, h, func(c *weights.Config) {
		c.KeepMiB = 1
		c.InUse = func() []weights.Use { return inUse }
	})
	get := func(version string) (weights.Model, error) {
		h.version = version
		return s.Get(t.Context(), weights.Want{Name: "a/b"}, []string{"gguf"}, silent)
	}
	first, err := get("v1")
	if err != nil {
		t.Fatal(err)
	}
	inUse = []weights.Use{{Name: "a/b", Dir: first.Dir}}
	if _, err := get("v2"); compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("beside the version in use: %v", err)
	}
	inUse = []weights.Use{{Name: "a/b", Dir: "/elsewhere"}} // Another version was loaded.
	second, err := get("v2")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(first.Dir); !os.IsNotExist(err) {
		t.Errorf("the old version is still there: %v", err)
	}
	inUse = []weights.Use{{Name: "a/b"}} // A replica starts.
	if _, err := get("v3"); compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("while a replica starts: %v", err)
	}
	if _, err := os.Stat(second.Dir); err != nil {
		t.Errorf("the version that starts is gone: %v", err)
	}
}

// fullStore fills a cache with the models a/b:1, a/b:2 and a/b:3, whose directories it
// returns, the longest unused first. There are also a/b:4 to a/b:6, and a/b:big.
func fullStore(
	t *testing.T, inUse func() []weights.Use,
) (get func(name string) (weights.Model, error), dirs []string) {
	files := map[string]string{"big.gguf": strings.Repeat("big", 350<<10)}
	for n := range 6 {
		files[fmt.Sprintf("%d.gguf", n+1)] = strings.Repeat(fmt.Sprint(n), 600<<10)
	}
	full := false
	s := newStore(t, newHub(t, files), func(c *weights.Config) {
		c.KeepMiB = 2
		c.InUse = func() []weights.Use {
			if full {
				return inUse()
			}
			return nil
		}
	})
	get = func(name string) (weights.Model, error) {
		return s.Get(t.Context(), weights.Want{Name: name}, []string{"gguf"}, silent)
	}
	for n := range 3 {
		m, err := get(fmt.Sprintf("a/b:%d", n+1))
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(time.Duration(n-9) * time.Hour)
		if err := os.Chtimes(filepath.Join(filepath.Dir(m.Dir), "manifest.json"), at, at); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, m.Dir)
	}
	full = true
	return get, dirs
}

// TestEvictTwice makes room for downloads at the same time.
func TestEvictTwice(t *testing.T) {
	var asked sync.WaitGroup
	asked.Add(3)
	all := make(chan struct{})
	go func() {
		asked.Wait()
		close(all)
	}()
	var calls atomic.Int32
	get, _ := fullStore(t, func() []weights.Use {
		if calls.Add(1) <= 3 {
			asked.Done()
			select { // If they choose at the same time, they choose the same models.
			case <-all:
			case <-time.After(50 * time.Millisecond):
			}
		}
		return nil
	})
	var group sync.WaitGroup
	for n := range 3 {
		group.Go(func() {
			if _, err := get(fmt.Sprintf("a/b:%d", n+4)); err != nil {
				t.Errorf("model %d: %v", n+4, err)
			}
		})
	}
	group.Wait()
}

// TestEvictAsksAgain keeps a model that a start takes while another one is removed.
func TestEvictAsksAgain(t *testing.T) {
	calls := 0
	get, dirs := fullStore(t, func() []weights.Use {
		if calls++; calls > 1 {
			return []weights.Use{{Name: "a/b:2"}}
		}
		return nil
	})
	if _, err := get("a/b:big"); err != nil { // In the place of two.
		t.Fatal(err)
	}
	for i, kept := range []bool{false, true, false} {
		if _, err := os.Stat(dirs[i]); (err == nil) != kept {
			t.Errorf("model %d: %v", i+1, err)
		}
	}
}
