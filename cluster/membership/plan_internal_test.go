package membership

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/cluster/raftconf"
	"berth/compute"
)

const (
	testPromote = 10 * time.Second
	testReplace = 10 * time.Minute
)

// parsePlan reads servers such as "A* v, B v dead, C v removed, D steady". The star
// leads, and v votes. The states are steady, dead, down (silent for a short time) and
// behind (it answers). A voter without a state is steady.
func parsePlan(t *testing.T, voters int, text string) *Plan {
	t.Helper()
	p := &Plan{Voters: voters, PromoteAfter: testPromote, ReplaceAfter: testReplace}
	for part := range strings.SplitSeq(text, ",") {
		words := strings.Fields(part)
		m := Member{ID: letter(words[0][0])}
		if strings.HasSuffix(words[0], "*") {
			p.Self = m.ID
		}
		for _, word := range words[1:] {
			switch word {
			case "v":
				m.Voter, m.Steady = true, testPromote
			case "steady":
				m.Steady = testPromote
			case "dead":
				m.Silent, m.Steady = testReplace, 0
			case "down":
				m.Silent, m.Steady = time.Second, 0
			case "behind":
				m.Steady = 0
			case "removed":
				m.Removed = true
			case "demoted":
				m.Demoted = true
			default:
				t.Fatalf("%q is not a state", word)
			}
		}
		p.Members = append(p.Members, m)
	}
	return p
}

func letter(name byte) compute.NodeID { return compute.NodeID{UUID: compute.UUID{15: name}} }

func TestNextChange(t *testing.T) {
	for _, test := range []struct {
		name    string
		voters  int
		servers string
		want    string // The action and its server, or nothing.
		held    string // Servers that have to stay.
	}{
		{"all is well", 0, "A* v, B v, C v", "", ""},
		{"a removed standby goes", 0, "A* v, B v, C removed dead", "remove C", ""},
		{"a steady standby votes", 3, "A* v, B v, C steady", "promote C", ""},
		{"one that is behind does not", 3, "A* v, B v, C", "", ""},
		{"automatic stays at three of six", 0, "A* v, B v, C v, D steady, E steady, F steady", "", ""},
		{
			"automatic is five of seven", 0,
			"A* v, B v, C v, D steady, E steady, F steady, G steady", "promote D", "",
		},
		{
			"a removed server does not count for that", 0,
			"A* v, B v, C v, D steady, E steady, F steady, G v removed dead", "remove G", "",
		},
		{"a removed voter goes when the others are a quorum", 0, "A* v, B v, C v removed", "remove C", ""},
		{"also one that is dead", 0, "A* v, B v, C v removed dead", "remove C", ""},
		{"a standby votes first", 0, "A* v, B v, C v removed, D steady", "promote D", ""},
		{"then it goes", 0, "A* v, B v, C v removed, D v", "remove C", ""},
		{"it stays while it is the quorum", 0, "A* v, B v removed, C v down", "", "B"},
		{"the dead goes first, which lets the other go", 0, "A* v, B v removed, C v removed dead", "remove C", ""},
		{"a standby lets it go", 0, "A* v, B v removed, C v down, D steady", "promote D", ""},
		{"two voters become one", 0, "A* v, B v removed", "remove B", ""},
		{"the last one stays", 0, "A* v removed", "", "A"},
		{"a leader that is removed lets another lead", 0, "A* v removed, B v, C v", "transfer B", ""},
		{"not while that would cost the quorum", 0, "A* v removed, B v, C v down", "", "A"},
		{"all removed", 0, "A* v removed, B v removed", "remove B", ""},
		{"a short silence changes nothing", 0, "A* v, B v, C v down, D steady", "", ""},
		{"a dead voter is replaced", 0, "A* v, B v, C v dead, D steady", "promote D", ""},
		{"then demoted", 0, "A* v, B v, C v dead, D v", "demote C", ""},
		{"without a standby it keeps its vote", 0, "A* v, B v, C v dead", "", ""},
		{"a second one waits for the first", 0, "A* v, B v, C dead demoted, D v dead, E steady", "", "D"},
		{"a dead standby is no reason to wait", 0, "A* v, B v, C dead, D v dead, E steady", "promote E", ""},
		{"of five two may be out", 5, "A* v, B v, C v dead, D v dead, E v, F steady, G steady", "promote F", ""},
		{"one by one", 5, "A* v, B v, C v dead, D v dead, E v, F v, G steady", "demote C", ""},
		{"one that came back too late is surplus", 3, "A* v, B v, C v, D v", "demote D", ""},
		{"the leader keeps its vote", 3, "A v, B v, C v, D* v", "demote C", ""},
		{"nothing is surplus while one is silent", 3, "A* v, B v, C v down, D v", "", ""},
		{"one that is behind is surplus first", 3, "A* v, B v behind, C v, D v", "demote B", ""},
		{"those that keep up stay", 3, "A* v, B v behind, C v behind, D v, E v", "demote C", ""},
		{"also when that leaves too many voters for now", 3, "A* v, B v behind, C v behind, D v behind, E v", "", ""},
		{"a removed voter stays while others catch up", 0, "A* v, B v removed, C v behind", "", "B"},
		{"a dead one is replaced, and demoted once that holds", 3, "A* v, B v behind, C v dead, D v behind", "", "C"},
		{"one voter is enough where one is wanted", 1, "A* v, B v, C v", "demote C", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			step, obstacles := parsePlan(t, test.voters, test.servers).Next()
			got := ""
			if step.Action != None {
				got = fmt.Sprintf("%s %c", step.Action, step.Server.UUID[15])
			}
			var held []byte
			for _, o := range obstacles {
				held = append(held, o.Server.UUID[15])
			}
			if got != test.want || string(held) != test.held {
				t.Errorf("got %q and %q stay, want %q and %q", got, held, test.want, test.held)
			}
		})
	}
}

// TestSettled measures less often where nothing is about to change.
func TestSettled(t *testing.T) {
	for servers, want := range map[string]bool{
		"A* v":                                true,
		"A* v, B v, C v":                      true,
		"A* v, B v, C v, D steady":            true,
		"A* v, B v, C steady":                 false, // It is to vote.
		"A* v, B v, C":                        false, // It is behind, or was not measured yet.
		"A* v, B v, C v down":                 false,
		"A* v, B v, C v, D v":                 false, // One is too many.
		"A* v, B v, C v removed":              false,
		"A* v, B v, C v, D steady, E removed": false,
	} {
		if got := parsePlan(t, 3, servers).Settled(); got != want {
			t.Errorf("%s: settled is %t, want %t", servers, got, want)
		}
	}
	p := parsePlan(t, 0, "A* v, B v, C steady")
	if p.Members[2].Steady--; p.Settled() {
		t.Error("it is settled though a server votes soon")
	}
}

func TestLeaderThatCouldNotHandOverRemovesItself(t *testing.T) {
	p := parsePlan(t, 0, "A* v removed, B v, C v")
	p.Transferred = true
	if step, _ := p.Next(); step.Action != Remove || step.Server != p.Self {
		t.Errorf("got %+v", step)
	}
}

// everyState returns all states of a server.
func everyState() []Member {
	var all []Member
	for _, voter := range []bool{false, true} {
		for _, removed := range []bool{false, true} {
			base := Member{Voter: voter, Removed: removed}
			for _, seen := range []Member{
				{Steady: testPromote}, {}, {Silent: time.Second}, {Silent: testReplace}, {Silent: testReplace, Demoted: true},
			} {
				if voter && seen.Demoted {
					continue // A vote is given after an answer only.
				}
				seen.Voter, seen.Removed = base.Voter, base.Removed
				all = append(all, seen)
			}
		}
	}
	return all
}

// TestPlanNeverCostsTheQuorum follows the decisions from every
// configuration of up to five servers that has a quorum to where nothing is
// left to do.
func TestPlanNeverCostsTheQuorum(t *testing.T) {
	states := everyState()
	plans := 0
	var extend func(members []Member, from int)
	extend = func(members []Member, from int) {
		for at := range members {
			m := &members[at]
			if !m.Voter || !m.Answers() || at > 0 && members[at-1] == (Member{
				ID: members[at-1].ID, Voter: m.Voter, Removed: m.Removed, Steady: m.Steady,
			}) {
				continue // Nobody leads, or the same server as before.
			}
			for _, voters := range []int{1, 3, 5} {
				p := &Plan{
					Members: slices.Clone(members), Self: m.ID, Voters: voters,
					PromoteAfter: testPromote, ReplaceAfter: testReplace,
				}
				if all, current := p.Count(); current >= raftconf.Quorum(all) {
					plans++
					followPlan(t, p)
				}
			}
		}
		if len(members) == 5 {
			return
		}
		for i := from; i < len(states); i++ {
			next := states[i]
			next.ID = letter(byte('A' + len(members)))
			extend(append(slices.Clone(members), next), i)
		}
	}
	extend(nil, 0)
	t.Logf("%d configurations", plans)
	if plans < 10_000 {
		t.Error("too few")
	}
}

// followPlan makes the planned changes one by one and checks each.
func followPlan(t *testing.T, p *Plan) {
	t.Helper()
	began := p
	for range 4 * 6 {
		step, obstacles := p.Next()
		if step.Action == None {
			checkEnd(t, began, p, obstacles)
			return
		}
		checkStep(t, p, step)
		p = p.With(step)
		if voters, current := p.Count(); current < raftconf.Quorum(voters) {
			t.Fatalf("%+v\nleaves %d of %d voters of\n%+v", step, current, voters, began)
		}
	}
	t.Fatalf("no end of changes of\n%+v", began)
}

func checkStep(t *testing.T, p *Plan, step Change) {
	t.Helper()
	m := p.Members[p.At(step.Server)]
	voters, _ := p.Count()
	demoted := 0
	for _, other := range p.Members {
		if other.Demoted {
			demoted++
		}
	}
	ok := false
	switch step.Action {
	case Remove:
		ok = m.Removed && m.ID != p.Self
	case Promote:
		ok = !m.Voter && !m.Removed && m.Steady >= testPromote && voters <= p.wanted()
	case Transfer:
		ok = m.Voter && m.Steady > 0 && !m.Removed && m.ID != p.Self && p.Members[p.At(p.Self)].Removed
	case Demote:
		surplus := p.Answering() == voters
		replaced := m.Silent >= testReplace && demoted < (voters-1)/2
		ok = m.Voter && m.ID != p.Self && voters > p.wanted() && (surplus || replaced)
	case None:
	}
	if !ok {
		t.Fatalf("%+v of\n%+v", step, p)
	}
}

// checkEnd checks a plan without a next step: removed servers are gone, or reported, and
// a voter is missing only where no standby could take its place.
func checkEnd(t *testing.T, began, p *Plan, obstacles []Obstacle) {
	t.Helper()
	voters, _ := p.Count()
	for _, m := range p.Members {
		reported := slices.ContainsFunc(obstacles, func(o Obstacle) bool { return o.Server == m.ID })
		switch {
		case m.Removed && !reported:
			t.Fatalf("%c stays, unreported, of\n%+v\nfrom\n%+v", m.ID.UUID[15], p, began)
		case !m.Voter && !m.Removed && m.Steady >= testPromote && voters < p.wanted():
			t.Fatalf("%c does not vote of\n%+v\nfrom\n%+v", m.ID.UUID[15], p, began)
		}
	}
}
