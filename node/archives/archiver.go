package archives

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"berth/compute"
	"berth/fault"
	"berth/fsm"
	"berth/loop"
)

// Times and limits of the archiver.
const (
	archivePause  = 100 * time.Millisecond // Between two of them, for what else is to be applied.
	spreadTimeout = time.Minute            // For the copies of one.
	commitTimeout = 10 * time.Second       // For its entry.
	maxStuck      = 16                     // Archives that cannot be made, and that a leader leaves out.
)

// Archiver moves executions that need not stay in the state to archives. A blob
// is on most servers before the state forgets what it holds; one that the state
// did not take is swept like any other.
type Archiver struct {
	View   func() *fsm.View
	Spread func(ctx context.Context, blob []byte) error // Makes a blob durable on most servers.
	Commit func(ctx context.Context, cmd fsm.ArchiveExecutions) (moved int, err error)
	Logger *slog.Logger

	stuck  map[compute.ExecutionID]bool // Of archives that cannot be made. They stay, so that others can go.
	drafts int                          // How many archives those would be.
}

// errUnreadable is returned for an archive that could not be read again.
var errUnreadable = errors.New("the archive cannot be read as it was made")

// Scan archives whatever is due.
func (a *Archiver) Scan(ctx context.Context) {
	for ctx.Err() == nil {
		draft := a.View().DraftArchive(a.stuck)
		if draft == nil {
			return
		}
		fault.Point("leader.archive.drafted")
		moved, err := a.archive(ctx, draft)
		switch {
		case err == nil:
			a.Logger.Info("old executions archived", "attempt", moved, "status", fsm.MonthText(draft.Command.Month))
			loop.Sleep(ctx, archivePause)
		case ctx.Err() != nil:
			return
		case (errors.Is(err, errUnreadable) || compute.CodeOf(err) == compute.CodeTooLarge) && a.drafts < maxStuck:
			a.leave(draft, err)
		default:
			a.Logger.Warn("old executions not archived", "err", err)
			return
		}
	}
}

// leave keeps a draft that no server can store in the state for the term.
func (a *Archiver) leave(draft *fsm.ArchiveDraft, err error) {
	ids := draft.IDs()
	if a.stuck == nil {
		a.stuck = make(map[compute.ExecutionID]bool)
	}
	for _, id := range ids {
		a.stuck[id] = true
	}
	a.drafts++
	a.Logger.Error("old executions cannot be archived", "execution", ids[0],
		"err", fmt.Errorf("%d of them: %w", len(ids), err))
}

// archive makes an archive durable and has the state know it. It returns how
// many executions have left the state.
func (a *Archiver) archive(ctx context.Context, draft *fsm.ArchiveDraft) (int, error) {
	if err := draft.Verify(); err != nil {
		return 0, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	spread, cancel := context.WithTimeout(ctx, spreadTimeout)
	defer cancel()
	if err := a.Spread(spread, draft.Blob); err != nil {
		return 0, err
	}
	fault.Point("leader.archive.durable")
	wait, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	return a.Commit(wait, draft.Command)
}
