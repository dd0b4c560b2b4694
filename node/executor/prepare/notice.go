package prepare

import (
	"fmt"
	"os"
	"path"

	protocol "berth/attempt"
	"berth/compute"
	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

// How code learns that it is being preempted.
const (
	noticeTarget   = "/run/berth"
	noticeVariable = "BERTH_PREEMPT_FILE" // Its value is the path of the notice file.
)

// makeNoticeDir makes the directory for the supervisor's notice. Everybody may
// read it, and only Berth writes to it.
func makeNoticeDir(dir string) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.Chmod(dir, 0o755) // Independent of the umask.
	}
	if err != nil {
		return fmt.Errorf("make notice directory: %w", err)
	}
	return nil
}

// bindNotice mounts the directory of the notice read-only in the sandbox of code
// that may be preempted or stopped for a drain.
func bindNotice(w compute.Work, spec *supervise.Spec, source string) {
	if !protocol.MayLeave(w.Execution) {
		return
	}
	spec.Sandbox.Binds = append(spec.Sandbox.Binds, sandbox.Bind{Source: source, Target: noticeTarget})
	spec.Sandbox.Env = append(spec.Sandbox.Env, noticeVariable+"="+path.Join(noticeTarget, supervise.NoticeFile))
}
