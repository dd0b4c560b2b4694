package membership

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"berth/cluster/raftconf"
	"berth/compute"
)

// How many servers vote by default.
const (
	votersSmall = 3
	votersLarge = 5
	largeFrom   = 7 // With this many servers, votersLarge vote.
)

// Action is a kind of change.
type Action string

// The actions.
const (
	None     Action = ""
	Remove   Action = "remove"   // Out of the configuration.
	Demote   Action = "demote"   // A voter becomes a standby.
	Promote  Action = "promote"  // A standby becomes a voter.
	Transfer Action = "transfer" // Leadership, to the server.
)

// Change is one step towards the desired configuration.
type Change struct {
	Action Action
	Server compute.NodeID
	Reason string // For the log.
}

// Obstacle is a voter that should lose its vote but cannot yet.
type Obstacle struct {
	Server compute.NodeID
	Reason string // For the operator.

	// The configuration without it.
	Voters, Current int              // Voters, and how many of them keep up.
	Silent          []compute.NodeID // Voters that do not answer.
}

// Reasons of changes and obstacles.
const (
	becauseRemoved  = "it was removed from the cluster"
	becauseTooFew   = "too few servers vote"
	becauseReplaces = "it replaces a voter that leaves"
	becauseSilent   = "it was silent for too long and has been replaced"
	becauseSurplus  = "more servers vote than are wanted"

	wouldCostQuorum  = "too few of the other voters answer and keep up"
	wouldLeaveNobody = "nobody else can vote"
	tooManyDemoted   = "voters that were replaced before are still Silent: bring them back or remove them"
	nobodyToLead     = "no other voter can lead"
)

// Member is one server of the configuration as the leader sees it.
type Member struct {
	ID      compute.NodeID
	Voter   bool
	Removed bool // Removed from the state: it is to leave.
	Demoted bool // Demoted for silence in this term, and silent since.

	// For how long it has answered and kept up, or has not answered. At most one
	// is positive; both are zero for a server that answers and is behind.
	Steady, Silent time.Duration
}

// Answers reports whether the server answered the last measurement.
func (m *Member) Answers() bool { return m.Silent == 0 }

// keepsUp reports whether the server could acknowledge an entry soon: the leader
// can, and so can one that answered and was not behind.
func (p *Plan) keepsUp(m *Member) bool { return m.ID == p.Self || m.Steady > 0 }

// Plan is the configuration as the leader sees it and the rules for changing it.
type Plan struct {
	Members []Member
	Self    compute.NodeID // The leader.
	Voters  int            // Desired; 0 to derive it from the number of servers.

	PromoteAfter time.Duration // How long a standby must keep up before it votes.
	ReplaceAfter time.Duration // How long a voter must be silent to be replaced.
	Transferred  bool          // This process has tried to transfer leadership; it does so once.
}

// wanted returns how many of the servers should vote.
func (p *Plan) wanted() int {
	servers := 0
	for i := range p.Members {
		if !p.Members[i].Removed {
			servers++
		}
	}
	switch {
	case p.Voters > 0:
		return p.Voters
	case servers >= largeFrom:
		return votersLarge
	}
	return votersSmall
}

// Next returns the change that is due, or None, and the voters that must keep
// their vote although they should lose it. No change leaves fewer voters that
// keep up than a quorum of the configuration that it makes; a server that answers
// while it replays its log acknowledges nothing. A removed voter stays until that
// holds, and a silent voter is replaced before it is demoted.
func (p *Plan) Next() (Change, []Obstacle) {
	for i := range p.Members {
		if m := &p.Members[i]; m.Removed && !m.Voter {
			return Change{Remove, m.ID, becauseRemoved}, nil
		}
	}
	voters, current := p.Count()
	wanted := p.wanted()
	leaving, obstacles := p.leaving(voters)
	standby := p.standby()
	if standby != nil && voters <= wanted && voters-len(leaving) < wanted && current+1 >= raftconf.Quorum(voters+1) {
		reason := becauseReplaces
		if len(leaving) == 0 {
			reason = becauseTooFew
		}
		return Change{Promote, standby.ID, reason}, nil
	}
	for _, m := range leaving {
		if !m.Removed && voters <= wanted {
			continue // Not replaced yet.
		}
		step, inTheWay := p.leave(m)
		if inTheWay == nil {
			return step, nil
		}
		obstacles = append(obstacles, *inTheWay)
	}
	if len(leaving) == 0 && voters > wanted && p.Answering() == voters {
		m := p.surplus()
		if left := p.obstacle(m, wouldCostQuorum); left.Current >= raftconf.Quorum(left.Voters) {
			return Change{Demote, m.ID, becauseSurplus}, obstacles
		}
	}
	return Change{}, obstacles
}

// Settled reports whether no change is near: none is due, and none will be before a server is
// removed, or no longer answers or keeps up.
func (p *Plan) Settled() bool {
	for i := range p.Members {
		m := &p.Members[i]
		if m.Removed || m.ID != p.Self && (m.Steady == 0 || m.Steady < p.PromoteAfter) {
			return false
		}
	}
	step, obstacles := p.Next()
	return step.Action == None && len(obstacles) == 0
}

// leaving returns the voters that are to leave, the least costly first: the
// silent, then those that answer, then the leader. Voters that are silent for too
// long but may not be replaced are obstacles.
func (p *Plan) leaving(voters int) ([]*Member, []Obstacle) {
	outstanding := 0
	for i := range p.Members {
		if p.Members[i].Demoted {
			outstanding++
		}
	}
	var all []*Member
	var obstacles []Obstacle
	for i := range p.Members {
		m := &p.Members[i]
		switch {
		case !m.Voter:
		case m.Removed:
			all = append(all, m)
		case m.Silent < p.ReplaceAfter || m.Answers():
		case outstanding >= (voters-1)/2:
			obstacles = append(obstacles, p.obstacle(m, tooManyDemoted))
		default:
			outstanding++
			all = append(all, m)
		}
	}
	rank := func(m *Member) int {
		switch {
		case m.ID == p.Self:
			return 2
		case m.Answers():
			return 1
		}
		return 0
	}
	slices.SortStableFunc(all, func(a, b *Member) int { return cmp.Compare(rank(a), rank(b)) })
	return all, obstacles
}

// leave returns how a voter gives up its vote, or why it cannot.
func (p *Plan) leave(m *Member) (Change, *Obstacle) {
	inTheWay := p.obstacle(m, wouldCostQuorum)
	switch heir := p.heir(); {
	case inTheWay.Voters == 0:
		inTheWay.Reason = wouldLeaveNobody
	case inTheWay.Current < raftconf.Quorum(inTheWay.Voters):
	case m.ID == p.Self && heir == nil:
		inTheWay.Reason = nobodyToLead
	case m.ID == p.Self && !p.Transferred:
		return Change{Transfer, heir.ID, "the leader was removed from the cluster"}, nil
	case m.Removed:
		return Change{Remove, m.ID, becauseRemoved}, nil
	default:
		return Change{Demote, m.ID, becauseSilent}, nil
	}
	return Change{}, &inTheWay
}

// obstacle describes the configuration without the voter m.
func (p *Plan) obstacle(m *Member, reason string) Obstacle {
	o := Obstacle{Server: m.ID, Reason: reason}
	for i := range p.Members {
		other := &p.Members[i]
		switch {
		case !other.Voter || other.ID == m.ID:
			continue
		case p.keepsUp(other):
			o.Current++
		case !other.Answers():
			o.Silent = append(o.Silent, other.ID)
		}
		o.Voters++
	}
	return o
}

// Count returns how many servers vote, and how many of them keep up.
func (p *Plan) Count() (voters, current int) {
	for i := range p.Members {
		if m := &p.Members[i]; m.Voter {
			voters++
			if p.keepsUp(m) {
				current++
			}
		}
	}
	return voters, current
}

// standby returns the server that should vote next: the one that has kept up
// longest, nil when none has for long enough.
func (p *Plan) standby() *Member {
	return p.steadiest(func(m *Member) bool { return !m.Voter && m.Steady >= p.PromoteAfter })
}

// heir returns the voter that should lead next, nil for none.
func (p *Plan) heir() *Member {
	return p.steadiest(func(m *Member) bool { return m.Voter && m.ID != p.Self })
}

// steadiest returns the server that has kept up longest of those that stay and
// fit.
func (p *Plan) steadiest(fits func(*Member) bool) *Member {
	var best *Member
	for i := range p.Members {
		m := &p.Members[i]
		if !m.Removed && m.Steady > 0 && fits(m) && (best == nil || m.Steady > best.Steady) {
			best = m
		}
	}
	return best
}

// Answering returns how many of the voters answer, however far behind.
func (p *Plan) Answering() (n int) {
	for i := range p.Members {
		if m := &p.Members[i]; m.Voter && m.Answers() {
			n++
		}
	}
	return n
}

// surplus returns the voter to demote: not the leader, one that does not keep up
// first, and among equals the one with the highest id, so that every leader makes
// the same choice.
func (p *Plan) surplus() *Member {
	var last *Member
	for i := range p.Members {
		m := &p.Members[i]
		if !m.Voter || m.ID == p.Self {
			continue
		}
		if last == nil || cmp.Or(order(p.keepsUp(last), p.keepsUp(m)), bytes.Compare(m.ID.UUID[:], last.ID.UUID[:])) > 0 {
			last = m
		}
	}
	return last
}

// order orders booleans: false before true.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// At returns where the server is in members, -1 for nowhere.
func (p *Plan) At(id compute.NodeID) int {
	return slices.IndexFunc(p.Members, func(m Member) bool { return m.ID == id })
}

// With returns the plan after a change.
func (p *Plan) With(step Change) *Plan {
	after := *p
	after.Members = slices.Clone(p.Members)
	at := after.At(step.Server)
	switch m := &after.Members[at]; step.Action {
	case Remove:
		after.Members = slices.Delete(after.Members, at, at+1)
	case Promote:
		m.Voter = true
	case Demote:
		m.Voter, m.Demoted = false, !m.Answers()
	case Transfer:
		old := &after.Members[after.At(p.Self)]
		old.Steady = max(old.Steady, 1) // A leader is not behind.
		after.Self = step.Server
	case None:
	}
	return &after
}
