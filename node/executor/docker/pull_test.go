package docker_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/node/executor/docker"
	"berth/node/executor/docker/dockertest"
)

// newEngine returns the engine of this machine for a node of its own.
func newEngine(t *testing.T, change func(*docker.Config)) *docker.Engine {
	t.Helper()
	cfg := docker.Config{
		Host: dockertest.Host(t), Node: t.Name(), Dir: t.TempDir(),
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: time.Now,
	}
	if change != nil {
		change(&cfg)
	}
	e, err := docker.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// TestPull pulls an image from a private registry: with the right credentials alone, and
// for the organization that has them.
func TestPull(t *testing.T) {
	registry := dockertest.NewRegistry(t, "ada", "secret")
	ref := registry.Push(t, "team/probe", "1")
	e := newEngine(t, func(c *docker.Config) { c.Registries = []string{registry.Host} })
	t.Cleanup(func() { dockertest.Remove(t, ref) })
	mine, other := compute.OrgID{UUID: compute.UUID{1}}, compute.OrgID{UUID: compute.UUID{2}}
	var lines []string
	pull := func(want docker.Want) error {
		want.Ref = ref
		image, err := e.Image(t.Context(), want, func(line string) { lines = append(lines, line) })
		if err == nil && (image.ID == "" || !strings.HasPrefix(image.Digest, "sha256:")) {
			t.Errorf("pulled %+v", image)
		}
		return err
	}
	good := &compute.RegistryCredentials{Username: "ada", Password: "secret"}
	if err := pull(docker.Want{Org: mine}); !docker.IsRefusal(err) {
		t.Errorf("without credentials: %v", err)
	}
	if err := pull(docker.Want{Org: mine, Credentials: &compute.RegistryCredentials{Username: "ada", Password: "wrong"}}); !docker.IsRefusal(err) {
		t.Errorf("with a wrong password: %v", err)
	}
	lines = nil
	if err := pull(docker.Want{Org: mine, Credentials: good}); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(lines, "\n"); !strings.Contains(text, "pulling "+ref) || !strings.Contains(text, "pulled "+ref) {
		t.Errorf("said %q", text)
	}
	lines = nil
	if err := pull(docker.Want{Org: mine}); err != nil || len(lines) > 0 {
		t.Errorf("again, from the cache: %v, said %q", err, lines)
	}
	if err := pull(docker.Want{Org: other}); !docker.IsRefusal(err) {
		t.Errorf("another organization, without credentials: %v", err)
	}
	if err := pull(docker.Want{Org: other, Credentials: good}); err != nil {
		t.Errorf("another organization, with credentials: %v", err)
	}
	strict := newEngine(t, nil)
	if _, err := strict.Image(t.Context(), docker.Want{Ref: registry.Host + "/team/other:1", Org: mine}, func(string) {}); !docker.IsRefusal(err) ||
		!strings.Contains(err.Error(), "not a public address") {
		t.Errorf("a registry on this machine that nobody allows: %v", err)
	}
}

// TestEvict removes the image that was used least recently once they exceed their limit.
func TestEvict(t *testing.T) {
	registry := dockertest.NewRegistry(t, "", "")
	first, second := registry.Push(t, "team/first", "1"), registry.Push(t, "team/second", "1")
	now := time.Unix(1, 0)
	e := newEngine(t, func(c *docker.Config) {
		c.Registries, c.KeepMiB = []string{registry.Host}, 1
		c.Now = func() time.Time { now = now.Add(time.Second); return now }
	})
	t.Cleanup(func() { dockertest.Remove(t, first, second) })
	for _, ref := range []string{first, second} {
		if _, err := e.Image(context.Background(), docker.Want{Ref: ref}, func(string) {}); err != nil {
			t.Fatal(err)
		}
	}
	if refs := e.Refs(); len(refs) != 1 || refs[0] != second {
		t.Errorf("the engine keeps %v, want %s alone", refs, second)
	}
}

// TestSharedLayers counts what images take on the disk: a layer that two have counts once.
func TestSharedLayers(t *testing.T) {
	registry := dockertest.NewRegistry(t, "", "")
	first, second := registry.Push(t, "team/shared-a", "1"), registry.Push(t, "team/shared-b", "1")
	e := newEngine(t, func(c *docker.Config) { c.Registries = []string{registry.Host} })
	t.Cleanup(func() { dockertest.Remove(t, first, second) })
	var sizes []int64
	for _, ref := range []string{first, second} {
		if _, err := e.Image(t.Context(), docker.Want{Ref: ref}, func(string) {}); err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, e.OnDisk())
	}
	if more := sizes[1] - sizes[0]; sizes[0] < 1<<20 || more <= 0 || more > 1<<10 {
		t.Errorf("one image takes %d bytes, and two %d", sizes[0], sizes[1])
	}
}
