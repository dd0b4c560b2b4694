package archives

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"berth/compute"
	"berth/fsm/archive"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/node/statetest"
	"berth/node/storage"
)

// TestArchiverSkipsFailedDrafts checks that an archive that no server can ever store
// blocks no other one, and that the archiver waits for one that no server can
// store yet.
func TestArchiverSkipsFailedDrafts(t *testing.T) {
	for _, test := range []struct {
		name   string
		err    error // The error for the first blob.
		moved  int   // Executions that leave the state in one scan.
		spread int
	}{
		{"all goes well", nil, 1, 1},
		{"too large", compute.Errorf(compute.CodeTooLarge, "too large"), 1, 2},
		{"too few servers", compute.Errorf(compute.CodeUnavailable, "too few"), 0, 1},
		{"no time left", context.DeadlineExceeded, 0, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := statetest.New(t)
				l.Must(command.RegisterNode{Node: compute.Node{ID: l.Node, Name: "n1", Format: format.Newest}})
				l.Must(command.SetFormat{Term: 1, Format: format.Newest})
				settings := l.Machine.View().Settings()
				settings.MaxFinished = len(l.Waiting) - 1
				l.Must(command.SetSettings{Term: 1, Settings: settings})
				for _, id := range l.Waiting {
					l.Must(command.StopExecution{Op: l.NextOp(), Actor: l.Actor, Execution: id, Stop: compute.StopHard})
				}
				spread, moved := 0, 0
				a := &Archiver{
					View: l.Machine.View, Logger: slog.New(slog.DiscardHandler),
					Spread: func(context.Context, []byte) error {
						if spread++; spread == 1 {
							return test.err
						}
						return nil
					},
					Commit: func(_ context.Context, cmd command.ArchiveExecutions) (int, error) {
						cmd.Term = 1
						n := l.Must(cmd).Count
						moved += n
						return n, nil
					},
				}
				a.Scan(t.Context())
				if moved != test.moved || spread != test.spread {
					t.Errorf("%d executions have left after %d archives were tried, want %d after %d",
						moved, spread, test.moved, test.spread)
				}
			})
		})
	}
}

// TestUnreadableArchiveIsUnavailable checks that every fault of an archive asks
// the client to retry or an operator to act, and never blames the request.
func TestUnreadableArchiveIsUnavailable(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{compute.Errorf(compute.CodeNotFound, "none"), "archive_missing"},
		{errors.New("damaged"), "archive_unreadable"},
		{storage.ErrCorrupt, "archive_unreadable"},
	} {
		err := Unreadable(&archive.Record{}, test.err)
		e, ok := errors.AsType[*compute.Error](err)
		if !ok || e.Code != compute.CodeUnavailable || e.Detail != test.want {
			t.Errorf("%v is %v, want %s", test.err, err, test.want)
		}
	}
}
