package api_test

import (
	"strings"
	"testing"

	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// offerMounts has every node be able to mount storage.
func (w *world) offerMounts() {
	w.Helper()
	for n := range w.machine.View().Nodes() {
		w.must(command.SetInventory{Term: 1, Inventory: compute.Inventory{
			Node: n.ID, Version: n.InventoryVersion + 1, VCPUMilli: n.VCPUMilli, MemoryMiB: n.MemoryMiB,
			GPUs: unheld(n.GPUs), Gaps: n.Gaps, ScratchMiB: n.ScratchMiB, Offers: append(engines(), compute.MountOffer),
		}})
	}
}

// TestMounts accepts executions that see stored files where nodes can mount, and says
// what to do where they cannot, or the key may not.
func TestMounts(t *testing.T) {
	w := newWorld(t)
	const python, image = "/execution/streaming/start", "/execution/image/start"
	const asked = mount + `"timeout":9}`
	w.want(409, "upgrade_required", "POST", python, w.adaKey, asked)
	w.upgrade()
	if a := w.want(400, "no_storage_mount", "POST", python, w.adaKey, asked); !strings.Contains(string(a.body), "modprobe fuse") {
		t.Errorf("it says %s", a.body)
	}
	weak := decodeObject(w, w.mustDo("POST", "/orgs/ada-lab/api-keys", w.adaKey,
		map[string]any{"name": "x", "scopes": []string{"executions:write"}}, nil).body)["plaintext_key"].(string)
	w.want(403, "scope_missing", "POST", python, weak, asked)

	pathOf := func(start, key, body string) string {
		t.Helper()
		var out wire.Started
		w.mustDo("POST", start, key, body, &out)
		var e wire.Execution
		w.mustDo("GET", "/execution/"+out.ExecutionID.String(), w.adaKey, nil, &e)
		if e.S3MountPath == nil {
			return ""
		}
		return *e.S3MountPath
	}
	const plain = `{"docker_image_ref":"alpine"`
	for name, test := range map[string]struct{ start, key, body, want string }{
		"an image":                              {image, w.adaKey, plain + `}`, "/mnt/s3"},
		"an image of a key without storage":     {image, weak, plain + `}`, ""},
		"an image that wants none":              {image, w.adaKey, plain + `,"enable_s3_mount":false}`, ""},
		"an image with a path":                  {image, w.adaKey, plain + `,"s3_mount_path":"/data/x"}`, "/data/x"},
		"Python":                                {python, w.adaKey, `{"code":"1"}`, ""},
		"Python that names no more than a path": {python, w.adaKey, `{"code":"1","s3_mount_path":"/data/x"}`, ""},
	} {
		if got := pathOf(test.start, test.key, test.body); got != test.want {
			t.Errorf("%s sees storage at %q, want %q", name, got, test.want)
		}
	}
	w.offerMounts()
	if got := pathOf(python, w.adaKey, mount+`"s3_mount_path":"/s3"}`); got != "/s3" {
		t.Errorf("Python sees storage at %q", got)
	}
}
