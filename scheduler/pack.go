package scheduler

import (
	"math"

	"berth/compute"
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
func (p *Packer) Pack(v View) compute.Plan {
	p.sync(v)
	s := pass{packer: p, view: v, quotas: map[compute.OrgID]*quota{}, claimed: map[int]bool{}}
	for e := range v.Queue() {
		if len(s.plan.Assignments) == MaxAssignments || s.shares > 0 && s.shares+e.Request.GPUs > MaxShares {
			break
		}
		s.decide(e)
	}
	return s.plan
}

// pass is one way through the queue.
type pass struct {
	packer  *Packer
	view    View
	plan    compute.Plan
	shares  int // GPUs of all its assignments.
	quotas  map[compute.OrgID]*quota
	claimed map[int]bool // By GPU type: its first blocked execution has its claim.
	devices []int        // Scratch.
}

// quota is how much of its concurrency an organization uses.
type quota struct {
	running, limit int
}

// decide places one execution or says why it waits.
func (s *pass) decide(e *compute.Execution) {
	q := s.packer.types.shape(&e.Request)
	row := s.packer.row(q)
	node, score := row.best()
	if score >= nodeDown {
		s.wait(e, reasonOf(score))
		return
	}
	quota := s.quota(e.Org)
	if quota.running >= quota.limit {
		s.wait(e, compute.ReasonOrgConcurrency)
		return
	}
	if score > worstFit {
		s.wait(e, reasonOf(score))
		s.claim(&q)
		return
	}
	slot := &s.packer.slots[node]
	s.devices = slot.pick(s.packer.value, &q, s.devices[:0])
	s.plan.Assignments = append(s.plan.Assignments, compute.Assignment{
		Execution: e.ID, Node: slot.node.ID, GPUs: slot.shares(&q, s.devices),
		Choice: s.choice(row, node, score),
	})
	s.packer.give(node, &q, s.devices)
	s.shares += len(s.devices)
	quota.running++
}

// choice returns why the winner was chosen.
func (s *pass) choice(r *row, winner int, score int64) compute.Choice {
	c := compute.Choice{Score: score}
	if second, its := r.runnerUp(winner); second >= 0 {
		c.RunnerUp, c.RunnerUpScore = s.packer.slots[second].node.ID, its
	}
	return c
}

// wait notes why e waits, when that is news.
func (s *pass) wait(e *compute.Execution, reason compute.Reason) {
	if e.Reason != reason && len(s.plan.Waiting) < MaxWaiting {
		s.plan.Waiting = append(s.plan.Waiting, compute.Waiting{Execution: e.ID, Reason: reason})
	}
}

// quota returns how much of its concurrency an organization uses, counting
// what this pass has placed.
func (s *pass) quota(org compute.OrgID) *quota {
	q := s.quotas[org]
	if q == nil {
		q = &quota{running: s.view.RunningOf(org), limit: s.view.ConcurrentLimit(org)}
		if q.limit == 0 {
			q.limit = math.MaxInt
		}
		s.quotas[org] = q
	}
	return q
}
