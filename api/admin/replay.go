package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// decisions serves replays and what-if questions, to operators.
type decisions struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *decisions) Routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodGet, Path: edge.Root + "/admin/replay", Need: edge.NeedOperator,
			Summary: "Recompute the scheduler's plan in a Raft entry from the state of that time.",
			Query:   edge.Type[wire.ReplayQuery](), Reply: edge.Type[wire.Replay](), Handle: g.replay,
		},
		{
			Method: http.MethodPost, Path: edge.Root + "/admin/whatif", Need: edge.NeedOperator,
			Summary: "Show what the scheduler would do with the queue if nodes were added, removed or drained. " +
				"It changes nothing.",
			Body: edge.Type[wire.WhatIf](), Reply: edge.Type[wire.WhatIfAnswer](), Handle: g.whatIf,
		},
	}
}

// Limits of what-if questions.
const (
	maxListed  = 1000 // Executions in the answer.
	maxAdded   = 1000 // Nodes to add.
	maxDevices = 64   // GPUs of one of them.
)

// Resources of an added node: per GPU of a type that no node reports, and per
// vCPU of a node without GPUs.
const (
	addedVCPU      = 8000
	addedMemory    = 64 << 10
	addedCPUMemory = 4 << 10
)

// errNoHistory is the answer of a server without access to the log.
func errNoHistory() error {
	return compute.Errorf(compute.CodeUnavailable, "This node does not know the log.")
}

// historyTimeout bounds requests that apply the log again: some millions of
// entries.
const historyTimeout = 2 * time.Minute

// tooLong is the answer when that was not enough.
func tooLong(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return compute.Errorf(compute.CodeInvalid,
		"The log between the snapshot and that index cannot be applied again within %s on this node. "+
			"Ask another node, whose snapshots differ, or for an index nearer to a snapshot.", historyTimeout).
		Named("replay_too_long")
}

// replay answers the plans of one entry, computed again.
func (g *decisions) replay(r *edge.Request) (any, error) {
	if g.Config.Replay == nil {
		return nil, errNoHistory()
	}
	q := r.Query.(*wire.ReplayQuery)
	ctx, cancel := context.WithTimeout(r.Held(), historyTimeout)
	defer cancel()
	again, err := g.Config.Replay(ctx, q.Index, q.Top)
	if err != nil {
		return nil, tooLong(err)
	}
	out := wire.Replay{Index: q.Index, Plans: []wire.ReplayedPlan{}}
	for _, plan := range again {
		p := wire.ReplayedPlan{
			ViewIndex: plan.ViewIndex, Term: plan.Term, Same: plan.Recorded == plan.Computed,
			Recorded: compute.Digest(plan.Recorded), Computed: compute.Digest(plan.Computed), Waiting: plan.Waiting,
			Decisions: make([]wire.Decision, len(plan.Decisions)),
		}
		for i := range plan.Decisions {
			p.Decisions[i] = decisionOf(r.View, &plan.Decisions[i])
		}
		out.Plans = append(out.Plans, p)
	}
	return out, nil
}

func decisionOf(view *fsm.View, d *compute.Decision) wire.Decision {
	out := wire.Decision{
		ExecutionID: d.Execution, GPUs: gpuIDs(d.GPUs), Reason: wire.OrNull(d.Reason.String()),
		Best: []wire.NodeScore{}, Refused: wire.Counts{}, Applied: d.Applied, Skipped: wire.OrNull(d.Skipped),
	}
	if !d.Node.IsZero() {
		out.Node, out.Score = wire.OrNull(handler.NodeName(view, d.Node)), &d.Choice.Score
	}
	if !d.Choice.RunnerUp.IsZero() {
		out.RunnerUp, out.RunnerUpScore = wire.OrNull(handler.NodeName(view, d.Choice.RunnerUp)), &d.Choice.RunnerUpScore
	}
	for _, n := range d.Best {
		out.Best = append(out.Best, wire.NodeScore{Node: handler.NodeName(view, n.Node), Score: n.Score})
	}
	for _, refused := range d.Refused {
		out.Refused[refused.Reason.String()] = refused.Nodes
	}
	return out
}

func gpuIDs(shares []compute.GPUShare) []compute.GPUID {
	out := []compute.GPUID{}
	for _, share := range shares {
		out = append(out, share.GPU)
	}
	return out
}

// whatIf answers what the scheduler would do on other nodes. It changes
// nothing.
func (g *decisions) whatIf(r *edge.Request) (any, error) {
	if g.Config.WhatIf == nil {
		return nil, errNoHistory()
	}
	in := r.Body.(*wire.WhatIf)
	var change compute.WhatIf
	var only compute.ExecutionID
	ctx, cancel := context.WithTimeout(r.Held(), historyTimeout)
	defer cancel()
	found, view, err := g.Config.WhatIf(ctx, r.View, in.Index, func(view *fsm.View) (_ compute.WhatIf, err error) {
		change, only, err = questionOf(view, in)
		return change, err
	})
	if err != nil {
		return nil, tooLong(err)
	}
	return whatIfAnswer(view, found, change, only), nil
}

// questionOf returns the changes to the nodes of view, and the only execution
// of interest, zero for all.
func questionOf(view *fsm.View, in *wire.WhatIf) (change compute.WhatIf, only compute.ExecutionID, err error) {
	faults := new(wire.Faults)
	if in.Execution != "" {
		if only, err = compute.ParseExecutionID(in.Execution); err != nil {
			faults.Value("not the id of an execution", "body", "execution")
		}
	}
	for _, text := range in.Add {
		nodes, err := addedNodes(view, text, len(change.Add))
		if err != nil {
			faults.Value(err.Error(), "body", "add")
			if len(change.Add) == maxAdded {
				break // Each further one would say the same.
			}
			continue
		}
		change.Add = append(change.Add, nodes...)
	}
	change.Remove = namedNodes(view, in.Remove, "remove", faults)
	change.Drain = namedNodes(view, in.Drain, "drain", faults)
	return change, only, faults.Err()
}

func whatIfAnswer(view *fsm.View, found compute.Forecast, change compute.WhatIf, only compute.ExecutionID,
) wire.WhatIfAnswer {
	out := wire.WhatIfAnswer{
		Index: found.Index, Nodes: found.Nodes, Lost: found.Lost, StartsNow: found.Now,
		Starts: len(found.Starts), Waits: len(found.Waiting),
		Started: []wire.WhatIfStart{}, Waiting: []wire.WhatIfWait{},
	}
	asked := func(id compute.ExecutionID) bool { return only.IsZero() || id == only }
	for _, a := range found.Starts {
		if !asked(a.Execution) || len(out.Started) == maxListed {
			continue
		}
		name := handler.NodeName(view, a.Node)
		if i := slices.IndexFunc(change.Add, func(n compute.Node) bool { return n.ID == a.Node }); i >= 0 {
			name = change.Add[i].Name
		}
		out.Started = append(out.Started, wire.WhatIfStart{ExecutionID: a.Execution, Node: name, GPUs: gpuIDs(a.GPUs)})
	}
	for _, w := range found.Waiting {
		if asked(w.Execution) && len(out.Waiting) < maxListed {
			out.Waiting = append(out.Waiting, wire.WhatIfWait{ExecutionID: w.Execution, Reason: w.Reason.String()})
		}
	}
	return out
}

// namedNodes returns the nodes with names or identifiers.
func namedNodes(view *fsm.View, names []string, field string, faults *wire.Faults) []compute.NodeID {
	if len(names) == 0 {
		return nil
	}
	known := make(map[string][]compute.NodeID)
	for n := range view.Nodes() {
		known[n.Name] = append(known[n.Name], n.ID)
		known[n.ID.String()] = append(known[n.ID.String()], n.ID)
	}
	var out []compute.NodeID
	for _, name := range names {
		found := known[name]
		if len(found) == 0 {
			found = known[strings.ToLower(name)]
		}
		if len(found) == 0 {
			faults.Value(fmt.Sprintf("no node is called %q", name), "body", field)
		}
		out = append(out, found...)
	}
	return out
}

// addedNodes returns the nodes that text such as "h100:8,l40s:4 x2" describes.
// Beside a GPU they have what the nodes with its type have.
func addedNodes(view *fsm.View, text string, before int) ([]compute.Node, error) {
	what, times, many := strings.Cut(strings.TrimSpace(text), " ")
	count := 1
	if many {
		n, err := strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(times), "x"))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q: behind the GPUs comes how many such nodes, as in x2", text)
		}
		count = n
	}
	if count > maxAdded-before {
		return nil, fmt.Errorf("%q: at most %d nodes can be added in all", text, maxAdded)
	}
	node := compute.Node{State: compute.NodeUp}
	for part := range strings.SplitSeq(what, ",") {
		name, number, _ := strings.Cut(part, ":")
		n, err := strconv.Atoi(number)
		profile, bad := compute.ParseProfile(name)
		if err != nil || bad != nil || n < 1 || n > maxDevices || profile.Count != 1 {
			return nil, fmt.Errorf("%q is not a type and a number of 1 to %d, as in h100:8", part, maxDevices)
		}
		if !profile.IsGPU() {
			node.VCPUMilli += int64(n) * 1000
			node.MemoryMiB += int64(n) * addedCPUMemory
			continue
		}
		vcpu, memory := int64(addedVCPU), int64(addedMemory)
		if _, r, _, err := view.Resolve(profile.String()); err == nil {
			vcpu, memory = r.VCPUMilli, r.MemoryMiB
		}
		node.VCPUMilli += int64(n) * vcpu
		node.MemoryMiB += int64(n) * memory
		for range n {
			node.GPUs = append(node.GPUs, compute.GPU{
				Type: profile.GPUType, MIG: profile.MIG, VRAMMiB: view.MemoryOf(profile), Index: len(node.GPUs),
			})
		}
	}
	out := make([]compute.Node, count)
	for i := range out {
		out[i] = node
		number := before + i + 1
		// Behind all real nodes, whose identifiers are random.
		out[i].ID = compute.NodeID{UUID: compute.UUID{0xff, 0xff, 14: byte(number >> 8), 15: byte(number)}}
		out[i].Name = fmt.Sprintf("added-%d", number)
		out[i].GPUs = slices.Clone(node.GPUs)
		for g := range out[i].GPUs {
			out[i].GPUs[g].ID = compute.GPUID(fmt.Sprintf("%s-%d", out[i].Name, g))
		}
	}
	return out, nil
}
