package simulate

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// term is the term of the simulation's only leader.
const term = 1

// began is the start of a simulation, by the state's clock.
const began compute.Instant = 1_800_000_000_000

// entryFrames is the maximum number of commands in one entry.
const entryFrames = 1024

// world is a state machine with a virtual clock.
type world struct {
	machine *fsm.FSM
	index   uint64
	last    uint64 // The last identifier created.
	now     compute.Instant
	orgs    []command.Actor
	nodes   []compute.NodeID

	clock  func() time.Time
	coding time.Duration // Wall time of encoding.
	apply  time.Duration // Wall time of applying.
	count  int           // Commands applied.
}

// newWorld returns the state machine of a cluster with the given nodes and
// organizations.
func newWorld(f *fleet, organizations int, clock func() time.Time) (*world, error) {
	w := &world{machine: fsm.New(), now: began, clock: clock}
	prices := map[string]compute.Price{"cpu": 1}
	for _, t := range f.types {
		prices[t.name] = 100
	}
	setup := []command.Command{command.Bootstrap{
		ClusterID: w.uuid(), RootToken: compute.Hash{1}, Prices: prices,
		Signing: compute.SigningKey{ID: "k", Public: []byte{1}, Sealed: []byte{1}},
		Settings: command.Settings{
			Meter: true, Concurrent: math.MaxInt32, Queued: math.MaxInt32, Keys: 1, TimeoutMax: timeoutMax,
			KeepFinished: time.Hour, MaxFinished: 10_000, SelectionMax: 16,
			PreemptMinRun: time.Minute, PreemptNotice: 30 * time.Second,
		},
	}}
	for i := range organizations {
		a := command.Actor{User: compute.UserID{UUID: w.uuid()}, Org: compute.OrgID{UUID: w.uuid()}}
		name := orgName(i)
		setup = append(setup, command.CreateUser{
			Op: w.op(compute.OrgID{}), Actor: command.Actor{Root: true},
			User: compute.User{ID: a.User, Email: name + "@example.com"}, Org: compute.Org{ID: a.Org, Slug: name},
		})
		w.orgs = append(w.orgs, a)
	}
	for i := range f.nodes {
		setup = append(setup, w.join(&f.nodes[i], i)...)
	}
	results, err := w.commit(setup)
	if err != nil {
		return nil, err
	}
	for i, r := range results {
		if r.Refusal != nil {
			return nil, fmt.Errorf("set up the cluster: %T: %w", setup[i], r.Refusal)
		}
	}
	return w, nil
}

// tokenUses is the number of nodes that join with one token.
const tokenUses = 1000

// join returns the commands with which the i-th node joins.
func (w *world) join(m *machine, i int) []command.Command {
	node := compute.Node{ID: compute.NodeID{UUID: w.uuid()}, Name: m.name}
	w.nodes = append(w.nodes, node.ID)
	token := i / tokenUses
	var out []command.Command
	if i%tokenUses == 0 {
		out = append(out, command.CreateJoinToken{Actor: command.Actor{Root: true}, Token: compute.JoinToken{
			ID: tokenName(token), Hash: tokenHash(token), Uses: tokenUses, ExpiresAt: w.now.Add(24 * time.Hour),
		}})
	}
	register := command.RegisterNode{Node: node, First: i == 0}
	if i > 0 {
		register.TokenID, register.TokenHash = tokenName(token), tokenHash(token)
	}
	return append(out, register, command.SetInventory{Term: term, Inventory: m.inventory(node.ID)})
}

func tokenName(i int) string { return fmt.Sprintf("token-%d", i) }

func tokenHash(i int) (h compute.Hash) {
	binary.BigEndian.PutUint64(h[:], uint64(i)+1)
	return h
}

// uuid returns a new identifier.
func (w *world) uuid() (u compute.UUID) {
	w.last++
	u[0] = 1
	binary.BigEndian.PutUint64(u[8:], w.last)
	return u
}

// op returns the op of a new request.
func (w *world) op(org compute.OrgID) command.Op {
	return command.Op{ID: compute.OpID{UUID: w.uuid()}, Org: org}
}

// commit applies commands as log entries and returns their results.
func (w *world) commit(commands []command.Command) ([]command.Result, error) {
	out := make([]command.Result, 0, len(commands))
	for len(commands) > 0 {
		n := min(len(commands), entryFrames)
		results, err := w.entry(commands[:n])
		if err != nil {
			return nil, err
		}
		out = append(out, results...)
		commands = commands[n:]
	}
	return out, nil
}

// entry applies commands as one entry that begins with the leader's clock.
func (w *world) entry(commands []command.Command) ([]command.Result, error) {
	start := w.clock()
	frames := make([][]byte, 0, len(commands)+1)
	clock, err := command.Encode(command.Clock{At: w.now, Term: term})
	if err != nil {
		return nil, err
	}
	frames = append(frames, clock)
	for _, c := range commands {
		frame, err := command.Encode(c)
		if err != nil {
			return nil, fmt.Errorf("encode %T: %w", c, err)
		}
		frames = append(frames, frame)
	}
	encoded := w.clock()
	w.index++
	results := w.machine.ApplyFrames(w.index, frames...)
	w.coding += encoded.Sub(start)
	w.apply += w.clock().Sub(encoded)
	w.count += len(commands)
	return results[1:], nil
}

// submit returns the command that submits an arrival.
func (w *world) submit(a *arrival) command.Submit {
	actor := w.orgs[a.org]
	return command.Submit{
		Op: w.op(actor.Org), Actor: actor,
		Execution: compute.Execution{
			ID: compute.ExecutionID{UUID: w.uuid()}, Profile: a.profile.String(),
			Timeout: a.timeout, Priority: a.priority, Preemptible: a.preemptible,
		},
	}
}

// orgName returns the name of an organization.
func orgName(i int) string { return fmt.Sprintf("org-%d", i+1) }
