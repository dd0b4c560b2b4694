package fsm

import (
	"fmt"
	"time"

	"berth/compute"
	"berth/fault"
)

// maxClockJump is how far one entry may raise the state's clock, so that a
// leader whose clock is wrong cannot expire everything at once.
const maxClockJump = 5 * time.Minute

// applyEntry applies every frame of one entry, and keeps at where it is. An entry
// that cannot be decoded stops the process: a replica that went on without it would
// differ from then on.
func (s *state) applyEntry(index uint64, entry []byte, at *stage) []Result {
	s.meta.Index = index
	if fault.Planted(fault.MapOrder) {
		return s.applyInMapOrder(entry)
	}
	var results []Result
	for len(entry) > 0 {
		*at = stage{frame: at.frame + 1}
		cmd, rest, err := Decode(entry)
		if err != nil {
			panic(fmt.Errorf("this version cannot read it: %w", err))
		}
		at.cmd = cmd
		results = append(results, s.decide(cmd))
		entry = rest
	}
	return results
}

// applyInMapOrder applies the frames of an entry in the order of a map, which
// is another one on each replica, while MapOrder is planted.
func (s *state) applyInMapOrder(entry []byte) []Result {
	var results []Result
	commands := make(map[int]Command)
	for len(entry) > 0 {
		cmd, rest, err := Decode(entry)
		if err != nil {
			panic(err)
		}
		if len(results) == 0 {
			results = append(results, s.decide(cmd)) // The preamble, as a rule.
		} else {
			commands[len(results)] = cmd
			results = append(results, Result{})
		}
		entry = rest
	}
	for i, cmd := range commands { // Any order: that is the bug.
		results[i] = s.decide(cmd)
	}
	return results
}

// decide applies one command once: a request that was answered before gets
// that answer.
func (s *state) decide(cmd Command) Result {
	if refusal := s.ready(cmd); refusal != nil {
		return Result{Refusal: refusal}
	}
	r, named := cmd.(request)
	if !named {
		return s.apply(cmd)
	}
	op := r.request()
	if first, known := s.Recall(op); known {
		return first
	}
	result := s.apply(cmd)
	s.remember(op, result)
	return result
}

// ready refuses what comes before Bootstrap and what an older leader made.
func (s *state) ready(cmd Command) *compute.Error {
	switch cmd.(type) {
	case Clock, Bootstrap:
		return nil
	}
	if !s.Bootstrapped() {
		return compute.Errorf(compute.CodeUnavailable,
			"the cluster is not set up yet").Named("not_bootstrapped")
	}
	if led, ok := cmd.(led); ok && led.term() < s.meta.Term {
		return compute.Errorf(compute.CodeConflict,
			"a newer leader has taken over").Named("stale_term")
	}
	return nil
}

// led is a command that only the leader makes, of its own accord.
type led interface{ term() uint64 }

func (c SetSettings) term() uint64    { return c.Term }
func (c SetInventory) term() uint64   { return c.Term }
func (c SetNodeState) term() uint64   { return c.Term }
func (c TakeSelection) term() uint64  { return c.Term }
func (c CommitPlan) term() uint64     { return c.Term }
func (c LoseAttempts) term() uint64   { return c.Term }
func (c AddSigningKey) term() uint64  { return c.Term }
func (c Tick) term() uint64           { return c.Term }
func (c StopCandidates) term() uint64 { return c.Term }
func (c SetFormat) term() uint64      { return c.Term }
func (c RaiseEpoch) term() uint64     { return c.Term }

func (c RecordEstimates) term() uint64   { return c.Term }
func (c ArchiveExecutions) term() uint64 { return c.Term }

// apply decides one command.
func (s *state) apply(cmd Command) Result {
	switch c := cmd.(type) {
	case Clock:
		return s.raiseClock(c)
	case Bootstrap:
		return s.bootstrap(c)
	case SetSettings:
		s.meta.Settings = c.Settings
		return Result{}
	case SetFormat:
		return s.setFormat(c)
	case RaiseEpoch:
		return s.raiseEpoch(c)
	case Tick:
		return s.tick()
	case ArchiveExecutions:
		return s.archiveExecutions(c)
	case RegisterNode:
		return s.registerNode(c)
	case SetInventory:
		return s.setInventory(c)
	case SetNodeState:
		return s.setNodeState(c)
	case DrainNode:
		return s.drainNode(c)
	case RemoveNode:
		return s.removeNode(c)
	case SetBrake:
		return s.setBrake(c)
	case CreateJoinToken:
		return s.createJoinToken(c)
	case CreateUser:
		return s.createUser(c)
	case CreateKey:
		return s.createKey(c)
	case ToggleKey:
		return s.toggleKey(c)
	case DeleteKey:
		return s.deleteKey(c)
	case RegenerateKey:
		return s.regenerateKey(c)
	case TouchKeys:
		return s.touchKeys(c)
	case StoreRefresh:
		return s.storeRefresh(c)
	case RotateRefresh:
		return s.rotateRefresh(c)
	case RevokeRefresh:
		return s.revokeRefresh(c)
	default:
		return s.applyWork(cmd)
	}
}

// applyWork decides the commands about executions and money.
func (s *state) applyWork(cmd Command) Result {
	switch c := cmd.(type) {
	case Submit:
		return s.submit(c)
	case TakeSelection:
		return s.takeSelection(c)
	case StopCandidates:
		return s.stopCandidates(c)
	case CommitPlan:
		return s.commitPlan(c)
	case StartAttempt:
		return s.startAttempt(c)
	case FinishAttempt:
		return s.finishAttempt(c)
	case LoseAttempts:
		return s.loseAttempts(c)
	case StopExecution:
		return s.stopExecution(c)
	case DeleteExecution:
		return s.deleteExecution(c)
	case Grant:
		return s.grant(c)
	case SetPrices:
		return s.setPrices(c)
	case SetQuota:
		return s.setQuota(c)
	case AddSigningKey:
		return s.addSigningKey(c)
	case RecordEstimates:
		return s.recordEstimates(c)
	}
	panic(fmt.Sprintf("command %d has a decoder but no meaning", cmd.Kind()))
}

// refuse returns the answer to a command that changes nothing.
func refuse(code compute.Code, detail, format string, args ...any) Result {
	return Result{Refusal: compute.Errorf(code, format, args...).Named(detail)}
}

// raiseClock moves the state's clock forward, never back.
func (s *state) raiseClock(c Clock) Result {
	limit := c.At
	if !s.meta.Now.IsZero() {
		limit = s.meta.Now.Add(maxClockJump)
	}
	s.meta.Now = max(s.meta.Now, min(c.At, limit))
	s.meta.Term = max(s.meta.Term, c.Term)
	return Result{}
}

// bootstrap sets the cluster up, once. A repeat by the same node succeeds.
func (s *state) bootstrap(c Bootstrap) Result {
	switch {
	case c.ClusterID.IsZero():
		return refuse(compute.CodeInvalid, "no_cluster_id", "a cluster needs an identifier")
	case c.ClusterID == s.meta.Cluster:
		return Result{Repeat: true}
	case s.Bootstrapped():
		return refuse(compute.CodeConflict, "already_bootstrapped",
			"the cluster is set up already")
	}
	if refusal := checkPrices(c.Prices); refusal != nil {
		return Result{Refusal: refusal}
	}
	s.meta.Cluster = c.ClusterID
	s.meta.RootToken = c.RootToken
	s.meta.Settings = c.Settings
	s.putPrices(c.Prices)
	if c.Signing.ID != "" {
		s.putSigningKey(c.Signing)
	}
	return Result{ID: c.ClusterID}
}
