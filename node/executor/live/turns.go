package live

import (
	"context"
	"time"

	"berth/compute"
	"berth/node/executor/supervise"
	"berth/node/logs"
)

const (
	maxStarting   = 8 // Attempts prepared concurrently. Others wait.
	stopPoll      = 100 * time.Millisecond
	longWaitLines = 5000 // In the output of an execution.
)

// Turns limits how many attempts are prepared concurrently.
type Turns struct {
	taken chan struct{} // A semaphore of attempts in preparation.
	dirs  *Dirs
	now   func() time.Time
}

// NewTurns returns turns, none of which is taken. Lines about long waits go to the attempts' outputs in dirs.
func NewTurns(dirs *Dirs, now func() time.Time) *Turns {
	return &Turns{taken: make(chan struct{}, maxStarting), dirs: dirs, now: now}
}

// Take takes a turn. It returns false when ctx ends before.
func (t *Turns) Take(ctx context.Context) bool {
	select {
	case t.taken <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// Give gives a turn back.
func (t *Turns) Give() { <-t.taken }

// Lend lets others have the turn of an attempt that waits, until the function that it
// returns is called.
func (t *Turns) Lend() (retake func()) {
	t.Give()
	return func() { t.taken <- struct{}{} }
}

// LongWait is a wait of an attempt in preparation that may take minutes, as for an image. Others
// start meanwhile.
type LongWait struct {
	out    *waitLog
	cancel context.CancelCauseFunc
	retake func()
}

// Wait begins a long wait, whose lines have a prefix. The context ends once the attempt must not
// start any more; its cause then says why.
func (t *Turns) Wait(ctx context.Context, a *Attempt, prefix string) (context.Context, *LongWait) {
	w := &LongWait{
		out:    &waitLog{path: t.dirs.File(a.Key, supervise.OutputFile), prefix: prefix, now: t.now},
		retake: t.Lend(),
	}
	ctx, w.cancel = context.WithCancelCause(ctx)
	go a.watchStop(ctx, w.cancel)
	return ctx, w
}

// Report writes a line to the output of the attempt.
func (w *LongWait) Report(text string) { w.out.line(text) }

// End ends the wait, and lets the supervisor continue the output.
func (w *LongWait) End() {
	w.out.release()
	w.cancel(nil)
	w.retake()
}

// watchStop cancels when the attempt must not start any more.
func (a *Attempt) watchStop(ctx context.Context, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(stopPoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := a.MayStart(); err != nil {
				cancel(err)
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// waitLog writes lines about what an attempt waits for, such as those of an
// installer, to its output. The supervisor continues it.
type waitLog struct {
	path   string
	prefix string // Prefix of each line.
	now    func() time.Time
	writer *logs.Writer
	lines  int
	failed bool
}

// line writes one line. The output is opened with the first.
func (l *waitLog) line(text string) {
	if l.lines++; l.failed || l.lines > longWaitLines {
		return
	}
	if l.lines == longWaitLines {
		text = "there is more, which is left out"
	}
	if l.writer == nil {
		writer, err := logs.Create(l.path, logs.Limits{})
		if err != nil {
			l.failed = true // The output begins with the code. A full disk shows itself there too.
			return
		}
		l.writer = writer
	}
	if err := l.writer.Write(logs.System, compute.InstantOf(l.now()), []byte(l.prefix+": "+text+"\n")); err != nil {
		l.failed = true
	}
}

// release lets the supervisor continue the output.
func (l *waitLog) release() {
	if l.writer != nil {
		l.writer.Release()
	}
}
