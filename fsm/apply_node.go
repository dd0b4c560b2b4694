package fsm

import (
	"slices"
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// Limits of a node's reports, and of join tokens.
const (
	maxNodeGPUs = 1024
	maxGaps     = 64

	maxOffers     = 1000
	maxOfferBytes = 128
	maxFaultBytes = 256
	maxNodes      = 20_000
	maxCapacity   = 1 << 40 // Thousandths of a vCPU, MiB of memory.
	maxTokenUses  = 10_000
	maxTokens     = 1_000

	// tokenMemory is how long a token that expired stays known, so that a node
	// that brings it learns why it is refused.
	tokenMemory = 24 * time.Hour
)

// registerNode admits a new node with its join token, or renews a known node's
// description of itself.
func (s *membership) registerNode(c command.RegisterNode) command.Result {
	id := c.Node.ID
	switch {
	case id.IsZero():
		return refuse(compute.CodeInvalid, "no_node_id", "a node needs an identifier")
	case s.view.RemovedNode(id):
		return refuse(compute.CodeForbidden, "node_removed",
			"this node was removed from the cluster and needs a new identity")
	}
	if refusal := s.tooOld(c.Node); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if known, ok := s.view.nodes.Get(id); ok {
		if c.Node.Role != known.Role {
			return otherRole(known.Role, c.Node.Role)
		}
		if refusal := s.readmit(known, c); refusal != nil {
			return command.Result{Refusal: refusal}
		}
		return s.renewNode(known, c.Node)
	}
	if s.view.nodes.Len() >= maxNodes {
		return refuse(compute.CodeForbidden, "too_many_nodes", "the cluster has %d nodes", maxNodes)
	}
	if !c.First || s.view.nodes.Len() > 0 {
		if refusal := s.spendToken(c); refusal != nil {
			return command.Result{Refusal: refusal}
		}
	}
	n := identityOf(c.Node)
	n.JoinedAt, n.ChangedAt = s.view.meta.Now, s.view.meta.Now
	s.view.nodes.put(&n)
	return command.Result{ID: id.UUID}
}

// readmit decides on a known node that brings a token, which asks for a new
// certificate: the answer to its first request was lost, or it has lost its
// keys. Only the token that admitted it counts again without being spent, and
// only for the key that it counted for: a spent token may have been found by
// somebody. Nobody may become a node that is up.
func (s *membership) readmit(known *compute.Node, c command.RegisterNode) *compute.Error {
	if c.TokenID == "" {
		return nil // A member, by its certificate.
	}
	a, ok := s.view.admitted.Get(known.ID)
	if ok = ok && a.TokenID == c.TokenID; ok && (a.Key == c.Key || a.Key == compute.Hash{}) {
		refusal := s.checkToken(c)
		if refusal == nil && a.Key != c.Key { // The first repeat sets it: an older version kept no key.
			s.view.admitted.Put(&admission{known.ID, c.TokenID, c.Key})
		}
		return refusal
	}
	if known.State == compute.NodeUp {
		return compute.Errorf(compute.CodeConflict, "a node with this identity is up: end its other process, "+
			"or give this one a data directory and a join token of its own").Named("node_up")
	}
	refusal := s.spendToken(c)
	if ok && refusal != nil && refusal.Detail == "token_spent" {
		return compute.Errorf(compute.CodeForbidden, "the join token has been used up by this node with another key: "+
			"if it has lost its keys, make another token with berth admin token create").Named("token_spent")
	}
	return refusal
}

// identityOf returns the fields that a node reports itself.
func identityOf(n compute.Node) compute.Node {
	return compute.Node{
		ID: n.ID, Name: n.Name, Role: n.Role, API: n.API, RPC: n.RPC,
		Gossip: n.Gossip, Metrics: n.Metrics, Version: n.Version, Format: n.Format,
	}
}

// otherRole refuses a node that joined in one role and comes in another one.
func otherRole(joined, said compute.Role) command.Result {
	return refuse(compute.CodeConflict, "role_mismatch",
		"the node joined as %s and cannot become %s: start it with --role %s, or remove it with berth admin node remove "+
			"and have it join with another data_dir and a token of berth admin token create --role %s",
		joined, said, joined, said)
}

func (s *membership) renewNode(known *compute.Node, said compute.Node) command.Result {
	n := *known
	n.Name, n.API, n.RPC, n.Gossip = said.Name, said.API, said.RPC, said.Gossip
	n.Metrics, n.Version, n.Format = said.Metrics, said.Version, said.Format
	n.InventoryVersion = 0 // It may have restarted, and then counts from the start.
	s.view.nodes.put(&n)
	return command.Result{ID: n.ID.UUID, Repeat: true}
}

// spendToken takes one use of the join token that a node brings.
func (s *membership) spendToken(c command.RegisterNode) *compute.Error {
	if refusal := s.checkToken(c); refusal != nil {
		return refusal
	}
	known, _ := s.view.joins.Get(c.TokenID)
	if known.Uses < 1 {
		return compute.Errorf(compute.CodeForbidden,
			"the join token has been used up: make another with berth admin token create").Named("token_spent")
	}
	t := *known
	t.Uses--
	s.view.joins.Put(&t)
	s.view.admitted.Put(&admission{c.Node.ID, c.TokenID, c.Key})
	return nil
}

// CheckToken returns why the join token of c admits no node, nil if it may. Nothing is
// proposed for a node without a token: otherwise any host that reaches the cluster port
// could fill the log. A registration without a token is a member's.
func (v *View) CheckToken(c command.RegisterNode) error {
	if refusal := stateOf(v).membership.checkToken(c); refusal != nil {
		return refusal
	}
	return nil
}

// checkToken refuses a join token that is unknown, has expired or is for
// another role.
func (s *membership) checkToken(c command.RegisterNode) *compute.Error {
	forbid := func(detail, format string, args ...any) *compute.Error {
		return compute.Errorf(compute.CodeForbidden, format, args...).Named(detail)
	}
	known, ok := s.view.joins.Get(c.TokenID)
	switch {
	case !ok || known.Hash != c.TokenHash:
		return forbid("token_unknown",
			"the join token is not known to this cluster: make one there with berth admin token create")
	case known.ExpiresAt <= s.view.meta.Now:
		return forbid("token_expired",
			"the join token expired at %s: make another with berth admin token create", known.ExpiresAt)
	case known.Role != c.Node.Role:
		return forbid("token_role", "the join token is for the role %s, not %s: "+
			"make another with berth admin token create --role %s, or start the node with --role %s",
			known.Role, c.Node.Role, c.Node.Role, known.Role)
	}
	return nil
}

func (s *membership) createJoinToken(c command.CreateJoinToken) command.Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	_, known := s.view.joins.Get(c.Token.ID)
	switch {
	case c.Token.ID == "" || c.Token.Uses < 1 || c.Token.Uses > maxTokenUses:
		return refuse(compute.CodeInvalid, "token_uses",
			"a join token has 1 to %d uses", maxTokenUses)
	case c.Token.ExpiresAt <= s.view.meta.Now:
		return refuse(compute.CodeInvalid, "token_expired",
			"the join token has expired already, by the cluster's clock: make one with berth admin token create, at a node "+
				"whose clock is right (timedatectl set-ntp true), or with a longer --ttl")
	case s.view.joins.Len() >= maxTokens:
		return refuse(compute.CodeForbidden, "too_many_tokens", "there are %d join tokens", maxTokens)
	case known:
		return refuse(compute.CodeConflict, "token_exists", "there is a join token with this name")
	}
	s.view.joins.Put(&c.Token)
	return command.Result{}
}

// expireTokens forgets join tokens that expired long ago.
func (s *membership) expireTokens() {
	limit := s.view.meta.Now.Add(-tokenMemory)
	var old []string
	for t := range s.view.joins.Values() {
		if t.ExpiresAt < limit {
			old = append(old, t.ID)
		}
	}
	for _, id := range old {
		s.view.joins.Drop(id)
	}
}

// forgetInventories has the leader record the inventory of every node again, when a format
// begins that has more of it.
func (s *membership) forgetInventories() {
	var nodes []*compute.Node
	for n := range s.view.nodes.Values() {
		nodes = append(nodes, n)
	}
	for _, known := range nodes {
		n := *known
		n.InventoryVersion = 0
		s.view.nodes.put(&n)
	}
}

// setInventory records the hardware of a node. The use of each GPU, which the state
// counts itself, stays.
func (s *membership) setInventory(c command.SetInventory) command.Result {
	known, ok := s.view.nodes.Get(c.Inventory.Node)
	if !ok {
		return refuse(compute.CodeNotFound, "node_unknown", "the node is not known")
	}
	if refusal := checkInventory(c.Inventory); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if c.Inventory.Version <= known.InventoryVersion {
		return command.Result{Repeat: true}
	}
	n := *known
	n.InventoryVersion = c.Inventory.Version
	n.VCPUMilli, n.MemoryMiB = c.Inventory.VCPUMilli, c.Inventory.MemoryMiB
	n.GPUs = mergeGPUs(known.GPUs, c.Inventory.GPUs)
	if s.view.Format() >= format.Imports {
		n.Gaps = c.Inventory.Gaps
	}
	if s.view.Format() >= format.Lab {
		n.ScratchMiB, n.Offers = c.Inventory.ScratchMiB, c.Inventory.Offers
	}
	if s.view.Format() >= format.Rotation {
		n.EngineFault = c.Inventory.EngineFault
	}
	s.view.nodes.put(&n)
	if known.VCPUMilli == 0 && known.MemoryMiB == 0 && len(known.GPUs) == 0 {
		s.widen(&n)
	} else {
		s.reshape()
	}
	return command.Result{}
}

// Recordable returns the part of inv that every server can record.
func (v *View) Recordable(inv compute.Inventory) compute.Inventory {
	if v.Format() < format.Imports {
		inv.Gaps = nil
	}
	if v.Format() < format.Lab {
		inv.ScratchMiB, inv.Offers = 0, nil
		inv.GPUs = slices.Clone(inv.GPUs)
		for i := range inv.GPUs {
			inv.GPUs[i].Capability = 0
		}
	}
	if v.Format() < format.Rotation {
		inv.EngineFault = ""
	}
	return inv
}

func checkInventory(inv compute.Inventory) *compute.Error {
	invalid := func(format string, args ...any) *compute.Error {
		return compute.Errorf(compute.CodeInvalid, format, args...).Named("inventory")
	}
	if inv.VCPUMilli < 0 || inv.VCPUMilli > maxCapacity ||
		inv.MemoryMiB < 0 || inv.MemoryMiB > maxCapacity || len(inv.GPUs) > maxNodeGPUs || len(inv.Gaps) > maxGaps {
		return invalid("a node has vCPUs, memory, at most %d GPUs and %d gaps", maxNodeGPUs, maxGaps)
	}
	if inv.ScratchMiB < 0 || inv.ScratchMiB > maxCapacity || len(inv.Offers) > maxOffers || !wellOffered(inv.Offers) {
		return invalid("a node has scratch space and at most %d sorted offers of %d bytes", maxOffers, maxOfferBytes)
	}
	if len(inv.EngineFault) > maxFaultBytes {
		return invalid("the fault of an engine has at most %d bytes", maxFaultBytes)
	}
	seen := make(map[compute.GPUID]bool, len(inv.GPUs))
	for _, g := range inv.GPUs {
		p, err := compute.ParseProfile(g.Type)
		if err != nil || p.GPUType != g.Type {
			return invalid("%q is no GPU type", g.Type)
		}
		if g.ID == "" || seen[g.ID] || g.VRAMMiB < 0 {
			return invalid("GPU %q is reported twice or without a name or memory", g.ID)
		}
		seen[g.ID] = true
	}
	for i := range inv.GPUs {
		if g := &inv.GPUs[i]; !wellSliced(g, inv.GPUs) {
			return invalid("GPU %q is no MIG slice of a GPU in MIG mode of the same type", g.ID)
		}
	}
	return nil
}

// wellSliced reports whether g, when it is a MIG slice, is one of a device
// among gpus.
func wellSliced(g *compute.GPU, gpus []compute.GPU) bool {
	if g.Slice() == "" {
		return g.Parent == ""
	}
	_, err := compute.ParseMIG(g.MIG)
	at := gpuAt(gpus, g.Parent)
	return err == nil && at >= 0 && gpus[at].Sliced() && gpus[at].Type == g.Type
}

// mergeGPUs returns the reported GPUs with the use that is recorded of them.
// One that is gone but held stays, as missing, until it is released.
func mergeGPUs(known, reported []compute.GPU) []compute.GPU {
	out := slices.Clone(reported)
	for i := range out {
		out[i].UsedMilli = 0
		if j := gpuAt(known, out[i].ID); j >= 0 {
			out[i].UsedMilli = known[j].UsedMilli
		}
	}
	for _, g := range known {
		if g.UsedMilli > 0 && gpuAt(reported, g.ID) < 0 {
			g.Health = compute.HealthMissing
			out = append(out, g)
		}
	}
	return out
}

// setNodeState records whether the leader hears a node, and notes it in the
// executions on that node.
func (s *membership) setNodeState(c command.SetNodeState) command.Result {
	known, ok := s.view.nodes.Get(c.Node)
	switch {
	case !ok:
		return refuse(compute.CodeNotFound, "node_unknown", "the node is not known")
	case c.State > compute.NodeDown:
		return refuse(compute.CodeInvalid, "node_state", "there is no such state of a node")
	case known.State == c.State:
		return command.Result{Repeat: true}
	}
	n := *known
	n.State, n.ChangedAt = c.State, s.view.meta.Now
	s.view.nodes.put(&n)
	s.judgeBrake()
	from, to := compute.ReasonNone, compute.ReasonNodeUnreached
	if c.State == compute.NodeUp {
		from, to = to, from
	}
	for _, w := range s.view.Work(n.ID) {
		if w.Execution.Reason == from {
			e := *w.Execution
			e.Reason = to
			s.execution.putExecution(&e)
		}
	}
	return command.Result{}
}

func (s *membership) removeNode(c command.RemoveNode) command.Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	known, ok := s.view.nodes.Get(c.Node)
	if !ok {
		return refuse(compute.CodeNotFound, "node_unknown", "the node is not known")
	}
	if known.Role == compute.RoleServer && s.view.Format() >= format.Trust && s.servers() == 1 {
		return refuse(compute.CodeConflict, "last_server",
			"it is the last server, which holds the state: have another one join first")
	}
	if n := len(s.view.Work(c.Node)); n > 0 {
		return refuse(compute.CodeConflict, "node_busy",
			"the node still has %d executions; drain it first", n)
	}
	for _, id := range c.Beside {
		if _, ok := s.view.nodes.Get(id); !ok {
			return refuse(compute.CodeConflict, "copies_missing",
				"node %s has left meanwhile, with copies that were counted on; repeat it", id)
		}
	}
	s.view.nodes.drop(c.Node)
	s.forgetNode(c.Node)
	s.view.admitted.Drop(c.Node)
	s.view.removed.Put(&removedNode{c.Node, s.view.meta.Now})
	s.judgeBrake()
	s.reshape()
	return command.Result{ID: c.Node.UUID}
}

// servers returns how many servers there are.
func (s *membership) servers() int {
	n := 0
	for node := range s.view.nodes.Values() {
		if node.Role == compute.RoleServer {
			n++
		}
	}
	return n
}

// wellOffered reports whether the offers are sorted, each once, and not too long.
func wellOffered(offers []compute.Offer) bool {
	for i, offer := range offers {
		if offer == "" || len(offer) > maxOfferBytes || i > 0 && offers[i-1] >= offer {
			return false
		}
	}
	return true
}
