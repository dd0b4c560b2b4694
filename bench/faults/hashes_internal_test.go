package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/api/wire"
	"berth/bench/faults/world"
)

// TestReplicasAreComparedInPairs checks that a node is not compared with
// itself, and that each pair of nodes must be seen at an equal index.
func TestReplicasAreComparedInPairs(t *testing.T) {
	nodes := []string{"n1", "n2", "n3"}
	tests := []struct {
		name  string
		reads string // NODE@INDEX=HASH
		count int
		apart int
		wrong string
	}{
		{"one node many times", strings.Repeat("n1@5=a ", 4), 0, 3, ""},
		{"each stuck at an index of its own", "n1@5=a n2@6=b n3@7=c n1@5=a n2@6=b n3@7=c n1@5=a n2@6=b n3@7=c", 0, 3, ""},
		{"two of three", "n1@5=a n2@5=a n1@5=a n2@5=a n3@6=b", 1, 2, ""},
		{"all, at two indexes", "n1@5=a n2@5=a n2@6=b n3@6=b n3@5=a", 4, 0, ""},
		{"another state", "n1@5=a n2@5=b", 0, 3, "at index 5 its state is b, that of n1 is a"},
		{"another state of the same node", "n1@5=a n1@5=b", 0, 3, "at index 5 its state is b, that of n1 is a"},
	}
	for _, tt := range tests {
		h, wrong := newHashes(), ""
		for read := range strings.FieldsSeq(tt.reads) {
			var state wire.State
			at := strings.NewReplacer("@", " ", "=", " ").Replace(read)
			var node string
			if _, err := fmt.Sscan(at, &node, &state.Index, &state.Hash); err != nil {
				t.Fatal(err)
			}
			wrong += h.add(node, state)
		}
		if h.count() != tt.count || len(h.apart(nodes)) != tt.apart {
			t.Errorf("%s: %d comparisons, apart are %v; want %d and %d", tt.name, h.count(), h.apart(nodes), tt.count, tt.apart)
		}
		if (wrong == "") != (tt.wrong == "") || !strings.HasPrefix(wrong, tt.wrong) {
			t.Errorf("%s: %q, want %q", tt.name, wrong, tt.wrong)
		}
	}
	h := newHashes()
	h.add("n1", wire.State{Index: 5})
	h.add("n2", wire.State{Index: 6})
	if v := h.neverCompared(h.apart(nodes[:2])); !strings.HasSuffix(v.Detail, "last n1 at 5, n2 at 6") {
		t.Errorf("got %v", v)
	}
}

// TestDivergenceMessagesAreLogged checks that the program logs the messages
// that a run searches for.
func TestDivergenceMessagesAreLogged(t *testing.T) {
	source, err := os.ReadFile("../../cluster/replica/divergence.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, message := range divergenceMessages() {
		if !strings.Contains(string(source), strconv.Quote(message)) {
			t.Errorf("package replica does not log %q", message)
		}
	}
}

// TestReplicasAreApartOnlyAtTheLimit checks that a run that ends during the
// comparison of replicas reports no violation.
func TestReplicasAreApartOnlyAtTheLimit(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := &session{cfg: Config{Slow: 1}, world: &world.World{}}
	for index := range 2 {
		answer := fmt.Sprintf(`{"index": %d}`, index)
		s.world.Nodes = append(s.world.Nodes, mustServe(t, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, answer)
			if index == 1 {
				time.AfterFunc(comparePause/4, cancel)
			}
		}))
	}
	if wrong, err := s.compareHashes(ctx, &Report{}); err == nil || len(wrong) > 0 {
		t.Errorf("error %v, violations %v", err, wrong)
	}
}

// TestLostLivenessIsAViolation checks that a cluster that does not recover is a
// violation, and that an unfinished run reports its reason.
func TestLostLivenessIsAViolation(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	tests := []struct {
		name       string
		interrupt  bool
		err        error
		violate    []string
		unfinished string
	}{
		{"nothing", false, nil, nil, ""},
		{"stuck", false, stuck{errors.New("3 executions do not end")}, []string{"recovery"}, ""},
		{"stuck within", false, fmt.Errorf("nemesis: %w", stuck{errors.New("x")}), []string{"recovery"}, ""},
		{"interrupted", true, stuck{context.Canceled}, nil, "context canceled"},
		{"harness", false, errors.New("no strace"), nil, "no strace"},
	}
	for _, tt := range tests {
		var r Report
		ctx := t.Context()
		if tt.interrupt {
			ctx = stopped
		}
		err := r.conclude(ctx, tt.err)
		var what []string
		for _, v := range r.Violations {
			what = append(what, v.What)
		}
		if (err == nil) != (tt.unfinished == "") || r.Unfinished != tt.unfinished || !slices.Equal(what, tt.violate) {
			t.Errorf("%s: error %v, unfinished %q, violations %v", tt.name, err, r.Unfinished, what)
		}
	}
}
