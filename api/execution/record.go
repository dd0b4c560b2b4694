package execution

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"strings"
	"time"

	"berth/api/edge"
	"berth/api/edge/answer"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/loop"
)

// Limits of GET /execution/{id}.
const (
	outputBytes  = 1 << 20              // Bytes of each stream.
	waitPause    = 5 * time.Millisecond // Between polls of a busy state.
	outputBudget = 5 * time.Second      // For reading the output, wherever it is.
)

// getExecution answers everything about one execution.
func (g *executions) getExecution(r *edge.Request) (any, error) {
	e, err := g.Find(r)
	if err != nil {
		return nil, err
	}
	query := r.Query.(*wire.ExecutionQuery)
	if e, err = g.hold(r, e, query.Wait, query.Until); err != nil {
		return nil, err
	}
	r.ETag = etagOf(r.View, e)
	// A running execution's output grows, which the tag does not cover.
	if quiet := e.Epoch == 0 || e.Status.Terminal(); quiet && r.IfNoneMatch == r.ETag {
		return answer.NotModified{}, nil
	}
	return g.execution(r, e)
}

// untilEnd is the value of the parameter until with which only the end is waited for.
const untilEnd = "end"

// hold waits until e changes, or until it ends, for at most the time that the client
// asked for. It returns the execution in the request's new view.
func (g *executions) hold(r *edge.Request, e *compute.Execution, wait, until string) (*compute.Execution, error) {
	if wait == "" {
		return e, nil
	}
	limit, err := edge.ParseWait(wait)
	if err != nil {
		return nil, err
	}
	seen := etagOf(r.View, e)
	wanted := func(e *compute.Execution) bool {
		return e.Status.Terminal() || until != untilEnd && etagOf(r.View, e) != seen
	}
	if wanted(e) || until != untilEnd && r.IfNoneMatch != "" && r.IfNoneMatch != seen {
		return e, nil
	}
	release, err := g.TakeStream(r, e.Org)
	if err != nil {
		return nil, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(r.Held(), limit)
	defer cancel()
	defer r.Watch(cancel)()
	for !wanted(e) {
		view, err := g.Config.Reader.Wait(ctx, r.View.Index())
		if err != nil {
			break // Time is up: the answer is what is known.
		}
		r.View = view
		if err := g.LoadArchived(r, e.ID); err != nil {
			return nil, err
		}
		found, ok := r.View.Execution(r.Caller.Actor.Org, e.ID)
		if !ok {
			return nil, edge.NotFound()
		}
		if e = found; !wanted(e) {
			loop.Sleep(ctx, waitPause)
		}
	}
	// The wait was asked for and does not count against the deadline.
	r.Renew()
	return e, nil
}

// etagOf returns a tag that changes with the record of e. It is weak because
// output is not part of it.
func etagOf(view *fsm.View, e *compute.Execution) string {
	b := make([]byte, 0, 256)
	state := func(e *compute.Execution, times ...compute.Instant) {
		b = append(b, byte(e.Status), byte(e.Reason), byte(e.Stop))
		b = binary.AppendUvarint(b, e.Epoch)
		b = binary.AppendUvarint(b, uint64(e.Retries))
		for _, at := range times {
			b = binary.AppendVarint(b, int64(at))
		}
	}
	b = append(append(b, e.ID.UUID[:]...), e.Detail...)
	state(e, e.ExecletAt, e.StartedAt, e.EndedAt, e.FinishedAt)
	for _, child := range view.ChildrenOf(e) {
		state(child, child.StartedAt)
	}
	h := fnv.New64a()
	h.Write(b)
	return `W/"` + hex.EncodeToString(h.Sum(nil)) + `"`
}

// execution returns everything about e. If the code or the output cannot be
// read, the record has a warning instead. They may be large: a record of which
// they are not cached is built in turn.
func (g *executions) execution(r *edge.Request, e *compute.Execution) (any, error) {
	kept, cached := g.ended.get(e.ID)
	small := e.Epoch == 0 && len(e.Bundle.Inline) > 0 // It has printed nothing.
	if !cached && !small {
		if err := g.AwaitTurn(r); err != nil {
			return nil, err
		}
		r.Renew()                        // A node that does not answer must not fail those in line behind it.
		kept, cached = g.ended.get(e.ID) // Another request may have read them.
	}
	out := wire.Execution{
		ExecutionSummary: handler.SummaryOf(r.View, e),
		Errors:           errorsOf(e), Warnings: []string{},
		Attempts: handler.AttemptsOf(r.View, e), Outputs: []wire.Output{}, Command: []string{}, Args: []string{},
		Timeout: secondsOfLimit(e.Timeout), Priority: e.Priority, Network: e.Network,
		DisconnectGrace: int(e.DisconnectGrace / time.Second),
		Usage: wire.Usage{
			CPUSeconds: seconds(e.Usage.CPUTime), PeakMemoryMiB: e.Usage.PeakMemoryMiB,
			OutputBytes: e.Usage.OutputBytes, OutputLines: e.Usage.OutputLines,
		},
	}
	out.Scratch, out.Volumes = wire.SpaceOf(e)
	out.S3MountPath, out.OutputsPrefix = wire.MountOf(e), e.OutputsPrefix
	out.Environment = wire.OrNull(e.Environment.Name)
	if e.Request.GPUs > 0 {
		out.Usage.GPUUtilPercent, out.Usage.GPUMemoryMiB = gpuUsage(&e.Usage)
	}
	if e.Ran && e.Status.Terminal() {
		out.ReturnCode = &e.ExitCode
	}
	if e.MaxCredits > 0 {
		out.MaxCredits = &e.MaxCredits
	}
	if !e.Status.Terminal() {
		out.PendingReason = wire.OrNull(e.Reason.String())
	}
	if e.Files != nil {
		out.BundleID = &e.Files.Bundle
	}
	if e.Container != nil {
		out.Reported = reportedOf(e.Container.Reported)
	}
	if cached {
		g.addFiles(r, e, &out)
		g.addKernelState(r, e, kept.program, &out)
		showProgram(&out, kept.program)
		out.Stdout, out.Stderr, out.CombinedOutput = kept.stdout, kept.stderr, kept.combined
		addDetail(e, &out)
		return out, nil
	}
	bundle := g.addCode(r, e, &out)
	g.addOutput(r, e, &out)
	if len(out.Warnings) == 0 {
		g.ended.put(e, ended{bundle, out.Stdout, out.Stderr, out.CombinedOutput})
	}
	g.addFiles(r, e, &out)
	g.addKernelState(r, e, bundle, &out)
	addDetail(e, &out)
	return out, nil
}

// reportedOf returns a client's report about the end of an execution, nil for none.
func reportedOf(said *compute.Reported) *wire.Reported {
	if said == nil {
		return nil
	}
	out := &wire.Reported{Output: said.Output, At: said.At}
	if said.Status.Terminal() {
		status := said.Status.String()
		out.Status = &status
	}
	if said.Exited {
		out.ReturnCode = &said.ReturnCode
	}
	return out
}

// addDetail warns of GPU types that were left out. Errors have it already.
func addDetail(e *compute.Execution, out *wire.Execution) {
	if e.AnyOf() && e.Detail != "" && len(out.Errors) == 0 {
		out.Warnings = append(out.Warnings, e.Detail)
	}
}

// showProgram adds what a bundle executes.
func showProgram(out *wire.Execution, bundle *compute.Bundle) {
	out.Code, out.Module, out.Script = bundle.Code, wire.OrNull(bundle.Module), wire.OrNull(bundle.Script)
	out.Command = append(out.Command, bundle.Command...)
	out.Args = append(out.Args, bundle.Args...)
}

// addCode adds what e executes, and returns the part of its bundle that is shown.
func (g *executions) addCode(r *edge.Request, e *compute.Execution, out *wire.Execution) *compute.Bundle {
	data := e.Bundle.Inline
	if data == nil && r.Stale() && !g.Config.Blobs.Has(e.Bundle.Hash) {
		out.Warnings = append(out.Warnings, "The code is on another node, which a stale read does not ask.")
		return nil
	}
	var err error
	if data == nil {
		data, err = g.Config.Blobs.Get(r.Ctx, e.Bundle.Hash)
	}
	var bundle *compute.Bundle
	if err == nil {
		bundle, err = compute.DecodeBundle(data)
	}
	if err != nil {
		r.Log(g.Log).Debug("code not readable", "execution", e.ID, "err", err)
		out.Warnings = append(out.Warnings, "The code cannot be read now.")
		return nil
	}
	shown := &compute.Bundle{
		Code: bundle.Code, Module: bundle.Module, Command: bundle.Command, Script: bundle.Script, Args: bundle.Args,
		Cell: bundle.Cell,
	}
	showProgram(out, shown)
	return shown
}

// addOutput adds the end of the output of e.
func (g *executions) addOutput(r *edge.Request, e *compute.Execution, out *wire.Execution) {
	if e.Epoch == 0 {
		return
	}
	if r.Stale() && !g.Config.Logs.Here(e.ID) {
		out.Warnings = append(out.Warnings, elsewhere)
		return
	}
	ctx, cancel := context.WithTimeout(r.Ctx, outputBudget)
	defer cancel()
	output, err := g.Config.Logs.Tail(ctx, e.ID, outputBytes)
	if err != nil {
		r.Log(g.Log).Debug("output not readable", "execution", e.ID, "err", err)
		out.Warnings = append(out.Warnings, "The output cannot be read now.")
		return
	}
	out.Stdout = strings.ToValidUTF8(string(output.Stdout), "\uFFFD")
	out.Stderr = strings.ToValidUTF8(string(output.Stderr), "\uFFFD")
	out.CombinedOutput = strings.ToValidUTF8(string(output.Combined), "\uFFFD")
	out.OutputTruncated = output.Truncated
	if output.Truncated {
		out.Warnings = append(out.Warnings, "There was more output: only its last part is shown.")
	}
}

// progressOf returns the newest progress in the output of a live execution, nil
// for none.
func (g *executions) progressOf(ctx context.Context, e *compute.Execution) *float64 {
	whole := 1.0
	switch {
	case e.Status == compute.StatusCompleted:
		return &whole
	case e.Status != compute.StatusRunning:
		return nil
	}
	output, err := g.Config.Logs.Tail(ctx, e.ID, progressBytes)
	if err != nil {
		return nil
	}
	return lastProgress(string(output.Stdout))
}

// lastProgress returns the newest line such as "BERTH_PROGRESS 37/100" as a
// part of one.
func lastProgress(output string) *float64 {
	at := strings.LastIndex(output, compute.ProgressMark)
	if at < 0 {
		return nil
	}
	line, _, _ := strings.Cut(output[at:], "\n")
	part, ok := compute.ParseProgress(line)
	if !ok {
		return nil
	}
	return &part
}

// progressBytes is how much of the end of the output is read for progress.
const progressBytes = 16 << 10

// secondsOfLimit returns a time limit in seconds, 0 for none.
func secondsOfLimit(limit time.Duration) int {
	if limit >= compute.Unlimited {
		return 0
	}
	return int(limit / time.Second)
}

// errorsOf returns readable reasons why an execution did not complete, none
// while it is live.
func errorsOf(e *compute.Execution) []string {
	if !e.Status.Terminal() || e.Status == compute.StatusCompleted {
		return []string{}
	}
	return []string{errorOf(e)}
}

// errorOf returns why an ended execution did not complete.
func errorOf(e *compute.Execution) string {
	switch {
	case e.Detail == "" && e.Reason == compute.ReasonNone:
		return e.Status.String()
	case e.Detail == "":
		return e.Reason.String()
	case e.Reason == compute.ReasonNone:
		return e.Detail
	}
	return e.Reason.String() + ": " + e.Detail
}
