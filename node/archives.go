package node

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"berth/compute"
	"berth/fault"
	"berth/fsm"
	"berth/loop"
	"berth/node/storage"
)

// Times and limits of archives.
const (
	archivePeriod  = 5 * time.Second        // How often the leader looks whether one is due.
	archivePause   = 100 * time.Millisecond // Between two of them, for what else is to be applied.
	archiveTimeout = time.Minute            // For the copies of one.
	openArchives   = 64 << 20               // Bytes of archives that are kept open on a server.
	openingAtOnce  = 4                      // Archives that are read and unpacked at a time, of some MiB each.
	maxStuck       = 16                     // Archives that cannot be made, and that a leader leaves out.
)

// archives reads what is in archives, for whoever asks for old executions. Any
// number of goroutines may use it.
type archives struct {
	node    *Node
	life    context.Context //nolint:containedctx // Ends with the node: a read is of nobody's request.
	opening singleflight.Group
	reading chan struct{} // Holds one token per archive that is read and unpacked.

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
	life, end := context.WithCancel(context.Background())
	n.onClose(func() error {
		end()
		return nil
	})
	return &archives{
		node: n, life: life, byUse: list.New(), open: make(map[compute.Hash]*list.Element),
		reading: make(chan struct{}, openingAtOnce),
	}
}

// Open returns the content of an archive: of this disk, or of another server's.
// The code is unavailable: archive_missing when no server has the blob, else
// archive_unreadable.
func (a *archives) Open(ctx context.Context, row *fsm.Archive) (*fsm.ArchiveFile, error) {
	if file := a.known(row.Blob); file != nil {
		return file, nil
	}
	read := a.opening.DoChan(string(row.Blob[:]), func() (any, error) { //nolint:contextcheck // It is of nobody's request.
		ctx, cancel := context.WithTimeout(a.life, archiveTimeout)
		defer cancel()
		file, err := a.read(ctx, row)
		if err != nil {
			return nil, unreadableArchive(row, err)
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

// read reads and unpacks an archive, in its turn.
func (a *archives) read(ctx context.Context, row *fsm.Archive) (*fsm.ArchiveFile, error) {
	if err := hold(ctx, a.reading); err != nil {
		return nil, err
	}
	defer func() { <-a.reading }()
	data, err := a.node.blobs.Get(ctx, row.Blob)
	if err != nil {
		return nil, err
	}
	return fsm.ReadArchive(row, data)
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
	return view.LoadArchived(compute.OrgID{}, id, func(row *fsm.Archive) (*fsm.ArchiveFile, error) { return a.Open(ctx, row) })
}

// archiver moves executions that need not stay in the state to archives. A blob
// is on most servers before the state forgets what it holds; one that the state
// did not take is swept like any other.
type archiver struct {
	view   func() *fsm.View
	spread func(ctx context.Context, blob []byte) error // Makes a blob durable on most servers.
	commit func(ctx context.Context, cmd fsm.ArchiveExecutions) (moved int, err error)
	logger *slog.Logger

	stuck  map[compute.ExecutionID]bool // Of archives that cannot be made. They stay, so that others can go.
	drafts int                          // How many archives those would be.
}

// errUnreadable is returned for an archive that could not be read again.
var errUnreadable = errors.New("the archive cannot be read as it was made")

// newArchiver returns what archives in a term of the leader.
func (l *leader) newArchiver(term uint64) *archiver {
	return &archiver{
		view: l.machine.View, spread: l.spread, logger: l.logger, stuck: make(map[compute.ExecutionID]bool),
		commit: func(ctx context.Context, cmd fsm.ArchiveExecutions) (int, error) {
			cmd.Term = term
			result, index, err := l.propose.Propose(ctx, cmd)
			fault.Point("leader.archive.committed")
			if err == nil {
				_, err = l.machine.Wait(ctx, index)
			}
			return result.Count, err
		},
	}
}

// look archives whatever is due.
func (a *archiver) look(ctx context.Context) {
	for ctx.Err() == nil {
		draft := a.view().DraftArchive(a.stuck)
		if draft == nil {
			return
		}
		fault.Point("leader.archive.drafted")
		moved, err := a.archive(ctx, draft)
		switch {
		case err == nil:
			a.logger.Info("old executions archived", "attempt", moved, "status", fsm.MonthText(draft.Command.Month))
			loop.Sleep(ctx, archivePause)
		case ctx.Err() != nil:
			return
		case (errors.Is(err, errUnreadable) || compute.CodeOf(err) == compute.CodeTooLarge) && a.drafts < maxStuck:
			a.leave(draft, err)
		default:
			a.logger.Warn("old executions not archived", "err", err)
			return
		}
	}
}

// leave has a draft that nobody can take stay in the state for the term.
func (a *archiver) leave(draft *fsm.ArchiveDraft, err error) {
	ids := draft.IDs()
	for _, id := range ids {
		a.stuck[id] = true
	}
	a.drafts++
	a.logger.Error("old executions cannot be archived, and stay in the state", "execution", ids[0],
		"err", fmt.Errorf("%d of them: %w", len(ids), err))
}

// archive makes an archive durable and has the state know it. It returns how
// many executions have left the state.
func (a *archiver) archive(ctx context.Context, draft *fsm.ArchiveDraft) (int, error) {
	if err := draft.Verify(); err != nil {
		return 0, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	spread, cancel := context.WithTimeout(ctx, archiveTimeout)
	defer cancel()
	if err := a.spread(spread, draft.Blob); err != nil {
		return 0, err
	}
	fault.Point("leader.archive.durable")
	wait, cancel := context.WithTimeout(ctx, proposeWait)
	defer cancel()
	return a.commit(wait, draft.Command)
}

// spreadArchive makes a blob durable on as many servers as can take it, which
// have to be most of them.
func (n *Node) spreadArchive(ctx context.Context, data []byte) error {
	_, err := n.blobs.Spread(ctx, data, len(n.blobNodes())/2+1)
	return err
}
