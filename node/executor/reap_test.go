package executor_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/nftables"

	"berth/compute"
	"berth/node/executor/cgroup"
	network "berth/node/executor/egress"
	"berth/node/executor/prepare"
)

// TestReap checks that the remains of a killed node are removed, and that those of
// another node are not.
func TestReap(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	killed := compute.NodeID{UUID: compute.UUID{0xde, 0xad, 0x01, 15: byte(os.Getpid())}}
	other := compute.NodeID{UUID: compute.UUID{0xde, 0xad, 0x02, 15: byte(os.Getpid())}}
	host, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := prepare.Reap(other); err != nil {
			t.Error(err)
		}
	})
	for _, node := range []compute.NodeID{killed, other} {
		if _, err := network.Open(node.String()[:6], nil); err != nil {
			t.Fatal(err)
		}
		if _, err := host.Create(node.String()+".e.1", cgroup.Limits{MemoryBytes: 64 << 20, Pids: 10}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // The second time there is nothing left to remove.
		if err := prepare.Reap(killed); err != nil {
			t.Fatal(err)
		}
	}
	left := leftovers(t, host)
	if strings.Contains(left, killed.String()[:6]) {
		t.Errorf("left behind: %s", left)
	}
	if strings.Count(left, other.String()[:6]) != 2 {
		t.Errorf("another node's things are gone: %s", left)
	}
}

// leftovers returns the names of all tables and cgroups.
func leftovers(t *testing.T, host *cgroup.Host) string {
	t.Helper()
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	tables, err := conn.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	names, err := host.Groups()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		names = append(names, table.Name)
	}
	return strings.Join(names, " ")
}
