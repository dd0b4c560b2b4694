package node

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"

	"berth/compute"
	"berth/fault"
	"berth/fsm"
	"berth/node/storage"
)

// Times and limits of archives.
const (
	archivePeriod  = 5 * time.Second        // How often the leader looks whether one is due.
	archivePause   = 100 * time.Millisecond // Between two of them, for what else is to be applied.
	archiveTimeout = time.Minute            // For the copies of one.
	keepPeriod     = 30 * time.Second       // How often a server looks whether it lacks one.
	bringTimeout   = 2 * time.Minute        // To bring one from another server.
	openArchives   = 64 << 20               // Bytes of archives that are kept open on a server.
)

// archives reads what is in archives, for whoever asks for old executions, and
// brings blobs that this server lacks. Any number of goroutines may use it.
type archives struct {
	node    *Node
	missing prometheus.Gauge
	opening singleflight.Group

	mu    sync.Mutex
	bytes int
	byUse *list.List // Of *openArchive, the last used first.
	open  map[compute.Hash]*list.Element
}

// openArchive is an archive that was read.
type openArchive struct {
	blob compute.Hash
	file *fsm.ArchiveFile
}

// newArchives returns the archives of a server.
func newArchives(n *Node) *archives {
	a := &archives{
		node: n, byUse: list.New(), open: make(map[compute.Hash]*list.Element),
		missing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_archives_missing",
			Help: "Archives of old executions whose blob this server lacks, as far as it knows.",
		}),
	}
	n.registry.MustRegister(a.missing)
	return a
}

// Open returns the content of an archive: of this disk, or of another server's.
// The code is unavailable, archive_missing, when no server has the blob.
func (a *archives) Open(ctx context.Context, row *fsm.Archive) (*fsm.ArchiveFile, error) {
	if file := a.known(row.Blob); file != nil {
		return file, nil
	}
	read := a.opening.DoChan(string(row.Blob[:]), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), archiveTimeout)
		defer cancel()
		data, err := a.node.blobs.Get(ctx, row.Blob)
		if err != nil {
			return nil, unreadableArchive(row, err)
		}
		file, err := fsm.ReadArchive(row, data)
		if err != nil {
			return nil, err
		}
		a.keep(row.Blob, file)
		return file, nil
	})
	select {
	case r := <-read:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*fsm.ArchiveFile), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// unreadableArchive says why the blob of an archive cannot be read.
func unreadableArchive(row *fsm.Archive, err error) error {
	name := storage.Name(row.Blob)
	if compute.CodeOf(err) == compute.CodeNotFound {
		return compute.Errorf(compute.CodeUnavailable,
			"Executions that ended in %s are in an archive that no server has: copy blobs/%s/%s into the data directory of one.",
			fsm.MonthText(row.Month), name[:2], name).Named("archive_missing")
	}
	return compute.Errorf(compute.CodeUnavailable,
		"Executions that ended in %s are in archive %s, which cannot be read now: %w", fsm.MonthText(row.Month), name, err).
		Named("archive_unreadable").Retry(2 * time.Second)
}

// known returns an archive that is open, nil for none.
func (a *archives) known(blob compute.Hash) *fsm.ArchiveFile {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, ok := a.open[blob]
	if !ok {
		return nil
	}
	a.byUse.MoveToFront(e)
	return e.Value.(*openArchive).file
}

// keep keeps an archive open, and closes those that were used the longest ago.
func (a *archives) keep(blob compute.Hash, file *fsm.ArchiveFile) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.open[blob]; ok {
		return
	}
	a.open[blob] = a.byUse.PushFront(&openArchive{blob, file})
	a.bytes += file.Size()
	for a.bytes > openArchives && a.byUse.Len() > 1 {
		last := a.byUse.Remove(a.byUse.Back()).(*openArchive)
		delete(a.open, last.blob)
		a.bytes -= last.file.Size()
	}
}

// with returns view with the execution id of an archive, and what belongs to
// it; view itself when no archive has it.
func (a *archives) with(ctx context.Context, view *fsm.View, id compute.ExecutionID) (*fsm.View, error) {
	return view.Dig(compute.OrgID{}, id, func(row *fsm.Archive) (*fsm.ArchiveFile, error) { return a.Open(ctx, row) })
}

// keepArchives brings, until ctx ends, the blobs of archives that this server
// lacks.
func (n *Node) keepArchives(ctx context.Context) error {
	// What the state names is known once it was read from the others.
	if _, err := (reader{n.machine, n.cluster}).Read(ctx); err != nil {
		n.logger.Debug("archives are looked for later", "err", err)
	}
	every(ctx, keepPeriod, nil, func() { n.archives.bring(ctx) })
	return nil
}

// bring brings the blobs of archives that are not on this disk.
func (a *archives) bring(ctx context.Context) {
	missing := 0
	var failed error
	timeout := bringTimeout
	for row := range a.node.machine.View().Archives() {
		if ctx.Err() != nil {
			return
		}
		one, cancel := context.WithTimeout(ctx, timeout)
		err := a.node.blobs.Keep(one, row.Blob)
		cancel()
		if err != nil {
			missing++
			failed = unreadableArchive(row, err)
		}
		if compute.CodeOf(err) == compute.CodeNoSpace {
			timeout = 0 // The others would be brought, and thrown away.
		}
	}
	a.missing.Set(float64(missing))
	if failed != nil && ctx.Err() == nil {
		a.node.logger.Error("archives are missing on this server", "attempt", missing, "err", failed)
	}
}

// archive moves executions that need not stay in the state to archives. A blob
// is on most servers before the state forgets what it holds; one that the state
// did not take is swept like any other.
func (l *leader) archive(ctx context.Context, term uint64) {
	for ctx.Err() == nil {
		draft := l.machine.View().DraftArchive()
		if draft == nil {
			return
		}
		fault.Point("leader.archive.drafted")
		moved, err := l.commitArchive(ctx, term, draft)
		if err != nil {
			if ctx.Err() == nil {
				l.logger.Warn("old executions not archived", "err", err)
			}
			return
		}
		l.logger.Info("old executions archived", "attempt", moved, "status", fsm.MonthText(draft.Command.Month))
		pauseFor(ctx, archivePause)
	}
}

// commitArchive makes an archive durable and has the state know it. It returns
// how many executions have left the state.
func (l *leader) commitArchive(ctx context.Context, term uint64, draft *fsm.ArchiveDraft) (int, error) {
	spread, cancel := context.WithTimeout(ctx, archiveTimeout)
	defer cancel()
	if err := draft.Verify(); err != nil {
		return 0, err
	}
	if err := l.spread(spread, draft.Blob); err != nil {
		return 0, err
	}
	fault.Point("leader.archive.durable")
	draft.Command.Term = term
	wait, cancel := context.WithTimeout(ctx, proposeWait)
	defer cancel()
	result, index, err := l.propose.Propose(wait, draft.Command)
	fault.Point("leader.archive.committed")
	if err == nil {
		_, err = l.machine.Wait(wait, index)
	}
	return result.Count, err
}

// spreadArchive makes a blob durable on as many servers as can take it, which
// have to be most of them.
func (n *Node) spreadArchive(ctx context.Context, data []byte) error {
	_, err := n.blobs.Spread(ctx, data, len(n.blobNodes())/2+1)
	return err
}
