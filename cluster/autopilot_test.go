package cluster

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

// parseRoll reads servers such as "A* v, B v dead, C v removed, D steady":
// the star leads; v votes; steady, dead, down (silent for a short time) and behind
// (it answers) are states, a voter without one is steady.
func parseRoll(t *testing.T, voters int, text string) *roll {
	t.Helper()
	r := &roll{voters: voters, promoteAfter: testPromote, replaceAfter: testReplace}
	for part := range strings.SplitSeq(text, ",") {
		words := strings.Fields(part)
		m := member{id: letter(words[0][0])}
		if strings.HasSuffix(words[0], "*") {
			r.self = m.id
		}
		for _, word := range words[1:] {
			switch word {
			case "v":
				m.voter, m.steady = true, testPromote
			case "steady":
				m.steady = testPromote
			case "dead":
				m.silent, m.steady = testReplace, 0
			case "down":
				m.silent, m.steady = time.Second, 0
			case "behind":
				m.steady = 0
			case "removed":
				m.removed = true
			case "demoted":
				m.demoted = true
			default:
				t.Fatalf("%q is no state", word)
			}
		}
		r.members = append(r.members, m)
	}
	return r
}

func letter(name byte) compute.NodeID { return compute.NodeID{UUID: compute.UUID{15: name}} }

func TestAutopilot(t *testing.T) {
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
			step, obstacles := parseRoll(t, test.voters, test.servers).next()
			got := ""
			if step.action != actionNone {
				got = fmt.Sprintf("%s %c", step.action, step.server.UUID[15])
			}
			var held []byte
			for _, o := range obstacles {
				held = append(held, o.server.UUID[15])
			}
			if got != test.want || string(held) != test.held {
				t.Errorf("got %q and %q stay, want %q and %q", got, held, test.want, test.held)
			}
		})
	}
}

func TestLeaderThatCouldNotHandOverRemovesItself(t *testing.T) {
	r := parseRoll(t, 0, "A* v removed, B v, C v")
	r.transferred = true
	if step, _ := r.next(); step.action != actionRemove || step.server != r.self {
		t.Errorf("got %+v", step)
	}
}

// everyState is what a server can be.
func everyState() []member {
	var all []member
	for _, voter := range []bool{false, true} {
		for _, removed := range []bool{false, true} {
			base := member{voter: voter, removed: removed}
			for _, seen := range []member{
				{steady: testPromote}, {}, {silent: time.Second}, {silent: testReplace}, {silent: testReplace, demoted: true},
			} {
				if voter && seen.demoted {
					continue // A vote is given after an answer only.
				}
				seen.voter, seen.removed = base.voter, base.removed
				all = append(all, seen)
			}
		}
	}
	return all
}

// TestAutopilotNeverCostsTheQuorum follows the decisions from every
// configuration of up to five servers that has a quorum to where nothing is
// left to do.
func TestAutopilotNeverCostsTheQuorum(t *testing.T) {
	states := everyState()
	rolls := 0
	var extend func(members []member, from int)
	extend = func(members []member, from int) {
		for at := range members {
			m := &members[at]
			if !m.voter || !m.answers() || at > 0 && members[at-1] == (member{
				id: members[at-1].id, voter: m.voter, removed: m.removed, steady: m.steady,
			}) {
				continue // Nobody who leads, or the same as the one before.
			}
			for _, voters := range []int{1, 3, 5} {
				r := &roll{
					members: slices.Clone(members), self: m.id, voters: voters,
					promoteAfter: testPromote, replaceAfter: testReplace,
				}
				if all, current := r.count(); current >= raftconf.Quorum(all) {
					rolls++
					followAutopilot(t, r)
				}
			}
		}
		if len(members) == 5 {
			return
		}
		for i := from; i < len(states); i++ {
			next := states[i]
			next.id = letter(byte('A' + len(members)))
			extend(append(slices.Clone(members), next), i)
		}
	}
	extend(nil, 0)
	t.Logf("%d configurations", rolls)
	if rolls < 10_000 {
		t.Error("too few")
	}
}

// followAutopilot takes the decisions one by one and checks each.
func followAutopilot(t *testing.T, r *roll) {
	t.Helper()
	began := r
	for range 4 * 6 {
		step, obstacles := r.next()
		if step.action == actionNone {
			checkEnd(t, began, r, obstacles)
			return
		}
		checkStep(t, r, step)
		r = r.with(step)
		if voters, current := r.count(); current < raftconf.Quorum(voters) {
			t.Fatalf("%+v\nleaves %d of %d voters of\n%+v", step, current, voters, began)
		}
	}
	t.Fatalf("no end of changes of\n%+v", began)
}

func checkStep(t *testing.T, r *roll, step change) {
	t.Helper()
	m := r.members[r.at(step.server)]
	voters, _ := r.count()
	demoted := 0
	for _, other := range r.members {
		if other.demoted {
			demoted++
		}
	}
	ok := false
	switch step.action {
	case actionRemove:
		ok = m.removed && m.id != r.self
	case actionPromote:
		ok = !m.voter && !m.removed && m.steady >= testPromote && voters <= r.wanted()
	case actionTransfer:
		ok = m.voter && m.steady > 0 && !m.removed && m.id != r.self && r.members[r.at(r.self)].removed
	case actionDemote:
		surplus := r.answering() == voters
		replaced := m.silent >= testReplace && demoted < (voters-1)/2
		ok = m.voter && m.id != r.self && voters > r.wanted() && (surplus || replaced)
	case actionNone:
	}
	if !ok {
		t.Fatalf("%+v of\n%+v", step, r)
	}
}

// checkEnd checks where nothing is left to do: what was removed is gone, or
// told, and a voter is missing only where no standby could take its place.
func checkEnd(t *testing.T, began, r *roll, obstacles []obstacle) {
	t.Helper()
	voters, _ := r.count()
	for _, m := range r.members {
		told := slices.ContainsFunc(obstacles, func(o obstacle) bool { return o.server == m.id })
		switch {
		case m.removed && !told:
			t.Fatalf("%c stays, untold, of\n%+v\nfrom\n%+v", m.id.UUID[15], r, began)
		case !m.voter && !m.removed && m.steady >= testPromote && voters < r.wanted():
			t.Fatalf("%c does not vote of\n%+v\nfrom\n%+v", m.id.UUID[15], r, began)
		}
	}
}
