package fsm

import (
	"fmt"

	"berth/attempt"
	"berth/compute"
	"berth/fsm/command"
)

// The upper half of an attempt's epoch is the cluster's epoch. Attempts of
// different cluster epochs are therefore never confused, whatever a node still has
// on disk.
const (
	epochShift = attempt.LifeShift
	maxEpoch   = 1<<31 - 1 // The highest epoch of the cluster.
)

// raiseEpoch starts a new cluster epoch and invalidates the older ones.
func (s *lifecycle) raiseEpoch(c command.RaiseEpoch) command.Result {
	switch {
	case c.Epoch <= s.view.meta.Epoch:
		return command.Result{Repeat: true}
	case c.Epoch > maxEpoch:
		return refuse(compute.CodeInvalid, "epoch", "an epoch of the cluster is at most %d", maxEpoch)
	case c.Cause != command.CauseRestored && c.Cause != command.CauseRecovered:
		return refuse(compute.CodeInvalid, "cause", "an epoch begins for a known cause")
	}
	s.view.meta.Epoch = c.Epoch
	if c.Cause == command.CauseRestored { // By an operator, with no command before it that could.
		s.view.meta.Now = max(s.view.meta.Now, c.At)
	}
	s.view.meta.PausedUntil = max(s.view.meta.Now, c.At).Add(attempt.Lease + attempt.Margin)
	// All nodes are marked down now: not a mass failure.
	s.view.meta.Brake.ReleasedAt, s.view.meta.Brake.Since = s.view.meta.Now, 0
	ended := s.endAttempts("the cluster was " + c.Cause.String() + " meanwhile: how it ended is not known")
	s.forgetCredentials()
	for o := range s.view.orgs.Values() {
		s.money.post(compute.LedgerEntry{
			Org: o.ID, Kind: compute.LedgerFork,
			Note: fmt.Sprintf("cluster epoch %d: %s", c.Epoch, c.Cause),
		})
	}
	return command.Result{Count: ended}
}

// PausedUntil returns the end of the pause in scheduling after a new cluster epoch,
// zero in the first epoch. The leases of older attempts have expired by then, on
// unreachable nodes too.
func (v *clusterState) PausedUntil() compute.Instant { return v.meta.PausedUntil }

// endAttempts marks every node as down until it is heard, and ends every live
// attempt; it returns how many. Reports about them no longer count, so none is
// charged. Executions with retries left are queued again. The others end, even if
// they were being preempted: their code may continue while it is disconnected,
// which is longer than the pause in scheduling.
func (s *lifecycle) endAttempts(why string) int {
	var nodes []*compute.Node
	for n := range s.view.nodes.Values() {
		nodes = append(nodes, n)
	}
	ended := 0
	for _, known := range nodes {
		n := *known
		n.State, n.ChangedAt, n.InventoryVersion = compute.NodeDown, s.view.meta.Now, 0
		s.view.nodes.put(&n)
		for _, w := range s.view.Work(n.ID) {
			// The end of one may have changed the next: a sibling of a GPU
			// selection is stopped.
			a, e, refusal := s.execution.liveAttempt(n.ID, w.Execution.ID, w.Attempt.Epoch)
			if refusal == nil {
				ended++
				s.outlive(a, &e, why)
			}
		}
	}
	return ended
}

// outlive ends a live attempt of an older cluster epoch, with why for the owner of
// e.
func (s *lifecycle) outlive(a compute.Attempt, e *compute.Execution, why string) {
	if attempt.Moves(e) {
		s.execution.loseAttempt(a, e, why)
		return
	}
	s.execution.endAttempt(a, e, ending{compute.StatusSystemFailure, compute.ReasonNodeLost, why})
}

// forgetCredentials forgets credentials that may have been revoked since: join tokens,
// logins, and the keys that sign access tokens. The leader makes another signing key at
// once. API keys and passwords stay.
func (s *lifecycle) forgetCredentials() {
	var joins, keys []string
	for t := range s.view.joins.Values() {
		joins = append(joins, t.ID)
	}
	for k := range s.view.signing.Values() {
		keys = append(keys, k.ID)
	}
	var logins []compute.Hash
	for t := range s.view.refresh.Values() {
		logins = append(logins, t.Token.Hash)
	}
	for _, id := range joins {
		s.view.joins.Drop(id)
	}
	for _, id := range keys {
		s.view.signing.Drop(id)
	}
	for _, h := range logins {
		s.view.dropRefresh(h)
	}
}
