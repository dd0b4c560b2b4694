package scheduler

import (
	"slices"

	"berth/compute"
	"berth/compute/capacity"
)

// Limits of one plan: encoded it stays below 200 KiB. A plan costs its fsyncs
// once, however much it places; so it places much.
const (
	MaxAssignments = 1024
	MaxShares      = 1536 // GPUs of all assignments.
	MaxWaiting     = 2048
)

// Full reports whether a limit has cut plan short, so that the next view may
// lead to more.
func Full(plan compute.Plan) bool {
	shares := 0
	for _, a := range plan.Assignments {
		shares += len(a.GPUs)
	}
	return len(plan.Assignments) >= MaxAssignments || len(plan.Waiting) >= MaxWaiting ||
		shares+maxRequestGPUs > MaxShares
}

// maxRequestGPUs is the most GPUs that a hardware profile asks for.
const maxRequestGPUs = 8

// Pack returns what to place and whose reason to wait has changed. It is pure:
// the plan depends on the view alone. Executions are placed in the order of
// the queue, each on the node that it fits best; those that cannot be placed
// hold back later ones as claim says. Past the limits of a plan it stops: the
// next view continues.
func Pack(v View) compute.Plan { return NewPacker().Pack(v) }

// Pack returns what the function Pack returns for the same view.
func (p *Packer) Pack(v View) compute.Plan { return p.packTraced(v, nil) }

// packTraced is Pack, telling trace of each decision.
func (p *Packer) packTraced(v View, trace func(p *Packer, e *compute.Execution, q *capacity.Shape)) compute.Plan {
	s := p.newPass(v)
	if trace != nil {
		s.trace = func(e *compute.Execution, q *capacity.Shape) { trace(p, e, q) }
	}
	s.walk()
	return s.plan
}

// newPass returns a pass over v that has decided nothing yet.
func (p *Packer) newPass(v View) *pass {
	p.sync(v)
	return &pass{
		packer: p, view: v, granted: map[compute.OrgID][]*quota{}, started: map[compute.OrgID][]holding{},
		promises: map[int]promised{}, useless: map[capacity.Shape]bool{},
		placed: map[int][]release{}, unfit: map[capacity.Shape]compute.Instant{},
		evicted: map[compute.ExecutionID]bool{}, outranks: map[int]bool{}, futile: map[capacity.Shape]bool{},
	}
}

// walk goes through the queue, as far as one plan goes.
func (s *pass) walk() {
	s.foresee()
	queue := newTurns(s.view)
	for len(s.plan.Assignments) < MaxAssignments {
		e := queue.next()
		if e == nil || s.shares > 0 && s.shares+e.Request.GPUs > MaxShares {
			return
		}
		if s.decide(e) {
			queue.given(e)
		}
	}
}

// pass is one way through the queue.
type pass struct {
	packer  *Packer
	view    View
	plan    compute.Plan
	shares  int // GPUs of all its assignments.
	granted map[compute.OrgID][]*quota
	started map[compute.OrgID][]holding // What this pass placed.
	devices []int                       // Scratch.
	trial   slot                        // Scratch.

	reserved  []reservation
	promises  map[int]promised                   // By GPU type.
	spared    []spared                           // In the order of the queue.
	own       *spared                            // What was spared for the execution whose turn it is.
	useless   map[capacity.Shape]bool            // What would not fit if all that is spared were free.
	lifted    bool                               // What is spared counts as free.
	lifts     int                                // How often that was done.
	placed    map[int][]release                  // What this pass placed, by slot.
	unfit     map[capacity.Shape]compute.Instant // What fits neither in nor beside reserved room, with the end that was tried.
	evicted   map[compute.ExecutionID]bool
	outranks  map[int]bool           // By priority: some attempt may have to make room for it.
	searched  int                    // Executions beside the heads for which room was sought.
	positions map[compute.NodeID]int // Of nodes among the slots; made when needed.

	victimsRead bool // Whether the next two are.
	yielding    []yielding
	leaving     []leaving
	futile      map[capacity.Shape]bool // For which nobody can make room.
	tries       int                     // Sets of attempts that were tried.

	// trace, if there is one, is told of each decision before anything is given.
	trace func(e *compute.Execution, q *capacity.Shape)
}

// decide places one execution, and reports that, or says why it waits.
func (s *pass) decide(e *compute.Execution) (placed bool) {
	q := s.packer.types.Shape(&e.Request)
	s.redeem(e)
	row := s.packer.row(q)
	node, score := row.best()
	defer s.impose()
	if (score == gpusBusy || score == resourcesBusy) && s.yields(&q) {
		s.lift()
		row = s.packer.row(q)
		node, score = row.best()
	}
	if s.trace != nil {
		s.trace(e, &q)
	}
	if len(e.Avoid) > 0 {
		node, score = s.elsewhere(e, row, node, score)
	}
	if score >= nodeDown || node < 0 {
		s.wait(e, reasonOf(score))
		return false
	}
	if why := s.overQuota(e); why != compute.ReasonNone {
		s.wait(e, why)
		return false
	}
	if score > worstFit {
		if s.fill(e, &q) {
			return true
		}
		s.wait(e, reasonOf(score))
		before := len(s.reserved)
		if s.block(e, &q); len(s.reserved) > before {
			s.promise(e, s.reserved[before].at)
		}
		return false
	}
	s.devices = s.packer.slots[node].pick(s.packer.value, &q, s.devices[:0])
	s.place(e, &q, node, s.devices, s.choice(row, node, score))
	return true
}

// place gives e its place.
func (s *pass) place(e *compute.Execution, q *capacity.Shape, node int, devices []int, why compute.Choice) {
	slot := &s.packer.slots[node]
	s.plan.Assignments = append(s.plan.Assignments, compute.Assignment{
		Execution: e.ID, Node: slot.Record.ID, GPUs: slot.Shares(q, devices), Choice: why,
	})
	s.packer.give(node, q, devices)
	s.shares += len(devices)
	s.placed[node] = append(s.placed[node], release{e.EndsBy(s.view.Now()), *q, slices.Clone(devices)})
	s.count(e)
}

// choice returns why the winner was chosen.
func (s *pass) choice(r *row, winner int, score int64) compute.Choice {
	c := compute.Choice{Score: score}
	if second, its := r.runnerUp(winner); second >= 0 {
		c.RunnerUp, c.RunnerUpScore = s.packer.slots[second].Record.ID, its
	}
	return c
}

// wait notes why e waits, when that is news.
func (s *pass) wait(e *compute.Execution, reason compute.Reason) {
	if e.Reason != reason && len(s.plan.Waiting) < MaxWaiting {
		s.plan.Waiting = append(s.plan.Waiting, compute.Waiting{Execution: e.ID, Reason: reason})
	}
}
