package execution

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/loop"
)

// logLines serves Observability - Logs: the output of executions, searched where
// it is stored.
type logLines struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *logLines) Routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodGet, Path: edge.Root + "/logs/execution/{id}", Tag: "Observability - Logs", Need: edge.NeedCaller,
			Summary: "The newest lines that an execution printed, by time, level and text." +
				" For a GPU selection, those of its sub-executions.",
			Query: edge.Type[wire.ExecutionLogsQuery](), Reply: edge.Type[wire.Logs](), Handle: g.ofExecution,
		},
		{
			Method: http.MethodGet, Path: edge.Root + "/logs/user", Tag: "Observability - Logs", Need: edge.NeedCaller,
			Summary: "The newest lines that the caller's executions printed, by time, level and text.",
			Query:   edge.Type[wire.UserLogsQuery](), Reply: edge.Type[wire.Logs](), Handle: g.ofUser,
		},
	}
}

// Limits of one answer.
const (
	searchesAtOnce   = 4   // Executions whose output is searched at a time.
	searchExecutions = 200 // Executions of which GET /logs/user searches the output.
	searchEnded      = 20_000
	searchBytes      = 4 << 20 // Bytes of text; older lines are left out.
)

// Logs answers lines of the execution that the path names.
func Logs(c *handler.Core, r *edge.Request) (any, error) { return (&logLines{c}).ofExecution(r) }

// ofExecution answers lines of one execution.
func (g *logLines) ofExecution(r *edge.Request) (any, error) {
	e, err := g.Find(r)
	if err != nil {
		return nil, err
	}
	in := r.Query.(*wire.ExecutionLogsQuery)
	from := []*compute.Execution{e}
	if e.Kind.IsParent() {
		from = r.View.Children(e.ID)
	}
	return g.search(r, from, g.query(in.Limit, in.Hours, in.Level, in.Search))
}

// ofUser answers lines of the executions that the caller submitted.
func (g *logLines) ofUser(r *edge.Request) (any, error) {
	in := r.Query.(*wire.UserLogsQuery)
	q := g.query(in.Limit, in.Hours, in.Level, in.Search)
	done, err := g.Scans.Take(r.Ctx, r.Caller.Actor.Org)
	if err != nil {
		return nil, err
	}
	from, more := g.recent(r, q.Since)
	done()
	answer, err := g.search(r, from, q)
	if out, ok := answer.(wire.Logs); ok && more {
		out.Warnings = append(out.Warnings,
			"There are too many executions to search all of them: ask for fewer hours, or for one execution.")
		return out, nil
	}
	return answer, err
}

// query returns the query of a request.
func (g *logLines) query(limit, hours int, level, text string) handler.LogQuery {
	return handler.LogQuery{
		Since: compute.InstantOf(g.Now()).Add(-time.Duration(hours) * time.Hour), Level: level, Text: text, Limit: limit,
	}
}

// recent returns the caller's executions that may have printed something since an
// instant, and whether there are more than it checked.
func (g *logLines) recent(r *edge.Request, since compute.Instant) (out []*compute.Execution, more bool) {
	org, user := r.Caller.Actor.Org, r.Caller.Actor.User
	add := func(e *compute.Execution) bool {
		if e.User == user && e.Epoch > 0 && !e.Kind.IsParent() {
			out = append(out, e)
		}
		return len(out) < searchExecutions
	}
	for e := range r.View.Live(org) {
		if !add(e) {
			return out, true
		}
	}
	seen := 0
	for e := range r.View.Ended() {
		if e.FinishedAt < since {
			break
		}
		if seen++; seen > searchEnded {
			return out, true
		}
		if e.Org != org {
			continue
		}
		whole, ok := r.View.Execution(org, e.ID)
		if ok && !whole.Deleted && !add(whole) {
			return out, true
		}
	}
	return out, false
}

// search answers the newest lines of executions that q wants.
func (g *logLines) search(r *edge.Request, from []*compute.Execution, q handler.LogQuery) (any, error) {
	if err := g.AwaitTurn(r); err != nil {
		return nil, err
	}
	all := found{limit: q.Limit, answer: wire.Logs{Logs: []wire.LogLine{}, Warnings: []string{}}}
	turns := loop.NewFairLimiter[compute.OrgID](searchesAtOnce)
	ctx, cancel := context.WithCancelCause(r.Ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, e := range from {
		done, err := turns.Take(ctx, e.Org)
		if err != nil {
			break
		}
		wg.Go(func() {
			defer done()
			lines, err := g.Config.Logs.Search(ctx, e.ID, q)
			if err != nil && r.Stale() && ctx.Err() == nil && compute.CodeOf(err) == compute.CodeUnavailable {
				lines, err = handler.LogLines{Missing: elsewhere}, nil
			}
			if err != nil && compute.CodeOf(err) != compute.CodeNotFound { // It may be deleted meanwhile.
				cancel(err)
				return
			}
			all.add(e, lines, g.hosts(r, e.ID))
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return all.result(), nil
}

// elsewhere is the warning about output that a stale read does not get.
const elsewhere = "The output is on another node, which a stale read does not ask."

// hosts returns the names of the nodes of an execution's attempts by epoch.
func (g *logLines) hosts(r *edge.Request, id compute.ExecutionID) map[uint64]string {
	names := make(map[uint64]string)
	for _, a := range r.View.Attempts(id) {
		names[a.Epoch] = a.Node.String()
		if n, ok := r.View.Node(a.Node); ok {
			names[a.Epoch] = n.Name
		}
	}
	return names
}

// found collects lines of several executions.
type found struct {
	limit int

	mu     sync.Mutex
	answer wire.Logs
	bytes  int
}

// add adds what was found in the output of e.
func (f *found) add(e *compute.Execution, lines handler.LogLines, hosts map[uint64]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer.Total += lines.Total
	if lines.Missing != "" && !slices.Contains(f.answer.Warnings, lines.Missing) {
		f.answer.Warnings = append(f.answer.Warnings, lines.Missing)
	}
	for _, l := range lines.Lines {
		f.bytes += len(l.Text)
		f.answer.Logs = append(f.answer.Logs, wire.LogLine{
			Timestamp: l.At, Message: strings.ToValidUTF8(string(l.Text), "\uFFFD"), Level: l.Level,
			ExecutionID: e.ID, UserID: e.User, Hostname: hosts[l.Attempt],
			Labels: wire.LogLabels{Stream: l.Stream, Attempt: l.Attempt, HardwareProfile: e.Profile, Name: e.Name},
		})
	}
	if len(f.answer.Logs) > 2*f.limit || f.bytes > 2*searchBytes {
		f.trim()
	}
}

// trim sorts the lines by time and keeps the newest ones.
func (f *found) trim() {
	logs := f.answer.Logs
	slices.SortStableFunc(logs, func(a, b wire.LogLine) int { return cmp.Compare(a.Timestamp, b.Timestamp) })
	over := max(0, len(logs)-f.limit)
	for _, l := range logs[:over] {
		f.bytes -= len(l.Message)
	}
	for over < len(logs)-1 && f.bytes > searchBytes {
		f.bytes -= len(logs[over].Message)
		over++
	}
	f.answer.Logs = slices.Delete(logs, 0, over)
}

// result returns the answer.
func (f *found) result() wire.Logs {
	f.trim()
	return f.answer
}
