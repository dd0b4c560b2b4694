package replica

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/cluster/datadir"
	"berth/cluster/disk"
	"berth/cluster/file"
	"berth/compute"
)

// The quarantine holds damaged replicas and snapshots with the reason, and
// replicas that a restore or a recovery replaced. Only people read it.
const (
	quarantineDir   = "quarantine"
	damageFile      = "damage" // The reason, beside the damaged item.
	damagedKept     = 3        // Damaged items that are kept.
	quarantineShare = 20       // They may take one part in so many of the file system; the newest is kept beyond that.

	KeepNone = -1 // For PruneTo: not the newest either.
)

// Quarantine is where damaged and replaced replicas are moved. Its methods may
// be called from any goroutine.
type Quarantine struct {
	dir    *datadir.Dir
	logger *slog.Logger
	size   prometheus.Gauge
	space  func(dir string) (free, total int64, err error)

	mu sync.Mutex // Held while anything is moved in or removed.
}

// newDir makes the directory for an item that is set aside now. The reason of
// damage is on disk before the item: prune treats a directory with nothing but a
// reason as left by a crash. The caller holds mu.
func (q *Quarantine) newDir(now time.Time, damage error) (string, error) {
	dir := q.dir.Path(quarantineDir, now.UTC().Format("20060102T150405.000Z"))
	if err := os.MkdirAll(dir, datadir.DirMode); err != nil {
		return "", fmt.Errorf("make quarantine: %w", err)
	}
	if damage != nil {
		if err := file.Write(filepath.Join(dir, damageFile), []byte(damage.Error()+"\n")); err != nil {
			return "", fmt.Errorf("make quarantine: %w", err)
		}
	}
	return dir, file.SyncDir(filepath.Dir(dir))
}

// SetAside moves the replica to the quarantine and returns its new path, "" when
// there is none. Damage is the reason, nil for a replica that is replaced.
func (q *Quarantine) SetAside(now time.Time, damage error) (string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// Remove succeeds for an empty directory only.
	if err := os.Remove(q.dir.Path(datadir.RaftDir)); err == nil || errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	aside, err := q.newDir(now, damage)
	if err != nil {
		return "", err
	}
	aside = filepath.Join(aside, datadir.RaftDir)
	if err := os.Rename(q.dir.Path(datadir.RaftDir), aside); err != nil {
		return "", fmt.Errorf("set replica aside: %w", err)
	}
	return aside, errors.Join(file.SyncDir(filepath.Dir(aside)), file.SyncDir(q.dir.Root()))
}

// Prune bounds the damaged replicas and snapshots that are kept, and logs those that it
// removed. It never removes a replica that a restore or a recovery set aside, which
// counts in the metric.
func (q *Quarantine) Prune() {
	_, total, err := q.space(q.dir.Root())
	if err != nil {
		q.logger.Warn("quarantine not pruned", "err", err)
		return
	}
	q.PruneTo(total / quarantineShare)
}

// PruneTo keeps the newest damaged item, and older ones while all together take
// at most that many bytes. With KeepNone it removes all.
func (q *Quarantine) PruneTo(bytes int64) {
	removed, err := q.prune(bytes)
	if len(removed) > 0 {
		reason := "quarantine over its limit"
		if bytes == KeepNone {
			reason = "no free space for the replacement"
		}
		q.logger.Warn("damaged replicas removed from quarantine", "path", strings.Join(removed, ", "), "reason", reason)
	}
	if err != nil {
		q.logger.Warn("quarantine not pruned", "err", err)
	}
	q.show()
}

// show sets the metric of the quarantine's size.
func (q *Quarantine) show() { q.size.Set(float64(treeSize(q.dir.Path(quarantineDir)))) }

// prune removes the oldest damaged items and returns their paths. At most
// damagedKept stay, and of these no more than take most bytes together, except
// for the newest, which stays unless most is KeepNone. A directory with nothing
// but the reason, which a crash left, is removed too.
func (q *Quarantine) prune(most int64) (removed []string, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	entries, err := os.ReadDir(q.dir.Path(quarantineDir)) // By name, which is by time.
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	kept, size := 0, int64(0)
	for i := len(entries) - 1; i >= 0; i-- {
		if !entries[i].IsDir() {
			continue
		}
		dir := q.dir.Path(quarantineDir, entries[i].Name())
		inside, err := os.ReadDir(dir)
		if err != nil {
			return removed, err
		}
		if _, err := os.Stat(filepath.Join(dir, damageFile)); err != nil {
			continue
		}
		size += treeSize(dir)
		newest := kept == 0 && most != KeepNone
		if len(inside) > 1 && (newest || kept < damagedKept && size <= most) {
			kept++
			continue
		}
		if err := removeAside(dir, inside); err != nil {
			return removed, err
		}
		removed = append(removed, dir)
	}
	return removed, nil
}

// removeAside removes a damaged item, the reason last: without it the rest would
// stay for ever, like a replica that a restore set aside.
func removeAside(dir string, inside []fs.DirEntry) error {
	for _, e := range inside {
		if e.Name() == damageFile {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// treeSize returns how many bytes the readable files below a directory take.
func treeSize(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // The file was removed meanwhile.
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}

// noCandidate is the candidate of the vote that a rejoining server records: it is
// nobody.
const noCandidate = "rejoined"

// ReplaceDamaged sets the replica aside and puts an empty one in its place. It
// can be repeated: until the new one is in place, the next start finds none.
func (q *Quarantine) ReplaceDamaged(term uint64, damage error, now time.Time) (aside string, err error) {
	if err := makeEmptyReplica(q.dir.Path(newRaftDir), term); err != nil {
		return "", err
	}
	if aside, err = q.SetAside(now, damage); err != nil {
		return "", err
	}
	if err := os.Rename(q.dir.Path(newRaftDir), q.dir.Path(datadir.RaftDir)); err != nil {
		return aside, err
	}
	if err := file.SyncDir(q.dir.Root()); err != nil {
		return aside, err
	}
	return aside, q.dir.Update(func(r *datadir.Record) { r.Damaged = "" })
}

// makeEmptyReplica makes a replica without entries that does not vote in any term
// up to the given one: the votes of its predecessor are forgotten.
func makeEmptyReplica(dir string, term uint64) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, datadir.DirMode); err != nil {
		return err
	}
	store, err := disk.Open(dir, 0, func(error) {})
	if err != nil {
		return err
	}
	return errors.Join(
		store.SetUint64([]byte(disk.KeyCurrentTerm), term),
		store.SetUint64([]byte(disk.KeyLastVoteTerm), term),
		store.Set([]byte(disk.KeyLastVoteCand), []byte(noCandidate)),
		store.Close(), file.SyncDir(dir),
	)
}

// ErrAlone refuses to replace a damaged replica on a server that knows no other
// one.
func ErrAlone() error {
	return compute.Errorf(compute.CodeConflict,
		"This server knows no other one to get the state from. Restore a backup here with "+
			"berth admin snapshot restore, or move its data directory away and join it to a cluster again.")
}
