package api_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
	"berth/scheduler"
)

// pack places what can be placed, as the leader does.
func (w *world) pack() {
	w.Helper()
	v := w.machine.View()
	if plan := scheduler.Pack(v); !plan.Empty() {
		w.must(command.CommitPlan{Term: 1, ViewIndex: v.Index(), Plan: plan})
	}
}

// TestExplainAnswers holds the exact bytes of what is said of an execution that
// waits and of one that was placed.
func TestExplainAnswers(t *testing.T) {
	w := newWorld(t)
	var ids []compute.ExecutionID
	for range 5 {
		ids = append(ids, w.start("l40s.2x"))
	}
	w.pack()
	var placed, waits string
	for _, id := range ids {
		e, _ := w.machine.View().AnyExecution(id)
		switch {
		case e.Status != compute.StatusQueued:
			placed = id.String()
		default:
			waits = id.String()
		}
	}
	for name, path := range map[string]string{
		"explain_waiting": "/execution/" + waits + "/explain?defrag=true",
		"explain_placed":  "/execution/" + placed + "/explain",
	} {
		t.Run(name, func(t *testing.T) {
			a := w.send("GET", path, w.adaKey, nil)
			if a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			var indented bytes.Buffer
			w.ok(json.Indent(&indented, a.body, "", "  "))
			golden(t, filepath.Join("testdata", name+".golden.json"), append(settled(indented.Bytes()), '\n'))
		})
	}
}

// TestExplainNamesEngines has an execution in a container wait, because no node has an
// engine any more that may execute it: a node without one and one whose engine isolates
// below the minimum are counted apart.
func TestExplainNamesEngines(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	var started wire.Started
	w.mustDo("POST", "/execution/image/start", w.adaKey, map[string]any{"docker_image_ref": "probe"}, &started)
	offers := [][]compute.Offer{nil, {compute.DockerOffer(true)}} // The others have nothing.
	for n := range w.machine.View().Nodes() {
		i := compute.Inventory{
			Node: n.ID, Version: n.InventoryVersion + 1, VCPUMilli: n.VCPUMilli, MemoryMiB: n.MemoryMiB, GPUs: unheld(n.GPUs),
			ScratchMiB: n.ScratchMiB,
		}
		if len(offers) > 0 {
			i.Offers, offers = offers[0], offers[1:]
		}
		w.must(command.SetInventory{Term: 1, Inventory: i})
	}
	w.pack()
	var got wire.Explanation
	w.mustDo("GET", "/execution/"+started.ExecutionID.String()+"/explain", w.adaKey, nil, &got)
	if got.Reason == nil || *got.Reason != "trusted_only" || got.NodesFit != 0 || got.Refused["trusted_only"] != 1 ||
		got.Refused["no_engine"] != got.Nodes-1 {
		t.Errorf("of %d nodes it says %v: %v", got.Nodes, got.Reason, got.Refused)
	}
	a := w.send("POST", "/execution/image/start", w.adaKey, map[string]any{"docker_image_ref": "probe"})
	if a.status != 400 || !bytes.Contains(a.body, []byte(`"trusted_only"`)) {
		t.Errorf("another start is answered %d: %s", a.status, a.body)
	}
}

// TestExplainNamesSilentEngines has executions in containers wait, because the engines of all
// nodes do not answer. They are started all the same, and operators see why.
func TestExplainNamesSilentEngines(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	report := func(fault string) {
		t.Helper()
		for n := range w.machine.View().Nodes() {
			w.must(command.SetInventory{Term: 1, Inventory: compute.Inventory{
				Node: n.ID, Version: n.InventoryVersion + 1, VCPUMilli: n.VCPUMilli, MemoryMiB: n.MemoryMiB,
				GPUs: unheld(n.GPUs), ScratchMiB: n.ScratchMiB, Offers: n.Offers, EngineFault: fault,
			}})
		}
	}
	const fault = "the Docker engine has not answered since 2026-01-02T03:04:05.006Z"
	report(fault)
	var started wire.Started
	w.mustDo("POST", "/execution/image/start", w.adaKey, map[string]any{"docker_image_ref": "probe"}, &started)
	w.pack()
	var got wire.Explanation
	w.mustDo("GET", "/execution/"+started.ExecutionID.String()+"/explain", w.adaKey, nil, &got)
	if got.Reason == nil || *got.Reason != "engine_down" || got.NodesFit != 0 || got.Refused["engine_down"] != got.Nodes {
		t.Errorf("of %d nodes it says %v: %v", got.Nodes, got.Reason, got.Refused)
	}
	shown := func(want string) {
		t.Helper()
		var nodes wire.Nodes
		w.mustDo("GET", "/admin/nodes", rootToken, nil, &nodes)
		for _, n := range nodes.Nodes {
			if n.EngineFault != want || !slices.Contains(n.Offers, compute.DockerOffer(false)) {
				t.Errorf("node %s offers %v with the fault %q", n.Name, n.Offers, n.EngineFault)
			}
		}
		if a := w.send("GET", "/admin/nodes", rootToken, nil); bytes.Contains(a.body, []byte("engine_fault")) != (want != "") {
			t.Errorf("with the fault %q the answer is %s", want, a.body)
		}
	}
	shown(fault)
	report("")
	w.pack()
	shown("")
	var e wire.Execution
	w.mustDo("GET", "/execution/"+started.ExecutionID.String(), w.adaKey, nil, &e)
	if e.Status != compute.StatusStarting {
		t.Errorf("it is %v although the engines answer", e.Status)
	}
}

// TestQuoteNamesOwnExecutionsOnly holds that a quote shows the executions that
// it would move to their owner alone. Others see the cost of the move.
func TestQuoteNamesOwnExecutionsOnly(t *testing.T) {
	w := newWorld(t)
	w.addNode(4, "l40s", "l40s")
	moved := w.start("l40s")
	w.place(moved, 1)
	for _, asks := range []struct {
		name, key string
		named     bool
	}{{"the owner", w.adaKey, true}, {"another", w.bobKey, false}} {
		t.Run(asks.name, func(t *testing.T) {
			var waits wire.Started
			w.mustDo("POST", "/execution/streaming/start", asks.key, map[string]any{
				"code": "1", "execution_type": "l40s.4x", "timeout": 60,
			}, &waits)
			w.pack()
			a := w.send("GET", "/execution/"+waits.ExecutionID.String()+"/explain?defrag=true", asks.key, nil)
			var got wire.Explanation
			w.ok(json.Unmarshal(a.body, &got))
			if got.Defragmentation == nil || len(got.Defragmentation.Moves) != 1 {
				t.Fatalf("no quote of one move: %s", a.body)
			}
			move := got.Defragmentation.Moves[0]
			if move.From != "n1" || move.To != "n4" || (move.ExecutionID != nil) != asks.named ||
				bytes.Contains(a.body, []byte(moved.String())) != asks.named {
				t.Errorf("the move is %+v: %s", move, a.body)
			}
		})
	}
}

// TestExplainNamesNoOtherOrganizationsExecutions holds that who waits sees how
// much is ahead of it, and nobody else's identifiers.
func TestExplainNamesNoOtherOrganizationsExecutions(t *testing.T) {
	w := newWorld(t)
	var theirs []compute.ExecutionID
	for range 6 {
		theirs = append(theirs, w.start("l40s"))
	}
	w.pack()
	var mine struct {
		ID compute.ExecutionID `json:"execution_id"`
	}
	w.mustDo("POST", "/execution/streaming/start", w.bobKey, map[string]any{
		"code": "1", "execution_type": "l40s.2x", "priority": 10, // Else fair share puts it first.
	}, &mine)
	w.pack()
	a := w.send("GET", "/execution/"+mine.ID.String()+"/explain?defrag=true", w.bobKey, nil)
	var got wire.Explanation
	w.ok(json.Unmarshal(a.body, &got))
	if got.Ahead == nil || got.Ahead.Executions != got.Ahead.OwnExecutions+len(theirs)-placedOf(w, theirs) {
		t.Errorf("ahead is %+v", got.Ahead)
	}
	for _, id := range theirs {
		if bytes.Contains(a.body, []byte(id.String())) {
			t.Errorf("it names %s: %s", id, a.body)
		}
	}
	w.want(404, "not_found", "GET", "/execution/"+mine.ID.String()+"/explain", w.adaKey, nil)
	w.want(422, "", "GET", "/execution/"+mine.ID.String()+"/explain?defrag=maybe", w.bobKey, nil)
}

// placedOf returns how many of the executions hold a place.
func placedOf(w *world, ids []compute.ExecutionID) (n int) {
	for _, id := range ids {
		if e, _ := w.machine.View().AnyExecution(id); e.Status != compute.StatusQueued {
			n++
		}
	}
	return n
}
