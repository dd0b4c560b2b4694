package weights

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/compute"
)

const (
	manifestFile = "manifest.json"
	filesDir     = "files"
	tries        = 5 // Tries of one file.
	maxListings  = 3 // Listings of a model that changes while it is fetched.
	retryPause   = 2 * time.Second
	stallLimit   = 2 * time.Minute
)

// Config holds the settings and dependencies of a Store.
type Config struct {
	Dir     string   // The cache.
	Stored  Source   // The storage of organizations, asked first; nil for none.
	Models  string   // Directory of the operator with models as owner/name/; "" for none.
	Sources []Source // Asked last, in this order.
	KeepMiB int64    // Size of the cache.
	InUse   func() []Use
	Logger  *slog.Logger
	Now     func() time.Time
	Pause   time.Duration // Before another try; 0 for two seconds.
	Stall   time.Duration // For a source to send something; 0 for two minutes.

	Unverified bool // Accept files whose source names no hash.
}

// Use is one of a model that may not be evicted.
type Use struct {
	Name string
	Dir  string // As in Model; "" before it is known, which protects all versions of the model.
}

// protects reports whether a model in the cache is the one that is used.
func (u Use) protects(c *cachedModel) bool {
	if u.Dir == "" {
		return u.Name == c.Name
	}
	return u.Dir == filepath.Join(c.dir, filesDir)
}

// Store is the models of a node. Its methods may be called concurrently.
type Store struct {
	cfg Config

	evicting sync.Mutex // Held by the download that makes room. It is taken before mu.

	mu sync.Mutex // Also held while a model of the cache is chosen, and while one is given up.

	fetching map[string]*fetch // By directory.
}

// fetch is one download that several starts may wait for.
type fetch struct {
	bytes   int64 // Size of the whole model.
	done    chan struct{}
	err     error
	cancel  context.CancelFunc
	waiting int
	said    string
	changed chan struct{}
}

// manifest describes a complete model in the cache.
type manifest struct {
	Name    string `json:"name"`
	Org     string `json:"org,omitempty"` // If it is private.
	Format  string `json:"format"`
	Version string `json:"version"`
	Files   []File `json:"files"`
}

// Model is a model on this node's disk.
type Model struct {
	Dir  string // Has nothing else.
	File string // The file to load, of the format GGUF; "" for the directory.
	MiB  int64
}

// New returns a store.
func New(cfg Config) *Store { return &Store{cfg: cfg, fetching: make(map[string]*fetch)} }

// Get returns a model in one of the formats, fetched if need be. It calls say with its
// progress meanwhile. The error has compute.CodeInvalid or compute.CodeNotFound if another
// try will not help.
func (s *Store) Get(ctx context.Context, w Want, formats []string, say func(string)) (Model, error) {
	if !ValidName(w.Name) {
		return Model{}, compute.Errorf(compute.CodeInvalid, "hf_model_id is owner/name, with @revision or :file")
	}
	search := &search{missing: compute.Errorf(compute.CodeNotFound, "no source of models is set up that has %s", w.Name)}
	if s.cfg.Stored != nil {
		if m, found, err := s.ask(ctx, search, s.cfg.Stored, w, formats, say); found {
			if err == nil {
				sayRevision(w, "the organization's storage", say)
			}
			return m, err
		}
		if search.failed != nil { // A model of that name elsewhere may be another one.
			return s.cached(w, formats, true, search.failed, say)
		}
	}
	if m, ok := s.local(w, formats); ok {
		say("the model is in the operator's directory")
		sayRevision(w, "the operator's directory", say)
		return m, nil
	}
	for _, source := range s.cfg.Sources {
		if m, found, err := s.ask(ctx, search, source, w, formats, say); found {
			return m, err
		}
	}
	if search.failed == nil {
		return Model{}, search.missing
	}
	return s.cached(w, formats, false, search.failed, say)
}

// sayRevision says that a place of models without revisions has not the one that is asked for.
func sayRevision(w Want, place string, say func(string)) {
	if _, revision, _ := w.split(); revision != "" {
		say(fmt.Sprintf("@%s is ignored: the model is from %s, which has no revisions", revision, place))
	}
}

// cached returns a model of the cache, of the organization's own alone if own is set, after
// its source was not reached, else why it was not.
func (s *Store) cached(w Want, formats []string, own bool, failed error, say func(string)) (Model, error) {
	if c, ok := s.known(w, formats, own); ok {
		say("a source of models is not reached; the model is in the cache")
		sayUnverified(c.Files, say)
		return modelOf(filepath.Join(c.dir, filesDir), c.Format, c.Files), nil
	}
	return Model{}, failed
}

// search is why a model was not found so far.
type search struct {
	missing error // Sources do not have it.
	failed  error // Sources that did not answer.
}

// ask returns the model of one source. It reports false if it is not there in any of the
// formats, or not known to be.
func (s *Store) ask(
	ctx context.Context, so *search, source Source, w Want, formats []string, say func(string),
) (m Model, found bool, err error) {
	l, err := s.listing(ctx, source, w)
	for listed := 1; err == nil; listed++ {
		format, files := choose(l.Files, w, formats)
		if len(files) == 0 {
			so.missing = compute.Errorf(compute.CodeInvalid,
				"%s has no files of the format %s", w.Name, strings.Join(formats, " or "))
			return Model{}, false, nil
		}
		m, err = s.from(ctx, source, w, &l, format, files, say)
		if compute.CodeOf(err) != compute.CodeConflict || listed == maxListings {
			return m, true, err
		}
		say("the model has changed and is fetched again")
		l, err = s.listing(ctx, source, w)
	}
	switch {
	case compute.CodeOf(err) != compute.CodeNotFound:
		so.failed = errors.Join(so.failed, err)
	case compute.MessageOf(err) != "" && compute.CodeOf(so.missing) != compute.CodeInvalid:
		so.missing = compute.Errorf(compute.CodeNotFound, "%s: %s", w.Name, compute.MessageOf(err))
	}
	return Model{}, false, nil
}

// listing returns the files that a source has of a model. A source that does not send all of
// the listing in time is as one that does not answer.
func (s *Store) listing(ctx context.Context, source Source, w Want) (Listing, error) {
	limit := cmp.Or(s.cfg.Stall, stallLimit)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	l, err := source.List(limited, w)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = compute.Errorf(compute.CodeUnavailable, "the source of the model sent no listing for %s: %w", limit, err)
	}
	return l, err
}

// local returns a model in the operator's directory.
func (s *Store) local(w Want, formats []string) (Model, bool) {
	dir, files := s.localFiles(w)
	format, files := choose(files, w, formats)
	return modelOf(dir, format, files), len(files) > 0
}

// localFiles returns the directory of the operator for a model, and its files.
func (s *Store) localFiles(w Want) (dir string, files []File) {
	if s.cfg.Models == "" {
		return "", nil
	}
	name, _, _ := w.split()
	dir = filepath.Join(s.cfg.Models, filepath.FromSlash(name))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", nil
	}
	for _, e := range entries {
		if info, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && info.Mode().IsRegular() {
			files = append(files, File{Name: e.Name(), Size: info.Size()})
		}
	}
	return dir, files
}

func modelOf(dir, format string, files []File) Model {
	m := Model{Dir: dir}
	for _, f := range files {
		m.MiB += f.Size
	}
	m.MiB >>= 20
	if format == formatGGUF && len(files) > 0 {
		names := make([]string, len(files))
		for i, f := range files {
			names[i] = f.Name
		}
		m.File = slices.Min(names)
	}
	return m
}

// from returns a model from a source.
func (s *Store) from(
	ctx context.Context, source Source, w Want, l *Listing, format string, files []File, say func(string),
) (Model, error) {
	m := manifest{Name: w.Name, Format: format, Version: l.Version, Files: files}
	if l.Private {
		m.Org = w.Org.String()
	}
	if err := m.check(s.cfg.KeepMiB); err != nil {
		return Model{}, err
	}
	return s.share(ctx, source, w, l, &m, say)
}

// check refuses a listing that cannot be fetched.
func (m *manifest) check(keepMiB int64) error {
	for _, f := range m.Files {
		if !safeName(f.Name) {
			return compute.Errorf(compute.CodeInvalid, "the source of %s names a file %q", m.Name, compute.Clip(f.Name, 64))
		}
		if f.Size < 0 {
			return compute.Errorf(compute.CodeInvalid, "the source of %s does not say how large %s is", m.Name, f.Name)
		}
	}
	if size := m.bytes() >> 20; size > keepMiB {
		return compute.Errorf(compute.CodeInvalid, "%s has %d MiB, the cache of models has %d", m.Name, size, keepMiB)
	}
	return nil
}

func (m *manifest) bytes() (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// share fetches a model, or waits for another start that does.
func (s *Store) share(
	ctx context.Context, source Source, w Want, l *Listing, m *manifest, say func(string),
) (Model, error) {
	dir := filepath.Join(s.cfg.Dir, m.key())
	s.mu.Lock()
	if s.complete(dir) {
		s.touch(dir)
		s.mu.Unlock()
		say("the model is in the cache")
		s.warn(dir, say)
		return modelOf(filepath.Join(dir, filesDir), m.Format, m.Files), nil
	}
	f := s.fetching[dir]
	if f != nil && f.waiting == 0 { // It was given up, and is about to end.
		s.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return Model{}, ctx.Err()
		}
		return s.share(ctx, source, w, l, m, say)
	}
	if f == nil {
		life, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &fetch{bytes: m.bytes(), done: make(chan struct{}), changed: make(chan struct{}), cancel: cancel}
		s.fetching[dir] = f
		go s.run(life, f, dir, source, w, l, m)
	}
	f.waiting++
	s.mu.Unlock()
	err := s.await(ctx, f, say)
	s.mu.Lock()
	if f.waiting--; f.waiting == 0 {
		f.cancel() // Nobody waits for it. The files so far stay for the next try.
	}
	s.mu.Unlock()
	if err != nil {
		return Model{}, err
	}
	s.warn(dir, say)
	return modelOf(filepath.Join(dir, filesDir), m.Format, m.Files), nil
}

// warn says which files of a whole model were not verified.
func (s *Store) warn(dir string, say func(string)) {
	var m manifest
	if data, err := os.ReadFile(filepath.Join(dir, manifestFile)); err == nil && json.Unmarshal(data, &m) == nil {
		sayUnverified(m.Files, say)
	}
}

func sayUnverified(files []File, say func(string)) {
	for _, f := range files {
		if !f.verifiable() {
			say(fmt.Sprintf("%s was not verified: its source names no hash of it", f.Name))
		}
	}
}

// await waits for a download, and calls say with its progress.
func (s *Store) await(ctx context.Context, f *fetch, say func(string)) error {
	for {
		s.mu.Lock()
		text, changed := f.said, f.changed
		s.mu.Unlock()
		if text != "" {
			say(text)
		}
		select {
		case <-f.done:
			return f.err
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// report sets the progress of a download, for all callers of await.
func (s *Store) report(f *fetch, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.said = text
	close(f.changed)
	f.changed = make(chan struct{})
}

// run is one download.
func (s *Store) run(ctx context.Context, f *fetch, dir string, source Source, w Want, l *Listing, m *manifest) {
	f.err = s.evict(m.bytes(), dir)
	if f.err == nil {
		f.err = s.fetch(ctx, f, dir, source, w, l, m)
	}
	if compute.CodeOf(f.err) == compute.CodeConflict {
		if err := os.RemoveAll(dir); err != nil { // Nobody asks for that version again.
			s.cfg.Logger.Warn("parts of a model not removed", "model", m.Name, "err", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.fetching, dir)
	f.cancel()
	close(f.done)
}

// complete reports whether a directory has a whole model.
func (s *Store) complete(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, manifestFile))
	return err == nil
}

// touch marks a model as used.
func (s *Store) touch(dir string) {
	now := s.cfg.Now()
	_ = os.Chtimes(filepath.Join(dir, manifestFile), now, now) // At worst it is evicted early.
}

// cachedModel is a model in the cache.
type cachedModel struct {
	manifest

	dir  string
	used time.Time
}

// list returns the whole models of the cache, the longest unused first.
func (s *Store) list() (out []cachedModel) {
	entries, _ := os.ReadDir(s.cfg.Dir) // There is none before the first model.
	for _, e := range entries {
		c := cachedModel{dir: filepath.Join(s.cfg.Dir, e.Name())}
		name := filepath.Join(c.dir, manifestFile)
		data, err := os.ReadFile(name)
		if err != nil || json.Unmarshal(data, &c.manifest) != nil {
			continue
		}
		if info, err := os.Stat(name); err == nil {
			c.used = info.ModTime()
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b cachedModel) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.dir, b.dir)) })
	return out
}

// known returns a model of the cache whose source is not reached, and marks it as used.
func (s *Store) known(w Want, formats []string, own bool) (cachedModel, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.list()
	slices.Reverse(list)
	for _, c := range list {
		may := c.Org == w.Org.String() || c.Org == "" && !own
		if c.Name == w.Name && may && slices.Contains(formats, c.Format) {
			s.touch(c.dir)
			return c, true
		}
	}
	return cachedModel{}, false
}
