package weights

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // Git's own hash of small files: there is no other.
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"

	"berth/cluster/file"
	"berth/compute"
	"berth/loop"
)

// progressParts is how many times the progress of a download is reported.
const progressParts = 20

// errDamaged means that a file is not as its source says.
var errDamaged = errors.New("the hash of the file is another one")

// key returns the name of the model's directory.
func (m *manifest) key() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %q", m.Name, m.Org, m.Format, m.Version)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// fetch fetches the files of a model, and then its manifest.
func (s *Store) fetch(
	ctx context.Context, f *fetch, dir string, source Source, w Want, l *Listing, m *manifest,
) error {
	total, done, next := m.bytes(), int64(0), int64(0)
	step := max(total/progressParts, 1)
	p := progress{add: func(n int64) {
		if done += n; done >= next || done == total {
			s.report(f, fmt.Sprintf("fetched %d of %d MiB of %s", done>>20, total>>20, m.Name))
			next = done + step
		}
	}, note: func(text string) { s.report(f, text) }}
	for i := range m.Files {
		if err := s.fetchFile(ctx, dir, source, w, l, &m.Files[i], p); err != nil {
			return err
		}
	}
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return file.Write(filepath.Join(dir, manifestFile), data)
}

// progress has the functions that get the progress of a download: the bytes of files that are
// there, and lines of text.
type progress struct {
	add  func(n int64)
	note func(text string)
}

// fetchFile fetches one file, and tries again where it broke off.
func (s *Store) fetchFile( //nolint:gocognit // One try after the other.
	ctx context.Context, dir string, source Source, w Want, l *Listing, f *File, p progress,
) (err error) {
	name := filepath.Join(dir, filesDir, filepath.FromSlash(f.Name))
	if info, err := os.Stat(name); err == nil && info.Size() == f.Size {
		p.add(f.Size)
		return nil // It was checked before it got this name.
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("fetch model: %w", err)
	}
	counted, before := int64(0), int64(0)
	for try := 0; try < tries; try++ {
		if try > 0 && !loop.Sleep(ctx, cmp.Or(s.cfg.Pause, retryPause)) {
			return ctx.Err()
		}
		if counted > before { // It gets on, though with breaks.
			before, try = counted, min(try, 1)
		}
		err = s.try(ctx, name+".part", source, w, l, f, func(at int64) {
			if at > counted {
				p.add(at - counted)
				counted = at
			}
		})
		switch {
		case err == nil:
			if err := os.Rename(name+".part", name); err != nil {
				return fmt.Errorf("fetch model: %w", err)
			}
			return file.SyncDir(filepath.Dir(name))
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errDamaged):
			if err := os.Remove(name + ".part"); err != nil {
				return fmt.Errorf("fetch model: %w", err)
			}
		case compute.CodeOf(err) == compute.CodeNotFound, compute.CodeOf(err) == compute.CodeConflict,
			compute.CodeOf(err) == compute.CodeInvalid:
			return err
		}
		s.cfg.Logger.Warn("model not fetched", "model", w.Name, "err", err)
		if try+1 < tries {
			p.note(fmt.Sprintf("%s is fetched again: %v", f.Name, err))
		}
	}
	return compute.Errorf(compute.CodeUnavailable, "%s could not be fetched: %w", f.Name, err)
}

// try continues a partial file, and checks the whole.
func (s *Store) try( //nolint:gocognit // One check after the other.
	ctx context.Context, name string, source Source, w Want, l *Listing, f *File, at func(int64),
) error {
	out, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("fetch model: %w", err)
	}
	defer out.Close()
	have, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("fetch model: %w", err)
	}
	if have > f.Size || !f.verifiable() { // Its source may name a hash when it is asked for the file.
		have = 0
	}
	if have < f.Size || f.Size == 0 {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		limit := cmp.Or(s.cfg.Stall, stallLimit)
		stalled := time.AfterFunc(limit, cancel)
		defer stalled.Stop()
		body, from, err := source.Open(ctx, w, l, f, have)
		if err != nil {
			return err
		}
		defer body.Close()
		if !f.verifiable() && !s.cfg.Unverified {
			return errUnverifiable(f)
		}
		if err := out.Truncate(from); err != nil {
			return fmt.Errorf("fetch model: %w", err)
		}
		if _, err := out.Seek(from, io.SeekStart); err != nil {
			return fmt.Errorf("fetch model: %w", err)
		}
		counter := &counting{at: func(n int64) {
			stalled.Reset(limit)
			at(n)
		}, n: from}
		if _, err := io.Copy(io.MultiWriter(out, counter), io.LimitReader(body, f.Size-from+1)); err != nil {
			if ctx.Err() != nil {
				err = fmt.Errorf("its source sent nothing for %s", limit) // Or it is given up.
			}
			return fmt.Errorf("fetch model: %w", err)
		}
		if counter.n != f.Size {
			if counter.n > f.Size {
				return errDamaged
			}
			return io.ErrUnexpectedEOF
		}
	}
	if err := f.verify(out); err != nil {
		return err
	}
	at(f.Size)
	return out.Sync()
}

func errUnverifiable(f *File) error {
	return compute.Errorf(compute.CodeInvalid, "%s cannot be verified: its source names no SHA-256 and no Git hash "+
		"of it. The operator can allow such files by inference.unverified_files", f.Name)
}

// verify checks the hash of a whole file.
func (f *File) verify(r io.ReadSeeker) error {
	var h hash.Hash
	want := f.SHA256
	switch {
	case f.SHA256 != "":
		h = sha256.New()
	case f.Git != "":
		h, want = sha1.New(), f.Git //nolint:gosec // As above.
		fmt.Fprintf(h, "blob %d\x00", f.Size)
	default:
		return nil // Its source checked it, chunk by chunk, or the operator accepts it.
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("check file: %w", err)
	}
	if _, err := io.Copy(h, r); err != nil {
		return fmt.Errorf("check file: %w", err)
	}
	if hex.EncodeToString(h.Sum(nil)) != want {
		return errDamaged
	}
	return nil
}

// counting reports the number of bytes written so far.
type counting struct {
	at func(int64)
	n  int64
}

func (c *counting) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	c.at(c.n)
	return len(p), nil
}
