package faults

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/bench/faults/check"
	"berth/bench/faults/world"
	"berth/loop"
)

// Limits of the comparison of replicas.
const (
	compareLimit = 60 * time.Second
	comparePause = 100 * time.Millisecond
)

// pair is two node names in order.
type pair struct{ a, b string }

// hashes collects state hashes of replicas, to compare them at equal indexes.
type hashes struct {
	seen     map[uint64]map[string]wire.State // States by index and node.
	last     map[string]uint64                // The newest index of each node.
	compared map[pair]int
}

func newHashes() *hashes {
	return &hashes{seen: map[uint64]map[string]wire.State{}, last: map[string]uint64{}, compared: map[pair]int{}}
}

// add records a node's state and returns how it differs from another state at
// the same index, "" for no difference. Reading one node twice at an index does
// not count as a comparison.
func (h *hashes) add(node string, state wire.State) (differs string) {
	h.last[node] = max(h.last[node], state.Index)
	at := h.seen[state.Index]
	if at == nil {
		at = map[string]wire.State{}
		h.seen[state.Index] = at
	}
	_, again := at[node]
	for other, known := range at {
		if known.Hash != state.Hash {
			return fmt.Sprintf("at index %d its state is %s, that of %s is %s; they differ in %s",
				state.Index, state.Hash, other, known.Hash, differing(state.Tables, known.Tables))
		}
		if other != node && !again {
			h.compared[pair{min(node, other), max(node, other)}]++
		}
	}
	at[node] = state
	return ""
}

// count returns the number of comparisons between two replicas.
func (h *hashes) count() int {
	n := 0
	for _, times := range h.compared {
		n += times
	}
	return n
}

// apart returns the pairs of nodes that were never compared.
func (h *hashes) apart(nodes []string) []pair {
	var all []pair
	for i, a := range nodes {
		for _, b := range nodes[i+1:] {
			if p := (pair{min(a, b), max(a, b)}); h.compared[p] == 0 {
				all = append(all, p)
			}
		}
	}
	return all
}

// compareHashes polls every replica's hash until each pair was seen at an equal
// index. An idle cluster advances by an occasional tick. A pair that never
// meets is a violation, unless ctx ended before.
func (s *session) compareHashes(ctx context.Context, report *Report) ([]check.Violation, error) {
	waiting, cancel := context.WithTimeout(ctx, compareLimit*time.Duration(s.cfg.Slow))
	defer cancel()
	h := newHashes()
	var names []string
	for _, n := range s.world.Nodes {
		names = append(names, n.Name)
	}
	for {
		for _, n := range s.world.Nodes {
			state, err := s.stateOf(waiting, n, false)
			if err != nil {
				return nil, err
			}
			differs := h.add(n.Name, state)
			report.States = h.count()
			if differs != "" {
				return []check.Violation{{What: "replicas differ", Object: "node " + n.Name, Detail: differs}}, nil
			}
		}
		apart := h.apart(names)
		if len(apart) == 0 {
			return nil, nil
		}
		if !loop.Sleep(waiting, comparePause) {
			if err := ctx.Err(); err != nil {
				return nil, err // They did not have the whole time to meet.
			}
			return []check.Violation{h.neverCompared(apart)}, nil
		}
	}
}

// neverCompared returns the violation of replicas that were never at the same
// index.
func (h *hashes) neverCompared(apart []pair) check.Violation {
	var at []string
	for _, name := range slices.Sorted(slices.Values(nodesOf(apart))) {
		at = append(at, fmt.Sprintf("%s at %d", name, h.last[name]))
	}
	return check.Violation{
		What: "replicas apart", Object: "cluster",
		Detail: fmt.Sprintf("%d pairs of nodes were never seen at the same index; last %s",
			len(apart), strings.Join(at, ", ")),
	}
}

// nodesOf returns the distinct nodes of pairs.
func nodesOf(pairs []pair) []string {
	var names []string
	for _, p := range pairs {
		names = append(names, p.a, p.b)
	}
	slices.SortFunc(names, cmp.Compare)
	return slices.Compact(names)
}

// stateOf returns a node's report about its own replica, with or without its
// invariant check. It keeps the callback count of the newest state.
func (s *session) stateOf(ctx context.Context, n *world.Node, checked bool) (wire.State, error) {
	c, err := client.New(client.Config{Addrs: []string{n.URL()}, Token: s.world.RootToken})
	if err != nil {
		return wire.State{}, err
	}
	state, err := c.State(ctx, checked)
	if err != nil {
		return state, stuck{fmt.Errorf("state of %s: %w", n.Name, err)}
	}
	if state.Index >= s.newest {
		s.newest, s.callbacks = state.Index, state.Callbacks
	}
	return state, nil
}

// differing names the tables whose checksums differ between two replicas.
func differing(a, b map[string]string) string {
	var names []string
	for name, sum := range a {
		if b[name] != sum {
			names = append(names, name)
		}
	}
	return strings.Join(slices.Sorted(slices.Values(names)), ", ")
}
