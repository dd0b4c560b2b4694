package cluster

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"berth/cluster/raftconf"
	"berth/compute"
)

// How many servers vote when the configuration leaves it open.
const (
	votersSmall = 3
	votersLarge = 5
	largeFrom   = 7 // Servers from which on votersLarge vote.
)

// action is a way to change who votes.
type action string

// The actions.
const (
	actionNone     action = ""
	actionRemove   action = "remove"   // Out of the configuration.
	actionDemote   action = "demote"   // A voter becomes a standby.
	actionPromote  action = "promote"  // A standby becomes a voter.
	actionTransfer action = "transfer" // Leadership, to the server.
)

// change is one step to the configuration that is wanted.
type change struct {
	action action
	server compute.NodeID
	reason string // Why, for the log.
}

// obstacle is a server that should not vote any more but has to.
type obstacle struct {
	server compute.NodeID
	reason string // What is in the way, for people.

	// Of what its leaving would leave.
	voters, current int              // Voters, and those of them that keep up.
	silent          []compute.NodeID // Voters that do not answer.
}

// The reasons of changes and obstacles.
const (
	becauseRemoved  = "it was removed from the cluster"
	becauseTooFew   = "too few servers vote"
	becauseReplaces = "it votes in the place of one that leaves"
	becauseSilent   = "it has been silent for too long and another one votes in its place"
	becauseSurplus  = "more servers vote than are wanted"

	wouldCostQuorum  = "too few of the voters that it leaves answer and keep up"
	wouldLeaveNobody = "nobody else can vote"
	tooManyDemoted   = "voters that were replaced before are still silent: bring them back or remove them"
	nobodyToLead     = "no other voter can lead"
)

// member is what the leader knows of one server of the configuration.
type member struct {
	id      compute.NodeID
	voter   bool
	removed bool // By the state: it is to leave.
	demoted bool // For its silence, in this term, and it has not answered since.

	// For how long it has answered and kept up, or not answered. At most one
	// is above zero; both are zero for one that answers and is behind.
	steady, silent time.Duration
}

// answers reports whether the server answered when it was last asked.
func (m *member) answers() bool { return m.silent == 0 }

// keepsUp reports whether the server could confirm an entry soon: the leader
// can, and another one that answered and was not behind.
func (r *roll) keepsUp(m *member) bool { return m.id == r.self || m.steady > 0 }

// roll is the configuration as the leader sees it, and what it is to become.
// It decides alone from what it holds: no clock, no chance.
type roll struct {
	members []member
	self    compute.NodeID // The leader.
	voters  int            // Wanted; 0 for what suits the number of servers.

	promoteAfter time.Duration // How long a standby must have kept up before it votes.
	replaceAfter time.Duration // How long a voter must have been silent to be replaced.
	transferred  bool          // Leadership was tried to be given away: no second try.
}

// wanted returns how many of the servers should vote.
func (r *roll) wanted() int {
	servers := 0
	for i := range r.members {
		if !r.members[i].removed {
			servers++
		}
	}
	switch {
	case r.voters > 0:
		return r.voters
	case servers >= largeFrom:
		return votersLarge
	}
	return votersSmall
}

// next returns the change that is due, actionNone for none, and which servers
// must go on voting although they should not. No change ever leaves fewer
// voters that keep up than a quorum of the configuration that it makes: one
// that answers while it replays its log confirms nothing. What was removed stays
// until that holds, and a voter that is silent is replaced before it loses its
// vote.
func (r *roll) next() (change, []obstacle) {
	for i := range r.members {
		if m := &r.members[i]; m.removed && !m.voter {
			return change{actionRemove, m.id, becauseRemoved}, nil
		}
	}
	voters, current := r.count()
	wanted := r.wanted()
	leaving, obstacles := r.leaving(voters)
	standby := r.standby()
	if standby != nil && voters <= wanted && voters-len(leaving) < wanted && current+1 >= raftconf.Quorum(voters+1) {
		reason := becauseReplaces
		if len(leaving) == 0 {
			reason = becauseTooFew
		}
		return change{actionPromote, standby.id, reason}, nil
	}
	for _, m := range leaving {
		if !m.removed && voters <= wanted {
			continue // Nobody votes in its place yet.
		}
		step, inTheWay := r.leave(m)
		if inTheWay == nil {
			return step, nil
		}
		obstacles = append(obstacles, *inTheWay)
	}
	if len(leaving) == 0 && voters > wanted && r.answering() == voters {
		m := r.surplus()
		if left := r.obstacle(m, wouldCostQuorum); left.current >= raftconf.Quorum(left.voters) {
			return change{actionDemote, m.id, becauseSurplus}, obstacles
		}
	}
	return change{}, obstacles
}

// leaving returns the voters that are to leave, those first whose leaving
// costs least: the silent, then those that answer, then the leader. Voters
// that are silent for too long but may not be replaced are obstacles.
func (r *roll) leaving(voters int) ([]*member, []obstacle) {
	outstanding := 0
	for i := range r.members {
		if r.members[i].demoted {
			outstanding++
		}
	}
	var all []*member
	var obstacles []obstacle
	for i := range r.members {
		m := &r.members[i]
		switch {
		case !m.voter:
		case m.removed:
			all = append(all, m)
		case m.silent < r.replaceAfter || m.answers():
		case outstanding >= (voters-1)/2:
			obstacles = append(obstacles, r.obstacle(m, tooManyDemoted))
		default:
			outstanding++
			all = append(all, m)
		}
	}
	rank := func(m *member) int {
		switch {
		case m.id == r.self:
			return 2
		case m.answers():
			return 1
		}
		return 0
	}
	slices.SortStableFunc(all, func(a, b *member) int { return cmp.Compare(rank(a), rank(b)) })
	return all, obstacles
}

// leave returns how a voter gives up its vote, or why it cannot.
func (r *roll) leave(m *member) (change, *obstacle) {
	inTheWay := r.obstacle(m, wouldCostQuorum)
	switch heir := r.heir(); {
	case inTheWay.voters == 0:
		inTheWay.reason = wouldLeaveNobody
	case inTheWay.current < raftconf.Quorum(inTheWay.voters):
	case m.id == r.self && heir == nil:
		inTheWay.reason = nobodyToLead
	case m.id == r.self && !r.transferred:
		return change{actionTransfer, heir.id, "the leader was removed from the cluster"}, nil
	case m.removed:
		return change{actionRemove, m.id, becauseRemoved}, nil
	default:
		return change{actionDemote, m.id, becauseSilent}, nil
	}
	return change{}, &inTheWay
}

// obstacle returns what would be left without the voter m.
func (r *roll) obstacle(m *member, reason string) obstacle {
	o := obstacle{server: m.id, reason: reason}
	for i := range r.members {
		other := &r.members[i]
		switch {
		case !other.voter || other.id == m.id:
			continue
		case r.keepsUp(other):
			o.current++
		case !other.answers():
			o.silent = append(o.silent, other.id)
		}
		o.voters++
	}
	return o
}

// count returns how many servers vote, and how many of them keep up.
func (r *roll) count() (voters, current int) {
	for i := range r.members {
		if m := &r.members[i]; m.voter {
			voters++
			if r.keepsUp(m) {
				current++
			}
		}
	}
	return voters, current
}

// standby returns the server that should vote next: the one that has kept up
// longest, nil when none has for long enough.
func (r *roll) standby() *member {
	return r.steadiest(func(m *member) bool { return !m.voter && m.steady >= r.promoteAfter })
}

// heir returns who should lead in the place of this leader, nil for nobody.
func (r *roll) heir() *member {
	return r.steadiest(func(m *member) bool { return m.voter && m.id != r.self })
}

// steadiest returns the server that has kept up longest of those that stay and
// fit.
func (r *roll) steadiest(fits func(*member) bool) *member {
	var best *member
	for i := range r.members {
		m := &r.members[i]
		if !m.removed && m.steady > 0 && fits(m) && (best == nil || m.steady > best.steady) {
			best = m
		}
	}
	return best
}

// answering returns how many of the voters answer, however far behind.
func (r *roll) answering() (n int) {
	for i := range r.members {
		if m := &r.members[i]; m.voter && m.answers() {
			n++
		}
	}
	return n
}

// surplus returns the voter that is needed least: any but the leader, one that
// does not keep up first, and of those alike the one with the highest id, which
// every leader chooses alike.
func (r *roll) surplus() *member {
	var last *member
	for i := range r.members {
		m := &r.members[i]
		if !m.voter || m.id == r.self {
			continue
		}
		if last == nil || cmp.Or(order(r.keepsUp(last), r.keepsUp(m)), bytes.Compare(m.id.UUID[:], last.id.UUID[:])) > 0 {
			last = m
		}
	}
	return last
}

// order is that of two booleans: false before true.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// at returns where the server is in members, -1 for nowhere.
func (r *roll) at(id compute.NodeID) int {
	return slices.IndexFunc(r.members, func(m member) bool { return m.id == id })
}

// with returns the roll after a change.
func (r *roll) with(step change) *roll {
	after := *r
	after.members = slices.Clone(r.members)
	at := after.at(step.server)
	switch m := &after.members[at]; step.action {
	case actionRemove:
		after.members = slices.Delete(after.members, at, at+1)
	case actionPromote:
		m.voter = true
	case actionDemote:
		m.voter, m.demoted = false, !m.answers()
	case actionTransfer:
		old := &after.members[after.at(r.self)]
		old.steady = max(old.steady, 1) // Who led is not behind.
		after.self = step.server
	case actionNone:
	}
	return &after
}
