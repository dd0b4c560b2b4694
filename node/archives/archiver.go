package archives

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"berth/compute"
	"berth/fault"
	"berth/fsm"
	"berth/fsm/archive"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/loop"
)

// Times and limits of the archiver.
const (
	archivePause  = 100 * time.Millisecond // Between two archives, so that other commands can be applied.
	spreadTimeout = time.Minute            // For the copies of one archive.
	commitTimeout = 10 * time.Second       // For the entry of one archive.
	maxFailed     = 16                     // Failed archives that a leader skips.
)

// Archiver moves finished executions out of the state into archives. The blob
// of an archive is durable on most servers before the state forgets its
// executions. A blob whose command the state did not apply is swept like any
// other.
type Archiver struct {
	View   func() *fsm.View
	Spread func(ctx context.Context, blob []byte) error // Makes a blob durable on most servers.
	Commit func(ctx context.Context, cmd command.ArchiveExecutions) (moved int, err error)
	Logger *slog.Logger

	failed       map[compute.ExecutionID]bool // Executions of failed archives. They stay, so that others can leave.
	failedDrafts int                          // The number of those archives.
}

// errUnreadable is returned for an archive that failed its verification.
var errUnreadable = errors.New("archive failed verification")

// Scan archives all executions that are due.
func (a *Archiver) Scan(ctx context.Context) {
	for ctx.Err() == nil {
		view := a.View()
		draft := view.DraftArchive(a.stay(view))
		if draft == nil {
			return
		}
		fault.Point("leader.archive.drafted")
		moved, err := a.archive(ctx, draft)
		switch {
		case err == nil:
			a.Logger.Info("executions archived", "count", moved, "month", archive.MonthText(draft.Command.Month))
			loop.Sleep(ctx, archivePause)
		case ctx.Err() != nil:
			return
		case (errors.Is(err, errUnreadable) || compute.CodeOf(err) == compute.CodeTooLarge) && a.failedDrafts < maxFailed:
			a.skip(draft, err)
		default:
			a.Logger.Warn("executions not archived", "err", err)
			return
		}
	}
}

// stay returns the executions that stay in the state: those of failed archives, and
// those of which callbacks are still being sent.
func (a *Archiver) stay(view *fsm.View) map[compute.ExecutionID]bool {
	if view.Format() < format.Deliver {
		return a.failed
	}
	stay := maps.Clone(a.failed)
	for c := range view.DueCallbacks(view.Now().Add(compute.CallbackWindow)) {
		if stay == nil {
			stay = make(map[compute.ExecutionID]bool)
		}
		stay[c.Execution] = true
	}
	return stay
}

// skip marks the executions of a failed draft, which stay in the state for
// this term.
func (a *Archiver) skip(draft *archive.Draft, err error) {
	ids := draft.IDs()
	if a.failed == nil {
		a.failed = make(map[compute.ExecutionID]bool)
	}
	for _, id := range ids {
		a.failed[id] = true
	}
	a.failedDrafts++
	a.Logger.Error("executions cannot be archived", "execution", ids[0], "count", len(ids), "err", err)
}

// archive makes an archive durable and commits its command. It returns how many
// executions have left the state.
func (a *Archiver) archive(ctx context.Context, draft *archive.Draft) (int, error) {
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
