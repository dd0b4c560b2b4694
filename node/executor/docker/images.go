package docker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/distribution/reference"

	"berth/cluster/file"
	"berth/compute"
)

const (
	imagesFile   = "images.json"
	maxImageOrgs = 1000        // Organizations that are remembered to have pulled an image.
	useEvery     = time.Minute // Between writes of the list that only say which images were used.
)

// Image is an image that is on the engine.
type Image struct {
	Ref     string // The whole name.
	ID      string
	Digest  string // Digest in the registry; "" for an image that was made here.
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
	Attempt     string                       // The image is kept while it is live; "" for none.
}

// pulled is the record of an image that Berth pulled.
type pulled struct {
	ID     string          `json:"id"`
	Name   string          `json:"name,omitempty"` // On the engine; "" for that of the image.
	Digest string          `json:"digest,omitempty"`
	Size   int64           `json:"size,omitempty"` // Without Layers: of an earlier version's list.
	Layers []layerSize     `json:"layers,omitempty"`
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

	saved time.Time                  // When the list was written.
	byRef map[string]*pulled         // Images that have lost their names are below their ids.
	busy  map[string]chan struct{}   // References that are being pulled.
	users map[string]map[string]bool // Attempts that took an image, some of which have ended.
}

// openImages reads the list in a directory. A damaged one is put aside: its images take space
// until the operator removes them, and are pulled again by those who want them.
func openImages(dir string, now func() time.Time, log *slog.Logger) (*images, error) {
	i := &images{
		file: filepath.Join(dir, imagesFile), now: now,
		byRef: make(map[string]*pulled), busy: make(map[string]chan struct{}),
		users: make(map[string]map[string]bool),
	}
	data, err := os.ReadFile(i.file)
	if errors.Is(err, os.ErrNotExist) {
		return i, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read list of images: %w", err)
	}
	if err = json.Unmarshal(data, &i.byRef); err == nil && i.byRef != nil {
		return i, nil
	}
	aside := i.file + ".damaged"
	log.Warn("list of pulled images damaged, beginning a new one", "path", aside,
		"hint", "images named "+localRepository+"... that no node lists can be removed", "err", err)
	i.byRef = make(map[string]*pulled)
	if err := os.Rename(i.file, aside); err != nil {
		return nil, fmt.Errorf("read list of images: %w", err)
	}
	return i, nil
}

// lock waits until nobody else pulls the image. The returned function unlocks it.
func (i *images) lock(ctx context.Context, ref string) (func(), error) {
	for {
		i.mu.Lock()
		other, busy := i.busy[ref]
		i.mu.Unlock()
		if !busy {
			if unlock, ok := i.tryLock(ref); ok {
				return unlock, nil
			}
			continue
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tryLock is lock without waiting.
func (i *images) tryLock(ref string) (unlock func(), ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, busy := i.busy[ref]; busy {
		return nil, false
	}
	done := make(chan struct{})
	i.busy[ref] = done
	return func() {
		i.mu.Lock()
		delete(i.busy, ref)
		i.mu.Unlock()
		close(done)
	}, true
}

// pin keeps an image while an attempt is live.
func (i *images) pin(ref, attempt string) {
	if attempt == "" {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.users[ref] == nil {
		i.users[ref] = make(map[string]bool)
	}
	i.users[ref][attempt] = true
}

// unpin is the opposite of pin.
func (i *images) unpin(ref string, attempts ...string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, attempt := range attempts {
		delete(i.users[ref], attempt)
	}
	if len(i.users[ref]) == 0 {
		delete(i.users, ref)
	}
}

// pinned reports whether an attempt that took an image is live. It forgets the others.
func (i *images) pinned(ref string, live func(string) bool) bool {
	i.mu.Lock()
	users := slices.Collect(maps.Keys(i.users[ref]))
	i.mu.Unlock()
	ended := slices.DeleteFunc(slices.Clone(users), func(attempt string) bool { return live != nil && live(attempt) })
	i.unpin(ref, ended...)
	return len(ended) < len(users)
}

// find returns the record of an image that was pulled.
func (i *images) find(ref string) (pulled, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	p := i.byRef[ref]
	if p == nil {
		return pulled{}, false
	}
	found := *p
	found.Orgs, found.Layers = slices.Clone(p.Orgs), slices.Clone(p.Layers)
	return found, true
}

// use remembers that an image is used, and writes that once in useEvery.
func (i *images) use(ref string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	p := i.byRef[ref]
	if p == nil {
		return nil
	}
	now := i.now().UTC()
	recent := now.Sub(i.saved) < useEvery
	p.UsedAt = now
	if recent {
		return nil // A crash may forget it.
	}
	return i.write()
}

// record remembers an image that was pulled. If it is the same one as before, the
// organizations that pulled it then may still use it. Another one that had the name stays
// in the list, below its id, until it is removed.
func (i *images) record(ref string, made *pulled, want *Want) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch old := i.byRef[ref]; {
	case old == nil:
	case old.ID == made.ID:
		made.Public, made.Orgs = old.Public, old.Orgs
	case old.ID != "" && !i.named(old.ID, ref):
		left := *old
		left.Name = old.ID
		i.byRef[old.ID] = &left
		if users := maps.Clone(i.users[ref]); users != nil {
			delete(users, want.Attempt)
			i.users[old.ID] = users
		}
	}
	delete(i.byRef, made.ID) // It has a name again.
	if users := i.users[made.ID]; users != nil {
		if delete(i.users, made.ID); i.users[ref] == nil {
			i.users[ref] = make(map[string]bool)
		}
		maps.Copy(i.users[ref], users)
	}
	made.UsedAt = i.now().UTC()
	if want.Credentials == nil {
		made.Public = true
	} else if !slices.Contains(made.Orgs, want.Org) && len(made.Orgs) < maxImageOrgs {
		made.Orgs = append(made.Orgs, want.Org)
	}
	i.byRef[ref] = made
	return i.write()
}

// named reports whether the list has an image under another name. By its id it would be removed with
// that name. The caller holds the lock.
func (i *images) named(id, not string) bool {
	for ref, p := range i.byRef {
		if ref != not && ref != id && p.ID == id {
			return true
		}
	}
	return false
}

// write saves the list. The caller holds the lock.
func (i *images) write() error {
	data, err := json.MarshalIndent(i.byRef, "", "  ")
	if err == nil {
		err = file.Write(i.file, data)
	}
	if err != nil {
		return fmt.Errorf("save list of images: %w", err)
	}
	i.saved = i.now()
	return nil
}

// oldest returns the pulled image that was used least recently, once all together
// exceed the limit, but none of keep.
func (i *images) oldest(limit int64, keep map[string]bool) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	oldest := ""
	for ref, p := range i.byRef {
		if !keep[ref] && (oldest == "" || p.UsedAt.Before(i.byRef[oldest].UsedAt)) {
			oldest = ref
		}
	}
	if onDisk(i.byRef) <= limit {
		return ""
	}
	return oldest
}

// nameOf returns the name of an image on the engine.
func (i *images) nameOf(ref string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if p := i.byRef[ref]; p != nil && p.Name != "" {
		return p.Name
	}
	return ref
}

// forget removes an image from the list.
func (i *images) forget(ref string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.byRef, ref)
	delete(i.users, ref)
	return i.write()
}

// Refs returns the names of the images that Berth pulled, those used last first.
func (e *Engine) Refs() []string {
	e.images.mu.Lock()
	defer e.images.mu.Unlock()
	refs := slices.Sorted(maps.Keys(e.images.byRef))
	refs = slices.DeleteFunc(refs, func(ref string) bool { return e.images.byRef[ref].ID == ref })
	slices.SortStableFunc(refs, func(a, b string) int {
		return e.images.byRef[b].UsedAt.Compare(e.images.byRef[a].UsedAt)
	})
	return refs
}

// Image returns the image of an attempt, which it pulls unless it is on the engine and
// the organization may use it. It reports its progress in lines. An error for which
// IsRefusal holds is the user's to fix.
func (e *Engine) Image(ctx context.Context, want Want, line func(string)) (image *Image, err error) {
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
	e.images.pinned(ref, e.cfg.Live) // It forgets attempts that have ended.
	e.images.pin(ref, want.Attempt)
	defer func() {
		if err != nil {
			e.images.unpin(ref, want.Attempt)
		}
	}()
	image, err = e.cached(ctx, ref, want.Org)
	if err != nil || image != nil {
		return image, err
	}
	e.makeRoom(ctx, ref)
	if image, err = e.fetch(ctx, named, &want, line); err != nil {
		return nil, err
	}
	e.evict(ctx, ref)
	return image, nil
}

// cached returns an image that is on the engine and that an organization may use, nil if
// it is to be pulled. One that is not in the list is the operator's if it was made or
// loaded there: an image that came from a registry may be somebody's own.
func (e *Engine) cached(ctx context.Context, ref string, org compute.OrgID) (*Image, error) {
	known, listed := e.images.find(ref)
	if listed && !known.Public && !slices.Contains(known.Orgs, org) {
		return nil, nil //nolint:nilnil // Nil is to be pulled.
	}
	image, err := e.inspect(ctx, cmp.Or(known.Name, ref), ref)
	if cerrdefs.IsNotFound(err) {
		return nil, nil //nolint:nilnil // As above.
	}
	if err != nil {
		return nil, fmt.Errorf("inspect image: %w", err)
	}
	if listed {
		image.Digest = cmp.Or(known.Digest, image.Digest)
		return image, e.images.use(ref)
	}
	if image.Digest != "" {
		return nil, nil //nolint:nilnil // As above.
	}
	return image, nil
}

// fetch pulls an image, names it and lists it. The engine removes one that is refused with
// the name under which it was pulled.
func (e *Engine) fetch(ctx context.Context, named reference.Named, want *Want, line func(string)) (*Image, error) {
	from, err := e.pull(ctx, named, want, line)
	if from != "" {
		defer func() {
			if err := e.drop(context.WithoutCancel(ctx), from); err != nil {
				e.cfg.Logger.Warn("image not removed", "err", err)
			}
		}()
	}
	if err != nil {
		return nil, err
	}
	return e.admit(ctx, named, from, want)
}

// admit names and lists an image that the engine has pulled under the name from.
func (e *Engine) admit(ctx context.Context, named reference.Named, from string, want *Want) (*Image, error) {
	image, err := e.inspect(ctx, from, named.String())
	if err != nil {
		return nil, fmt.Errorf("inspect image: %w", err)
	}
	layers, err := e.layersOf(ctx, image.ID)
	if err != nil {
		return nil, err
	}
	if err := e.checkUnpacked(named, layers); err != nil {
		return nil, err
	}
	name := e.localName(named)
	if err := e.keep(ctx, from, name); err != nil {
		return nil, err
	}
	made := &pulled{ID: image.ID, Name: name, Digest: image.Digest, Layers: layers}
	return image, e.list(ctx, image.Ref, made, want)
}

// list lists an image that was pulled, and removes the one that had its name.
func (e *Engine) list(ctx context.Context, ref string, made *pulled, want *Want) error {
	old, _ := e.images.find(ref)
	if err := e.images.record(ref, made, want); err != nil {
		return err
	}
	if _, left := e.images.find(old.ID); left {
		_ = e.remove(ctx, old.ID) // The engine keeps it while a container has it; it is tried again.
	}
	return nil
}

// inspect returns an image that is on the engine, which users name ref. It refuses one that
// does not fit this machine.
func (e *Engine) inspect(ctx context.Context, name, ref string) (*Image, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := e.api.ImageInspect(ctx, name)
	if err != nil {
		return nil, err
	}
	if found.Os != runtime.GOOS || found.Architecture != runtime.GOARCH {
		return nil, errNoImage("the image %s is for %s/%s, and this machine is %s/%s",
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
	return image, nil
}

const defaultStop = "SIGTERM"
