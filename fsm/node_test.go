package fsm_test

import (
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

func TestNodesJoinWithAToken(t *testing.T) {
	w := newEmptyWorld(t)
	w.bootstrap(settings())
	w.addNode("n1", "t4")
	w.must(command.CreateJoinToken{Op: w.op(compute.OrgID{}, "token"), Actor: w.root, Token: compute.JoinToken{
		ID: "servers", Hash: hash("secret"), Uses: 2, ExpiresAt: w.now.Add(time.Hour),
	}})
	join := func() command.RegisterNode {
		return command.RegisterNode{
			Node:    compute.Node{ID: compute.NodeID{UUID: w.uuid()}, Name: "n"},
			TokenID: "servers", TokenHash: hash("secret"),
		}
	}
	c := join()
	c.TokenID = "unknown"
	w.refused(c, compute.CodeForbidden, "token_unknown")
	c = join()
	c.TokenHash = hash("guess")
	w.refused(c, compute.CodeForbidden, "token_unknown")
	c = join()
	c.Node.Role = compute.RoleWorker
	w.refused(c, compute.CodeForbidden, "token_role")
	c = join()
	c.First = true
	c.TokenID = ""
	w.refused(c, compute.CodeForbidden, "token_unknown")
	c = join()
	c.Node.ID = compute.NodeID{}
	w.refused(c, compute.CodeInvalid, "no_node_id")

	first := join()
	w.must(first)
	if r := w.must(first); !r.Repeat { // A known node needs no token.
		t.Error("a renewal is not said to be one")
	}
	second := join()
	w.must(second)
	w.refused(join(), compute.CodeForbidden, "token_spent")
	w.must(second) // The answer was lost: the token that admitted it still counts.
	second.TokenHash = hash("guess")
	w.refused(second, compute.CodeForbidden, "token_unknown")

	w.must(command.CreateJoinToken{Actor: w.root, Token: compute.JoinToken{
		ID: "short", Hash: hash("secret"), Uses: 1, ExpiresAt: w.now.Add(time.Minute),
	}})
	w.pass(time.Minute)
	c = join()
	c.TokenID = "short"
	w.refused(c, compute.CodeForbidden, "token_expired")
	w.pass(26 * time.Hour)
	w.refused(c, compute.CodeForbidden, "token_unknown")
	for token := range w.view().JoinTokens() {
		t.Errorf("token %s is still there", token.ID)
	}
}

func TestJoinTokenIsRefused(t *testing.T) {
	w := newWorld(t)
	token := compute.JoinToken{ID: "t", Uses: 1, ExpiresAt: w.now.Add(time.Hour)}
	create := func(change func(*command.CreateJoinToken)) command.CreateJoinToken {
		c := command.CreateJoinToken{Actor: w.root, Token: token}
		change(&c)
		return c
	}
	w.refused(create(func(c *command.CreateJoinToken) { c.Actor = w.ada }), compute.CodeForbidden, "not_an_operator")
	w.refused(create(func(c *command.CreateJoinToken) { c.Token.Uses = 0 }), compute.CodeInvalid, "token_uses")
	w.refused(create(func(c *command.CreateJoinToken) { c.Token.ID = "" }), compute.CodeInvalid, "token_uses")
	w.refused(create(func(c *command.CreateJoinToken) { c.Token.ExpiresAt = w.now }), compute.CodeInvalid, "token_expired")
	w.must(create(func(*command.CreateJoinToken) {}))
	w.refused(create(func(*command.CreateJoinToken) {}), compute.CodeConflict, "token_exists")
}

func TestNodeUpdatesItsRecord(t *testing.T) {
	w := newWorld(t)
	n := *w.node("n1")
	said := command.RegisterNode{Node: compute.Node{
		ID: n.ID, Name: "new", API: "http://new", RPC: "new:1", Gossip: "new:2",
		Metrics: "http://new/metrics", Version: "2", Drained: true, UsedVCPUMilli: 5,
	}}
	w.must(said)
	got := *w.node("new")
	if got.API != "http://new" || got.Version != "2" || got.Drained || got.UsedVCPUMilli != 0 ||
		got.JoinedAt != n.JoinedAt || len(got.GPUs) != 6 {
		t.Errorf("node is %+v", got)
	}
	// It may have restarted, which restarts its inventory version.
	w.must(command.SetInventory{Term: 1, Inventory: inventory(n.ID, "n1", 1, "h100")})
	if len(w.node("new").GPUs) != 1 {
		t.Error("the inventory of a restarted node was not taken")
	}
	said.Node.Role = compute.RoleWorker
	w.refused(said, compute.CodeConflict, "role_mismatch")
}

func TestInventoryMerges(t *testing.T) {
	w := newWorld(t)
	node := w.node("n3").ID
	id := w.submit("t4.500m")
	w.place("n3", id)

	inv := inventory(node, "n3", 2, "t4", "t4", "t4", "t4")
	inv.GPUs = inv.GPUs[2:] // The held one and a free one are gone.
	inv.GPUs[0].UsedMilli = 777
	w.must(command.SetInventory{Term: 1, Inventory: inv})
	gpus := w.node("n3").GPUs
	if len(gpus) != 3 || gpus[2].ID != "SIM-n3-0" || gpus[2].Health != compute.HealthMissing ||
		gpus[2].UsedMilli != 500 || gpus[0].UsedMilli != 0 {
		t.Fatalf("GPUs are %+v", gpus)
	}
	if r := w.must(command.SetInventory{Term: 1, Inventory: inventory(node, "n3", 2)}); !r.Repeat {
		t.Error("the same version was taken twice")
	}
	if r := w.must(command.SetInventory{Term: 1, Inventory: inventory(node, "n3", 1)}); !r.Repeat {
		t.Error("an older version was taken")
	}
	w.must(w.ended(id, compute.StatusCompleted, time.Second))
	if gpus := w.node("n3").GPUs; len(gpus) != 2 {
		t.Fatalf("the missing GPU is still there: %+v", gpus)
	}

	id = w.submit("t4.500m")
	w.place("n3", id)
	inv.Version, inv.GPUs = 3, nil
	w.must(command.SetInventory{Term: 1, Inventory: inv})
	if types := w.view().GPUTypes(); len(types) != 3 {
		t.Errorf("types are %v: a missing GPU is offered", types)
	}
	back := inventory(node, "n3", 4, "t4", "t4", "t4", "t4")
	w.must(command.SetInventory{Term: 1, Inventory: back})
	held := 0
	for _, g := range w.node("n3").GPUs {
		held += g.UsedMilli
		if g.Health != compute.HealthOK {
			t.Errorf("GPU %s is %s", g.ID, g.Health)
		}
	}
	if held != 500 {
		t.Errorf("%d held after the GPU came back, want 500", held)
	}
}

func TestInventoryIsRefused(t *testing.T) {
	tests := []struct {
		name   string
		change func(*compute.Inventory)
	}{
		{"negative vCPUs", func(i *compute.Inventory) { i.VCPUMilli = -1 }},
		{"negative memory", func(i *compute.Inventory) { i.MemoryMiB = -1 }},
		{"absurd memory", func(i *compute.Inventory) { i.MemoryMiB = 1 << 62 }},
		{"GPU twice", func(i *compute.Inventory) { i.GPUs[1].ID = i.GPUs[0].ID }},
		{"GPU without a name", func(i *compute.Inventory) { i.GPUs[1].ID = "" }},
		{"type in upper case", func(i *compute.Inventory) { i.GPUs[1].Type = "T4" }},
		{"type with a size", func(i *compute.Inventory) { i.GPUs[1].Type = "t4.2x" }},
		{"type cpu", func(i *compute.Inventory) { i.GPUs[1].Type = "cpu" }},
		{"long fault of the engine", func(i *compute.Inventory) { i.EngineFault = strings.Repeat("x", 257) }},
		{"too many GPUs", func(i *compute.Inventory) { i.GPUs = make([]compute.GPU, 1025) }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			inv := inventory(w.node("n3").ID, "n3", 2, "t4", "t4")
			test.change(&inv)
			w.refused(command.SetInventory{Term: 1, Inventory: inv}, compute.CodeInvalid, "inventory")
		})
	}
}

func TestNodeStateAndRemoval(t *testing.T) {
	w := newWorld(t)
	node := w.node("n3").ID
	unknown := compute.NodeID{UUID: w.uuid()}
	w.refused(command.SetNodeState{Term: 1, Node: unknown}, compute.CodeNotFound, "node_unknown")
	w.refused(command.SetNodeState{Term: 1, Node: node, State: 7}, compute.CodeInvalid, "node_state")
	w.refused(command.SetInventory{Term: 1, Inventory: inventory(unknown, "n", 1)},
		compute.CodeNotFound, "node_unknown")
	w.refused(command.DrainNode{Actor: w.root, Node: unknown}, compute.CodeNotFound, "node_unknown")
	w.refused(command.DrainNode{Actor: w.ada, Node: node}, compute.CodeForbidden, "not_an_operator")
	w.refused(command.RemoveNode{Actor: w.ada, Node: node}, compute.CodeForbidden, "not_an_operator")
	w.refused(command.RemoveNode{Actor: w.root, Node: unknown}, compute.CodeNotFound, "node_unknown")

	w.now = w.now.Add(time.Minute)
	w.must(command.SetNodeState{Term: 1, Node: node, State: compute.NodeDown})
	if n := w.node("n3"); n.Schedulable() || n.ChangedAt != w.now {
		t.Errorf("node is %+v", n)
	}
	if r := w.must(command.SetNodeState{Term: 1, Node: node, State: compute.NodeDown}); !r.Repeat {
		t.Error("a repeat is not said to be one")
	}
	w.must(command.SetNodeState{Term: 1, Node: node, State: compute.NodeUp})
	id := w.submit("t4")
	w.place("n3", id)
	w.refused(command.RemoveNode{Actor: w.root, Node: node}, compute.CodeConflict, "node_busy")
	w.must(w.ended(id, compute.StatusCompleted, time.Second))
	w.must(command.RemoveNode{Actor: w.root, Node: node})
	if !w.view().RemovedNode(node) {
		t.Error("the node is not known as removed")
	}
	if _, _, _, err := w.view().Resolve("t4"); compute.CodeOf(err) != compute.CodeInvalid {
		t.Errorf("its GPU type is still offered: %v", err)
	}
	w.refused(command.RegisterNode{Node: compute.Node{ID: node}}, compute.CodeForbidden, "node_removed")
}

// TestKnownNodeNeedsATokenOfItsOwn checks that nobody can take over an existing
// node and get its certificate by using its name.
func TestKnownNodeNeedsATokenOfItsOwn(t *testing.T) {
	w := newWorld(t)
	token := func(id string) {
		w.must(command.CreateJoinToken{Actor: w.root, Token: compute.JoinToken{
			ID: id, Hash: hash("secret"), Uses: 1, ExpiresAt: w.now.Add(time.Hour),
		}})
	}
	token("another")
	n := w.node("n2")
	c := command.RegisterNode{
		Node: compute.Node{ID: n.ID, Name: "n2"}, TokenID: "made up", TokenHash: hash("guess"),
	}
	w.refused(c, compute.CodeConflict, "node_up")
	c.TokenID, c.TokenHash = "another", hash("secret")
	w.refused(c, compute.CodeConflict, "node_up")
	w.must(command.SetNodeState{Term: 1, Node: n.ID, State: compute.NodeDown})
	c.TokenHash = hash("guess")
	w.refused(c, compute.CodeForbidden, "token_unknown")
	c.TokenHash = hash("secret")
	worker := c
	worker.TokenID, worker.Node.Role = "for workers", compute.RoleWorker
	w.must(command.CreateJoinToken{Actor: w.root, Token: compute.JoinToken{
		ID: worker.TokenID, Hash: hash("secret"), Uses: 1, ExpiresAt: w.now.Add(time.Hour), Role: compute.RoleWorker,
	}})
	w.refused(worker, compute.CodeConflict, "role_mismatch")
	worker.Node.ID = compute.NodeID{UUID: w.uuid()}
	w.must(worker) // The refusal has not spent the token.
	w.must(c)      // It has lost its keys, and the operator issued a new token.
	w.must(c)
	c.Node.ID = w.node("n3").ID
	w.must(command.SetNodeState{Term: 1, Node: c.Node.ID, State: compute.NodeDown})
	w.refused(c, compute.CodeForbidden, "token_spent")
}

// TestSpentTokenAdmitsItsKeyOnly checks that a token that a node has used
// gives its certificate to nobody else, whether the node is heard or not.
func TestSpentTokenAdmitsItsKeyOnly(t *testing.T) {
	for _, test := range []struct {
		name   string
		first  compute.Hash // The recorded key.
		again  compute.Hash
		uses   int
		state  compute.NodeState
		detail string // "" when it is admitted.
	}{
		{"the same key, up", hash("a"), hash("a"), 1, compute.NodeUp, ""},
		{"the same key, down", hash("a"), hash("a"), 1, compute.NodeDown, ""},
		{"another key, up", hash("a"), hash("b"), 1, compute.NodeUp, "node_up"},
		{"another key, down", hash("a"), hash("b"), 1, compute.NodeDown, "token_spent"},
		{"no key, down", hash("a"), compute.Hash{}, 1, compute.NodeDown, "token_spent"},
		{"another key, the token has another use", hash("a"), hash("b"), 2, compute.NodeDown, ""},
		{"admitted by an older version", compute.Hash{}, hash("b"), 1, compute.NodeDown, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.must(command.CreateJoinToken{Actor: w.root, Token: compute.JoinToken{
				ID: "t", Hash: hash("secret"), Uses: test.uses, ExpiresAt: w.now.Add(time.Hour),
			}})
			c := command.RegisterNode{
				Node: compute.Node{ID: compute.NodeID{UUID: w.uuid()}}, TokenID: "t", TokenHash: hash("secret"), Key: test.first,
			}
			w.must(c)
			w.must(command.SetNodeState{Term: w.term, Node: c.Node.ID, State: test.state})
			c.Key = test.again
			if test.detail == "" {
				w.must(c)
				other := c
				other.Key = hash("other") // This key is recorded.
				if r := w.do(other); r.Refusal == nil {
					t.Error("a third key is taken")
				}
				w.pass(time.Hour)
				w.refused(c, compute.CodeForbidden, "token_expired")
				return
			}
			r := w.do(c)
			if r.Refusal == nil || r.Refusal.Detail != test.detail || !strings.Contains(r.Refusal.Message, "join token") {
				t.Errorf("got %+v", r.Refusal)
			}
		})
	}
}

// TestTheLastServerStays checks that the state refuses the second of two
// concurrent removals that were each checked before the other was applied.
func TestTheLastServerStays(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	for _, name := range []string{"n1", "n2"} {
		w.must(command.RemoveNode{Actor: w.root, Node: w.node(name).ID})
	}
	w.must(command.CreateJoinToken{Actor: w.root, Token: compute.JoinToken{
		ID: "w", Hash: hash("w"), Uses: 1, Role: compute.RoleWorker, ExpiresAt: w.now.Add(time.Hour),
	}})
	worker := compute.Node{ID: compute.NodeID{UUID: w.uuid()}, Name: "w", Role: compute.RoleWorker}
	w.must(command.RegisterNode{Node: worker, TokenID: "w", TokenHash: hash("w")})
	last := command.RemoveNode{Actor: w.root, Node: w.node("n3").ID}
	w.refused(last, compute.CodeConflict, "last_server")
	w.must(command.RemoveNode{Actor: w.root, Node: worker.ID})
	w.refused(last, compute.CodeConflict, "last_server")
	w.addNode("n4")
	w.must(last)
}

// TestOneOfTwoInterdependentServersStays checks that of two removals, each of
// which relies on copies that the other one removes, one is refused.
func TestOneOfTwoInterdependentServersStays(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	first, second := w.node("n1").ID, w.node("n2").ID
	w.must(command.RemoveNode{Actor: w.root, Node: first, Beside: []compute.NodeID{second, w.node("n3").ID}})
	w.refused(command.RemoveNode{Actor: w.root, Node: second, Beside: []compute.NodeID{first}}, compute.CodeConflict, "copies_missing")
	w.must(command.RemoveNode{Actor: w.root, Node: second, Beside: []compute.NodeID{w.node("n3").ID}}) // It asked again.
}

// TestNodeRefusalsNameTheCommand checks that a refusal names the command that
// helps.
func TestNodeRefusalsNameTheCommand(t *testing.T) {
	w := newWorld(t)
	for role := range map[compute.Role]bool{compute.RoleServer: true, compute.RoleWorker: true} {
		w.must(command.CreateJoinToken{Actor: w.root, Token: compute.JoinToken{
			ID: role.String(), Hash: hash("secret"), Uses: 1, Role: role, ExpiresAt: w.now.Add(time.Hour),
		}})
	}
	join := func(token string, role compute.Role) command.RegisterNode {
		return command.RegisterNode{
			Node: compute.Node{ID: compute.NodeID{UUID: w.uuid()}, Role: role}, TokenID: token, TokenHash: hash("secret"),
		}
	}
	for _, test := range []struct {
		cmd    command.Command
		detail string
		words  []string
	}{
		{join("worker", compute.RoleServer), "token_role", []string{"token create --role server", "start the node with --role worker"}},
		{join("server", compute.RoleWorker), "token_role", []string{"token create --role worker", "start the node with --role server"}},
		{command.RegisterNode{Node: compute.Node{ID: w.node("n1").ID, Role: compute.RoleWorker}}, "role_mismatch", []string{
			"start it with --role server", "berth admin node remove", "token create --role worker",
		}},
		{command.CreateJoinToken{Actor: w.root, Token: compute.JoinToken{ID: "late", Uses: 1, ExpiresAt: w.now}}, "token_expired", []string{
			"berth admin token create", "--ttl",
		}},
	} {
		r := w.do(test.cmd)
		if r.Refusal == nil || r.Refusal.Detail != test.detail {
			t.Errorf("%+v: got %+v, want %s", test.cmd, r.Refusal, test.detail)
			continue
		}
		for _, word := range test.words {
			if !strings.Contains(r.Refusal.Message, word) {
				t.Errorf("%q does not say %q", r.Refusal.Message, word)
			}
		}
	}
}
