package api_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// TestWhatIfQuestions holds how a question is read: names are those of the
// state that it is about, and the nodes to add have one limit together.
func TestWhatIfQuestions(t *testing.T) {
	var w *world
	var asked compute.WhatIf
	past := map[uint64]*fsm.View{}
	w = newWorld(t, func(c *handler.Config) {
		c.WhatIf = func(_ context.Context, view *fsm.View, index uint64, question func(*fsm.View) (compute.WhatIf, error),
		) (compute.Forecast, *fsm.View, error) {
			if index > 0 {
				view = past[index]
			}
			change, err := question(view)
			asked = change
			return compute.Forecast{Index: view.Index()}, view, err
		}
	})
	before := w.machine.View()
	past[before.Index()] = before
	w.addNode(4, "t4")
	ask := func(q wire.WhatIf, status int, says string) {
		t.Helper()
		a := w.send("POST", "/admin/whatif", rootToken, q)
		if a.status != status || !strings.Contains(string(a.body), says) {
			t.Errorf("%d %.200s, want %d and %q", a.status, a.body, status, says)
		}
	}
	ask(wire.WhatIf{Remove: []string{"n4"}}, 200, "")
	ask(wire.WhatIf{Drain: []string{strings.ToUpper(nodeID(4).String())}}, 200, "")
	ask(wire.WhatIf{Remove: []string{"n4"}, Index: before.Index()}, 422, `no node is called \"n4\"`)
	many := make([]string, 1000)
	for i := range many {
		many[i] = "t4:1"
	}
	if ask(wire.WhatIf{Add: many}, 200, ""); len(asked.Add) != 1000 {
		t.Errorf("%d nodes were added", len(asked.Add))
	}
	ask(wire.WhatIf{Add: slices.Concat(many, []string{"t4:2"})}, 422, "at most 1000 nodes")
	ask(wire.WhatIf{Add: []string{"t4:1 x999", "h100:8", "h100:4"}}, 422, "h100:4")
	ask(wire.WhatIf{Add: []string{"t4:1 x1001"}}, 422, "at most 1000 nodes")
}
