package dst

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/fsm/format"
)

const (
	// began is the start of a simulation, by a clock without skew.
	began compute.Instant = 1_800_000_000_000

	replicas     = 3
	keepFinished = 20 * time.Minute
	maxSkew      = 300 * time.Millisecond
	signupGrant  = 100_000 * compute.Credit
)

// world is one simulated cluster.
type world struct {
	loop

	config   Config
	net      network
	machines []*machine
	servers  []*server
	orgs     []command.Actor
	last     uint64 // The last identifier created.
	numbers  int    // Request counter.

	log    []*entry // The committed log; the first index is 1.
	term   uint64   // The newest term.
	leader *server  // Its leader; nil before the first.
	vacant time.Duration

	acknowledged []*request
	grants       map[string]bool

	oracle    *oracle
	report    Report
	violation *Violation
}

// Run simulates c. A violated invariant is a *Violation, which the same Config
// reproduces.
func Run(ctx context.Context, c Config) (Report, error) {
	if err := c.validate(); err != nil {
		return Report{}, err
	}
	w := newWorld(c)
	w.bootstrap()
	w.faults()
	w.submits()
	w.grant()
	w.watchLeaders()
	err := w.until(ctx, c.Duration)
	if err == nil {
		w.heal()
		err = w.until(ctx, c.Duration+healTime)
	}
	if err == nil {
		w.oracle.checkLiveness()
		err = w.verdict()
	}
	hash := w.newest().Hash()
	w.report.State = hex.EncodeToString(hash[:])
	w.report.Events, w.report.VirtualSeconds, w.report.Terms = w.done, w.now.Seconds(), w.term
	return w.report, err
}

// until advances the virtual time.
func (w *world) until(ctx context.Context, end time.Duration) error {
	for w.step(end) {
		if err := w.verdict(); err != nil {
			return err
		}
		if w.done%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	w.now = end
	return nil
}

// verdict returns the violation, if any.
func (w *world) verdict() error {
	if w.violation != nil {
		return w.violation
	}
	return nil
}

func newWorld(c Config) *world {
	w := &world{loop: newLoop(c.Seed), config: c, net: newNetwork(c.Nodes), grants: map[string]bool{}}
	w.report.Seed = c.Seed
	w.oracle = newOracle(w)
	for i := range c.Nodes {
		m := &machine{
			w: w, id: i, node: compute.NodeID{UUID: w.uuid()}, name: fmt.Sprintf("n%d", i),
			skew: w.between(-maxSkew, maxSkew), supervisors: map[key]*supervisor{},
			disk: disk{attempts: map[key]*directory{}, outbox: map[key][]byte{}},
		}
		kind := []string{"t4", "a100"}[i%2]
		for g := range 2 {
			m.gpus = append(m.gpus, compute.GPU{
				ID: compute.GPUID(fmt.Sprintf("SIM-%s-%d", m.name, g)), Index: g, Type: kind,
				Model: kind + " (simulated)", VRAMMiB: 16 << 10, Simulated: true,
			})
		}
		if i < replicas {
			m.server = &server{machine: m}
			w.servers = append(w.servers, m.server)
		}
		w.machines = append(w.machines, m)
	}
	return w
}

// uuid returns a new identifier.
func (w *world) uuid() (u compute.UUID) {
	w.last++
	u[0] = 1
	binary.BigEndian.PutUint64(u[8:], w.last)
	return u
}

// newest returns the view with the most entries.
func (w *world) newest() *fsm.View {
	best := w.servers[0]
	for _, s := range w.servers {
		if s.applied > best.applied {
			best = s
		}
	}
	return best.state.View()
}

// bootstrap creates the cluster: every replica has its first entry.
func (w *world) bootstrap() {
	setup := []command.Command{command.Clock{At: began, Term: 1}, command.Bootstrap{
		ClusterID: w.uuid(), RootToken: compute.Hash{1}, Prices: map[string]compute.Price{"cpu": 15, "t4": 100, "a100": 550},
		Signing: compute.SigningKey{ID: "k", Public: []byte{1}, Sealed: []byte{1}},
		Settings: command.Settings{
			SignupGrant: signupGrant, Concurrent: 100, Queued: 10_000, Keys: 1, TimeoutMax: 24 * time.Hour,
			KeepFinished: keepFinished, MaxFinished: 10_000, SelectionMax: 16, StopGrace: stopGrace, Forget: true,
			PreemptMinRun: 20 * time.Second, PreemptNotice: 10 * time.Second,
		},
	}}
	root := command.Actor{Root: true}
	for i := range 3 {
		a := command.Actor{User: compute.UserID{UUID: w.uuid()}, Org: compute.OrgID{UUID: w.uuid()}}
		name := fmt.Sprintf("org-%d", i+1)
		setup = append(setup, command.CreateUser{
			Op: command.Op{ID: compute.OpID{UUID: w.uuid()}}, Actor: root,
			User: compute.User{ID: a.User, Email: name + "@example.com"}, Org: compute.Org{ID: a.Org, Slug: name},
		})
		w.orgs = append(w.orgs, a)
	}
	token := compute.JoinToken{ID: "token", Hash: compute.Hash{2}, Uses: maxNodes, ExpiresAt: began.Add(time.Hour)}
	setup = append(setup, command.CreateJoinToken{Actor: root, Token: token})
	for i, m := range w.machines {
		setup = append(setup,
			command.RegisterNode{
				Node:  compute.Node{ID: m.node, Name: m.name, Format: format.Newest},
				First: i == 0, TokenID: token.ID, TokenHash: token.Hash,
			},
			command.SetInventory{Term: 1, Inventory: compute.Inventory{
				Node: m.node, Version: 1, VCPUMilli: 32_000, MemoryMiB: 256 << 10, GPUs: m.gpus,
			}})
	}
	setup = append(setup, command.SetFormat{Term: 1, Format: format.Newest})
	e := &entry{term: 1}
	for _, cmd := range setup {
		e.data = append(e.data, w.encode(cmd)...)
	}
	w.term, w.log = 1, []*entry{e}
	for _, m := range w.machines {
		if m.server != nil {
			m.server.stored = 1
		}
		m.start()
	}
	for _, s := range w.servers {
		s.advance(1)
	}
	w.lead(w.servers[0])
}
