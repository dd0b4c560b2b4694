package leader

import (
	"context"

	"berth/fault"
	"berth/fsm/command"
	"berth/node/archives"
)

// newArchiver returns the archiver of a term.
func (l *Leader) newArchiver(term uint64) *archives.Archiver {
	return &archives.Archiver{
		View: l.Machine.View, Spread: l.Spread, Logger: l.Logger,
		Commit: func(ctx context.Context, cmd command.ArchiveExecutions) (int, error) {
			cmd.Term = term
			result, index, err := l.Propose(ctx, cmd)
			fault.Point("leader.archive.committed")
			if err == nil {
				_, err = l.Machine.Wait(ctx, index)
			}
			return result.Count, err
		},
	}
}
