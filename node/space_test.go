package node_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/config"
	"berth/node/nodetest"
)

// TestVolumesAndPackagesThroughAFollower asks a follower for a directory that only
// one node has, for scratch space and for packages.
func TestVolumesAndPackagesThroughAFollower(t *testing.T) {
	t.Parallel() // It mostly waits.
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "set.txt"), []byte("rows"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(data, 0o777); err != nil {
		t.Fatal(err)
	}
	wheels := t.TempDir() // The second node's only.
	c := nodetest.NewWith(t, 3, func(i int, cfg *nodetest.NodeConfig) {
		cfg.Python.Offline, cfg.Python.FindLinks = true, []string{data}
		cfg.Limits.TimeoutDefault = 90 * time.Second
		if i == 1 {
			cfg.Exec.Mounts = []config.Mount{{Name: "sets", Path: data}}
			cfg.Python.FindLinks = []string{wheels}
		}
	})
	follower := c.Follower().URL()
	acme := nodetest.MustClient(t, c.MustAccount("acme").Key, follower)
	offering := wire.Node{}
	nodetest.Eventually(t, time.Minute, "the offer in the inventory", func() bool {
		nodes, err := nodetest.MustClient(t, c.RootToken, follower).Nodes(t.Context())
		if err != nil {
			return false
		}
		for _, n := range nodes {
			if slices.Contains(n.Offers, "volume:sets") && n.ScratchMiB > 0 {
				offering = n
			}
		}
		return offering.Name != ""
	})

	code := `
import os
print(open("/data/sets/set.txt").read(), os.path.exists("/mnt/sets"))
for name in ("/data/sets/new", "/work/new"):
    try:
        open(name, "w").close()
        print("wrote", name)
    except OSError as error:
        print("refused", name)
stat = os.statvfs("/work")
print("GiB", round(stat.f_blocks * stat.f_frsize / 2**30))
`
	for range 3 { // A placement by chance would be seen.
		id := mustSubmit(t, acme, client.Start{
			Code: code, Timeout: 60, ScratchGB: 2,
			Volumes: []wire.Volume{{Name: "sets", Path: "/data/sets", ReadOnly: true}},
		})
		e := mustFinish(t, acme, id)
		want := "rows False\nrefused /data/sets/new\nwrote /work/new\nGiB 2\n"
		if e.Status != compute.StatusCompleted || e.Stdout != want || e.Metadata.Node == nil || *e.Metadata.Node != offering.Name {
			t.Fatalf("ended as %s %v on %s with %+v: %s%s", e.Status, e.Errors, *e.Metadata.Node, e.Volumes, e.Stdout, e.Stderr)
		}
		if len(e.Volumes) != 1 || e.Volumes[0].Path != "/data/sets" || e.Scratch == nil || e.Scratch.MiB != 2<<10 {
			t.Errorf("the record has volumes %+v and scratch %+v", e.Volumes, e.Scratch)
		}
	}
	mustUseEnvironments(t, c, acme, wheels, offering.Name)
	id := mustSubmit(t, acme, client.Start{Code: "print(1)", Timeout: 60, Requirements: "nosuchpackage==9"})
	e := mustFinish(t, acme, id)
	if e.Status != compute.StatusFailed || e.StatusDetails == nil || *e.StatusDetails != "packages" || e.Billed == nil || *e.Billed != 0 ||
		len(e.Errors) != 1 || !strings.Contains(e.Errors[0], "nosuchpackage==9") {
		t.Errorf("packages that there are not: %s %v %v, billed %v", e.Status, e.StatusDetails, e.Errors, e.Billed)
	}
	if out, end := mustStream(t, acme, id); !strings.Contains(out, "packages: ERROR: No matching distribution") {
		t.Errorf("the stream has %q and ends with %+v", out, end)
	}
	for name, test := range map[string]struct {
		start client.Start
		say   string
	}{
		"a URL":          {client.Start{Requirements: "numpy\nx @ https://host/x.whl"}, "line 2: a URL"},
		"unknown volume": {client.Start{Volumes: []wire.Volume{{Name: "set"}}}, "sets"},
		"too much":       {client.Start{ScratchGB: 60_000}, "the most is"},
		"both":           {client.Start{ScratchGB: 1, Scratch: "memory"}, "in memory"},
		"a system path":  {client.Start{Volumes: []wire.Volume{{Name: "sets", Path: "/usr/lib"}}}, "below /work"},
		"one path twice": {client.Start{Volumes: []wire.Volume{{Name: "sets"}, {Name: "sets"}}}, "one path"},
	} {
		t.Run(name, func(t *testing.T) {
			test.start.Code, test.start.Timeout = "print(1)", 60
			started, err := acme.Submit(t.Context(), test.start)
			if err == nil || !strings.Contains(err.Error(), test.say) {
				t.Errorf("it answers %+v, %v", started, err)
			}
		})
	}
}
