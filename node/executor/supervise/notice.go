package supervise

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"berth/boottime"
)

// preempt gives the code a preemption notice, once, and stops it when the notice is
// over. Code that exits before then ends with its own exit code.
func (s *supervisor) preempt(notice time.Duration) {
	if s.preempted || s.cause != causeNone {
		return
	}
	s.preempted = true
	s.note(fmt.Sprintf("preempted: SIGTERM in %s, SIGKILL %s later", seconds(notice), seconds(s.spec.StopGrace)))
	err := writeNotice(notice, s.spec.StopGrace)
	if e := s.notice.set(boottime.Now() + notice); e != nil {
		err = errors.Join(err, e)
		s.stop(causePreempted)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// writeNotice writes the notice file for the code. The current directory is the
// attempt's. It has a NoticeDir only if the code may be preempted or drained.
func writeNotice(notice, grace time.Duration) error {
	name := path.Join(NoticeDir, NoticeFile)
	text := fmt.Sprintf("{\"sigterm_in_seconds\":%s,\"sigkill_after_seconds\":%s}\n",
		strings.TrimSuffix(seconds(notice), " s"), strings.TrimSuffix(seconds(grace), " s"))
	err := os.WriteFile(name+".new", []byte(text), 0o644)
	if err == nil {
		err = os.Chmod(name+".new", 0o644) // Independent of the umask.
	}
	if err == nil {
		err = os.Rename(name+".new", name) // The code never sees a partial file.
	}
	if err != nil {
		return fmt.Errorf("write notice: %w", err)
	}
	return nil
}
