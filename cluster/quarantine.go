package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/datadir"
	"berth/cluster/file"
	"berth/cluster/raftconf"
)

// What is set aside: replicas and snapshots that were damaged, with what was
// wrong, and replicas that a restore or a recovery took the place of. Nothing
// reads it but people.
const (
	quarantineDir   = "quarantine"
	damageFile      = "damage" // What was wrong, beside what is damaged.
	damagedKept     = 3        // Damaged ones that are kept.
	quarantineShare = 20       // They may take this part of the file system; the newest is kept beyond that.
	keepNone        = -1       // For pruneDamagedTo: not the newest either.
)

// quarantine is where damaged and replaced replicas are moved.
type quarantine struct {
	dir *datadir.Dir
	mu  sync.Mutex // Held while anything is moved in or removed.
}

// asideDir makes the directory for what is set aside now. Its reason, when it is
// damaged, is on disk before what it is about. The caller holds asides: to who
// removes old ones, one without anything but a reason looks like one of a crash.
func (q *quarantine) asideDir(now time.Time, damage error) (string, error) {
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

// setAside moves the replica out of the way, with what is wrong with it, if that
// is why. It returns where it is then, "" when there is none.
func (q *quarantine) setAside(now time.Time, damage error) (string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// A directory with nothing in it goes; one with a replica stays.
	if err := os.Remove(q.dir.Path(datadir.RaftDir)); err == nil || errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	aside, err := q.asideDir(now, damage)
	if err != nil {
		return "", err
	}
	aside = filepath.Join(aside, datadir.RaftDir)
	if err := os.Rename(q.dir.Path(datadir.RaftDir), aside); err != nil {
		return "", fmt.Errorf("set replica aside: %w", err)
	}
	return aside, errors.Join(file.SyncDir(filepath.Dir(aside)), file.SyncDir(q.dir.Root()))
}

// pruneDamaged bounds what is kept of damaged replicas and snapshots, and says
// what it removed. What a restore or a recovery has set aside stays, but counts in
// the metric.
func (c *Cluster) pruneDamaged() {
	_, total, err := c.cfg.freeSpace(c.dir.Root())
	if err != nil {
		c.logger.Warn("quarantine not pruned", "err", err)
		return
	}
	c.pruneDamagedTo(total / quarantineShare)
}

// pruneDamagedTo keeps the newest, and older ones while they take at most so many
// bytes together with it, or none at all.
func (c *Cluster) pruneDamagedTo(most int64) {
	removed, err := c.quarantine.pruneDamaged(most)
	switch names := strings.Join(removed, ", "); {
	case names == "":
	case most == keepNone:
		c.logger.Warn("what was set aside damaged is removed: there is no room for what has to come in", "err", names)
	default:
		c.logger.Warn("the oldest of what was set aside damaged is removed, to bound it", "err", names)
	}
	if err != nil {
		c.logger.Warn("quarantine not pruned", "err", err)
	}
	c.showQuarantine()
}

// giveDamagedUp removes all that was set aside damaged, when there is no room for
// what has to come in: it was found broken, and may be as large as that. It stays
// while nobody else is known to hold the state.
func (c *Cluster) giveDamagedUp() {
	if c.othersHold() {
		c.pruneDamagedTo(keepNone)
	}
}

// othersHold reports whether the state is on other servers as well: one of them
// leads, or this one does and not alone.
func (c *Cluster) othersHold() bool {
	leader, known := c.Leader()
	return known && (leader != c.id || slices.ContainsFunc(c.servers(), func(s raft.Server) bool {
		return s.Suffrage == raft.Voter && raftconf.NodeOf(s.ID) != c.id
	}))
}

// showQuarantine sets the metric of what is set aside.
func (c *Cluster) showQuarantine() {
	c.metrics.quarantine.Set(float64(treeSize(c.dir.Path(quarantineDir))))
}

// pruneDamaged removes the oldest of what was set aside because it was damaged,
// and returns what it removed: at most damagedKept stay, and of these no more than
// take most bytes together, but the newest, which goes with the others for
// keepNone. One of which a crash left nothing but the reason goes too.
func (q *quarantine) pruneDamaged(most int64) (removed []string, err error) {
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
		newest := kept == 0 && most != keepNone
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

// removeAside removes what was set aside damaged, the reason last: without it the
// rest would stay for ever, like what a restore has set aside.
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

// treeSize returns how many bytes the files below a directory take, as far as
// they can be looked at.
func treeSize(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // It is gone meanwhile.
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}
