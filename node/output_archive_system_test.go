package node_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// archivedOutput is an execution whose output leaves the disks of nodes.
type archivedOutput struct {
	*testing.T

	cluster *nodetest.Cluster
	account nodetest.Account
	id      compute.ExecutionID
	owner   *nodetest.Node
	output  string // As a reader saw it before.
	record  wire.Execution
}

// at returns a client of a node.
func (a *archivedOutput) at(n *nodetest.Node) *client.Client {
	return nodetest.MustClient(a, a.account.Key, n.URL())
}

// mustPrintOn executes code that prints on a GPU type, asked of a follower.
func mustPrintOn(t *testing.T, c *nodetest.Cluster, account nodetest.Account, gpu string) *archivedOutput {
	t.Helper()
	a := &archivedOutput{T: t, cluster: c, account: account}
	api := a.at(c.Follower())
	started, err := api.Submit(t.Context(), client.Start{
		Code:          "import sys\nfor n in range(2000): print('line', n)\nprint('warned', file=sys.stderr)\n",
		ExecutionType: gpu, Timeout: 60,
	})
	if err != nil {
		t.Fatal(err)
	}
	a.id, a.record = started.ExecutionID, mustFinish(t, api, started.ExecutionID)
	a.output, _ = mustStream(t, api, a.id)
	attempts := c.Leader().Peer().View().Attempts(a.id)
	for _, n := range c.Nodes {
		if n.ID() == attempts[0].Node {
			a.owner = n
		}
	}
	if a.owner == nil || !strings.Contains(a.output, "line 1999\n") {
		t.Fatalf("%d bytes were printed on %v", len(a.output), attempts[0].Node)
	}
	return a
}

// dir returns where a node has the output.
func (a *archivedOutput) dir(n *nodetest.Node) string {
	return filepath.Join(n.Config.DataDir, "attempts", a.id.String(), "1")
}

// copies returns where nodes have copies of it.
func (a *archivedOutput) copies() (dirs []string) {
	for _, n := range a.cluster.Nodes {
		found, err := filepath.Glob(filepath.Join(n.Config.DataDir, "copies", "*", a.id.String(), "1"))
		if err != nil {
			a.Fatal(err)
		}
		dirs = append(dirs, found...)
	}
	return dirs
}

// mustAge makes the files in a directory so old that they are due.
func (a *archivedOutput) mustAge(dir string) {
	a.Helper()
	a.mustAgeBy(dir, 8*24*time.Hour)
}

// mustAgeBy makes the files in a directory so old.
func (a *archivedOutput) mustAgeBy(dir string, age time.Duration) {
	a.Helper()
	then := time.Now().Add(-age)
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chtimes(path, then, then))
	})
	if err != nil {
		a.Fatal(err)
	}
}

// prune has nodes remove what they need not keep.
func (a *archivedOutput) prune(nodes ...*nodetest.Node) {
	a.Helper()
	for _, n := range nodes {
		if err := n.Peer().PruneOutput(a.Context()); err != nil {
			a.Errorf("node %s: %v", n.Config.Name, err)
		}
	}
}

// mustRead reads the output from nodes in each way, once they know where it is archived,
// and wants what was there before.
func (a *archivedOutput) mustRead(nodes ...*nodetest.Node) {
	a.Helper()
	for _, n := range nodes {
		if n.Config.Role != nodetest.Worker {
			nodetest.Eventually(a, endWait, "the node to know of the archive", func() bool {
				_, ok := n.Peer().View().ArchivedOutput(a.id, 1)
				return ok
			})
		}
		api := a.at(n)
		if got, _ := mustStream(a.T, api, a.id); got != a.output {
			a.Errorf("node %s: %d bytes are streamed, %d were printed", n.Config.Name, len(got), len(a.output))
		}
		e, err := api.Execution(a.Context(), a.id, 0)
		if err != nil || e.Stdout != a.record.Stdout || e.Stderr != a.record.Stderr || e.CombinedOutput != a.record.CombinedOutput {
			a.Errorf("node %s: the record has other output: %v", n.Config.Name, err)
		}
		found, err := api.ExecutionLogs(a.Context(), a.id, client.LogQuery{Search: "LINE 19", Limit: 5})
		if err != nil || len(found.Logs) != 5 || found.Logs[4].Message != "line 1999" {
			a.Errorf("node %s: found %+v, %v", n.Config.Name, found, err)
		}
	}
}

// leaves has the output leave the disks of the nodes that have it, and then deletes its
// execution. So many outputs are archived then.
func (a *archivedOutput) leaves(others int) {
	a.mustAge(a.dir(a.owner))
	a.prune(a.owner)
	if _, err := os.Stat(a.dir(a.owner)); err != nil {
		a.Fatalf("output was removed before others know where it is: %v", err)
	}
	a.mustRead(a.cluster.Servers()...)
	nodetest.Eventually(a, endWait, "archived output to be removed", func() bool {
		a.prune(a.owner)
		_, err := os.Stat(a.dir(a.owner))
		return err != nil
	})
	a.mustRead(a.cluster.Nodes...)
	a.mustAge(a.copies()[0])
	a.prune(a.cluster.Nodes...)
	if left := a.copies(); len(left) > 0 {
		a.Errorf("left are %q", left)
	}
	a.mustRead(a.cluster.Nodes...)
	if err := a.at(a.cluster.Follower()).Delete(a.Context(), a.id); err != nil {
		a.Error(err)
	}
	if count, bytes := a.cluster.Leader().Peer().View().ArchivedOutputs(); count != others || (bytes != 0) != (others != 0) {
		a.Errorf("of a deleted execution %d outputs of %d bytes are archived", count, bytes)
	}
}

// exceeds has the output of two executions on a node exceed its space, which is 64 MiB, long
// before their age is due.
func (a *archivedOutput) exceeds(newer *archivedOutput) {
	for age, one := range map[time.Duration]*archivedOutput{40 * time.Minute: a, 20 * time.Minute: newer} {
		if one.owner != a.owner {
			a.Fatalf("the executions were on %s and %s", a.owner.Config.Name, one.owner.Config.Name)
		}
		pad := filepath.Join(one.dir(a.owner), "pad") // As if more had been printed.
		if err := errors.Join(os.WriteFile(pad, nil, 0o600), os.Truncate(pad, 40<<20)); err != nil {
			a.Fatal(err)
		}
		one.mustAgeBy(one.dir(a.owner), age)
	}
	a.prune(a.owner)
}

// hasExceeded wants only the older output to have left the disk. It is read from the archive.
func (a *archivedOutput) hasExceeded(newer *archivedOutput) {
	nodetest.Eventually(a, endWait, "the older output to be removed", func() bool {
		a.prune(a.owner)
		_, err := os.Stat(a.dir(a.owner))
		return err != nil
	})
	if _, err := os.Stat(newer.dir(a.owner)); err != nil {
		a.Errorf("the newer output has left too: %v", err)
	}
	a.mustRead(a.cluster.Nodes...)
	if _, ok := a.cluster.Leader().Peer().View().ArchivedOutput(newer.id, 1); ok {
		a.Error("the newer output is archived")
	}
}

// TestOutputArchive has output leave the disks of a server and of a worker: it is archived
// first, and read from every node as before, until its execution is deleted. Output of a
// node that is down is archived from its copy, and output beyond the space for it early.
func TestOutputArchive(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.NewWith(t, 4, func(i int, cfg *nodetest.NodeConfig) {
		cfg.Output.SizeMiB = 64
		if i == 3 {
			cfg.Role, cfg.GPUs.Simulated = nodetest.Worker, []string{"b200"}
		}
	})
	account := c.MustAccount("acme")
	var all []*archivedOutput
	for _, gpu := range []string{"a100", "b200", "b200", "a100", "a100"} {
		all = append(all, mustPrintOn(t, c, account, gpu))
	}
	for _, a := range all {
		nodetest.Eventually(t, endWait, "a whole copy of the output", func() bool {
			copies := a.copies()
			if len(copies) != 1 {
				return false
			}
			_, err := os.Stat(filepath.Join(copies[0], "complete"))
			return err == nil
		})
	}
	all[0].leaves(0)
	all[3].exceeds(all[4])
	all[1].leaves(1) // Others learn meanwhile where the archive of all[3] is.
	all[3].hasExceeded(all[4])
	a := all[2]
	a.owner.Stop()
	nodetest.Eventually(t, endWait, "the node to be down", func() bool {
		for _, n := range c.Servers() {
			if record, ok := n.Peer().View().Node(a.owner.ID()); !ok || record.State == compute.NodeUp {
				return false
			}
		}
		return true
	})
	a.mustAge(a.copies()[0])
	nodetest.Eventually(t, endWait, "the copy to be removed", func() bool {
		a.prune(c.Servers()...)
		a.mustRead(c.Servers()...)
		return len(a.copies()) == 0
	})
	a.owner.Start()
}
