package supervise

import (
	"errors"
	"fmt"
	"os"

	"berth/node/executor/outputs"
	"berth/node/executor/sandbox"
)

// openWork opens the work directory of the sandbox. The sandbox's mounts end with
// its last process, but not what is open. Code does not need its outputs to be
// collected: without them it starts too.
func (s *supervisor) openWork() {
	name := fmt.Sprintf("/proc/%d/root%s", s.box.Process(), sandbox.WorkDir)
	if s.spec.Container != nil {
		if !s.spec.Sandbox.ScratchDisk {
			return // Nothing that such code writes outlives its containers.
		}
		name = fmt.Sprintf("/proc/self/fd/%d", FDScratch)
	}
	work, err := os.Open(name)
	if err != nil {
		fmt.Fprintln(os.Stderr, "open work directory:", err)
		return
	}
	s.work = work
}

// collect copies the outputs of the code, all of whose processes have ended, to
// the attempt's directory.
func (s *supervisor) collect() {
	if s.started == 0 {
		return
	}
	var summary outputs.Summary
	if s.work == nil && s.spec.Container != nil {
		return
	}
	err := errors.New("the work directory is not open")
	if s.work != nil {
		summary, err = outputs.Collect(s.work, OutputsFile, outputs.DefaultLimits())
		s.work.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if summary.Complete && summary.Files == 0 && summary.Left == 0 {
		os.Remove(OutputsFile)
		return
	}
	if err := summary.Write(OutputsSummary); err != nil {
		fmt.Fprintln(os.Stderr, err) // The node takes what there is.
	}
}
