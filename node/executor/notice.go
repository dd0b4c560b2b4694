package executor

import (
	"fmt"
	"os"
	"path"

	protocol "berth/attempt"
	"berth/compute"
	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

// Where code that restarts finds that it has to make room.
const (
	noticeTarget   = "/run/berth"
	noticeVariable = "BERTH_PREEMPT_FILE" // The path of the file that appears then.
)

// makeNoticeDir makes the directory in which the supervisor leaves the notice.
// Anybody may look into it; only we write.
func makeNoticeDir(dir string) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.Chmod(dir, 0o755) // Whatever the umask is.
	}
	if err != nil {
		return fmt.Errorf("lay out notice: %w", err)
	}
	return nil
}

// showNotice shows the directory of the notice, read-only, to code that may be
// asked to make room.
func showNotice(w compute.Work, spec *supervise.Spec, source string) {
	if !protocol.MayLeave(w.Execution) {
		return
	}
	spec.Sandbox.Binds = append(spec.Sandbox.Binds, sandbox.Bind{Source: source, Target: noticeTarget})
	spec.Sandbox.Env = append(spec.Sandbox.Env, noticeVariable+"="+path.Join(noticeTarget, supervise.NoticeFile))
}
