package fsm

import (
	"crypto/sha256"
	"slices"
	"time"
	"unicode/utf8"

	"berth/attempt"
	"berth/compute"
	"berth/fault"
	"berth/fsm/charge"
	"berth/fsm/command"
	"berth/fsm/format"
)

// Limits of executions.
const (
	maxDetail    = 512 // Bytes.
	maxPriority  = 100
	maxCallbacks = 10
	maxRetries   = 10

	maxExecutionName = 64          // Bytes.
	leastTime        = time.Second // The least run time that a ceiling of credits must buy.
)

// submit records an execution as queued, or a parent as pending, and sets its
// credits aside.
func (s *execution) submit(c command.Submit) command.Result {
	e, amount, refusal := s.judgeSubmit(c)
	if refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if c.Key != nil {
		if refusal := s.view.admitSealed(c.Key.Sealed); refusal != nil {
			return command.Result{Refusal: refusal}
		}
		s.identity.firstDataKey(c.Actor.Org, *c.Key)
	}
	s.money.hold(&e, amount, "submitted")
	s.expectReason(&e)
	s.putExecution(&e)
	s.upload.use(e.Files)
	if !e.Kind.IsParent() {
		s.statistics.learn(e.Request)
	}
	return command.Result{Execution: e.ID, Status: e.Status, ID: e.ID.UUID}
}

// expectReason has a new execution wait for what the oldest one of its line waits for, if that asks
// for the same and nodes lack it. Otherwise each would be written twice: the scheduler finds the same.
func (s *execution) expectReason(e *compute.Execution) {
	if s.view.Format() < format.Rotation || e.Status != compute.StatusQueued {
		return
	}
	first := s.view.Line(e.Priority, e.Org, nil, 1)
	if len(first) == 0 || first[0].Kind != e.Kind || first[0].Request.Key() != e.Request.Key() {
		return
	}
	switch why := first[0].Reason; why {
	case compute.ReasonGPUsBusy, compute.ReasonResourcesBusy, compute.ReasonNodesDown:
		e.Reason = why
	default:
	}
}

// CheckSubmit returns the error with which v would refuse c, nil if it would not. It
// costs less than storing a bundle for a command that is refused.
func (v *View) CheckSubmit(c command.Submit) error {
	if _, _, refusal := stateOf(v).execution.judgeSubmit(c); refusal != nil {
		return refusal
	}
	return nil
}

// RecordImports sets the part of e's import files that its record keeps. Their
// paths are sorted. Their number is left out while a server could not apply it.
func (v *View) RecordImports(e *compute.Execution, paths []string) {
	e.Imports = compute.RecordedPaths(paths)
	if v.Format() >= format.Imports {
		e.ImportFiles = len(paths)
	}
}

// judgeSubmit returns the execution that c makes and the credits to set aside for it,
// or a refusal. It changes nothing.
func (s *execution) judgeSubmit(
	c command.Submit,
) (e compute.Execution, amount compute.Credits, refusal *compute.Error) {
	if refusal := s.access.admit(c.Actor); refusal != nil {
		return e, 0, refusal
	}
	if c.Actor.Org.IsZero() || c.Actor.Root {
		return e, 0, compute.Errorf(compute.CodeForbidden,
			"an execution belongs to an organization's member").Named("no_org")
	}
	if refusal := s.checkSubmit(&c.Execution); refusal != nil {
		return e, 0, refusal
	}
	if refusal := s.sealedWith(&c); refusal != nil {
		return e, 0, refusal
	}
	e = s.accepted(c)
	if refusal := s.upload.attach(&e, c.Execution.Files); refusal != nil {
		return e, 0, refusal
	}
	if refusal := s.findEnvironment(&e); refusal != nil {
		return e, 0, refusal
	}
	switch e.Kind {
	case compute.KindSelection:
		refusal = s.selection.prepareSelection(&e)
	case compute.KindService:
		refusal = s.service.prepareService(&e)
	default:
		refusal = s.prepareSingle(&e)
	}
	if refusal != nil {
		return e, 0, refusal
	}
	t, _ := s.view.totals.Get(e.Org)
	waiting := t.byStatus[compute.StatusQueued] + t.byStatus[compute.StatusPending]
	if limit := s.view.meta.Settings.Queued; limit > 0 && waiting >= limit {
		return e, 0, compute.Errorf(compute.CodeForbidden,
			"%d executions of the organization wait, which is the limit", waiting).Named("queue_full")
	}
	amount = charge.FirstHold(&e)
	switch e.Kind {
	case compute.KindSelection:
		amount = e.MaxCredits
	case compute.KindService: // Its replicas have holds of their own.
		return e, 0, s.money.lacks(&e, s.service.firstHolds(&e))
	default:
	}
	return e, amount, s.money.lacks(&e, amount)
}

// checkSubmit refuses executions that no state could accept.
func (s *execution) checkSubmit(e *compute.Execution) *compute.Error {
	invalid := func(detail, format string, args ...any) *compute.Error {
		return compute.Errorf(compute.CodeInvalid, format, args...).Named(detail)
	}
	limit := s.view.meta.Settings.TimeoutMax
	switch {
	case e.ID.IsZero():
		return invalid("no_execution_id", "an execution needs an identifier")
	case int(e.Kind) >= kinds || e.Kind == compute.KindSubSelection || e.Kind == compute.KindReplica:
		return invalid("kind", "executions of this kind cannot be submitted")
	case (e.Kind == compute.KindSelection) != (e.Selection != nil):
		return invalid("selection", "a GPU selection, and nothing else, says what it selects by")
	case (e.Kind == compute.KindService) != (e.Service != nil && e.Serving != nil):
		return invalid("service", "a service, and nothing else, says what it serves")
	case (e.Inference != nil) != (e.Deployment != nil) || e.Deployment != nil && e.Kind != compute.KindService:
		return invalid("deployment", "a service with an engine, and nothing else, is a deployment")
	case e.Kind == compute.KindService: // It has no time limit.
	case e.Timeout < time.Millisecond || limit > 0 && e.Timeout > limit:
		return invalid("timeout", "timeout must be above 0 and at most %s", limit)
	case e.DisconnectGrace < 0 || e.MaxCredits < 0 || e.MaxCredits > maxAmount:
		return invalid("negative",
			"disconnect_grace and max_credits are not negative, and max_credits is at most %s", maxAmount)
	case e.Priority < 0 || e.Priority > maxPriority:
		return invalid("priority", "priority is 0 to %d", maxPriority)
	case e.MaxRetries < 0 || e.MaxRetries > maxRetries:
		return invalid("max_retries", "max_retries is 0 to %d", maxRetries)
	case e.ImportFiles != 0 && e.ImportFiles < len(e.Imports):
		return invalid("import_files", "an execution has no fewer import files than paths of them")
	case len(e.Name) > maxExecutionName:
		return invalid("name", "a name has at most %d bytes", maxExecutionName)
	case e.Storage != nil && badMountPath(e.Storage.Path):
		return invalid("s3_mount_path", "storage is mounted at a clean absolute path of at most %d bytes", maxMountPath)
	case e.OutputsPrefix != "" && compute.BadOutputsPrefix(e.OutputsPrefix) != "":
		return invalid("outputs_prefix", "no files can be stored below this prefix: %s",
			compute.BadOutputsPrefix(e.OutputsPrefix))
	case e.ScratchMiB < 0 || e.ScratchMiB > maxCapacity || len(e.Volumes) > maxVolumes:
		return invalid("volumes", "an execution has at most %d volumes and some scratch space", maxVolumes)
	case e.MinVRAMMiB < 0 || e.MinVRAMMiB > maxMinVRAM:
		return invalid("min_vram", "min_vram_gb is 0 to %d", int64(maxMinVRAM>>10))
	case e.MinCapability < 0 || e.MinCapability > maxCapability:
		return invalid("min_compute_capability", "min_compute_capability is 0.1 to 99.9")
	case len(e.GPUTypes) > compute.MaxAnyOf:
		return invalid("gpu_types", "at most %d GPU types are listed", compute.MaxAnyOf)
	case len(e.CallbackURLs) > maxCallbacks:
		return invalid("callbacks", "at most %d callback URLs are allowed", maxCallbacks)
	}
	b := e.Bundle
	if len(b.Inline) > compute.MaxInlineBundle || b.Inline != nil && b.Hash != sha256.Sum256(b.Inline) {
		return invalid("bundle", "the bundle is too large for the log or not what its hash says")
	}
	if s.view.executions.Has(e.ID) {
		return compute.Errorf(compute.CodeConflict,
			"an execution with this identifier exists").Named("execution_exists")
	}
	return s.checkContainer(e)
}

// accepted returns the execution as the state records it: with the client's fields,
// and without those that only the state sets.
func (s *execution) accepted(c command.Submit) compute.Execution {
	said := c.Execution
	if s.view.Format() < format.Trust {
		said.MaxRetries = 0
	}
	if s.view.Format() < format.Imports {
		said.ImportFiles = 0
	}
	if s.view.Format() < format.Lab {
		said.Name = ""
		said.MinVRAMMiB = 0
	}
	if s.view.Format() < format.Services || said.Kind == compute.KindSelection {
		said.GPUTypes = nil
	}
	if s.view.Format() < format.Services {
		said.MinCapability = 0
	}
	container, grace := s.containerOf(&said), s.view.meta.Settings.StopGrace
	if container != nil && container.Grace > 0 {
		grace = container.Grace
	}
	if s.view.Format() < format.Containers {
		said.Environment.Name = ""
	}
	if s.view.Format() < format.Accounts {
		said.Inference, said.Deployment = nil, nil
	}
	if s.view.Format() < format.Asked {
		said.OutputsPrefix = ""
	}
	return compute.Execution{
		ID: said.ID, Org: c.Actor.Org, User: c.Actor.User, Key: c.Actor.Key, Kind: said.Kind,
		Profile: said.Profile, Bundle: said.Bundle, FileName: said.FileName,
		Imports: said.Imports, ImportFiles: said.ImportFiles, JobType: said.JobType, Timeout: said.Timeout,
		DisconnectGrace: said.DisconnectGrace, Priority: said.Priority, Network: said.Network,
		Tags: said.Tags, CallbackURLs: said.CallbackURLs, MaxCredits: said.MaxCredits,
		Selection: said.Selection, Service: said.Service, Serving: said.Serving,
		Inference: said.Inference, Deployment: said.Deployment,
		SubmitIndex: s.view.meta.Index, CreatedAt: s.view.meta.Now,
		StopGrace: grace, Container: container, Preemptible: said.Preemptible && !said.Kind.IsParent(),
		MaxRetries: said.MaxRetries, MinVRAMMiB: said.MinVRAMMiB, Name: said.Name,
		GPUTypes: said.GPUTypes, MinCapability: said.MinCapability,
		Volumes: said.Volumes, ScratchMiB: said.ScratchMiB, ScratchMemory: said.ScratchMemory, Storage: said.Storage,
		Environment: compute.EnvironmentRef{Name: said.Environment.Name}, OutputsPrefix: said.OutputsPrefix,
	}
}

// prepareSingle sizes and prices an execution that will run itself. A ceiling
// of credits below its worst case shortens its time limit to the time that it buys,
// so that no more is ever spent.
func (s *execution) prepareSingle(e *compute.Execution) *compute.Error {
	if refusal := s.sizeSingle(e); refusal != nil {
		return refusal
	}
	if refusal := s.askOffers(e); refusal != nil {
		return refusal
	}
	e.Status, e.Reason = compute.StatusQueued, compute.ReasonScheduling
	if !limitTime(e) {
		return compute.Errorf(compute.CodeInvalid,
			"max_credits of %s buys less than a second of %s", e.MaxCredits, e.Profile).
			Named("max_credits")
	}
	return nil
}

// sizeSingle sets the profile, the request and the price of e.
func (s *execution) sizeSingle(e *compute.Execution) *compute.Error {
	if s.view.acceptsAny(e) {
		return resolver{s.view}.prepareAny(e)
	}
	p, r, price, err := s.view.Resolve(e.Profile)
	if err != nil {
		return asRefusal(err)
	}
	if refusal := s.view.needs(e, p, &r); refusal != nil {
		return refusal
	}
	e.Profile, e.Request, e.Price = p.String(), r, price
	return s.view.admitProfile(e.Org, e.Profile)
}

// limitTime shortens the time limit of e so that its ceiling of credits buys
// it with the grace behind it. At least a second of it stays, and the grace is
// then shorter (PaidGrace). It reports whether the ceiling buys that second.
func limitTime(e *compute.Execution) bool {
	if e.MaxCredits == 0 {
		return true
	}
	paid := e.Price.Buys(e.MaxCredits, e.Owed+e.Timeout+e.StopGrace) - e.Owed
	least := min(leastTime, e.Timeout)
	if limit := max(paid-e.StopGrace, least); limit < e.Timeout {
		e.Timeout = limit
		e.Detail = clip(joinDetail("time limit "+limit.String()+": what max_credits buys", e.Detail))
	}
	return paid >= least
}

// startAttempt records that the user's process started.
func (s *execution) startAttempt(c command.StartAttempt) command.Result {
	a, e, refusal := s.liveAttempt(c.Node, c.Start.Execution, c.Start.Epoch)
	if refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if a.Started {
		return command.Result{Repeat: true, Execution: e.ID, Status: e.Status}
	}
	a.Started, a.StartedAt = true, s.view.meta.Now
	s.view.putAttempt(&a)
	e.Status = compute.StatusRunning
	e.ExecletAt, e.StartedAt = c.Start.ExecletAt, c.Start.StartedAt
	s.putExecution(&e)
	s.selection.startParent(&e)
	return command.Result{Execution: e.ID, Status: e.Status}
}

// liveAttempt returns copies of a live attempt and its execution. Reports on an
// attempt that has ended, was replaced or is another node's are refused: they
// change nothing, and their sender may forget them.
func (s *execution) liveAttempt(node compute.NodeID, id compute.ExecutionID, epoch uint64,
) (compute.Attempt, compute.Execution, *compute.Error) {
	if fault.Planted(fault.StaleEpoch) {
		node, epoch = s.newestAttempt(id)
	}
	a, ok := s.view.attempts.Get(numberKey{id.UUID, epoch})
	if !ok || a.Ended || a.Node != node {
		return compute.Attempt{}, compute.Execution{}, compute.Errorf(compute.CodeConflict,
			"this attempt is not live on this node").Named("stale_attempt")
	}
	e, _ := s.view.executions.Get(id)
	return *a, *e, nil
}

// newestAttempt names the newest attempt of an execution. While StaleEpoch is
// planted, a report about any attempt is applied to it.
func (s *execution) newestAttempt(id compute.ExecutionID) (compute.NodeID, uint64) {
	e, ok := s.view.executions.Get(id)
	if !ok {
		return compute.NodeID{}, 0
	}
	a, ok := s.view.attempts.Get(numberKey{id.UUID, e.Epoch})
	if !ok {
		return compute.NodeID{}, 0
	}
	return a.Node, a.Epoch
}

// finishAttempt ends an execution as its node says.
func (s *execution) finishAttempt(c command.FinishAttempt) command.Result {
	o := c.Outcome
	if !o.Status.Terminal() || int(o.Status) >= compute.Statuses || o.Duration < 0 {
		return refuse(compute.CodeInvalid, "outcome", "an outcome has a terminal status and a duration")
	}
	a, e, refusal := s.liveAttempt(c.Node, o.Execution, o.Epoch)
	if refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if o.Series != nil {
		e.AddSeries(o.Epoch, *o.Series)
	}
	if s.view.Format() >= format.Rotation && paidOn(&e, &o) {
		o.Status, o.Reason = compute.StatusSystemFailure, compute.ReasonNodeLost
		o.Detail = "the node did not reach the cluster, and stopped the code before it heard of more credits"
	}
	toOwn := yieldedToOwn(&a, &e, &o)
	if toOwn && s.owe(&e, o.Duration) {
		s.requeue(a, &e, afterPreemption(&e).owed())
		return command.Result{Execution: e.ID, Status: e.Status}
	}
	if !toOwn && s.goesOn(a, &e, attempt.EndingOf(&o)) {
		return command.Result{Execution: e.ID, Status: e.Status}
	}
	e.Ran, e.ExitCode, e.Duration, e.Usage = o.Ran, o.ExitCode, o.Duration, o.Usage
	e.Outputs = outputsOf(&o)
	executed(&e, o.Digest)
	e.ExecletAt, e.EndedAt = orInstant(o.ExecletAt, e.ExecletAt), o.EndedAt
	e.StartedAt = orInstant(o.StartedAt, e.StartedAt)
	if !e.StartedAt.IsZero() {
		s.selection.startParent(&e)
	}
	how := verdictOf(&e, o)
	if toOwn {
		how = endsOwing()
	}
	s.endAttempt(a, &e, how)
	return command.Result{Execution: e.ID, Status: e.Status}
}

// paidOn reports whether a node that was cut off stopped code at the end of its credits, although more
// of them had been set aside meanwhile.
func paidOn(e *compute.Execution, o *compute.Outcome) bool {
	return o.Reason == compute.ReasonCredits && e.Stop == compute.StopNone &&
		(e.CreditsEnd.IsZero() || e.CreditsEnd > o.EndedAt)
}

// outputsOf returns the outputs in an outcome as a record has them.
func outputsOf(o *compute.Outcome) *compute.Outputs {
	if o.Outputs == nil {
		return nil
	}
	out := *o.Outputs
	out.Count, out.Bytes = max(out.Count, 0), max(out.Bytes, 0)
	out.Warning = compute.Clip(out.Warning, compute.MaxOutputWarning)
	return &out
}

// orInstant returns the first instant that is set.
func orInstant(a, b compute.Instant) compute.Instant {
	if a.IsZero() {
		return b
	}
	return a
}

// ending is how an execution ends.
type ending struct {
	status compute.Status
	reason compute.Reason
	detail string
}

// verdictOf returns how e ends according to its node. Code that a stop
// ended is aborted or cancelled as asked, for the reason of the stop; code
// that ended by itself first keeps its own end.
func verdictOf(e *compute.Execution, o compute.Outcome) ending {
	v := ending{o.Status, o.Reason, o.Detail}
	if o.Detail == "" || o.Reason == compute.ReasonTimeout || e.Reason == compute.ReasonCredits {
		v.detail = joinDetail(o.Detail, e.Detail)
	}
	stopped := o.Status == compute.StatusAborted || o.Status == compute.StatusCancelled ||
		o.Reason == compute.ReasonSignal || o.Reason == compute.ReasonPreempted
	if e.Stop == compute.StopNone || !stopped {
		if raced(e.Reason) { // It ended before it was stopped.
			v.detail, e.Predicted = o.Detail, 0
		}
		return v
	}
	asked := stopEnding(e.Stop)
	if raced(e.Reason) {
		return ending{asked.status, e.Reason, e.Detail}
	}
	if e.Reason == compute.ReasonDrained {
		return endsDrained()
	}
	v.status, v.reason = asked.status, asked.reason
	if e.Reason == compute.ReasonCredits || e.Reason == compute.ReasonParentEnded {
		v.reason = e.Reason
	}
	return v
}

func joinDetail(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// stopEnding returns how an execution ends that a stop ended.
func stopEnding(stop compute.Stop) ending {
	if stop == compute.StopHard {
		return ending{compute.StatusAborted, compute.ReasonAborted, ""}
	}
	return ending{compute.StatusCancelled, compute.ReasonStopped, ""}
}

// loseAttempts ends the executions of a node that stayed away too long, or has them
// wait for another attempt.
//
// While too many nodes have vanished at once that is refused: a leader that saw
// fewer asks again once they are back, or known to be gone.
func (s *execution) loseAttempts(c command.LoseAttempts) command.Result {
	if n, known := s.view.nodes.Get(c.Node); known && attempt.Holds(s.view.Brake(), n) {
		return refuse(compute.CodeConflict, "braked",
			"%d nodes vanished at once: no attempt is given up", len(s.view.Vanished()))
	}
	var r command.Result
	for _, ref := range c.Attempts {
		a, e, refusal := s.liveAttempt(c.Node, ref.Execution, ref.Epoch)
		if refusal != nil {
			continue // It ended meanwhile.
		}
		r.Count++
		s.loseAttempt(a, &e, "its node was gone for longer than the execution may be disconnected")
	}
	return r
}

// loseAttempt ends a live attempt whose node is given up, and the execution e
// with it, with why for its owner, unless e may wait for another attempt.
func (s *execution) loseAttempt(a compute.Attempt, e *compute.Execution, why string) {
	if !s.goesOn(a, e, attempt.GivenUp()) {
		s.endAttempt(a, e, ending{compute.StatusSystemFailure, compute.ReasonNodeLost, why})
	}
}

// endAttempt ends a live attempt and with it the execution e.
func (s *execution) endAttempt(a compute.Attempt, e *compute.Execution, how ending) {
	s.placement.leave(&a, e)
	a.Status, a.Reason = how.status, how.reason
	s.statistics.tallyEnd(&a, e, a.Status, a.Reason)
	s.view.putAttempt(&a)
	s.end(e, how)
}

// end makes e terminal: its status, its charge, and its callbacks or its parent's state,
// all in this entry.
func (s *execution) end(e *compute.Execution, how ending) {
	e.Status, e.Reason, e.Detail = how.status, how.reason, clip(how.detail)
	e.FinishedAt, e.Estimate = s.view.meta.Now, nil
	forgetCredentials(e)
	unready(e, s.view.meta.Now)
	s.money.settle(e)
	s.putExecution(e)
	if e.Kind == compute.KindReplica {
		s.service.endReplica(e)
		return
	}
	if !e.Parent.IsZero() {
		s.selection.endChild(e)
		return
	}
	for i, url := range e.CallbackURLs {
		s.view.putCallback(&compute.Callback{
			Execution: e.ID, Number: i, URL: url, CreatedAt: s.view.meta.Now,
		})
	}
}

// clip shortens text for people to the length that a record may hold.
func clip(text string) string {
	if len(text) <= maxDetail {
		return text
	}
	n := maxDetail
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// stopExecution asks for the end of an execution; one without an attempt ends
// at once. A hard stop overrides a graceful one, never the other way round.
func (s *execution) stopExecution(c command.StopExecution) command.Result {
	if refusal := s.access.admit(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	known, ok := s.visible(c.Actor, c.Execution)
	switch {
	case !ok:
		return refuse(compute.CodeNotFound, "execution_not_found", "execution not found")
	case c.Stop != compute.StopGraceful && c.Stop != compute.StopHard:
		return refuse(compute.CodeInvalid, "stop", "a stop is graceful or hard")
	case known.Status.Terminal():
		return refuse(compute.CodeConflict, "already_ended",
			"the execution has already ended as %s", known.Status)
	}
	if refusal := s.view.admitEnd(known); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	switch known.Kind {
	case compute.KindSelection:
		s.selection.stopSelection(known, c.Stop)
	case compute.KindService:
		s.service.stopService(known, c.Stop)
	default:
		s.stop(known, c.Stop, compute.ReasonNone)
	}
	now, _ := s.view.executions.Get(c.Execution)
	return command.Result{Execution: now.ID, Status: now.Status}
}

// visible returns an execution that the actor may see.
func (s *execution) visible(a command.Actor, id compute.ExecutionID) (*compute.Execution, bool) {
	if a.Root {
		return s.view.AnyExecution(id)
	}
	return s.view.Execution(a.Org, id)
}

// stop stops an execution that is not a parent. Why is kept until it has ended.
func (s *execution) stop(known *compute.Execution, how compute.Stop, why compute.Reason) {
	e := *known
	if e.Status <= compute.StatusQueued {
		v := stopEnding(how)
		if why != compute.ReasonNone {
			v.reason = why
		}
		e.Stop = how
		s.end(&e, v)
		return
	}
	if why != compute.ReasonNone || e.Reason == compute.ReasonDrained {
		e.Reason = why // A stop replaces the reason of an earlier drain.
	}
	e.Stop = max(e.Stop, how)
	s.putExecution(&e)
}

// deleteExecution removes the content of an ended execution and of its sub-executions,
// and leaves the billing rows.
func (s *execution) deleteExecution(c command.DeleteExecution) command.Result {
	if refusal := s.access.admit(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	known, ok := s.visible(c.Actor, c.Execution)
	switch {
	case !ok:
		return refuse(compute.CodeNotFound, "execution_not_found", "execution not found")
	case !known.Status.Terminal():
		return refuse(compute.CodeConflict, "still_live",
			"the execution has not ended; stop it first")
	}
	s.strip(known)
	for _, id := range known.Children() { // Ended before their parent did.
		if child, ok := s.view.executions.Get(id); ok {
			s.strip(child)
		}
	}
	return command.Result{Execution: known.ID, Status: known.Status}
}

// strip leaves nothing of an ended execution but its billing row.
func (s *execution) strip(known *compute.Execution) {
	e := *known
	e.Deleted = true
	e.Bundle, e.FileName, e.Tags, e.CallbackURLs = compute.BundleRef{}, "", nil, nil
	e.Imports, e.ImportFiles = nil, 0
	e.Name, e.Files, e.Outputs, e.Series = "", nil, nil, nil
	s.view.dropOutputs(e.ID)
	s.putExecution(&e)
}

// free gives back the capacity that a holds on its node. A GPU that is gone and was
// only kept for a goes with it.
func (s *execution) free(a *compute.Attempt, e *compute.Execution) {
	known, ok := s.view.nodes.Get(a.Node)
	if !ok {
		return
	}
	n := *known
	n.GPUs = slices.Clone(n.GPUs)
	n.UsedVCPUMilli -= e.Request.VCPUMilli
	n.UsedMemoryMiB -= e.Request.MemoryMiB
	for _, share := range a.GPUs {
		n.GPUs[gpuAt(n.GPUs, share.GPU)].UsedMilli -= share.Milli
	}
	n.GPUs = slices.DeleteFunc(n.GPUs, func(g compute.GPU) bool {
		return g.Health == compute.HealthMissing && g.UsedMilli == 0
	})
	s.view.nodes.put(&n)
	if len(n.GPUs) != len(known.GPUs) {
		s.membership.reshape()
	}
}
