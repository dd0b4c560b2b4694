package scratch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"berth/loop"
)

const (
	ready      = 4                // File systems kept ready.
	retry      = 10 * time.Second // After a failure to make one.
	template   = "template"       // In the directory of a Pool: an empty file system of its size.
	spareMiB   = 1 << 10          // Disk space that must be free for a new file system.
	copyBuffer = 256 << 10
)

// Pool makes file systems in one directory.
type Pool struct {
	dir     string
	sizeMiB int64
	log     *slog.Logger
	ready   chan *os.File
	number  atomic.Uint64

	mu        sync.Mutex
	formatted bool // The template exists.
}

// Open returns a Pool whose file systems have the size unless Take asks for
// another one. It removes what is in the directory, and mounts a first file
// system: an error means that this machine cannot do that.
func Open(ctx context.Context, dir string, sizeMiB int64, log *slog.Logger) (*Pool, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("open scratch space: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open scratch space: %w", err)
	}
	p := &Pool{dir: dir, sizeMiB: sizeMiB, log: log, ready: make(chan *os.File, ready)}
	first, err := p.make(ctx, 0)
	if err != nil {
		return nil, fmt.Errorf("open scratch space: %w", err)
	}
	p.ready <- first
	return p, nil
}

// Take returns a detached mount of an empty file system, which is the caller's.
// Its file has no name any more. The size is in MiB; 0 for that of the Pool.
func (p *Pool) Take(ctx context.Context, sizeMiB int64) (*os.File, error) {
	if sizeMiB == 0 || sizeMiB == p.sizeMiB {
		select {
		case made := <-p.ready:
			return made, nil
		default:
		}
	}
	made, err := p.make(ctx, sizeMiB)
	if err != nil {
		return nil, fmt.Errorf("make scratch space: %w", err)
	}
	return made, nil
}

// Run keeps file systems ready until ctx ends.
func (p *Pool) Run(ctx context.Context) {
	for {
		made, err := p.make(ctx, 0)
		if err != nil {
			p.log.Warn("scratch space not made", "err", err)
			if !loop.Sleep(ctx, retry) {
				return
			}
			continue
		}
		select {
		case p.ready <- made:
		case <-ctx.Done():
			made.Close()
			return
		}
	}
}

// Close releases the file systems that nobody took. Run must have returned.
func (p *Pool) Close() {
	for {
		select {
		case made := <-p.ready:
			made.Close()
		default:
			return
		}
	}
}

// FreeMiB returns the disk space that is free in the directory.
func FreeMiB(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("read free disk space: %w", err)
	}
	return int64(fs.Bavail) * fs.Bsize >> 20, nil
}

// make returns a new file system. One of the Pool's own size is a copy of the
// template, which takes a tenth of the time.
func (p *Pool) make(ctx context.Context, sizeMiB int64) (*os.File, error) {
	free, err := FreeMiB(p.dir)
	if err != nil {
		return nil, err
	}
	if free < max(sizeMiB, spareMiB) {
		return nil, fmt.Errorf("%d MiB of disk space are free, %d are needed", free, max(sizeMiB, spareMiB))
	}
	name := filepath.Join(p.dir, fmt.Sprintf("%d-%d", os.Getpid(), p.number.Add(1)))
	defer os.Remove(name)
	if sizeMiB != 0 && sizeMiB != p.sizeMiB {
		if err := format(ctx, name, sizeMiB); err != nil {
			return nil, err
		}
		return mountEmpty(name)
	}
	if err := p.copyTemplate(ctx, name); err != nil {
		return nil, err
	}
	return Mount(name, false)
}

// copyTemplate makes a file with a copy of the template, sparse like it.
func (p *Pool) copyTemplate(ctx context.Context, name string) error {
	from := filepath.Join(p.dir, template)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.formatted {
		if err := Format(ctx, from, p.sizeMiB); err != nil {
			return err
		}
		p.formatted = true
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = copySparse(target, source, max(p.sizeMiB, MinMiB)<<20)
	return errors.Join(err, target.Close())
}

// copySparse copies the parts of a file of the size that are not holes.
func copySparse(target, source *os.File, size int64) error {
	if err := target.Truncate(size); err != nil {
		return err
	}
	buffer := make([]byte, copyBuffer)
	for at := int64(0); at < size; {
		start, err := unix.Seek(int(source.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // The rest is a hole.
		}
		if err != nil {
			return fmt.Errorf("copy file system: %w", err)
		}
		end, err := unix.Seek(int(source.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return fmt.Errorf("copy file system: %w", err)
		}
		data := io.NewSectionReader(source, start, end-start)
		to := struct{ io.Writer }{io.NewOffsetWriter(target, start)} // io.CopyBuffer uses the buffer.
		if _, err := io.CopyBuffer(to, struct{ io.Reader }{data}, buffer); err != nil {
			return fmt.Errorf("copy file system: %w", err)
		}
		at = end
	}
	return nil
}
