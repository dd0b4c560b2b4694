package fsm_test

import (
	"slices"
	"strings"
	"testing"

	"berth/compute"
	"berth/fsm"
)

// newOldWorld returns a world whose nodes know the given formats of the state.
func newOldWorld(t *testing.T, formats ...uint64) (*world, []compute.NodeID) {
	w := newEmptyWorld(t)
	w.bootstrap(settings())
	var ids []compute.NodeID
	for i, format := range formats {
		w.format = format
		ids = append(ids, w.addNode(string(rune('a'+i)), "t4"))
	}
	return w, ids
}

// TestFormatRises checks that additions of a format are allowed once every
// server knows it, including down nodes, and the state has that format.
func TestFormatRises(t *testing.T) {
	w, ids := newOldWorld(t, 0, fsm.Format, 1)
	quota := fsm.SetQuota{Actor: w.root}
	raise := fsm.SetFormat{Term: w.term, Format: fsm.Format}
	allowed := func(want string) {
		t.Helper()
		err := w.view().Allows(quota)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("a quota: %v, want %q", err, want)
		}
		if chunks := w.view().AllowsChunks(); (chunks == nil) != (want == "") {
			t.Errorf("chunks of version 2: %v, want %q", chunks, want)
		}
		if err := w.view().Allows(fsm.Tick{}); err != nil {
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
		renewed.Format = fsm.Format
		w.must(fsm.RegisterNode{Node: renewed})
	}
	upgrade(0)
	w.must(fsm.SetNodeState{Term: w.term, Node: ids[2], State: compute.NodeDown})
	w.refused(raise, compute.CodeConflict, "upgrade_required")
	allowed("upgrade, or remove, c ()")

	upgrade(2)
	allowed("being upgraded")
	w.must(raise)
	allowed("")
	if r := w.must(raise); !r.Repeat || w.view().Format() != fsm.Format {
		t.Errorf("a second time: %+v, format %d", r, w.view().Format())
	}
}

// TestFormatIgnoresRemovedNodesAndWorkers checks that removed nodes and
// workers, which have no replica, delay no format.
func TestFormatIgnoresRemovedNodesAndWorkers(t *testing.T) {
	w, ids := newOldWorld(t, fsm.Format, 1)
	w.must(fsm.RemoveNode{Actor: w.root, Node: ids[1]})
	w.must(fsm.CreateJoinToken{Actor: w.root, Token: compute.JoinToken{
		ID: "w", Hash: hash("w"), Uses: 1, Role: compute.RoleWorker, ExpiresAt: w.now.Add(1e9),
	}})
	worker := compute.Node{ID: compute.NodeID{UUID: w.uuid()}, Name: "w", Role: compute.RoleWorker}
	w.must(fsm.RegisterNode{Node: worker, TokenID: "w", TokenHash: hash("w")})
	w.must(fsm.SetFormat{Term: w.term, Format: fsm.Format})
	if err := w.view().Allows(fsm.StopCandidates{}); err != nil {
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
		w.must(fsm.SetInventory{Term: w.term, Inventory: w.view().Recordable(inv)})
		for _, cmd := range []fsm.Command{
			fsm.Submit{Execution: e}, fsm.SetInventory{Inventory: w.view().Recordable(inv)},
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
	known.Format = fsm.Format
	w.must(fsm.RegisterNode{Node: known})
	w.must(fsm.SetFormat{Term: w.term, Format: fsm.Format})
	if n, gaps, fault := record(); n != 2 || !slices.Equal(gaps, []compute.Gap{compute.GapCgroupV1}) || fault != "silent" {
		t.Errorf("with the format: %d import files, gaps %v, fault %q", n, gaps, fault)
	}
}

// TestFormatRefusesOldNodes checks that a server that could not apply the
// allowed commands can neither join nor report that it was downgraded.
func TestFormatRefusesOldNodes(t *testing.T) {
	w, ids := newOldWorld(t, fsm.Format)
	w.must(fsm.SetFormat{Term: w.term, Format: fsm.Format})
	w.must(fsm.CreateJoinToken{Actor: w.root, Token: compute.JoinToken{
		ID: "j", Hash: hash("j"), Uses: 1, ExpiresAt: w.now.Add(1e9),
	}})
	late := fsm.RegisterNode{
		Node: compute.Node{ID: compute.NodeID{UUID: w.uuid()}, Format: 1}, TokenID: "j", TokenHash: hash("j"),
	}
	w.refused(late, compute.CodeConflict, "node_too_old")
	known, _ := w.view().Node(ids[0])
	older := *known
	older.Format = 1
	w.refused(fsm.RegisterNode{Node: older}, compute.CodeConflict, "node_too_old")
	late.Node.Format = fsm.Format
	w.must(late)
}

// TestFormatIsTooNew checks that a program that is older than the state neither
// reads its snapshot nor applies the entry that raises the format.
func TestFormatIsTooNew(t *testing.T) {
	const newer = fsm.Format + 1
	w, _ := newOldWorld(t, newer)
	defer func() {
		p, _ := recover().(*fsm.PoisonError)
		if p == nil || !strings.Contains(p.Error(), "install a newer one") {
			t.Errorf("it stopped with %v", p)
		}
	}()
	w.do(fsm.SetFormat{Term: w.term, Format: newer})
	t.Error("an entry of a newer program was applied")
}
