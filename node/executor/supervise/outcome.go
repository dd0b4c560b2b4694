package supervise

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"berth/boottime"
	"berth/compute"
	"berth/node/executor/sandbox"
	"berth/node/logs"
)

// cause is why the supervisor ended the code.
type cause uint8

const (
	causeNone cause = iota
	causeTimeout
	causeStopped
	causeAborted
	causeNodeLost
	causePreempted
	causeNotReady
	causeUnpaid
)

const (
	signalBase = 128 // A shell's exit code for signal n is 128+n.
	maxDetail  = 512 // Bytes of an outcome's detail.
)

// ending is how the code ended, as the sandbox reported it.
type ending struct {
	status syscall.WaitStatus // Status of the code, or of the first process if lost.
	lost   bool               // The first process ended before it reported the code's status.
	oom    bool               // The engine says that memory ran out.
	err    error              // The code was not started.
}

// code returns the exit code as a shell reports it.
func (e ending) code() int {
	switch {
	case e.status.Signaled():
		return signalBase + int(e.status.Signal())
	case e.lost && e.status == 0: // The code did not exit with that status.
		return signalBase + int(syscall.SIGKILL)
	}
	return e.status.ExitStatus()
}

// finish determines the outcome, completes the output and removes the cgroup.
func (s *supervisor) finish(end ending, pumps *pumps) compute.Outcome {
	outcome := s.spec.outcome(s.journal.State())
	if s.started != 0 {
		if s.ended == 0 { // Its port cannot be served, so that it was killed.
			s.ended, end.lost = boottime.Now(), true
		}
		outcome.Ran, outcome.ExitCode = true, end.code()
		outcome.Duration = s.ended - s.started
		outcome.EndedAt = outcome.StartedAt.Add(outcome.Duration)
	} else {
		outcome.EndedAt = s.instant()
	}
	outcome.Status, outcome.Reason, outcome.Detail = s.classify(end)
	outcome.Detail = compute.Clip(outcome.Detail, maxDetail)
	if pumps != nil {
		pumps.drain()
	}
	s.finishStorage()
	s.measure(&outcome)
	s.collect()
	s.closeLog(outcome)
	if s.group != nil {
		end := s.group.Remove
		if s.spec.Container != nil {
			end = s.group.Kill // The engine's groups in it take longer to go: close removes it.
		}
		if err := end(killTimeout); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	return outcome
}

// closeLog closes the output with the outcome.
func (s *supervisor) closeLog(outcome compute.Outcome) {
	if s.log == nil {
		return
	}
	if s.started == 0 {
		s.note(outcome.Detail)
	}
	final := logs.Final{ExitCode: outcome.ExitCode, Error: outcome.Detail, Status: outcome.Status.String()}
	if err := s.log.Close(s.instant(), final); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// classify returns the status, the reason and the detail of the outcome. If the
// supervisor ended the code, that counts, and not the resulting exit code.
func (s *supervisor) classify(end ending) (compute.Status, compute.Reason, string) {
	switch s.cause {
	case causeTimeout:
		detail := fmt.Sprintf("time limit of %s reached", seconds(s.spec.Timeout))
		return compute.StatusFailed, compute.ReasonTimeout, detail
	case causeStopped:
		return compute.StatusCancelled, compute.ReasonStopped, "stopped on request"
	case causeAborted:
		return compute.StatusAborted, compute.ReasonAborted, "aborted on request"
	case causeNodeLost:
		detail := fmt.Sprintf("the node did not reach the cluster for %s", seconds(s.spec.DisconnectGrace))
		return compute.StatusSystemFailure, compute.ReasonNodeLost, detail
	case causeUnpaid:
		return compute.StatusCancelled, compute.ReasonCredits, "credits ended while the cluster was not reached"
	case causePreempted:
		return compute.StatusSystemFailure, compute.ReasonPreempted, "made room for work of a higher priority"
	case causeNotReady:
		return compute.StatusFailed, compute.ReasonNotReady, s.unready()
	case causeNone:
	}
	if end.err != nil && s.outgrew(end.err) {
		return s.classifyOOM()
	}
	if errors.Is(end.err, sandbox.ErrProgram) {
		return compute.StatusFailed, compute.ReasonStartFailed, end.err.Error()
	}
	if end.err != nil && s.startUnknown {
		return compute.StatusSystemFailure, compute.ReasonSupervisorLost, end.err.Error()
	}
	if end.err != nil {
		return compute.StatusSystemFailure, compute.ReasonStartFailed, end.err.Error()
	}
	return s.classifyExit(end)
}

// outgrew reports whether the first process was killed, before the code started,
// because the memory limit was reached.
func (s *supervisor) outgrew(err error) bool {
	if s.group == nil || !errors.Is(err, sandbox.ErrNoReport) {
		return false
	}
	kills, err := s.group.OOMKills()
	if err != nil || kills == 0 {
		return false
	}
	reached, err := s.group.LimitReached()
	return err == nil && reached
}

// classifyExit classifies the end of code that the supervisor did not end. The
// supervisor lives and so does its machine, so the end is the code's own doing,
// also when the code took its sandbox along. Only a machine that ran out of memory
// below the code's limit is proof of the contrary.
func (s *supervisor) classifyExit(end ending) (compute.Status, compute.Reason, string) {
	code := end.code()
	if code == 0 {
		return compute.StatusCompleted, compute.ReasonNone, ""
	}
	if end.oom && s.spec.Container != nil && s.spec.Container.Compose != nil {
		return compute.StatusFailed, compute.ReasonOutOfMemory, "a service reached its memory limit"
	}
	// A group that cannot be read counts as one without an OOM kill.
	if kills, _ := s.group.OOMKills(); kills > 0 || end.oom {
		return s.classifyOOM()
	}
	subject := ""
	if end.lost {
		subject = "the whole sandbox: "
	}
	if end.status.Signaled() {
		detail := fmt.Sprintf("%sended by signal %d (%s)", subject, int(end.status.Signal()), end.status.Signal())
		return compute.StatusFailed, compute.ReasonSignal, detail
	}
	return compute.StatusFailed, compute.ReasonExitCode, fmt.Sprintf("%sexit code %d", subject, code)
}

// classifyOOM classifies the end of code of which the kernel killed a process to
// free memory.
func (s *supervisor) classifyOOM() (compute.Status, compute.Reason, string) {
	reached, err := s.group.LimitReached()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err == nil && !reached {
		detail := fmt.Sprintf("the machine ran out of memory; the limit of %d MiB was not reached", s.spec.MemoryMiB)
		return compute.StatusSystemFailure, compute.ReasonOutOfMemory, detail
	}
	return compute.StatusFailed, compute.ReasonOutOfMemory, fmt.Sprintf("memory limit of %d MiB reached", s.spec.MemoryMiB)
}

// measure fills in the usage of the attempt.
func (s *supervisor) measure(outcome *compute.Outcome) {
	if s.log != nil {
		stats := s.log.Stats()
		outcome.Usage.OutputBytes = stats.Received
		outcome.Usage.OutputLines = stats.ReceivedLines
	}
	if s.group == nil {
		return
	}
	cpu, err := s.group.CPUTime()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	outcome.Usage.CPUTime = max(cpu-s.cpuBase, 0)
	peak, err := s.group.PeakMemory()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	outcome.Usage.PeakMemoryMiB = min((peak+1<<20-1)>>20, s.spec.MemoryMiB)
	if s.spec.Simulated && outcome.Duration > 0 {
		given := int64(outcome.Duration) / 1000 * s.spec.CPUMilli
		outcome.Usage.GPUUtilPercent = int(min(100*int64(outcome.Usage.CPUTime)/max(given, 1), 100))
	}
}

// seconds formats a duration in seconds.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s"
}
