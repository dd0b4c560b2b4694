package cluster_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/cluster"
	"berth/cluster/gossip"
	"berth/cluster/raftconf"
	"berth/cluster/rpc"
	"berth/compute"
)

// workerConfig returns the configuration of a worker that joins with its own
// token.
func (f *fleet) workerConfig(name string) cluster.Config {
	f.t.Helper()
	cfg := f.config(name)
	cfg.Role, cfg.Registry, cfg.Directory, cfg.Preamble = compute.RoleWorker, nil, nil, nil
	for _, p := range f.peers {
		cfg.JoinHosts = append(cfg.JoinHosts, p.RPCAddress())
	}
	cfg.JoinToken = f.mustToken(compute.RoleWorker, 1).String()
	f.edit(&cfg)
	return cfg
}

func (f *fleet) mustWorker(name string) *peer {
	f.t.Helper()
	return f.mustStart(f.workerConfig(name))
}

func TestWorkerIsAMemberWithoutAReplica(t *testing.T) {
	f := mustFleet(t, 3, func(c *cluster.Config) { c.ServerSecrets = func() []byte { return []byte("the master key") } })
	cfg := f.workerConfig("w1")
	cfg.Accept = func(_ compute.UUID, secrets []byte) error {
		if len(secrets) > 0 {
			return errors.New("a worker was handed the servers' secrets")
		}
		return nil
	}
	w := f.mustStart(cfg)
	if w.CA().Key != nil {
		t.Error("a worker holds the authority's key")
	}
	if _, err := os.Stat(filepath.Join(cfg.DataDir, "raft", "raft.db")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a worker has a replica: %v", err)
	}
	eventually(t, "the leader to answer its heartbeat", func() bool { return w.ContactAt() > 0 })
	leader := f.leader()
	if at, known := w.Leader(); !known || at != leader.ID() {
		t.Errorf("it takes %v for the leader, want %v", at, leader.ID())
	}
	if err := w.Gossip().SetInventory(compute.Inventory{Version: 3, VCPUMilli: 4000}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "gossip to tell of its inventory", func() bool {
		members := leader.Gossip().Members()
		i := slices.IndexFunc(members, func(m gossip.Member) bool { return m.ID == w.ID() })
		return i >= 0 && members[i].Role == compute.RoleWorker && members[i].InventoryVersion == 3
	})
	if inv, err := leader.PullInventory(t.Context(), w.ID()); err != nil || inv.VCPUMilli != 4000 {
		t.Errorf("pulled %+v, %v", inv, err)
	}
	for _, ends := range [][2]*peer{{w, leader}, {leader, w}} { // A worker neither speaks raft nor listens for it.
		if conn, err := ends[0].DialAs(t.Context(), ends[1].ID(), "raft/1"); err == nil {
			conn.Close()
			t.Errorf("%s speaks raft to %s", ends[0].cfg.Name, ends[1].cfg.Name)
		}
	}
	for _, p := range f.peers {
		if slices.ContainsFunc(p.Servers(), func(s raftconf.Server) bool { return s.ID == w.ID() }) {
			t.Errorf("%s has the worker in its raft configuration", p.cfg.Name)
		}
	}
}

// TestSilentServerHidesNoLeader restarts a worker while the first server that
// it knows accepts connections but never answers. The worker must still find
// the leader.
func TestSilentServerHidesNoLeader(t *testing.T) {
	f := newFleet(t, func(c *cluster.Config) {
		begin := map[string]byte{"n1": 0xff, "n2": 0x01}[c.Name] // The server that bootstraps the cluster leads.
		if begin != 0 {
			c.NodeID = compute.NodeID{UUID: compute.UUID{begin}}
		}
	})
	f.mustAdd()
	f.mustAdd()
	f.awaitVoters(2)
	hole, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	var silent atomic.Value // Its address.
	silent.Store("")
	cfg := f.workerConfig("w1")
	dial := cfg.Dial
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == silent.Load() {
			address = hole.Addr().String()
		}
		return dial(ctx, network, address)
	}
	w := f.mustStart(cfg)
	first := f.follower(f.leader()) // The lowest by id.
	eventually(t, "the worker to know the servers in their order", func() bool {
		known := w.Servers()
		return len(known) == 2 && known[0].ID == first.ID()
	})
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	silent.Store(first.RPCAddress())
	cfg.JoinToken, cfg.JoinHosts = "", nil
	w = f.mustStart(cfg)
	eventually(t, "the leader to answer its heartbeat", func() bool { return w.ContactAt() > 0 })
}

func TestWorkerStartsAgainWithoutAToken(t *testing.T) {
	var time clock
	f := mustFleet(t, 1, func(c *cluster.Config) { c.Now = time.now })
	cfg := f.workerConfig("w1")
	w := f.mustStart(cfg)
	id := w.ID()
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	bare := cfg
	bare.JoinToken, bare.JoinHosts = "", nil
	w = f.mustStart(bare)
	if w.ID() != id {
		t.Errorf("it came back as %s, was %s", w.ID(), id)
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	time.move(80 * hour) // Longer than the validity of its certificate.
	f.peers[0].RenewIfDue(t.Context())
	if err := f.refusal(bare); !strings.Contains(err.Error(), "make a token") {
		t.Errorf("without a certificate: %v", err)
	}
	again := cfg
	again.JoinToken = f.mustToken(compute.RoleWorker, 1).String()
	if w = f.mustStart(again); w.ID() != id {
		t.Errorf("with a new token it came back as %s, was %s", w.ID(), id)
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	server := cfg
	server.Role, server.Registry = compute.RoleServer, f.registry
	if err := f.refusal(server); !strings.Contains(err.Error(), "belongs to a node of role worker") {
		t.Errorf("as a server on a worker's data: %v", err)
	}
}

// lateDirectory is the Directory of a server whose state is not loaded yet.
type lateDirectory struct {
	*fakeRegistry

	there atomic.Bool
}

func (d *lateDirectory) Node(id compute.NodeID) (compute.Role, bool, bool) {
	if !d.there.Load() {
		return 0, false, false
	}
	return d.fakeRegistry.Node(id)
}

func (d *lateDirectory) Address(id compute.NodeID) string {
	if !d.there.Load() {
		return ""
	}
	return d.fakeRegistry.Address(id)
}

// TestServerComesBackAndFindsWorkers has a server refuse workers in gossip
// while its state is behind, and reach them once it has caught up.
func TestServerComesBackAndFindsWorkers(t *testing.T) {
	f := mustFleet(t, 2, nil)
	w := f.mustWorker("w1")
	eventually(t, "the leader to answer the worker", func() bool { return w.ContactAt() > 0 })
	if err := w.Gossip().SetInventory(compute.Inventory{Version: 1}); err != nil {
		t.Fatal(err)
	}
	p := f.follower(f.leader())
	mustStop(t, p)
	late := &lateDirectory{fakeRegistry: f.registry}
	p.cfg.Directory = late
	p = f.mustStartAgain(p)
	eventually(t, "the worker to be turned away, and the next exchange not to wait", func() bool {
		return p.SeesServers() && !p.Gossip().Complete()
	})
	late.there.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := p.Call(ctx, w.ID(), "cluster.inventory", nil); err != nil {
		t.Errorf("the worker is not reached: %v", err)
	}
}

func TestWorkersCertificateIsRenewedByAServer(t *testing.T) {
	var time clock
	f := mustFleet(t, 2, func(c *cluster.Config) { c.Now = time.now })
	w := f.mustWorker("w1")
	before := w.Serial()
	time.move(37 * hour)
	for _, p := range append(slices.Clone(f.peers), w) {
		p.RenewIfDue(t.Context())
	}
	if w.Serial() == before {
		t.Fatal("not renewed when half of its life was over")
	}
	time.move(40 * hour) // The first certificate has expired, this one has not.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := w.Ask(ctx, "cluster.servers", nil); err != nil {
		t.Errorf("with the new certificate: %v", err)
	}
}

// TestWhoMayCall checks which roles may call which methods. A method that is
// missing here is refused to all, but belongs in the table.
func TestWhoMayCall(t *testing.T) {
	const all = cluster.Servers | cluster.Workers
	onServers := map[string]cluster.Callers{
		"cluster.join":       cluster.Servers | cluster.Strangers,
		"cluster.propose":    cluster.Servers,
		"cluster.read_index": cluster.Servers,
		"cluster.inventory":  cluster.Servers,
		"cluster.transfer":   cluster.Servers,
		"cluster.rejoin":     cluster.Servers,
		"cluster.probe":      cluster.Servers,
		"cluster.marks":      cluster.Servers,
		"cluster.diverged":   cluster.Servers,
		"cluster.health":     cluster.Servers,
		"cluster.status":     all,
		"cluster.heartbeat":  all,
		"cluster.renew":      cluster.Workers,
		"cluster.servers":    cluster.Workers,
	}
	onWorkers := map[string]cluster.Callers{"cluster.inventory": cluster.Servers}
	f := mustFleet(t, 2, nil)
	w, v := f.mustWorker("w1"), f.mustWorker("w2")
	leader := f.leader()
	for _, served := range []struct {
		by   *peer
		want map[string]cluster.Callers
	}{{leader, onServers}, {w, onWorkers}} {
		if got := served.by.Methods(); !maps.Equal(got, served.want) {
			t.Errorf("%s serves %v, want %v", served.by.cfg.Name, got, served.want)
		}
		for _, caller := range []struct {
			is   cluster.Callers
			call func(method string) error
		}{
			{cluster.Servers, func(m string) error { return callOf(t, f.follower(leader), served.by, m) }},
			{cluster.Workers, func(m string) error { return callOf(t, v, served.by, m) }},
			{cluster.Strangers, func(m string) error {
				_, err := mustAnonymous(t, served.by).Call(t.Context(), m, []byte{0})
				return err
			}},
		} {
			if served.by == w && caller.is == cluster.Strangers {
				continue // Without a server's certificate there, nobody joins at a worker.
			}
			for method, may := range served.want {
				err := caller.call(method)
				code := compute.CodeOf(err)
				refused := code == compute.CodeUnauthenticated ||
					code == compute.CodeForbidden && strings.Contains(err.Error(), "may not call")
				if refused == (may&caller.is != 0) {
					t.Errorf("%s asked for %s by %b: %v", served.by.cfg.Name, method, caller.is, err)
				}
			}
		}
	}
}

// callOf has one node call a method of another with a meaningless request.
func callOf(t *testing.T, from, to *peer, method string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := from.Call(ctx, to.ID(), method, []byte{0})
	return err
}

func TestAskGoesOnToAnotherServer(t *testing.T) {
	f := newFleet(t, nil)
	for range 3 {
		f.mustAdd()
	}
	f.awaitVoters(3)
	w := f.mustWorker("w1")
	ask := func() (servers []compute.NodeID) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err := w.EachServer(ctx, func(ctx context.Context, id compute.NodeID) error {
			servers = append(servers, id)
			_, err := w.Call(ctx, id, "cluster.servers", nil)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return servers
	}
	eventually(t, "the worker to know all servers", func() bool { return len(w.Servers()) == 3 })
	first := ask()
	if again := ask(); len(first) != 1 || !slices.Equal(first, again) {
		t.Errorf("asked %v, then %v: want the one that answered again", first, again)
	}
	for _, p := range f.peers {
		if p.ID() == first[0] {
			f.wire.isolate(p.cfg.Name, true)
		}
	}
	if next := ask(); next[len(next)-1] == first[0] {
		t.Error("a server that is cut off answered")
	}
	// A request that one server refuses is not sent to the next.
	tried := 0
	refusal := compute.Errorf(compute.CodeConflict, "Not so.")
	err := w.EachServer(t.Context(), func(context.Context, compute.NodeID) error {
		tried++
		return refusal
	})
	if !errors.Is(err, refusal) || tried != 1 {
		t.Errorf("a refusal: %v after %d tries", err, tried)
	}
	tried = 0
	err = w.EachServer(t.Context(), func(context.Context, compute.NodeID) error {
		tried++
		return compute.Errorf(compute.CodeNotFound, "No.").Named(rpc.NoMethod)
	})
	if compute.CodeOf(err) != compute.CodeNotFound || tried != 3 {
		t.Errorf("a method that no server has: %v after %d tries", err, tried)
	}
}

func TestAskEndsWithItsContext(t *testing.T) {
	f := mustFleet(t, 1, nil)
	w := f.mustWorker("w1")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := w.EachServer(ctx, func(ctx context.Context, _ compute.NodeID) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("got %v", err)
	}
}
