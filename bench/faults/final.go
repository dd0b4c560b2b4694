package faults

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/attempt"
	"berth/bench/faults/check"
	"berth/compute"
	"berth/loop"
)

// page is the page size of list requests.
const page = 1000

// finalState is the final state of one organization, as the cluster reports it.
type finalState struct {
	executions map[string]wire.ExecutionSummary // By id.
	byTag      map[string]string                // Execution ids by tag.
	lines      []check.Line
}

// readFinal ends all executions of an organization and reads its final state.
func (s *session) readFinal(ctx context.Context, o organization) (*finalState, error) {
	c := s.admin.WithToken(o.key)
	all, err := endAll(ctx, c, o.slug)
	if err != nil {
		return nil, err
	}
	f := &finalState{executions: map[string]wire.ExecutionSummary{}, byTag: map[string]string{}}
	for _, e := range all {
		f.executions[e.ExecutionID.String()] = e
		if e.Metadata != nil {
			for _, tag := range e.Metadata.Tags {
				f.byTag[tag] = e.ExecutionID.String()
			}
		}
	}
	return f, f.readLedger(ctx, c)
}

// endAll stops the live executions of an organization, waits for their end and
// returns all its executions. The error is stuck if they do not end.
func endAll(ctx context.Context, c *client.Client, org string) ([]wire.ExecutionSummary, error) {
	for {
		all, err := history(ctx, c)
		if err != nil {
			return nil, stuck{fmt.Errorf("history of %s: %w", org, err)}
		}
		live := 0
		for _, e := range all {
			if e.Status.Terminal() {
				continue
			}
			live++
			err := c.Stop(ctx, e.ExecutionID)
			if err != nil && client.CodeOf(err) != "already_ended" {
				return nil, stuck{fmt.Errorf("stop execution %s: %w", e.ExecutionID, err)}
			}
		}
		if live == 0 {
			return all, nil
		}
		if !loop.Sleep(ctx, 500*time.Millisecond) {
			return nil, stuck{fmt.Errorf("%d executions of %s do not end: %w", live, org, ctx.Err())}
		}
	}
}

// history returns all executions of the caller's organization.
func history(ctx context.Context, c *client.Client) ([]wire.ExecutionSummary, error) {
	var all []wire.ExecutionSummary
	for {
		h, err := c.History(ctx, client.HistoryQuery{Limit: page, Offset: len(all)})
		if err != nil {
			return nil, err
		}
		all = append(all, h.Executions...)
		if len(h.Executions) < page {
			return all, nil
		}
	}
}

func (f *finalState) readLedger(ctx context.Context, c *client.Client) error {
	cursor := uint64(0)
	for {
		l, err := c.Ledger(ctx, cursor, page)
		if err != nil {
			return stuck{fmt.Errorf("read ledger: %w", err)}
		}
		for _, e := range l.Entries {
			line := check.Line{Seq: e.Seq, Kind: e.Kind, Amount: e.Amount, Balance: e.Balance, Held: e.Held}
			if e.ExecutionID != nil {
				line.Execution = e.ExecutionID.String()
			}
			if e.Note != nil {
				line.Note = *e.Note
			}
			f.lines = append(f.lines, line)
		}
		if l.NextCursor == nil {
			return nil
		}
		cursor = *l.NextCursor
	}
}

// ended returns the end of each execution that is charged itself. A GPU
// selection is charged through its sub-executions.
func (f *finalState) ended() map[string]check.Ended {
	out := map[string]check.Ended{}
	for id, e := range f.executions {
		if e.ExecutionType == compute.KindSelection {
			continue
		}
		one := check.Ended{Status: e.Status}
		if e.Billed != nil {
			one.Billed = *e.Billed
		}
		if e.StartTime != nil && e.EndTime != nil {
			one.Ran = e.EndTime.Sub(*e.StartTime)
		}
		out[id] = one
	}
	return out
}

// checkLedgers ends the executions of every organization, reads its final state
// and returns the violations in its ledger.
func (s *session) checkLedgers(ctx context.Context, report *Report) ([]check.Violation, error) {
	var wrong []check.Violation
	for _, o := range s.orgs {
		closing := s.now()
		if s.closing == 0 {
			s.closing = closing
		}
		f, err := s.readFinal(ctx, o)
		if err != nil {
			return wrong, err
		}
		s.final[o.slug] = f
		report.Executions += len(f.executions)
		wrong = append(wrong, check.Ledger(o.slug, f.lines, f.ended())...)
		report.Charged += f.resolve(s.history, check.Object{Kind: check.KindAccount, Name: o.slug}, closing)
	}
	return wrong, nil
}

// checkStates compares the replicas. Hashes are equal at equal indexes, each
// replica passes its own invariant check, and the sum of money is constant.
func (s *session) checkStates(ctx context.Context, report *Report) ([]check.Violation, error) {
	var wrong []check.Violation
	for _, n := range s.world.Nodes {
		state, err := s.stateOf(ctx, n, true)
		if err != nil {
			return wrong, err
		}
		if state.Detail != "" {
			wrong = append(wrong, check.Violation{What: "invariant", Object: "node " + n.Name, Detail: state.Detail})
		}
		if state.Balance != state.Granted-state.Charged || state.Held != 0 {
			wrong = append(wrong, check.Violation{What: "money", Object: "node " + n.Name, Detail: fmt.Sprintf(
				"granted %v, charged %v, balance %v, held %v", state.Granted, state.Charged, state.Balance, state.Held)})
		}
		line, err := n.LogLine(divergenceMessages()...)
		if err != nil {
			return wrong, err
		}
		if line != "" { // The cluster found and repaired it earlier.
			wrong = append(wrong, check.Violation{What: "replicas differ", Object: "node " + n.Name, Detail: line})
		}
	}
	apart, err := s.compareHashes(ctx, report)
	return append(wrong, apart...), err
}

// divergenceMessages returns the messages with which a leader logs replicas
// that differ, as in package replica.
func divergenceMessages() []string {
	return []string{"replicas diverged without a majority, operator required", "replica diverged from the majority"}
}

// checkMarks compares the marks that the code of executions left with the
// cluster's records.
func (s *session) checkMarks(ctx context.Context, report *Report) ([]check.Violation, error) {
	marks, err := check.ReadMarks(os.DirFS(s.world.Marks()))
	if err != nil {
		return nil, err
	}
	known := map[string]wire.ExecutionSummary{}
	for _, f := range s.final {
		for id, e := range f.executions {
			known[id] = e
		}
	}
	// A lost attempt of a sub-execution or of an execution with retries is
	// followed by another attempt.
	wrong := check.Marks(marks, func(id string) int {
		if known[id].ExecutionType == compute.KindSubSelection {
			return 1 + attempt.SelectionRetries
		}
		return 1 + known[id].MaxRetries
	})
	completed := map[string]bool{}
	for _, m := range marks {
		report.Starts += m.Starts
		completed[m.Execution] = completed[m.Execution] || m.Ended
		if _, there := known[m.Execution]; !there {
			wrong = append(wrong, check.Violation{
				What: "unknown execution", Object: "execution " + m.Execution,
				Detail: "its code was started, and the cluster does not know the execution",
			})
		}
	}
	for id, e := range known {
		marked := e.Metadata != nil && strings.Contains(strings.Join(e.Metadata.Tags, " "), markedTag)
		if marked && e.Status == compute.StatusCompleted && !completed[id] {
			wrong = append(wrong, check.Violation{
				What: "completed", Object: "execution " + id,
				Detail: "it is recorded as completed, and its code did not reach its end",
			})
		}
	}
	lost, err := s.checkLost(ctx, marks, report)
	return append(wrong, lost...), err
}
