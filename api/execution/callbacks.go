package execution

import (
	"encoding/json"
	"net/http"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// callbacks serves what became of the callbacks of executions.
type callbacks struct {
	executions
}

// Routes returns the routes of the group.
func (g *callbacks) Routes() []edge.Route {
	const all = edge.Root + "/execution/{id}/callbacks"
	return []edge.Route{
		{
			Method: http.MethodGet, Path: all, Tag: "Execution Management", Need: edge.NeedCaller,
			Summary: "List the callbacks of an execution that has ended, with what became of each: one for each of its URLs." +
				" Empty once its record is archived.",
			Reply: edge.Type[[]wire.Callback](), Handle: g.list,
		},
		{
			Method: http.MethodPost, Path: all + "/redeliver", Tag: "Execution Management", Need: edge.NeedCaller,
			Summary: "Send callbacks again, with the same webhook-id and for another 24 hours.",
			Body:    edge.Type[wire.Redeliver](), Reply: edge.Type[wire.Redelivered](), Handle: g.redeliver,
		},
	}
}

// list answers the callbacks of an execution.
func (g *callbacks) list(r *edge.Request) (any, error) {
	e, err := g.Find(r)
	if err != nil {
		return nil, err
	}
	out := []wire.Callback{}
	for _, c := range r.View.CallbacksOf(e.ID) {
		if c.Alert != nil {
			continue // The URL of a budget is its organization's owners'.
		}
		shown := wire.Callback{
			WebhookID: c.WebhookID(), URL: c.URL, Status: "pending", Tries: c.Tries,
			LastAt: wire.AtOrNull(c.LastAt), Error: wire.OrNull(c.Error), DeliveredAt: wire.AtOrNull(c.DoneAt),
		}
		if c.Code != 0 {
			shown.StatusCode = &c.Code
		}
		switch {
		case c.Failed:
			shown.Status = "failed"
		case c.Pending():
			next := max(c.NextAt, c.CreatedAt)
			shown.NextAt = &next
		default:
			shown.Status = "delivered"
		}
		out = append(out, shown)
	}
	return out, nil
}

// redeliver has callbacks sent again.
func (g *callbacks) redeliver(r *edge.Request) (any, error) {
	if r.Repeat {
		return redelivered(r.First), nil
	}
	e, err := g.Find(r)
	if err != nil {
		return nil, err
	}
	cmd := command.RedeliverCallbacks{Op: g.Op(r), Actor: r.Caller.Actor, Execution: e.ID}
	if id := r.Body.(*wire.Redeliver).WebhookID; id != "" {
		cmd.Number = new(-1)
		for _, c := range r.View.CallbacksOf(e.ID) {
			if c.WebhookID() == id {
				cmd.Number = &c.Number
			}
		}
	}
	result, err := g.Propose(r, cmd)
	if err != nil {
		return nil, err
	}
	return redelivered(result), nil
}

func redelivered(result command.Result) wire.Redelivered {
	return wire.Redelivered{
		ExecutionID: result.Execution, Count: result.Count, Message: "The callbacks are sent again.",
	}
}

// CallbackBody returns the body of a callback about an execution that has ended, or about
// a budget that is used up. It reports false if the execution, or the organization of the
// budget, is not in the state.
func CallbackBody(view *fsm.View, c *compute.Callback) ([]byte, bool) {
	if !c.Org.IsZero() {
		if _, ok := view.Org(c.Org); !ok {
			return nil, false
		}
		data, err := json.Marshal(alertOf(c.Org, c))
		return data, err == nil
	}
	e, ok := view.AnyExecution(c.Execution)
	if !ok {
		return nil, false
	}
	if c.Alert != nil {
		data, err := json.Marshal(alertOf(e.Org, c))
		return data, err == nil
	}
	body := wire.CallbackBody{
		Event: "execution." + e.Status.String(), ExecutionID: e.ID, OrgID: e.Org, ExecutionType: e.Kind,
		HardwareProfile: e.Profile, Status: e.Status, Errors: errorsOf(e), CreatedAt: e.CreatedAt,
		StartTime: wire.AtOrNull(e.StartedAt), EndTime: wire.AtOrNull(e.EndedAt), Billed: handler.BilledOf(e),
		FileName: wire.OrNull(e.FileName), Name: wire.OrNull(e.Name),
	}
	if e.Ran {
		body.ReturnCode = &e.ExitCode
	}
	if !e.Parent.IsZero() {
		body.ParentExecutionID = &e.Parent
	}
	data, err := json.Marshal(body)
	return data, err == nil
}

// alertOf returns the body of a callback about a budget.
func alertOf(org compute.OrgID, c *compute.Callback) wire.BudgetAlert {
	a := c.Alert
	out := wire.BudgetAlert{
		Event: "budget.reached", OrgID: org, Level: a.Level, Charged: a.Charged, MaxCredits: a.MaxCredits,
		Period: wire.BudgetPeriod(a.Monthly), Stopped: a.Stopped, At: c.CreatedAt,
	}
	if !c.Execution.IsZero() {
		out.ExecutionID = &c.Execution
	}
	out.Scope, out.KeyID, out.UserID = wire.BudgetScope(a.Key, a.User)
	return out
}
