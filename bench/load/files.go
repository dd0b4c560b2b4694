package load

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/api/client"
	"berth/bench/usage"
)

// FilesConfig configures MeasureFiles.
type FilesConfig struct {
	LargeMiB int // Size of the large file.
	Small    int // Number of small files.
	Clients  int // Clients that store and read small files at once.
	Listed   int // Files that are listed; no more than Small.
	Dir      string
}

// smallFile is the size of a small file in bytes.
const smallFile = 4 << 10

// Files has the measurements of MeasureFiles. Rates of large files are in MiB a second.
type Files struct {
	LargeMiB int `json:"large_mib"`

	CopyPS   float64 `json:"copy_mib_per_second"` // cp and fsync of two copies: the reference.
	StorePS  float64 `json:"store_mib_per_second"`
	AgainPS  float64 `json:"store_again_mib_per_second"` // The same content under another key.
	FetchPS  float64 `json:"fetch_mib_per_second"`
	Ratio    float64 `json:"store_to_copy"`
	GrownMiB float64 `json:"grown_mib"` // How much more memory the node takes that was asked.

	Small     int     `json:"small"`
	Clients   int     `json:"clients"`
	SyncPS    float64 `json:"small_synced_per_second"` // Small files and fsync, two copies: the reference.
	SmallPS   float64 `json:"small_stored_per_second"`
	ReadPS    float64 `json:"small_read_per_second"`
	SmallTime Spread  `json:"small_store"`

	Listed int    `json:"listed"`
	Page   Spread `json:"page"` // Pages of 1,000 files.
}

// MeasureFiles stores, reads and lists files through a follower. The references are the
// disk alone: two copies, written and synced, as two servers do on this disk.
func MeasureFiles(ctx context.Context, c *Cluster, cfg FilesConfig) (*Files, error) {
	out := &Files{LargeMiB: cfg.LargeMiB, Small: cfg.Small, Clients: cfg.Clients}
	api, err := c.client(c.APIKey)
	if err != nil {
		return nil, err
	}
	large := make([]byte, cfg.LargeMiB<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(large) // It never fails.
	if err := out.measureCopy(cfg, large); err != nil {
		return nil, err
	}
	if err := out.measureLarge(ctx, c, api, large); err != nil {
		return nil, err
	}
	if err := out.measureSmall(ctx, api, cfg); err != nil {
		return nil, err
	}
	return out, out.measureList(ctx, api, cfg)
}

// measureCopy measures the disk alone.
func (f *Files) measureCopy(cfg FilesConfig, large []byte) error {
	dir, err := os.MkdirTemp(cfg.Dir, "berth-bench-files-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	begun := time.Now() //nolint:forbidigo // A stopwatch.
	var group errgroup.Group
	for _, name := range []string{"a", "b"} {
		group.Go(func() error { return writeSynced(filepath.Join(dir, name), large) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	f.CopyPS = float64(cfg.LargeMiB) / time.Since(begun).Seconds()
	count := min(cfg.Small, 1000)
	begun = time.Now() //nolint:forbidigo // As above.
	group.SetLimit(2 * cfg.Clients)
	for i := range 2 * count {
		group.Go(func() error { return writeSynced(filepath.Join(dir, fmt.Sprint("s", i)), large[:smallFile]) })
	}
	err = group.Wait()
	f.SyncPS = float64(count) / time.Since(begun).Seconds()
	return err
}

// writeSynced writes a durable file.
func writeSynced(path string, data []byte) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(data); err != nil {
		return err
	}
	return file.Sync()
}

// inMemory is a file of some bytes.
func inMemory(key string, data []byte) client.NewFile {
	return client.NewFile{Key: key, Size: int64(len(data)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}}
}

// measureLarge stores and fetches the large file.
func (f *Files) measureLarge(ctx context.Context, c *Cluster, api *client.Client, large []byte) error {
	mib := float64(f.LargeMiB)
	before, err := c.followerUse()
	if err != nil {
		return err
	}
	for _, run := range []struct {
		rate *float64
		do   func() error
	}{
		{&f.StorePS, func() error { _, err := api.Upload(ctx, inMemory("large/first", large)); return err }},
		{&f.AgainPS, func() error { _, err := api.Upload(ctx, inMemory("large/second", large)); return err }},
		{&f.FetchPS, func() error { _, err := api.Download(ctx, "large/first", "", 0, io.Discard); return err }},
	} {
		begun := time.Now() //nolint:forbidigo // A stopwatch.
		if err := run.do(); err != nil {
			return err
		}
		*run.rate = mib / time.Since(begun).Seconds()
	}
	after, err := c.followerUse()
	f.GrownMiB = float64(int64(after.Peak)-int64(before.Resident)) / (1 << 20)
	f.Ratio = f.StorePS / f.CopyPS
	return err
}

// followerUse returns the resource use of the node that is asked.
func (c *Cluster) followerUse() (usage.Process, error) {
	for _, n := range c.Nodes {
		if n.URL == c.Follower() {
			return usage.Read(n.PID)
		}
	}
	return usage.Process{}, nil
}

// measureSmall stores and reads small files from many clients.
func (f *Files) measureSmall(ctx context.Context, api *client.Client, cfg FilesConfig) error {
	times := make([]time.Duration, cfg.Small)
	rates := []*float64{&f.SmallPS, &f.ReadPS}
	for step, do := range []func(key string, data []byte) error{
		func(key string, data []byte) error { _, err := api.Upload(ctx, inMemory(key, data)); return err },
		func(key string, _ []byte) error { _, err := api.Download(ctx, key, "", 0, io.Discard); return err },
	} {
		var next atomic.Int64
		var group errgroup.Group
		begun := time.Now() //nolint:forbidigo // A stopwatch.
		for range cfg.Clients {
			group.Go(func() error {
				data := make([]byte, smallFile)
				for i := next.Add(1) - 1; i < int64(cfg.Small); i = next.Add(1) - 1 {
					copy(data, fmt.Sprint("small file ", i))
					at := time.Now() //nolint:forbidigo // As above.
					if err := do(fmt.Sprintf("small/%07d", i), data); err != nil {
						return err
					}
					if step == 0 {
						times[i] = time.Since(at)
					}
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		*rates[step] = float64(cfg.Small) / time.Since(begun).Seconds()
	}
	f.SmallTime = spreadOf(times)
	return nil
}

// measureList reads pages of the list.
func (f *Files) measureList(ctx context.Context, api *client.Client, cfg FilesConfig) error {
	var times []time.Duration
	for cursor := ""; ; {
		at := time.Now() //nolint:forbidigo // A stopwatch.
		page, next, err := api.Files(ctx, "small/", cursor, 1000)
		if err != nil {
			return err
		}
		times = append(times, time.Since(at))
		if f.Listed += len(page); next == "" || f.Listed >= cfg.Listed {
			break
		}
		cursor = next
	}
	f.Page = spreadOf(times)
	return nil
}
