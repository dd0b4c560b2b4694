package fsm_test

import (
	"slices"
	"strings"
	"testing"

	"berth/compute"
	"berth/fsm/command"
)

func mountedAt(path string, optional bool) func(*compute.Execution) {
	return func(e *compute.Execution) { e.Storage = &compute.StorageMount{Path: path, Optional: optional} }
}

// TestStorageMounts places executions that see stored files where these can be mounted.
// It refuses them where no node can mount, and others go without a mount.
func TestStorageMounts(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	refused := func(path string, optional bool, want string) {
		t.Helper()
		c := w.python("cpu")
		mountedAt(path, optional)(&c.Execution)
		if r := w.do(c); r.Refusal == nil || r.Refusal.Code != compute.CodeInvalid || r.Refusal.Detail != want {
			t.Errorf("at %q: %+v", path, r)
		}
	}
	for _, path := range []string{"", "/", "mnt/s3", "/mnt/../etc", "/mnt/s3/", "/mnt//s3", "/" + strings.Repeat("x", 512)} {
		refused(path, true, "s3_mount_path")
	}
	refused("/mnt/s3", false, "no_storage_mount")
	if e := w.get(w.submit("cpu", mountedAt("/mnt/s3", true))); len(e.Request.Needs) != 0 || e.Storage.Path != "/mnt/s3" {
		t.Errorf("it may go without, and needs %v for %+v", e.Request.Needs, e.Storage)
	}
	n := w.node("n2")
	w.must(command.SetInventory{Term: w.term, Inventory: compute.Inventory{
		Node: n.ID, Version: n.InventoryVersion + 1, VCPUMilli: n.VCPUMilli, MemoryMiB: n.MemoryMiB, GPUs: n.GPUs,
		Offers: []compute.Offer{compute.MountOffer},
	}})
	if e := w.get(w.submit("cpu", mountedAt("/mnt/s3", false))); !slices.Equal(e.Request.Needs, []compute.Offer{compute.MountOffer}) {
		t.Errorf("it needs %v", e.Request.Needs)
	}
}

// TestStorageMountsWaitForTheirFormat checks that no server has to apply fields that it
// does not know.
func TestStorageMountsWaitForTheirFormat(t *testing.T) {
	w, _ := newOldWorld(t, 9)
	c := command.Submit{Execution: compute.Execution{ID: w.executionID()}}
	if err := w.view().Allows(c); err != nil {
		t.Error(err)
	}
	mountedAt("/mnt/s3", true)(&c.Execution)
	if err := w.view().Allows(c); compute.CodeOf(err) != compute.CodeConflict || w.view().AllowsMounts() == nil {
		t.Errorf("before the format: %v", err)
	}
}
