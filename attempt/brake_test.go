package attempt_test

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/attempt"
	"berth/compute"
)

// fleet is the records of nodes, and the brake as each change leaves it.
type fleet struct {
	nodes map[string]*compute.Node
	brake compute.Brake
	now   compute.Instant
}

// newFleet returns so many nodes that are up: a, b, c and so on.
func newFleet(n int) *fleet {
	f := &fleet{nodes: map[string]*compute.Node{}, now: 1_000_000}
	for i := range n {
		name := string(rune('a' + i))
		f.nodes[name] = &compute.Node{Name: name}
		f.nodes[name].ID.UUID[15] = byte(i)
	}
	return f
}

// does one change: "@30" is at that second, "-a" a falls silent, "+a" it is
// heard, "~a" it is drained, "^a" undrained, "!a" removed, "*" the brake is
// released, "%50" that is the share.
func (f *fleet) does(t *testing.T, word string) {
	t.Helper()
	what := word[1:]
	switch n := f.nodes[what]; word[0] {
	case '@':
		seconds, err := strconv.Atoi(what)
		if err != nil {
			t.Fatal(err)
		}
		f.now = 1_000_000 + compute.Instant(1000*seconds)
		return
	case '-':
		n.State, n.ChangedAt = compute.NodeDown, f.now
	case '+':
		n.State, n.ChangedAt = compute.NodeUp, f.now
	case '~':
		n.Drained = true
	case '^':
		n.Drained = false
	case '!':
		delete(f.nodes, what)
	case '*':
		f.brake.ReleasedAt, f.brake.Since = f.now, 0
	case '%':
		percent, err := strconv.Atoi(what)
		if err != nil {
			t.Fatal(err)
		}
		f.brake.SharePercent = percent
	default:
		t.Fatalf("no change %q", word)
	}
	f.brake.Since = attempt.BrakedSince(maps.Values(f.nodes), f.brake, f.now)
}

// holds lists the nodes that hold the brake.
func (f *fleet) holds() string {
	var names []string
	for _, n := range attempt.Vanished(maps.Values(f.nodes), f.brake) {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return strings.Join(names, "")
}

// TestBrake checks which nodes hold the brake after some events.
func TestBrake(t *testing.T) {
	tests := []struct {
		name  string
		nodes int
		story string
		want  string
	}{
		{"all up", 3, "", ""},
		{"one of one", 1, "-a", ""},
		{"one of two", 2, "-a", ""},
		{"one of three", 3, "-a", ""},
		{"two of three", 3, "-a @1 -b", "ab"},
		{"two of five", 5, "-a -b", "ab"},
		{"exactly a third", 6, "-a -b", ""},
		{"within the window", 5, "-a @30 -b", "ab"},
		{"one after the other", 5, "-a @31 -b", ""},
		{"a chain is not at once", 9, "-a @25 -b @50 -c", ""},
		{"no node is left", 3, "-a -b -c", "abc"},
		{"the long dead are none of them", 7, "-a @100 -b @101 -c", ""},
		{"the long dead are none of the others either", 8, "-a -b -c @1 +c @100 -d -e -f", "def"},
		{"more later", 6, "-a -b -c @100 -d", "abcd"},

		{"what no burst was becomes none when others are drained", 6, "-a -b @60 ~c ~d ~e", ""},
		{"nor when others are drained within the window", 6, "-a -b @5 ~c ~d ~e", ""},
		{"nor when others are removed", 6, "-a -b @60 ~c ~d ~e !c !d !e", ""},
		{"nor when others die one by one", 8, "-a -b @60 -c @120 -d @180 -e", ""},
		{"nor when they come back and die alone", 6, "-a -b @60 +a @120 -a", ""},
		{"drained ones that are heard count as up", 6, "~c ~d ~e -a -b", ""},
		{"drained ones are expected to go", 5, "~a ~b ~c -a -b -c", ""},
		{"drained ones that go are none of either", 5, "~c ~d -c -d -a -b", "ab"},

		{"one is heard again", 5, "-a -b @60 +a", ""},
		{"one of many is heard again", 6, "-a -b -c -d @60 +a", "bcd"},
		{"it does not hold again for the old ones", 5, "-a -b @60 +a @120 -a", ""},
		{"one is known to be gone", 5, "-a -b @60 ~a", ""},
		{"one is removed", 5, "-a -b @60 !a", ""},
		{"it holds while others are drained", 5, "-a -b @60 ~c ~d ~e", "ab"},
		{"one is heard, and another is drained no more", 5, "~a -a @4 -b @6 -c @12 ^a @13 +c", "ab"},
		{"it holds for long", 5, "-a -b @9000 -c +c", "ab"},

		{"released", 5, "-a -b @60 *", ""},
		{"released within the window", 5, "-a -b @5 * @6 -c", ""},
		{"more after the release", 5, "-a -b @5 * @6 -c -d", "cd"},
		{"half is allowed", 4, "%50 -a -b", ""},
		{"more than half", 5, "%50 -a -b -c", "abc"},
		{"more is allowed later", 4, "-a -b @60 %50", ""},
		{"one comes back just after another one fell silent", 5, "-a @30 -b @62 -c +b", "ac"},
		{"one falls silent after all were few again", 5, "-a @30 -b @62 +b -c", ""},
		{"never", 3, "%100 -a -b -c", ""},
		{"no share asks for less than two", 3, "%1 -a", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := newFleet(test.nodes)
			for word := range strings.FieldsSeq(test.story) {
				f.does(t, word)
			}
			if got := f.holds(); got != test.want || (got == "") != f.brake.Since.IsZero() {
				t.Errorf("%q hold the brake since %d, want %q", got, f.brake.Since, test.want)
			}
		})
	}
}

// The brake begins when the first of its nodes fell silent.
func TestBrakeBeganWithTheFirst(t *testing.T) {
	f := newFleet(6)
	for _, word := range strings.Fields("@7 -a @20 -b @21 -c @500 -d") {
		f.does(t, word)
	}
	if want := compute.Instant(1_007_000); f.brake.Since != want {
		t.Errorf("it holds since %d, want %d", f.brake.Since, want)
	}
}

// fleetState is the state that a leader judges by. Each node of a fleet has one attempt
// that is lost 25 s after the node was last heard.
type fleetState struct{ *fleet }

func (f fleetState) Nodes() iter.Seq[*compute.Node] { return maps.Values(f.nodes) }

func (f fleetState) Brake() compute.Brake { return f.brake }

func (f fleetState) Work(id compute.NodeID) []compute.Work {
	return []compute.Work{{Execution: &compute.Execution{}, Attempt: &compute.Attempt{Node: id}}}
}

// unheard stands for a node that was not heard since the term began a second ago.
const unheard = -2

// TestJudge checks the verdict of a leader that last heard its nodes so many seconds
// ago, for several records of earlier events.
func TestJudge(t *testing.T) {
	tests := []struct {
		name   string
		nodes  int
		story  string
		silent map[string]int // Seconds of silence by node; 0 for the others.
		want   string         // "-a" is recorded as down, "+a" as up, "a" is given up.
	}{
		{"all are heard", 3, "", nil, ""},
		{"one falls silent", 3, "", map[string]int{"a": 16}, "-a"},
		{"not for long enough", 3, "-a", map[string]int{"a": 25}, ""},
		{"one is lost", 3, "-a", map[string]int{"a": 26}, "a"},
		{"one is heard again", 3, "-a", nil, "+a"},
		{"one is lost that was not recorded", 3, "", map[string]int{"a": 26}, "-a"},
		{"one is lost while another one falls silent", 5, "-a", map[string]int{"a": 26, "b": 16}, "-b"},
		{"one is lost while another one comes back", 5, "-a -b", map[string]int{"a": 26}, "+b"},
		{"one comes back as another one falls silent", 5, "-a -b", map[string]int{"b": 26, "c": 16}, "-c"},
		{"too many are lost", 5, "-a -b", map[string]int{"a": 26, "b": 26}, ""},
		{"two alone are lost", 5, "-a @60 -b", map[string]int{"a": 90, "b": 26}, "a b"},
		{"a drained one is lost while the brake holds", 6, "~c -a -b -d -c", map[string]int{"a": 26, "b": 26, "c": 26, "d": 26}, "c"},
		{"one was never looked at", 3, "-a", map[string]int{"a": -1}, ""},
		{"a new leader has not heard one that is down", 3, "-a", map[string]int{"a": unheard}, ""},
		{"nor one that is up", 3, "", map[string]int{"a": unheard}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := newFleet(test.nodes)
			for word := range strings.FieldsSeq(test.story) {
				f.does(t, word)
			}
			verdict := attempt.Judge(fleetState{f}, func(id compute.NodeID) (attempt.Silence, bool) {
				silent := test.silent[string(rune('a'+id.UUID[15]))]
				if silent == unheard {
					return attempt.Silence{For: time.Second}, true
				}
				return attempt.Silence{For: time.Duration(silent) * time.Second, Heard: true}, silent >= 0
			})
			if got := said(verdict); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// said spells a verdict.
func said(v attempt.Verdict) string {
	var words []string
	name := func(id compute.NodeID) string { return string(rune('a' + id.UUID[15])) }
	for _, c := range v.Changes {
		words = append(words, fmt.Sprintf("%s%s", map[compute.NodeState]string{
			compute.NodeUp: "+", compute.NodeDown: "-",
		}[c.State], name(c.Node)))
	}
	for _, l := range v.Losses {
		if len(l.Work) == 1 {
			words = append(words, name(l.Node))
		}
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}
