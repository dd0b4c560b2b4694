package state

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/fsm/format"
)

// The simulated workload.
const (
	orgs        = 10
	nodes       = 32
	gpusPerNode = 8
	wave        = nodes * gpusPerNode // Concurrent executions: one per GPU.
	perEntry    = 32                  // Commands per entry, as the leader coalesces them.
	perSecond   = 20                  // Executions that end per second of the state's clock.
	bundleBytes = 400
	begin       = 1_790_000_000_000
)

// filler fills a state machine with history by commands.
type filler struct {
	machine *fsm.FSM
	index   uint64
	term    uint64
	now     compute.Instant
	first   compute.Instant // The initial value of now.
	rng     *rand.Rand

	actors []command.Actor
	nodes  []compute.NodeID
	busy   []compute.Outcome // The running wave, by GPU number.

	entry func(index uint64, frames [][]byte) []command.Result // Applies one entry.
}

// newFiller returns a filler of a state machine, which is empty or belongs to a
// new cluster.
func newFiller(machine *fsm.FSM, seed uint64) *filler {
	view := machine.View()
	now := max(view.Now(), begin)
	return &filler{
		machine: machine, index: view.Index(), term: max(view.Term(), 1), now: now, first: now,
		rng: rand.New(rand.NewPCG(seed, 1)), busy: make([]compute.Outcome, wave),
		entry: func(index uint64, frames [][]byte) []command.Result { return machine.ApplyFrames(index, frames...) },
	}
}

// uuid returns a UUIDv7 with the state's time.
func (f *filler) uuid() (id compute.UUID) {
	binary.BigEndian.PutUint64(id[:], uint64(f.now)<<16|0x7000|f.rng.Uint64()&0xfff)
	binary.BigEndian.PutUint64(id[8:], f.rng.Uint64()&^(3<<62)|1<<63)
	return id
}

// apply applies commands, several per entry. The state must accept all.
func (f *filler) apply(cmds ...command.Command) error {
	for len(cmds) > 0 {
		n := min(perEntry, len(cmds))
		frames := make([][]byte, 0, n+1)
		for _, cmd := range append([]command.Command{command.Clock{At: f.now, Term: f.term}}, cmds[:n]...) {
			frame, err := command.Encode(cmd)
			if err != nil {
				return err
			}
			frames = append(frames, frame)
		}
		cmds = cmds[n:]
		f.index++
		var refusals []error
		for _, r := range f.entry(f.index, frames) {
			if r.Refusal != nil {
				refusals = append(refusals, r.Refusal)
			}
		}
		if err := errors.Join(refusals...); err != nil {
			return err
		}
	}
	return nil
}

// found bootstraps a cluster whose users may queue anything.
func (f *filler) found() error {
	root := command.Actor{Root: true}
	token := compute.Hash(sha256.Sum256([]byte("join")))
	cmds := append(f.rules(root, token), command.CreateJoinToken{Actor: root, Token: compute.JoinToken{
		ID: "bench", Hash: token, Uses: nodes, ExpiresAt: f.now.Add(time.Hour),
	}})
	for i := range orgs {
		a := command.Actor{
			User: compute.UserID{UUID: f.uuid()}, Org: compute.OrgID{UUID: f.uuid()}, Key: compute.KeyID{UUID: f.uuid()},
		}
		f.actors = append(f.actors, a)
		name := fmt.Sprintf("org-%d", i)
		by := a
		by.Key = compute.KeyID{}
		cmds = append(cmds,
			command.CreateUser{
				Actor: root, User: compute.User{ID: a.User, Email: name + "@example.com"},
				Org: compute.Org{ID: a.Org, Slug: name},
			},
			command.CreateKey{Actor: by, Key: compute.Key{
				ID: a.Key, Lookup: fmt.Sprintf("key%07d", i), Name: name, Active: true,
			}})
	}
	for n := range nodes {
		id, name := compute.NodeID{UUID: f.uuid()}, fmt.Sprintf("sim%d", n)
		f.nodes = append(f.nodes, id)
		inv := compute.Inventory{Node: id, Version: 1, VCPUMilli: 128_000, MemoryMiB: 1 << 20}
		for i := range gpusPerNode {
			inv.GPUs = append(inv.GPUs, compute.GPU{
				ID: gpu(n*gpusPerNode + i), Index: i, Type: "h100", Model: "H100", VRAMMiB: 80 << 10, Driver: "simulated",
				SpeedMilli: 1000, Island: 1,
			})
		}
		cmds = append(cmds, command.RegisterNode{TokenID: "bench", TokenHash: token, Node: compute.Node{
			ID: id, Name: name, API: "http://" + name + ":6470", RPC: name + ":6471", Gossip: name + ":6472",
			Metrics: "http://" + name + ":6470/metrics", Version: "bench", Format: format.Newest,
		}}, command.SetInventory{Term: f.term, Inventory: inv})
	}
	return f.apply(cmds...)
}

// rules returns the commands that bootstrap a cluster, or that set this
// measurement's rules in an existing one.
func (f *filler) rules(root command.Actor, token compute.Hash) []command.Command {
	settings := command.Settings{Meter: true, TimeoutMax: time.Hour, StopGrace: 10 * time.Second}
	prices := map[string]compute.Price{"cpu": 15, "h100": 900, "t4": 100}
	if f.machine.View().Bootstrapped() {
		return []command.Command{
			command.SetSettings{Term: f.term, Settings: settings}, command.SetPrices{Actor: root, Prices: prices},
		}
	}
	return []command.Command{
		command.Bootstrap{
			ClusterID: f.uuid(), RootToken: token, Settings: settings, Prices: prices,
			Signing: compute.SigningKey{ID: "bench", Public: []byte{1}, Sealed: []byte{2}},
		},
		command.RegisterNode{Node: compute.Node{ID: compute.NodeID{UUID: f.uuid()}, Name: "peer1"}, First: true},
	}
}

// gpu returns a name as long as NVML's.
func gpu(n int) compute.GPUID {
	return compute.GPUID(fmt.Sprintf("GPU-%08x-1f2e-3d4c-5b6a-79880a1b2c3d", n*2654435761))
}

// fill runs n executions to their ends.
func (f *filler) fill(ctx context.Context, n int, progress func(done int)) error {
	for done := 0; done < n; {
		if err := ctx.Err(); err != nil {
			return err
		}
		size := min(wave, n-done)
		if err := f.wave(size); err != nil {
			return err
		}
		if done += size; done%(wave*100) == 0 {
			progress(done)
		}
	}
	return nil
}

// wave runs n executions at once.
func (f *filler) wave(n int) error {
	submits := make([]command.Command, n)
	plan := command.CommitPlan{Term: f.term, ViewIndex: f.index}
	for i := range n {
		c := f.submit(i)
		submits[i] = c
		node := f.nodes[i/gpusPerNode]
		plan.Plan.Assignments = append(plan.Plan.Assignments, compute.Assignment{
			Execution: c.Execution.ID, Node: node, GPUs: []compute.GPUShare{{GPU: gpu(i), Milli: compute.WholeGPU}},
			Choice: compute.Choice{
				Score: f.rng.Int64N(1000), RunnerUp: f.nodes[f.rng.IntN(nodes)],
				RunnerUpScore: 1000 + f.rng.Int64N(1000),
			},
		})
		f.busy[i] = compute.Outcome{Execution: c.Execution.ID, Epoch: 1}
		f.now += 1000 / perSecond
	}
	if err := f.apply(submits...); err != nil {
		return err
	}
	if err := f.apply(plan); err != nil {
		return err
	}
	starts, finishes := make([]command.Command, n), make([]command.Command, n)
	for i, at := range f.rng.Perm(n) {
		o, node := &f.busy[at], f.nodes[at/gpusPerNode]
		o.ExecletAt = f.now + compute.Instant(f.rng.IntN(20))
		o.StartedAt = o.ExecletAt + compute.Instant(f.rng.IntN(200))
		o.Duration = time.Duration(f.rng.Int64N(int64(30 * time.Second)))
		o.EndedAt = o.StartedAt.Add(o.Duration)
		starts[i] = command.StartAttempt{Node: node, Start: compute.AttemptStart{
			Execution: o.Execution, Epoch: 1, ExecletAt: o.ExecletAt, StartedAt: o.StartedAt,
		}}
		f.end(o)
		finishes[i] = command.FinishAttempt{Node: node, Outcome: *o}
	}
	if err := f.apply(starts...); err != nil {
		return err
	}
	f.now += 10_000
	return f.apply(finishes...)
}

// submit returns the command that queues an execution for one GPU.
func (f *filler) submit(int) command.Submit {
	actor := f.actors[f.rng.IntN(orgs)]
	code := make([]byte, bundleBytes)
	for i := 0; i < len(code); i += 8 {
		binary.BigEndian.PutUint64(code[i:], f.rng.Uint64()) // Compressed code has no repetition.
	}
	return command.Submit{
		Op:    command.Op{ID: compute.OpID{UUID: f.uuid()}, Org: actor.Org, Request: sha256.Sum256(code[:40])},
		Actor: actor,
		Execution: compute.Execution{
			ID: compute.ExecutionID{UUID: f.uuid()}, Profile: "h100",
			Timeout: 10 * time.Minute, DisconnectGrace: 10 * time.Minute,
			Bundle:   compute.BundleRef{Inline: code, Hash: sha256.Sum256(code), Size: bundleBytes},
			FileName: "train.py", Tags: []string{fmt.Sprintf("run-%d", f.rng.IntN(100))},
		},
	}
}

// end sets how an attempt ended: nine of ten succeed.
func (f *filler) end(o *compute.Outcome) {
	o.Status, o.Ran = compute.StatusCompleted, true
	if f.rng.IntN(10) == 0 {
		o.Status, o.Reason, o.ExitCode = compute.StatusFailed, compute.ReasonExitCode, 1
	}
	o.Usage = compute.Usage{
		CPUTime: time.Duration(f.rng.Int64N(int64(o.Duration) + 1)), PeakMemoryMiB: f.rng.Int64N(8192),
		GPUUtilPercent: f.rng.IntN(100), GPUMemoryMiB: f.rng.Int64N(80 << 10),
		OutputBytes: f.rng.Int64N(1 << 16), OutputLines: f.rng.Int64N(1000),
		EnergyMilliJ: f.rng.Int64N(1 << 24), PowerMilliW: f.rng.Int64N(700_000),
	}
}
