package executor

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

// turns limits how many attempts are prepared concurrently.
type turns struct {
	taken chan struct{} // A semaphore of attempts in preparation.
	dirs  *attemptDirs
	now   func() time.Time
}

// take takes a turn. It returns false when ctx ends before.
func (t *turns) take(ctx context.Context) bool {
	select {
	case t.taken <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// give gives a turn back.
func (t *turns) give() { <-t.taken }

// lend lets others have the turn of an attempt that waits, until the function that it
// returns is called.
func (t *turns) lend() (retake func()) {
	t.give()
	return func() { t.taken <- struct{}{} }
}

// longWait is a wait of an attempt in preparation that may take minutes, as for an image. Others
// start meanwhile.
type longWait struct {
	out    *waitLog
	cancel context.CancelCauseFunc
	retake func()
}

// wait begins a long wait, whose lines have a prefix. The context ends once the attempt must not
// start any more; its cause then says why.
func (t *turns) wait(ctx context.Context, a *attempt, prefix string) (context.Context, *longWait) {
	w := &longWait{
		out:    &waitLog{path: t.dirs.file(a.key, supervise.OutputFile), prefix: prefix, now: t.now},
		retake: t.lend(),
	}
	ctx, w.cancel = context.WithCancelCause(ctx)
	go a.watchStop(ctx, w.cancel)
	return ctx, w
}

// report writes a line to the output of the attempt.
func (w *longWait) report(text string) { w.out.line(text) }

// end ends the wait, and lets the supervisor continue the output.
func (w *longWait) end() {
	w.out.release()
	w.cancel(nil)
	w.retake()
}

// watchStop cancels when the attempt must not start any more.
func (a *attempt) watchStop(ctx context.Context, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(stopPoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := a.mayStart(); err != nil {
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
