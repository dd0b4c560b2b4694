package dockertest

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/moby/moby/client"
)

// Registry is a registry of images on this machine, which speaks the part of the
// distribution protocol by which engines pull.
type Registry struct {
	Host      string // As in the names of its images.
	Elsewhere string // URL to which it redirects requests for blobs; "" for none.
	Halfway   func() // Called when half of a large blob has been sent; nil for nothing. It may wait.

	user, password string

	blobs map[string][]byte
	types map[string]string // Media types of manifests.
	tags  map[string]string // Name and tag to digest.
	large map[string]bool   // Digests of layers of PushLarge.
}

// NewRegistry returns a registry that asks for a user and a password, or for nothing if
// the user is empty.
func NewRegistry(t testing.TB, user, password string) *Registry {
	t.Helper()
	r := &Registry{
		user: user, password: password,
		blobs: map[string][]byte{}, types: map[string]string{}, tags: map[string]string{},
		large: map[string]bool{},
	}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.Host = strings.TrimPrefix(server.URL, "http://")
	return r
}

// ServeHTTP answers a request, if it has the password.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	u, p, _ := req.BasicAuth()
	if r.user != "" && (u != r.user || p != r.password) {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
		return
	}
	if r.Elsewhere != "" && strings.Contains(req.URL.Path, "/blobs/") {
		http.Redirect(w, req, r.Elsewhere+req.URL.Path, http.StatusTemporaryRedirect)
		return
	}
	r.serve(w, req)
}

// serve answers a request of an engine.
func (r *Registry) serve(w http.ResponseWriter, req *http.Request) {
	path := strings.TrimPrefix(req.URL.Path, "/v2/")
	if path == "" {
		return
	}
	name, last, _ := strings.Cut(path, "/manifests/")
	if last == "" {
		name, last, _ = strings.Cut(path, "/blobs/")
	}
	digest := last
	if tagged, ok := r.tags[name+":"+last]; ok {
		digest = tagged
	}
	data, ok := r.blobs[digest]
	if !ok {
		http.Error(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}`, http.StatusNotFound)
		return
	}
	if kind := r.types[digest]; kind != "" {
		w.Header().Set("Content-Type", kind)
	}
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("Content-Length", fmt.Sprint(len(data)))
	if req.Method == http.MethodHead {
		return
	}
	if r.Halfway != nil && r.large[digest] {
		half := len(data) / 2
		_, _ = w.Write(data[:half])
		_ = http.NewResponseController(w).Flush()
		r.Halfway()
		data = data[half:]
	}
	_, _ = w.Write(data) // An engine that hangs up tries again.
}

// put stores a blob and returns its digest.
func (r *Registry) put(data []byte, kind string) string {
	digest := digestOf(data)
	r.blobs[digest], r.types[digest] = data, kind
	return digest
}

// Push stores an image of the program probe and returns its whole name. Images of
// different names differ.
func (r *Registry) Push(t testing.TB, name, tag string) string {
	t.Helper()
	return r.push(t, name, tag, runtime.GOARCH, 0)
}

// PushFor is Push of an image that says that it is for an architecture, by Go's name of it.
func (r *Registry) PushFor(t testing.TB, arch, name, tag string) string {
	t.Helper()
	return r.push(t, name, tag, arch, 0)
}

// PushLarge is Push with a second layer of size random bytes, which no engine has.
func (r *Registry) PushLarge(t testing.TB, name, tag string, size int) string {
	t.Helper()
	return r.push(t, name, tag, runtime.GOARCH, size)
}

func (r *Registry) push(t testing.TB, name, tag, arch string, size int) string {
	t.Helper()
	// The first layer is the same in all images.
	second := []entry{{"name", 0o644, []byte(name)}}
	if size > 0 {
		data := make([]byte, size)
		_, _ = rand.Read(data) // It never fails.
		second = append(second, entry{"data", 0o644, data})
	}
	layers := []*bytes.Buffer{tarOf(t, []entry{{"probe", 0o755, program(t)}}), tarOf(t, second)}
	packedSecond := packed(t, layers[1])
	r.large[digestOf(packedSecond)] = size > 0
	marshal := func(v any) []byte {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	config := marshal(map[string]any{
		"architecture": arch, "os": runtime.GOOS, "config": map[string]any{"Entrypoint": []string{"/probe"}},
		"rootfs": map[string]any{
			"type": "layers", "diff_ids": []string{digestOf(layers[0].Bytes()), digestOf(layers[1].Bytes())},
		},
		"history": []any{map[string]any{}, map[string]any{"empty_layer": true}, map[string]any{}},
	})
	const prefix = "application/vnd.docker."
	part := func(kind string, data []byte) map[string]any {
		return map[string]any{"mediaType": prefix + kind, "size": len(data), "digest": r.put(data, "")}
	}
	const kind = prefix + "distribution.manifest.v2+json"
	manifest := r.put(marshal(map[string]any{
		"schemaVersion": 2, "mediaType": kind, "config": part("container.image.v1+json", config),
		"layers": []any{
			part("image.rootfs.diff.tar.gzip", packed(t, layers[0])), part("image.rootfs.diff.tar.gzip", packedSecond),
		},
	}), kind)
	r.tags[name+":"+tag] = manifest
	return r.Host + "/" + name + ":" + tag
}

func digestOf(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// packed returns a layer as registries have it.
func packed(t testing.TB, layer *bytes.Buffer) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	if _, err := zip.Write(layer.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Remove removes images from the engine, and what nodes pulled of them.
func Remove(t testing.TB, refs ...string) {
	api, err := client.New(client.WithHost(Host(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	for _, ref := range refs {
		// One that is gone needs no removal.
		_, _ = api.ImageRemove(context.Background(), ref, client.ImageRemoveOptions{Force: true})
		_, path, _ := strings.Cut(ref, "/")
		path, _, _ = strings.Cut(path, ":")
		pulled, err := api.ImageList(context.Background(), client.ImageListOptions{
			Filters: make(client.Filters).Add("reference", "berth.pulled/"+path),
		})
		if err != nil {
			continue
		}
		for i := range pulled.Items {
			_, _ = api.ImageRemove(context.Background(), pulled.Items[i].ID, client.ImageRemoveOptions{Force: true})
		}
	}
}
