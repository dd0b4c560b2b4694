package fsm_test

import (
	"slices"
	"strings"
	"testing"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/fsm/format"
)

// newOldWorld returns a world whose nodes know the given formats of the state.
func newOldWorld(t *testing.T, formats ...uint64) (*world, []compute.NodeID) {
	w := newEmptyWorld(t)
	w.bootstrap(settings())
	var ids []compute.NodeID
	for i, known := range formats {
		w.format = known
		ids = append(ids, w.addNode(string(rune('a'+i)), "t4"))
	}
	return w, ids
}

// TestFormatRises checks that additions of a format are allowed once every
// server knows it, including down nodes, and the state has that format.
func TestFormatRises(t *testing.T) {
	w, ids := newOldWorld(t, 0, format.Newest, 1)
	quota := command.SetQuota{Actor: w.root}
	raise := command.SetFormat{Term: w.term, Format: format.Newest}
	allowed := func(want string) {
		t.Helper()
		err := w.view().Allows(quota)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("a quota: %v, want %q", err, want)
		}
		if chunks := w.view().AllowsChunks(); (chunks == nil) != (want == "") {
			t.Errorf("chunks of version 2: %v, want %q", chunks, want)
		}
		if err := w.view().Allows(command.Tick{}); err != nil {
			t.Errorf("what every replica knows: %v", err)
		}
	}
	allowed("upgrade, or remove, a (), c ()")
	if err := w.view().Allows(quota); compute.CodeOf(err) != compute.CodeConflict {
		t.Errorf("the refusal is %v", err)
	}
	w.refused(raise, compute.CodeConflict, "upgrade_required")

	upgrade := func(i int) {
		n, _ := w.view().Node(ids[i])
		renewed := *n
		renewed.Format = format.Newest
		w.must(command.RegisterNode{Node: renewed})
	}
	upgrade(0)
	w.must(command.SetNodeState{Term: w.term, Node: ids[2], State: compute.NodeDown})
	w.refused(raise, compute.CodeConflict, "upgrade_required")
	allowed("upgrade, or remove, c ()")

	upgrade(2)
	allowed("being upgraded")
	w.must(raise)
	allowed("")
	if r := w.must(raise); !r.Repeat || w.view().Format() != format.Newest {
		t.Errorf("a second time: %+v, format %d", r, w.view().Format())
	}
}

// TestFormatIgnoresRemovedNodesAndWorkers checks that removed nodes and
// workers, which have no replica, delay no format.
func TestFormatIgnoresRemovedNodesAndWorkers(t *testing.T) {
	w, ids := newOldWorld(t, format.Newest, 1)
	w.must(command.RemoveNode{Actor: w.root, Node: ids[1]})
	w.must(command.CreateJoinToken{Actor: w.root, Token: compute.JoinToken{
		ID: "w", Hash: hash("w"), Uses: 1, Role: compute.RoleWorker, ExpiresAt: w.now.Add(1e9),
	}})
	worker := compute.Node{ID: compute.NodeID{UUID: w.uuid()}, Name: "w", Role: compute.RoleWorker}
	w.must(command.RegisterNode{Node: worker, TokenID: "w", TokenHash: hash("w")})
	w.must(command.SetFormat{Term: w.term, Format: format.Newest})
	if err := w.view().Allows(command.StopCandidates{}); err != nil {
		t.Error(err)
	}
}

// TestFieldsWaitForTheirFormat checks that the fields of the newest format are
// neither proposed nor recorded before every server knows it, and that their
// commands are not held up.
func TestFieldsWaitForTheirFormat(t *testing.T) {
	w, ids := newOldWorld(t, 4)
	e := compute.Execution{ID: compute.ExecutionID{UUID: w.uuid()}}
	record := func() (imports int, gaps []compute.Gap, fault string) {
		w.view().RecordImports(&e, []string{"a.py", "b.py"})
		inv := inventory(ids[0], "a", uint64(w.now), "t4")
		inv.Gaps, inv.EngineFault = []compute.Gap{compute.GapCgroupV1}, "silent"
		w.must(command.SetInventory{Term: w.term, Inventory: w.view().Recordable(inv)})
		for _, cmd := range []command.Command{
			command.Submit{Execution: e}, command.SetInventory{Inventory: w.view().Recordable(inv)},
		} {
			if err := w.view().Allows(cmd); err != nil {
				t.Errorf("%T: %v", cmd, err)
			}
		}
		n, _ := w.view().Node(ids[0])
		return e.ImportFiles, n.Gaps, n.EngineFault
	}
	if n, gaps, fault := record(); n != 0 || gaps != nil || fault != "" || len(e.Imports) != 2 {
		t.Errorf("before the format: %d import files, gaps %v, fault %q", n, gaps, fault)
	}
	renewed, _ := w.view().Node(ids[0])
	known := *renewed
	known.Format = format.Newest
	w.must(command.RegisterNode{Node: known})
	w.must(command.SetFormat{Term: w.term, Format: format.Newest})
	if n, gaps, fault := record(); n != 2 || !slices.Equal(gaps, []compute.Gap{compute.GapCgroupV1}) || fault != "silent" {
		t.Errorf("with the format: %d import files, gaps %v, fault %q", n, gaps, fault)
	}
}

// TestFormatRefusesOldNodes checks that a server that could not apply the
// allowed commands can neither join nor report that it was downgraded.
func TestFormatRefusesOldNodes(t *testing.T) {
	w, ids := newOldWorld(t, format.Newest)
	w.must(command.SetFormat{Term: w.term, Format: format.Newest})
	w.must(command.CreateJoinToken{Actor: w.root, Token: compute.JoinToken{
		ID: "j", Hash: hash("j"), Uses: 1, ExpiresAt: w.now.Add(1e9),
	}})
	late := command.RegisterNode{
		Node: compute.Node{ID: compute.NodeID{UUID: w.uuid()}, Format: 1}, TokenID: "j", TokenHash: hash("j"),
	}
	w.refused(late, compute.CodeConflict, "node_too_old")
	known, _ := w.view().Node(ids[0])
	older := *known
	older.Format = 1
	w.refused(command.RegisterNode{Node: older}, compute.CodeConflict, "node_too_old")
	late.Node.Format = format.Newest
	w.must(late)
}

// TestFormatIsTooNew checks that a program that is older than the state neither
// reads its snapshot nor applies the entry that raises the format.
func TestFormatIsTooNew(t *testing.T) {
	const newer = format.Newest + 1
	w, _ := newOldWorld(t, newer)
	defer func() {
		p, _ := recover().(*fsm.PoisonError)
		if p == nil || !strings.Contains(p.Error(), "install a newer one") {
			t.Errorf("it stopped with %v", p)
		}
	}()
	w.do(command.SetFormat{Term: w.term, Format: newer})
	t.Error("an entry of a newer program was applied")
}
