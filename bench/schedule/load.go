package schedule

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// Size of a simulated node, and the submitters.
const (
	gpusPerNode      = 8
	vcpuMilliPerNode = 128_000
	memoryPerNode    = 1 << 20 // MiB.
	tokenUses        = 10_000
	orgs             = 10
)

// codeBytes is the compressed size of each execution's code: that of a short
// script.
const codeBytes = 512

// load generates the commands of a measurement, the same for the same seed.
type load struct {
	cfg    Config
	last   uint64
	actors []command.Actor
	code   []byte
}

func newLoad(cfg Config) *load {
	l := &load{cfg: cfg, code: make([]byte, codeBytes)}
	for range orgs {
		l.actors = append(l.actors, command.Actor{
			User: compute.UserID{UUID: l.uuid()}, Org: compute.OrgID{UUID: l.uuid()},
		})
	}
	return l
}

// uuid returns an identifier greater than the previous one.
func (l *load) uuid() (id compute.UUID) {
	l.last++
	id[0] = 1
	binary.BigEndian.PutUint64(id[8:], l.last)
	return id
}

// founding returns the commands that bootstrap a cluster of one peer. Its users
// may queue any number of executions, and no price refuses them.
func (l *load) founding(first compute.NodeID) []command.Command {
	cmds := []command.Command{
		command.Bootstrap{
			ClusterID: l.uuid(), RootToken: sha256.Sum256([]byte("bench")),
			Settings: command.Settings{Meter: true, TimeoutMax: time.Hour, KeepFinished: time.Hour, MaxFinished: 1000},
			Prices:   map[string]compute.Price{"cpu": 15, "t4": 100, "l40s": 400, "a100": 550, "h100": 900},
			Signing:  compute.SigningKey{ID: "bench", Public: []byte{1}, Sealed: []byte{2}},
		},
		command.RegisterNode{Node: compute.Node{ID: first, Name: "peer1"}, First: true},
	}
	for i, a := range l.actors {
		name := fmt.Sprintf("org-%d", i)
		cmds = append(cmds, command.CreateUser{
			Actor: command.Actor{Root: true}, User: compute.User{ID: a.User, Email: name + "@example.com"},
			Org: compute.Org{ID: a.Org, Slug: name},
		})
	}
	return cmds
}

// token returns the command that creates a join token.
func (l *load) token(id string, hash compute.Hash, uses int) command.Command {
	return command.CreateJoinToken{Actor: command.Actor{Root: true}, Token: compute.JoinToken{
		ID: id, Hash: hash, Uses: uses, ExpiresAt: compute.InstantOf(l.cfg.Now().Add(time.Hour)),
	}}
}

// nodes returns the commands that create the simulated nodes: join tokens,
// registrations and inventories. Each group must be committed before the next.
func (l *load) nodes() (tokens, registrations, inventories []command.Command) {
	types := []string{"h100", "a100", "l40s", "t4"}
	vram := []int64{80, 80, 48, 16}
	for n := range l.cfg.Nodes {
		token := fmt.Sprintf("sim%07d", n/tokenUses)
		hash := compute.Hash(sha256.Sum256([]byte(token)))
		if n%tokenUses == 0 {
			tokens = append(tokens, l.token(token, hash, tokenUses))
		}
		id, name := compute.NodeID{UUID: l.uuid()}, fmt.Sprintf("sim%d", n)
		registrations = append(registrations, command.RegisterNode{TokenID: token, TokenHash: hash, Node: compute.Node{
			ID: id, Name: name, API: "http://" + name + ":6470", RPC: name + ":6471", Gossip: name + ":6472",
			Metrics: "http://" + name + ":6470/metrics", Version: "bench",
		}})
		kind := n % len(types)
		inv := compute.Inventory{Node: id, Version: 1, VCPUMilli: vcpuMilliPerNode, MemoryMiB: memoryPerNode}
		for i := range gpusPerNode {
			inv.GPUs = append(inv.GPUs, compute.GPU{
				ID: compute.GPUID(fmt.Sprintf("SIM-%s-%d", name, i)), Index: i, Type: types[kind],
				Model: types[kind] + " (simulated)", VRAMMiB: vram[kind] << 10, Driver: "simulated",
				Simulated: true, SpeedMilli: 1000, Island: 1,
			})
		}
		inventories = append(inventories, command.SetInventory{Inventory: inv})
	}
	return tokens, registrations, inventories
}

// clock returns the frame with the leader's clock, which begins each entry.
func (l *load) clock(term uint64) []byte {
	return mustEncode(command.Clock{At: compute.InstantOf(l.cfg.Now()), Term: term})
}

// profile returns the profile of one of a hundred kinds of executions, on a GPU
// of the type: 0.28 GPU on average.
func profile(kind int, gpuType string) string {
	switch {
	case kind < 35:
		return "cpu"
	case kind < 75:
		return "gpu." + gpuType + ".250m"
	case kind < 92:
		return "gpu." + gpuType + ".500m"
	case kind < 99:
		return "gpu." + gpuType
	}
	return "gpu." + gpuType + ".2x"
}

// submits returns the commands that queue n executions, with profiles in an
// order that depends on seed.
func (l *load) submits(n int, seed uint64) []command.Command {
	rng := rand.New(rand.NewPCG(l.cfg.Seed, seed))
	types := []string{"h100", "a100", "l40s", "t4"}
	code := compute.BundleRef{Inline: l.code, Hash: sha256.Sum256(l.code)}
	cmds := make([]command.Command, n)
	for i := range cmds {
		gpuType := types[rng.IntN(len(types))]
		actor := l.actors[rng.IntN(len(l.actors))]
		cmds[i] = command.Submit{
			Op:    command.Op{ID: compute.OpID{UUID: l.uuid()}, Org: actor.Org},
			Actor: actor,
			Execution: compute.Execution{
				ID: compute.ExecutionID{UUID: l.uuid()}, Profile: profile(rng.IntN(100), gpuType),
				Timeout: 10 * time.Minute, DisconnectGrace: 10 * time.Minute, Bundle: code, FileName: "bench.py",
			},
		}
	}
	return cmds
}

// mustEncode encodes a command of this package, which always fits.
func mustEncode(cmd command.Command) []byte {
	frame, err := command.Encode(cmd)
	if err != nil {
		panic(err)
	}
	return frame
}
