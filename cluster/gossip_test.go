package cluster_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	"berth/cluster"
	"berth/cluster/gossip"
	"berth/compute"
)

func newID() compute.NodeID {
	var id compute.NodeID
	rand.Read(id.UUID[:])
	return id
}

// member returns the view of a node in p's gossip.
func (p *peer) member(id compute.NodeID) gossip.Member {
	for _, m := range p.Gossip().Members() {
		if m.ID == id {
			return m
		}
	}
	return gossip.Member{}
}

func inventory(version uint64, gpus int) compute.Inventory {
	inv := compute.Inventory{Version: version, VCPUMilli: 8000, MemoryMiB: 65536}
	for i := range gpus {
		inv.GPUs = append(inv.GPUs, compute.GPU{ID: compute.GPUID(fmt.Sprint("SIM-", i)), Index: i, Type: "h100"})
	}
	return inv
}

func TestInventorySpreads(t *testing.T) {
	f := newFleet(t, nil)
	first := f.mustAdd()
	if err := first.Gossip().SetInventory(inventory(1, 2)); err != nil {
		t.Fatal(err)
	}
	f.mustAdd()
	f.mustAdd()
	for _, p := range f.peers {
		eventually(t, p.cfg.Name+" sees all three", func() bool { return len(p.Gossip().Members()) == 3 })
		m := p.member(first.ID())
		if m.Name != "n1" || m.RPC != first.RPCAddress() || m.API != first.cfg.API || m.Gossip != first.Gossip().Address() || !m.Alive {
			t.Errorf("%s sees %+v", p.cfg.Name, m)
		}
	}
	second := f.peers[1]
	eventually(t, "the body comes with the first exchange", func() bool {
		inv, ok := second.Gossip().Inventory(first.ID())
		return ok && len(inv.GPUs) == 2
	})
	before := second.member(first.ID())
	changed := second.Gossip().Changed()
	if err := first.Gossip().SetInventory(inventory(2, 1)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the change is announced", func() bool {
		m := second.member(first.ID())
		return m.InventoryVersion == 2 && m.InventoryHash != before.InventoryHash
	})
	select {
	case <-changed:
	default:
		t.Error("nobody was woken")
	}
	inv, err := second.PullInventory(t.Context(), first.ID())
	if err != nil || inv.Version != 2 || len(inv.GPUs) != 1 || inv.Node != first.ID() {
		t.Errorf("pulled %+v, %v", inv, err)
	}
	if _, err := first.PullInventory(t.Context(), second.ID()); compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("a node without inventory: %v", err)
	}
	if inv, err := first.PullInventory(t.Context(), first.ID()); err != nil || inv.Version != 2 {
		t.Errorf("its own: %+v, %v", inv, err)
	}
}

func TestInventoryIsBounded(t *testing.T) {
	f := mustFleet(t, 1, nil)
	if err := f.peers[0].Gossip().SetInventory(inventory(1, 20_000)); compute.CodeOf(err) != compute.CodeTooLarge {
		t.Errorf("got %v", err)
	}
}

func TestMetaFitsAtItsLongest(t *testing.T) {
	long := func(n int) string { return string(bytes.Repeat([]byte("x"), n)) }
	f := newFleet(t, func(c *cluster.Config) {
		c.Name, c.API, c.Metrics, c.Version = long(64), long(112), long(112), long(32)
	})
	p := f.mustAdd()
	if err := p.Gossip().SetInventory(inventory(1<<63, 1)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the meta is out", func() bool { return p.member(p.ID()).InventoryVersion == 1<<63 })
}

func TestLostNodeIsNoticed(t *testing.T) {
	f := mustFleet(t, 3, nil)
	first, last := f.peers[0], f.peers[2]
	eventually(t, "all are seen", func() bool { return first.member(last.ID()).Alive })
	if err := last.stop(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node is seen as gone", func() bool {
		m := first.member(last.ID())
		return m.ID == last.ID() && !m.Alive
	})
}

// TestServerComesBackElsewhere restarts one of two voters at another address
// without notifying the other. The other has one more entry, so only it can be
// elected, and must find the first for it. Gossip does not accept the new
// address for half a minute.
func TestServerComesBackElsewhere(t *testing.T) {
	f := mustFleet(t, 2, nil)
	f.awaitVoters(2)
	leader := f.leader()
	other := f.follower(leader)
	f.wire.isolate(other.cfg.Name, true)
	brief, end := context.WithTimeout(t.Context(), time.Second)
	defer end()
	if _, _, err := leader.Propose(brief, opFrame(toyCommand{Op: "x", Key: "k"})); err == nil {
		t.Fatal("an entry was committed without a quorum")
	}
	if err := other.stop(); err != nil {
		t.Fatal(err)
	}
	f.wire.isolate(other.cfg.Name, false)
	f.mustRestart(slices.Index(f.peers, other))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for again := time.Tick(50 * time.Millisecond); ; <-again {
		if _, _, err := leader.Propose(ctx, opFrame(toyCommand{Op: "y", Key: "k"})); err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal("the servers have not found each other")
		}
	}
}
