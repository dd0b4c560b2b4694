package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/moby/moby/client"

	"berth/compute"
)

const (
	imagesFile   = "images.json"
	maxImageOrgs = 1000 // Organizations that are remembered to have pulled an image.
)

// Image is an image that is on the engine.
type Image struct {
	Ref     string // The whole name.
	ID      string
	Digest  string // Of the registry; "" for an image that was made here.
	User    string
	WorkDir string
	Home    bool // It sets HOME.
	Volumes []string
	Stop    string // The signal that asks its program to end.
}

// Want is an image that an attempt needs.
type Want struct {
	Ref         string
	Org         compute.OrgID
	Credentials *compute.RegistryCredentials // For this pull alone; nil for none.
}

// pulled is what is remembered of an image that Berth pulled.
type pulled struct {
	ID     string          `json:"id"`
	Size   int64           `json:"size"`
	UsedAt time.Time       `json:"used_at"`
	Public bool            `json:"public"` // It was pulled without credentials.
	Orgs   []compute.OrgID `json:"orgs,omitempty"`
}

// images is the list of images that Berth pulled. Others are the operator's: every
// organization may use them, and none is removed.
type images struct {
	file string
	now  func() time.Time

	mu sync.Mutex

	byRef map[string]*pulled
	busy  map[string]chan struct{} // References that are being pulled.
}

func openImages(dir string, now func() time.Time) (*images, error) {
	i := &images{
		file: filepath.Join(dir, imagesFile), now: now,
		byRef: make(map[string]*pulled), busy: make(map[string]chan struct{}),
	}
	data, err := os.ReadFile(i.file)
	if errors.Is(err, os.ErrNotExist) {
		return i, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &i.byRef)
	}
	if err != nil {
		return nil, fmt.Errorf("read list of images: %w", err)
	}
	return i, nil
}

// lock waits until nobody else pulls the image. The returned function unlocks it.
func (i *images) lock(ctx context.Context, ref string) (func(), error) {
	for {
		i.mu.Lock()
		other, busy := i.busy[ref]
		if !busy {
			done := make(chan struct{})
			i.busy[ref] = done
			i.mu.Unlock()
			return func() {
				i.mu.Lock()
				delete(i.busy, ref)
				i.mu.Unlock()
				close(done)
			}, nil
		}
		i.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// usable reports whether an organization may use an image that is on the engine. One
// that is not in the list is the operator's if it was made or loaded there: an image that
// came from a registry may be somebody's own.
func (i *images) usable(image *Image, org compute.OrgID) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	p := i.byRef[image.Ref]
	if p == nil {
		return image.Digest == ""
	}
	return p.Public || slices.Contains(p.Orgs, org)
}

// record remembers an image that was pulled, or used.
func (i *images) record(ref, id string, size int64, want *Want, pull bool) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	p := i.byRef[ref]
	switch {
	case p == nil && !pull:
		return nil // The operator's.
	case p == nil || pull && p.ID != id:
		p = &pulled{}
		i.byRef[ref] = p
	}
	p.ID, p.Size, p.UsedAt = id, size, i.now().UTC()
	if pull && want.Credentials == nil {
		p.Public = true
	}
	if pull && want.Credentials != nil && !slices.Contains(p.Orgs, want.Org) && len(p.Orgs) < maxImageOrgs {
		p.Orgs = append(p.Orgs, want.Org)
	}
	return i.write()
}

// write saves the list. The caller holds the lock.
func (i *images) write() error {
	data, err := json.MarshalIndent(i.byRef, "", "  ")
	if err == nil {
		err = os.WriteFile(i.file+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(i.file+".new", i.file)
	}
	if err != nil {
		return fmt.Errorf("save list of images: %w", err)
	}
	return nil
}

// oldest returns the pulled image that was used least recently, once all together
// exceed the limit, but not keep.
func (i *images) oldest(limit int64, keep string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	total, oldest := int64(0), ""
	for ref, p := range i.byRef {
		total += p.Size
		if ref != keep && (oldest == "" || p.UsedAt.Before(i.byRef[oldest].UsedAt)) {
			oldest = ref
		}
	}
	if total <= limit {
		return ""
	}
	return oldest
}

// forget removes an image from the list.
func (i *images) forget(ref string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.byRef, ref)
	return i.write()
}

// Refs returns the names of the images that Berth pulled, those used last first.
func (e *Engine) Refs() []string {
	e.images.mu.Lock()
	defer e.images.mu.Unlock()
	refs := slices.Sorted(maps.Keys(e.images.byRef))
	slices.SortStableFunc(refs, func(a, b string) int {
		return e.images.byRef[b].UsedAt.Compare(e.images.byRef[a].UsedAt)
	})
	return refs
}

// Image returns the image of an attempt, which it pulls unless it is on the engine and
// the organization may use it. It reports its progress in lines. An error for which
// IsRefusal holds is the user's to fix.
func (e *Engine) Image(ctx context.Context, want Want, line func(string)) (*Image, error) {
	named, err := parse(want.Ref)
	if err != nil {
		return nil, err
	}
	ref := named.String()
	unlock, err := e.images.lock(ctx, ref)
	if err != nil {
		return nil, err
	}
	defer unlock()
	image, size, err := e.inspect(ctx, ref)
	if err != nil && !cerrdefs.IsNotFound(err) {
		return nil, fmt.Errorf("inspect image: %w", err)
	}
	pull := err != nil || !e.images.usable(image, want.Org)
	if pull {
		if err := e.pull(ctx, named, &want, line); err != nil {
			return nil, err
		}
		if image, size, err = e.inspect(ctx, ref); err != nil {
			return nil, fmt.Errorf("inspect image: %w", err)
		}
	}
	if err := e.images.record(ref, image.ID, size, &want, pull); err != nil {
		return nil, err
	}
	e.evict(ctx, ref)
	return image, nil
}

// inspect returns an image that is on the engine, and its size. It refuses one that
// does not fit this machine.
func (e *Engine) inspect(ctx context.Context, ref string) (*Image, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := e.api.ImageInspect(ctx, ref)
	if err != nil {
		return nil, 0, err
	}
	if found.Os != runtime.GOOS || found.Architecture != runtime.GOARCH {
		return nil, 0, errNoImage("the image %s is for %s/%s, and this machine is %s/%s",
			ref, found.Os, found.Architecture, runtime.GOOS, runtime.GOARCH)
	}
	image := &Image{Ref: ref, ID: found.ID, Stop: defaultStop}
	if len(found.RepoDigests) > 0 {
		if named, err := reference.ParseNormalizedNamed(found.RepoDigests[0]); err == nil {
			if digested, ok := named.(reference.Digested); ok {
				image.Digest = digested.Digest().String()
			}
		}
	}
	if c := found.Config; c != nil {
		image.User, image.WorkDir = c.User, c.WorkingDir
		image.Home = slices.ContainsFunc(c.Env, func(pair string) bool { return len(pair) > 5 && pair[:5] == "HOME=" })
		for dir := range c.Volumes {
			image.Volumes = append(image.Volumes, dir)
		}
		slices.Sort(image.Volumes)
		if c.StopSignal != "" {
			image.Stop = c.StopSignal
		}
	}
	return image, found.Size, nil
}

const defaultStop = "SIGTERM"

// evict removes pulled images, the least recently used first, until they fit their
// limit. The engine keeps one that a container has.
func (e *Engine) evict(ctx context.Context, keep string) {
	for range maxEvictions {
		ref := e.images.oldest(e.cfg.KeepMiB<<20, keep)
		if ref == "" {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		_, err := e.api.ImageRemove(ctx, ref, client.ImageRemoveOptions{PruneChildren: true})
		cancel()
		if err != nil && !cerrdefs.IsNotFound(err) {
			e.cfg.Logger.Warn("image not removed", "err", err)
			return
		}
		if err := e.images.forget(ref); err != nil {
			e.cfg.Logger.Warn("image not removed", "err", err)
			return
		}
	}
}

// maxEvictions is how many images one pull removes at most.
const maxEvictions = 100
