package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"berth/cluster"
	"berth/cluster/pki"
	"berth/cluster/rpc"
	"berth/compute"
)

const patience = 60 * time.Second // For events that normally take a second or two.

// eventually polls cond until it is true.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !cond() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("waited %s in vain: %s", patience, what)
		}
	}
}

// fakeRegistry is a Registry with tokens in memory.
type fakeRegistry struct {
	mu     sync.Mutex
	tokens map[string]*fakeToken
	nodes  map[compute.NodeID]compute.Node
	gone   map[compute.NodeID]bool
}

type fakeToken struct {
	hash    compute.Hash
	role    compute.Role
	uses    int
	expired bool
	usedBy  map[compute.NodeID]compute.Hash // With their keys.
}

func newFakeRegistry() *fakeRegistry {
	return &fakeRegistry{
		tokens: map[string]*fakeToken{},
		nodes:  map[compute.NodeID]compute.Node{},
		gone:   map[compute.NodeID]bool{},
	}
}

func (r *fakeRegistry) add(t pki.JoinToken, role compute.Role, uses int) *fakeToken {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &fakeToken{hash: t.SecretHash(), role: role, uses: uses, usedBy: map[compute.NodeID]compute.Hash{}}
	r.tokens[t.ID] = f
	return f
}

func (r *fakeRegistry) Admit(_ context.Context, a cluster.Admission) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tokens[a.TokenID]
	refuse := func(why string) error { return compute.Errorf(compute.CodeForbidden, "%s", why) }
	switch {
	case t == nil || t.hash != a.SecretHash:
		return refuse("The join token is not known.")
	case t.usedBy[a.Node.ID] == a.Key && a.Key != compute.Hash{}:
		return nil
	case t.expired:
		return refuse("The join token has expired.")
	case t.role != a.Node.Role:
		return refuse("The join token is for another role.")
	case t.uses == 0:
		return refuse("The join token is spent.")
	}
	t.uses--
	t.usedBy[a.Node.ID] = a.Key
	r.nodes[a.Node.ID] = a.Node
	return nil
}

// Node makes the registry also the directory.
func (r *fakeRegistry) Node(id compute.NodeID) (compute.Role, bool, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, ok := r.nodes[id]
	return n.Role, r.gone[id], ok
}

// Address returns the address of the node's admission.
func (r *fakeRegistry) Address(id compute.NodeID) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nodes[id].RPC
}

func (r *fakeRegistry) remove(id compute.NodeID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone[id] = true
}

// wire is the network between the peers of a test. It can be cut.
type wire struct {
	mu    sync.Mutex
	cut   map[string]bool // Names of isolated peers.
	names map[string]string
	conns map[net.Conn][2]string // The dialing peer's name and the address.
}

func newWire() *wire {
	return &wire{cut: map[string]bool{}, names: map[string]string{}, conns: map[net.Conn][2]string{}}
}

// dialer returns the dialer of the named peer.
func (w *wire) dialer(from string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		w.mu.Lock()
		to := w.names[address]
		apart := from != to && (w.cut[from] || w.cut[to])
		w.mu.Unlock()
		if apart {
			return nil, errors.New("the wire is cut")
		}
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if to := w.names[address]; from != to && (w.cut[from] || w.cut[to]) {
			conn.Close() // The cut happened during the dial.
			return nil, errors.New("the wire is cut")
		}
		w.conns[conn] = [2]string{from, address}
		return conn, nil
	}
}

// isolate cuts a peer off, or reconnects it.
func (w *wire) isolate(name string, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[name] = cut
	if !cut {
		return
	}
	for conn, ends := range w.conns {
		if from, to := ends[0], w.names[ends[1]]; from != to && (from == name || to == name) {
			conn.Close()
			delete(w.conns, conn)
		}
	}
}

// place maps an address to the peer's name.
func (w *wire) place(address, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[address] = name
}

// peer is one node of a test.
type peer struct {
	*cluster.Cluster
	cfg  cluster.Config
	fsm  *toyFSM
	stop func() error  // Ends Run and closes.
	done chan struct{} // Closed when Run has returned.
}

// fleet is the cluster of a test.
type fleet struct {
	t        testing.TB
	wire     *wire
	registry *fakeRegistry
	peers    []*peer
	edit     func(*cluster.Config)
	marks    bool // Whether the peers take marks of their states.

	refuse func(toyState) error   // Set as refuse in new state machines.
	handle func(*cluster.Cluster) // Registers methods of the test.
}

func newFleet(t testing.TB, edit func(*cluster.Config)) *fleet {
	if edit == nil {
		edit = func(*cluster.Config) {}
	}
	return &fleet{t: t, wire: newWire(), registry: newFakeRegistry(), edit: edit}
}

// mustFleet starts n peers and waits until all vote.
func mustFleet(t testing.TB, n int, edit func(*cluster.Config)) *fleet {
	t.Helper()
	f := newFleet(t, edit)
	for range n {
		f.mustAdd()
	}
	f.awaitVoters(n)
	return f
}

func (f *fleet) config(name string) cluster.Config {
	return cluster.Config{
		DataDir: f.t.TempDir(), Name: name, Listen: "127.0.0.1:0", GossipListen: "127.0.0.1:0",
		API: "http://127.0.0.1:1/" + name, Version: "test",
		Profile: testProfile, PromoteAfter: time.Millisecond, Ballast: -1, FSM: nil, Preamble: termFrame,
		Registry: f.registry, Directory: f.registry, Dial: f.wire.dialer(name),
		Logger: testLogger(f.t, name),
		Fatal:  func(err error) { f.t.Errorf("%s: fatal: %v", name, err) },
	}
}

func testLogger(t testing.TB, name string) *slog.Logger {
	level := slog.LevelInfo
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: level})).
		With("name", name) //nolint:sloglint // The peer's name; node is another key.
}

// mustAdd starts another peer.
func (f *fleet) mustAdd() *peer {
	f.t.Helper()
	cfg := f.config(fmt.Sprintf("n%d", len(f.peers)+1))
	if len(f.peers) == 0 {
		cfg.Bootstrap = true
	} else {
		cfg.JoinHosts = []string{f.peers[0].RPCAddress()}
		cfg.JoinToken = f.mustToken(compute.RoleServer, 1).String()
	}
	f.edit(&cfg)
	p := f.mustStart(cfg)
	f.peers = append(f.peers, p)
	return p
}

func (f *fleet) mustToken(role compute.Role, uses int) pki.JoinToken {
	f.t.Helper()
	token, err := f.peers[0].NewJoinToken()
	if err != nil {
		f.t.Fatal(err)
	}
	f.registry.add(token, role, uses)
	return token
}

// mustStart opens and runs a peer.
func (f *fleet) mustStart(cfg cluster.Config) *peer {
	f.t.Helper()
	fsm := newToyFSM()
	cfg.FSM, fsm.refuse = fsm, f.refuse
	if f.marks {
		fsm.marking, cfg.StateMarks = true, fsm.stateMarks
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	c, err := cluster.Open(ctx, cfg)
	if err != nil {
		f.t.Fatalf("open %s: %v", cfg.Name, err)
	}
	if f.handle != nil {
		f.handle(c)
	}
	f.wire.place(c.RPCAddress(), cfg.Name)
	f.registry.mu.Lock()
	if _, ok := f.registry.nodes[c.ID()]; !ok {
		f.registry.nodes[c.ID()] = compute.Node{ID: c.ID(), Name: cfg.Name}
	}
	f.registry.mu.Unlock()
	p := &peer{Cluster: c, cfg: cfg, fsm: fsm, done: make(chan struct{})}
	runCtx, stopRun := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		defer close(p.done)
		ended <- c.Run(runCtx)
	}()
	stop := sync.OnceValue(func() error {
		stopRun()
		return errors.Join(<-ended, c.Close())
	})
	stopped := false // The test has seen the error.
	p.stop = func() error {
		stopped = true
		return stop()
	}
	f.t.Cleanup(func() {
		if err := stop(); err != nil && !stopped {
			f.t.Errorf("stop %s: %v", cfg.Name, err)
		}
	})
	return p
}

// mustRestart restarts a peer on the same data.
func (f *fleet) mustRestart(i int) *peer {
	f.t.Helper()
	old := f.peers[i]
	if err := old.stop(); err != nil {
		f.t.Fatalf("stop %s: %v", old.cfg.Name, err)
	}
	cfg := old.cfg
	cfg.Bootstrap, cfg.JoinToken, cfg.JoinHosts = false, "", nil
	f.peers[i] = f.mustStart(cfg)
	return f.peers[i]
}

// leader waits for a peer that leads and is ready.
func (f *fleet) leader() *peer {
	f.t.Helper()
	var found *peer
	eventually(f.t, "a leader", func() bool {
		for _, p := range f.peers {
			if _, leads := p.Heard(p.ID()); leads && p.IsLeader() {
				found = p
				return true
			}
		}
		return false
	})
	return found
}

func (f *fleet) awaitVoters(n int) {
	f.t.Helper()
	eventually(f.t, fmt.Sprintf("%d voters", n), func() bool {
		for _, p := range f.peers {
			voters := 0
			for _, s := range p.Servers() {
				if s.Voter {
					voters++
				}
			}
			if _, known := p.Leader(); voters != n || !known {
				return false
			}
		}
		return true
	})
}

// follower returns a peer that is not p.
func (f *fleet) follower(p *peer) *peer {
	for _, other := range f.peers {
		if other != p {
			return other
		}
	}
	f.t.Fatal("no other peer")
	return nil
}

// mustPropose commits an operation and returns its result and index.
func (p *peer) mustPropose(t testing.TB, c toyCommand) (string, uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	result, index, err := p.Propose(ctx, opFrame(c))
	if err != nil {
		t.Fatalf("propose %s on %s: %v", c.Op, p.cfg.Name, err)
	}
	return string(result), index
}

// mustRead reads a key on p, linearizably.
func (p *peer) mustRead(t testing.TB, key string) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	index, err := p.ReadIndex(ctx)
	if err != nil {
		t.Fatalf("read index on %s: %v", p.cfg.Name, err)
	}
	select {
	case <-p.fsm.reached(index):
	case <-ctx.Done():
		t.Fatalf("the state of %s never reached entry %d", p.cfg.Name, index)
	}
	return p.fsm.get(key)
}

// mustAnonymous connects to p without a certificate.
func mustAnonymous(t testing.TB, p *peer) *rpc.Client {
	t.Helper()
	config := pki.PinnedConfig(p.CA().Pin(), time.Now, "rpc/1")
	conn, err := cluster.DialTLS(t.Context(), p.RPCAddress(), config)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rpc.NewClient(conn, rpc.NewCodec(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// afterPatience returns a channel that delivers when patience is over.
func afterPatience() <-chan time.Time { return time.After(patience) }
