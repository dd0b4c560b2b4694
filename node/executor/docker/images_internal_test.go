package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/moby/client"

	"berth/compute"
)

// fakeEngine answers requests to remove images. It keeps those of containers.
type fakeEngine struct {
	containers map[string]bool // Names of images that containers have.
	removed    []string
	tagged     []string
	size       int64 // Each image has it, unpacked.
}

func (f *fakeEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Api-Version", "1.47")
	w.Header().Set("Content-Type", "application/json")
	_, name, _ := strings.Cut(r.URL.Path, "/images/")
	switch {
	case r.Method == http.MethodPost:
		f.tagged = append(f.tagged, name)
		w.WriteHeader(http.StatusCreated)
	case strings.HasSuffix(name, "/history"):
		_, _ = w.Write([]byte(`[]`))
	case r.Method == http.MethodGet && strings.HasSuffix(name, "/json"):
		fmt.Fprintf(w, `{"Id":"sha256:1","Os":%q,"Architecture":%q,"Size":%d}`, runtime.GOOS, runtime.GOARCH, f.size)
	case r.Method != http.MethodDelete:
	case f.containers[name]:
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write([]byte(`{"message":"a container has it"}`))
	default:
		f.removed = append(f.removed, name)
		_, _ = w.Write([]byte(`[]`))
	}
}

// engineWith returns an Engine whose images may take 10 MiB, with a live attempt "live".
func engineWith(t *testing.T, f *fakeEngine) *Engine {
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	api, err := client.New(client.WithHost("tcp://" + strings.TrimPrefix(server.URL, "http://")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	now := time.Unix(0, 0)
	list, err := openImages(t.TempDir(), func() time.Time { now = now.Add(time.Second); return now }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return &Engine{api: api, images: list, cfg: Config{
		KeepMiB: 10, Logger: slog.New(slog.DiscardHandler), Live: func(attempt string) bool { return attempt == "live" },
	}}
}

// add lists an image of 4 MiB that was pulled.
func (e *Engine) add(t *testing.T, ref, id, attempt string) {
	t.Helper()
	if attempt != "" {
		e.images.pin(ref, attempt)
	}
	if err := e.list(t.Context(), ref, &pulled{ID: "sha256:" + id, Name: "berth.pulled/" + ref, Size: 4 << 20}, &Want{}); err != nil {
		t.Fatal(err)
	}
}

// TestListOfImagesIsRead opens lists as a power cut and other hands leave them: the engine can be used
// with each, and a damaged one is still there to be looked at.
func TestListOfImagesIsRead(t *testing.T) {
	for _, test := range []struct {
		name, text string
		damaged    bool
		refs       int
	}{
		{"whole", `{"x/y":{"id":"sha256:1","used_at":"2026-01-02T03:04:05Z","public":true}}`, false, 1},
		{"empty", "", true, 0},
		{"half", `{"x/y":{"id":"sha2`, true, 0},
		{"null", "null", true, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, imagesFile)
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			list, err := openImages(dir, time.Now, slog.New(slog.DiscardHandler))
			if err != nil || len(list.byRef) != test.refs {
				t.Fatalf("got %d images, %v", len(list.byRef), err)
			}
			if err := list.record("x/z", &pulled{ID: "sha256:2"}, &Want{}); err != nil {
				t.Fatal(err)
			}
			aside, err := os.ReadFile(path + ".damaged")
			if (err == nil) != test.damaged || string(aside) != test.text && test.damaged {
				t.Errorf("put aside is %q, %v", aside, err)
			}
			again, err := openImages(dir, time.Now, slog.New(slog.DiscardHandler))
			if err != nil || len(again.byRef) != test.refs+1 {
				t.Errorf("read again: %d images, %v", len(again.byRef), err)
			}
		})
	}
}

// TestEvictionGoesOn leaves out images that are in use, and removes the next ones.
func TestEvictionGoesOn(t *testing.T) {
	f := &fakeEngine{containers: map[string]bool{"berth.pulled/x/running": true}}
	e := engineWith(t, f)
	e.add(t, "x/running", "1", "")
	e.add(t, "x/live", "2", "live")
	e.add(t, "x/pulling", "3", "")
	e.add(t, "x/ended", "4", "ended")
	e.add(t, "x/free", "5", "")
	e.add(t, "x/new", "6", "")
	unlock, ok := e.images.tryLock("x/pulling")
	if !ok {
		t.Fatal("it is being pulled already")
	}
	e.evict(t.Context(), "x/new")
	unlock()
	if want := []string{"berth.pulled/x/ended", "berth.pulled/x/free"}; !slices.Equal(f.removed, want) {
		t.Errorf("removed are %v, want %v", f.removed, want)
	}
	if refs := e.Refs(); !slices.Equal(refs, []string{"x/new", "x/pulling", "x/live", "x/running"}) {
		t.Errorf("listed are %v", refs)
	}
	clear(f.containers)
	e.evict(t.Context(), "x/new")
	if refs := e.Refs(); !slices.Equal(refs, []string{"x/new", "x/live"}) {
		t.Errorf("later listed are %v", refs)
	}
	if len(e.images.users) != 1 {
		t.Errorf("users of %d images are remembered", len(e.images.users))
	}
}

// TestMakeRoom removes images within their limit while the engine's disk is nearly full.
func TestMakeRoom(t *testing.T) {
	f := &fakeEngine{}
	e := engineWith(t, f)
	e.cfg.KeepMiB = 1 << 20
	for _, name := range []string{"x/first", "x/second", "x/third"} {
		e.add(t, name, name, "")
	}
	e.facts.root = "/x"
	e.free = func(string) (int64, error) { return minFree - 1 + int64(len(f.removed)), nil }
	e.makeRoom(t.Context(), "x/third")
	if !slices.Equal(f.removed, []string{"berth.pulled/x/first"}) {
		t.Errorf("removed are %v", f.removed)
	}
	e.evict(t.Context(), "x/third")
	if refs := e.Refs(); !slices.Equal(refs, []string{"x/third", "x/second"}) {
		t.Errorf("listed are %v", refs)
	}
}

// TestMovedTag keeps an image in the list that lost its name while it was in use, and removes it later.
func TestMovedTag(t *testing.T) {
	f := &fakeEngine{containers: map[string]bool{"sha256:1": true}}
	e := engineWith(t, f)
	e.add(t, "x/moves", "1", "")
	e.add(t, "x/moves", "2", "")
	if refs := e.Refs(); len(f.removed) > 0 || !slices.Equal(refs, []string{"x/moves"}) {
		t.Fatalf("removed are %v, listed are %v", f.removed, refs)
	}
	e.add(t, "x/other", "3", "")
	clear(f.containers)
	e.evict(t.Context(), "x/other")
	if !slices.Equal(f.removed, []string{"sha256:1"}) || len(e.images.byRef) != 2 {
		t.Errorf("later removed are %v, %d are listed", f.removed, len(e.images.byRef))
	}
	e.add(t, "x/again", "3", "live")
	e.add(t, "x/other", "4", "") // Another name names its image.
	e.add(t, "x/again", "5", "") // Its image has no name, but an attempt.
	if !slices.Equal(f.removed, []string{"sha256:1"}) || e.images.byRef["sha256:3"] == nil {
		t.Errorf("an image in use is removed: %v", f.removed)
	}
	e.add(t, "x/back", "3", "")
	if e.images.byRef["sha256:3"] != nil {
		t.Error("an image with a name is listed as one without")
	}
	if !e.images.pinned("x/back", e.cfg.Live) {
		t.Error("the attempt that has it is forgotten")
	}
}

// TestOwnNamesAreRefused gives nobody an image by the name that a node gave it.
func TestOwnNamesAreRefused(t *testing.T) {
	f := &fakeEngine{}
	e := engineWith(t, f)
	for _, ref := range []string{"berth.pulled/team/secret:0123", "127.0.0.1:34567/berth-pull/n1/abc:1"} {
		_, err := e.Image(t.Context(), Want{Ref: ref}, func(string) {})
		if !IsRefusal(err) || !strings.Contains(err.Error(), "as its registry does") {
			t.Errorf("%s: %v", ref, err)
		}
		if _, err := Reference(ref); !IsRefusal(err) {
			t.Errorf("%s is a reference: %v", ref, err)
		}
	}
}

// TestUnpackedSize refuses an image whose layers are small when they are transferred and large on the disk.
func TestUnpackedSize(t *testing.T) {
	named, err := parse("registry.example.org/team/bomb:1")
	if err != nil {
		t.Fatal(err)
	}
	const limit = 10 * unpackedFactor * mib
	for _, size := range []int64{limit, limit + 1} {
		f := &fakeEngine{size: size}
		e := engineWith(t, f)
		e.cfg.ImageMiB = 10
		_, err := e.admit(t.Context(), named, "127.0.0.1:1/berth-pull/n/x:1", &Want{Ref: named.String()})
		switch refused := size > limit; {
		case refused && (!IsRefusal(err) || !strings.Contains(err.Error(), "at most 40 MiB") || len(f.tagged)+len(e.Refs()) > 0):
			t.Errorf("%d bytes: %v, named %v, listed %v", size, err, f.tagged, e.Refs())
		case !refused && (err != nil || len(f.tagged) != 1 || len(e.Refs()) != 1):
			t.Errorf("%d bytes: %v, named %v, listed %v", size, err, f.tagged, e.Refs())
		}
	}
}

// TestFullDisk ends a pull once the disk of the engine is nearly full, and no other.
func TestFullDisk(t *testing.T) {
	named, err := parse("registry.example.org/team/bomb:1")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		root  string
		free  []int64
		fault error
		ends  bool
	}{
		"enough":       {"/x", []int64{minFree, minFree}, nil, false},
		"at once":      {"/x", []int64{minFree - 1}, nil, true},
		"later":        {"/x", []int64{minFree + 2, minFree + 1, minFree - 1}, nil, true},
		"not seen":     {"/x", []int64{0}, errors.New("no such directory"), false},
		"not known":    {"", []int64{0}, nil, false},
		"nothing left": {"/x", []int64{minFree, 0}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				e := &Engine{facts: Facts{root: tt.root}, free: func(dir string) (int64, error) {
					if dir != tt.root {
						t.Errorf("asked for %s", dir)
					}
					asked++
					return tt.free[min(asked, len(tt.free))-1], tt.fault
				}}
				ctx, cancel := context.WithTimeout(t.Context(), 5*diskEvery)
				defer cancel()
				ctx, stop := context.WithCancelCause(ctx)
				defer stop(nil)
				e.watchDisk(ctx, named, stop)
				if tt.root == "" {
					return
				}
				ended := compute.CodeOf(context.Cause(ctx)) == compute.CodeUnavailable
				if ended != tt.ends || ended && asked != len(tt.free) {
					t.Errorf("after %d looks it ends: %t, %v", asked, ended, context.Cause(ctx))
				}
			})
		})
	}
	if free, err := freeBytes(t.TempDir()); err != nil || free <= 0 {
		t.Errorf("%d bytes are free, %v", free, err)
	}
}
