package scheduler

import (
	"slices"

	"berth/compute"
	"berth/compute/capacity"
	"berth/scheduler/queue"
)

// Limits of one plan. Encoded it stays below 200 KiB. A plan costs the same
// fsyncs however much it places, so the limits are high.
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

// Pack returns the plan for v: which executions start where, and whose reason
// to wait has changed. It is pure: the plan depends on the view alone.
// Executions are placed in the order of the queue, each on the node with the
// best score. Blocked executions get reservations that later ones respect. Pack
// stops at the limits of a plan; the next view continues.
func Pack(v View) compute.Plan { return NewPacker().Pack(v) }

// Pack returns the same plan as the function Pack.
func (p *Packer) Pack(v View) compute.Plan { return p.packTraced(v, nil) }

// packTraced is Pack. It calls trace, if not nil, before each decision.
func (p *Packer) packTraced(v View, trace func(p *Packer, e *compute.Execution, q *capacity.Shape)) compute.Plan {
	s := p.newPass(v)
	if trace != nil {
		s.trace = func(e *compute.Execution, q *capacity.Shape) { trace(p, e, q) }
	}
	s.walk()
	return s.plan
}

// newPass returns a pass over v that has decided nothing.
func (p *Packer) newPass(v View) *pass {
	p.sync(v)
	return &pass{
		packer: p, view: v, quotas: quotaLoads{
			view: v, granted: map[compute.OrgID][]*quota{}, started: map[compute.OrgID][]holding{},
		},
		promises: map[int]promised{}, noSoftFit: map[capacity.Shape]bool{},
		placed: map[int][]release{}, noBackfill: map[capacity.Shape]compute.Instant{},
		services: map[compute.ExecutionID]map[compute.NodeID]int{}, counted: map[compute.OrgID]bool{},
		evicted: map[compute.ExecutionID]bool{}, outranks: map[int]bool{}, noVictims: map[capacity.Shape]bool{},
	}
}

// walk decides about the executions in the order of the queue, up to the limits
// of a plan.
func (s *pass) walk() {
	s.reserveSoftly(s.packer.queue.Walk(s.view).Next)
	walk := s.packer.queue.Walk(s.view)
	for len(s.plan.Assignments) < MaxAssignments {
		e := walk.Next()
		if e == nil || s.shares > 0 && s.shares+e.Request.GPUs > MaxShares {
			return
		}
		walk.Decided(s.outcome(e))
	}
}

// outcome decides about e and returns the outcome for the executions behind
// it. If the decision has changed nothing, the next one of the same class has
// the same outcome. A cache of shapes that do not fit is not a change: it
// holds for e, and so for its class. Executions with soft reservations are the
// first ones of their class, and the end of each reservation is a change, so none
// of them is skipped.
func (s *pass) outcome(e *compute.Execution) queue.Outcome {
	state, effort := s.state(), s.effort()
	placed := s.decide(e)
	switch {
	case placed:
		return queue.Placed
	case s.state() != state:
		return queue.Changed
	case s.effort() != effort:
		return queue.Again
	}
	return queue.Same
}

// passState counts the decisions of a pass that can change later ones.
type passState struct{ assignments, reserved, soft, promises int }

func (s *pass) state() passState {
	return passState{len(s.plan.Assignments), len(s.reserved), len(s.soft), s.quotas.promises}
}

// passEffort counts the steps of a pass whose number is limited.
type passEffort struct{ waiting, searched, lifts int }

func (s *pass) effort() passEffort {
	return passEffort{len(s.plan.Waiting), s.searched, s.lifts}
}

// pass is one walk through the queue.
type pass struct {
	packer  *Packer
	view    View
	plan    compute.Plan
	shares  int // GPUs of all its assignments.
	quotas  quotaLoads
	devices []int // Scratch.
	trial   slot  // Scratch.

	reserved   []reservation
	promises   map[int]promised                   // By GPU type.
	soft       []softReservation                  // In the order of the queue.
	own        *softReservation                   // The soft reservation of the current execution.
	noSoftFit  map[capacity.Shape]bool            // Shapes that do not fit even if all soft reservations are lifted.
	lifted     bool                               // Soft reservations count as free.
	lifts      int                                // How often they were lifted.
	placed     map[int][]release                  // Capacity that this pass gave away, by slot.
	noBackfill map[capacity.Shape]compute.Instant // Shapes that backfill cannot place, with the latest end that was tried.
	evicted    map[compute.ExecutionID]bool
	outranks   map[int]bool           // By priority: whether any attempt is preemptible for it.
	searched   int                    // Executions beside the heads that searched for victims.
	positions  map[compute.NodeID]int // Positions of nodes among the slots; made when needed.

	services map[compute.ExecutionID]map[compute.NodeID]int // Replicas on nodes, by service,
	counted  map[compute.OrgID]bool                         // of these organizations.

	victimsRead bool // Whether the next two fields are filled.
	victimNodes []victimNode
	leaving     []leaving
	noVictims   map[capacity.Shape]bool // Shapes for which no victims exist.
	tries       int                     // Sets of attempts that were tried.

	// trace, if not nil, is called before each decision changes the board.
	trace func(e *compute.Execution, q *capacity.Shape)
}

// decide places one execution and reports whether it did. Otherwise it records
// the reason to wait.
func (s *pass) decide(e *compute.Execution) (placed bool) {
	request, refused := s.quotas.open(e)
	q := s.packer.types.Shape(&request)
	s.claimOwn(e)
	tree := s.packer.scores(q)
	node, score := tree.best()
	defer s.restoreSoft()
	if (score == gpusBusy || score == resourcesBusy) && s.yields(&q) {
		s.liftSoft()
		tree = s.packer.scores(q)
		node, score = tree.best()
	}
	if s.trace != nil {
		s.trace(e, &q)
	}
	if len(e.Avoid) > 0 {
		node, score = s.elsewhere(e, tree, node, score)
	}
	if score >= nodeDown || node < 0 {
		s.wait(e, reasonOf(score))
		return false
	}
	if refused == compute.ReasonNone {
		refused = s.quotas.refusal(e)
	}
	if refused != compute.ReasonNone {
		s.wait(e, refused)
		return false
	}
	if score > worstFit {
		if s.fill(e, &q) {
			return true
		}
		s.wait(e, reasonOf(score))
		before := len(s.reserved)
		if s.block(e, &q); len(s.reserved) > before {
			s.quotas.promise(e, s.reserved[before].at)
		}
		return false
	}
	best := score
	if e.Kind == compute.KindReplica {
		node, score = s.apart(e, tree, node, score)
	} else {
		node = s.withImages(e, tree, node, score)
	}
	why := compute.Choice{Score: score} // The score alone did not choose a node apart from others.
	if score == best {
		why = s.choice(tree, node, score)
	}
	s.devices = s.packer.slots[node].pick(s.packer.value, &q, s.devices[:0])
	s.place(e, &q, node, s.devices, why)
	return true
}

// place assigns e to devices of a node.
func (s *pass) place(e *compute.Execution, q *capacity.Shape, node int, devices []int, why compute.Choice) {
	slot := &s.packer.slots[node]
	shares := slot.Shares(q, devices)
	s.plan.Assignments = append(s.plan.Assignments, compute.Assignment{
		Execution: e.ID, Node: slot.Record.ID, GPUs: shares, Choice: why,
	})
	s.packer.give(node, q, devices)
	s.shares += len(devices)
	if e.Kind == compute.KindReplica {
		s.replicas(e)[slot.Record.ID]++
	}
	s.placed[node] = append(s.placed[node], release{e.EndsBy(s.view.Now()), *q, slices.Clone(devices)})
	s.quotas.count(e.On(slot.Record, shares))
}

// choice returns the score of the chosen node and of the runner-up.
func (s *pass) choice(r *scoreTree, winner int, score int64) compute.Choice {
	c := compute.Choice{Score: score}
	if second, its := r.runnerUp(winner); second >= 0 {
		c.RunnerUp, c.RunnerUpScore = s.packer.slots[second].Record.ID, its
	}
	return c
}

// wait adds the reason why e waits to the plan, if it has changed.
func (s *pass) wait(e *compute.Execution, reason compute.Reason) {
	if e.Reason != reason && len(s.plan.Waiting) < MaxWaiting {
		s.plan.Waiting = append(s.plan.Waiting, compute.Waiting{Execution: e.ID, Reason: reason})
	}
}
