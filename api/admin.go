package api

import (
	"time"

	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// createJoinToken makes a token with which nodes join. Its text is in this
// answer and nowhere else.
func (s *Server) createJoinToken(r *request) (any, error) {
	in := r.body.(*wire.NewJoinToken)
	role := compute.RoleServer
	if in.Role == compute.RoleWorker.String() {
		role = compute.RoleWorker
	}
	text, record, err := s.cfg.NewJoinToken(role, time.Duration(in.TTL)*time.Second, in.Uses)
	if err != nil {
		return nil, err
	}
	result, err := s.proposeAndSee(r, fsm.CreateJoinToken{Op: s.op(r), Actor: r.caller.actor, Token: record})
	if err != nil {
		return nil, err
	}
	if result.Repeat && !r.knowsJoinToken(record.ID) {
		return nil, errSecretGone("join token", "")
	}
	return wire.JoinToken{
		Token: text, ID: record.ID, Role: record.Role, Uses: record.Uses, ExpiresAt: record.ExpiresAt,
	}, nil
}

// knowsJoinToken reports whether the state has a join token.
func (r *request) knowsJoinToken(id string) bool {
	for t := range r.view.JoinTokens() {
		if t.ID == id {
			return true
		}
	}
	return false
}

// createUser makes a user with an organization of its own.
func (s *Server) createUser(r *request) (any, error) {
	in := r.body.(*wire.NewUser)
	hash, err := s.credentials.passwords.Hash(r.ctx, in.Password)
	if err != nil {
		return nil, err
	}
	user := compute.User{
		ID: compute.UserID{UUID: s.newID()}, Email: in.Email, FullName: in.FullName,
		PasswordHash: hash, Active: true, Operator: in.Operator,
	}
	org := compute.Org{
		ID: compute.OrgID{UUID: s.newID()}, Slug: in.OrgSlug, Name: in.OrgName, BillingEmail: in.Email,
	}
	if org.Name == "" {
		org.Name = org.Slug
	}
	_, err = s.proposeAndSee(r, fsm.CreateUser{Op: s.op(r), Actor: r.caller.actor, User: user, Org: org})
	if err != nil {
		return nil, err
	}
	// A repeat finds the user that the first request made.
	made, ok := r.view.UserByEmail(in.Email)
	own, ok2 := r.view.OrgBySlug(in.OrgSlug)
	if !ok || !ok2 {
		return nil, errNotFound()
	}
	return wire.User{
		UserID: made.ID, Email: made.Email, FullName: orNull(made.FullName), Operator: made.Operator,
		OrgID: own.ID, OrgSlug: own.Slug,
	}, nil
}

// listNodes answers all nodes.
func (s *Server) listNodes(r *request) (any, error) {
	out := wire.Nodes{Nodes: []wire.Node{}}
	var clocks map[compute.NodeID]time.Duration
	if s.cfg.Clocks != nil {
		clocks = s.cfg.Clocks(r.ctx)
	}
	for n := range r.view.Nodes() {
		shown := nodeOf(r.view.Show(n))
		if ahead, known := clocks[n.ID]; known {
			shown.ClockAhead = new(ahead.Milliseconds())
		}
		out.Nodes = append(out.Nodes, shown)
	}
	out.Count = len(out.Nodes)
	return out, nil
}

// nodeOf returns a node as an operator sees it.
func nodeOf(shown fsm.ShownNode) wire.Node {
	n := &shown.Node
	out := wire.Node{
		ID: n.ID, Name: n.Name, Role: n.Role, State: n.State, Drained: n.Drained,
		API: n.API, RPC: n.RPC, Gossip: n.Gossip, Metrics: n.Metrics, Version: n.Version,
		Format: n.KnownFormat(), JoinedAt: n.JoinedAt, ChangedAt: n.ChangedAt,
		VCPU: float64(n.VCPUMilli) / 1000, UsedVCPU: float64(n.UsedVCPUMilli) / 1000,
		MemoryMiB: n.MemoryMiB, UsedMemory: n.UsedMemoryMiB,
		LiveWork: shown.Live, Leaving: shown.Leaving, DrainBy: atOrNull(n.DrainBy), GPUs: make([]wire.GPU, len(n.GPUs)),
		InventoryAt: n.InventoryVersion,
	}
	for i, g := range n.GPUs {
		out.GPUs[i] = wire.GPU{
			ID: g.ID, Index: g.Index, Type: g.Type, Model: g.Model, VRAMMiB: g.VRAMMiB,
			PCIBus: g.PCIBus, MIG: g.MIG, Driver: g.Driver, Health: g.Health,
			Simulated: g.Simulated, UsedMilli: g.UsedMilli, Island: g.Island,
		}
		if g.Parent != "" {
			out.GPUs[i].Parent = &g.Parent
		}
	}
	return out
}

func (s *Server) drainNode(r *request) (any, error) {
	seconds := r.body.(*wire.NewDrain).Deadline
	return s.drain(r, true, time.Duration(seconds)*time.Second)
}

func (s *Server) undrainNode(r *request) (any, error) { return s.drain(r, false, 0) }

// nodeID returns the identifier of the node that the path names. There is such a
// node, unless this is a repeat.
func (r *request) nodeID() (compute.NodeID, error) {
	id, err := compute.ParseNodeID(r.params["id"])
	if err != nil {
		return id, errNotFound()
	}
	if _, ok := r.view.Node(id); !ok && !r.repeat {
		return id, errNotFound()
	}
	return id, nil
}

// drain stops or resumes the placing of new work on a node. What executes on a
// drained one is ended within a time, or never for 0. The answer is the node as
// it was then.
func (s *Server) drain(r *request, drained bool, within time.Duration) (any, error) {
	id, err := r.nodeID()
	if err != nil {
		return nil, err
	}
	result, err := s.proposeAndSee(r, fsm.DrainNode{
		Op: s.op(r), Actor: r.caller.actor, Node: id, Drained: drained, Within: within,
	})
	switch {
	case err != nil:
		return nil, err
	case result.Node != nil:
		return nodeOf(*result.Node), nil
	}
	n, ok := r.view.Node(id) // An older leader's decision says no more.
	if !ok {
		return nil, errNotFound()
	}
	return nodeOf(r.view.Show(n)), nil
}

// removeNode makes a node leave for good, unless the state could not change
// without it, or blobs might be lost with it.
func (s *Server) removeNode(r *request) (any, error) {
	done := wire.Message{Message: "The node is removed."}
	if id, err := compute.ParseNodeID(r.params["id"]); err == nil && r.view.RemovedNode(id) {
		return done, nil // By a request whose answer may have been lost.
	}
	id, err := r.nodeID()
	if err != nil {
		return nil, err
	}
	if s.cfg.CheckRemoval != nil {
		if err := s.cfg.CheckRemoval(r.ctx, id); err != nil {
			return nil, err
		}
	}
	remove := fsm.RemoveNode{Op: s.op(r), Actor: r.caller.actor, Node: id}
	if s.cfg.CheckCopies != nil && !r.query.(*wire.RemovalQuery).Force {
		if remove.Beside, err = s.cfg.CheckCopies(r.ctx, id); err != nil {
			return nil, err
		}
		if r.view.Allows(remove) != nil {
			remove.Beside = nil // The one that is too old may be the one to remove.
		}
	}
	if _, err := s.propose(r, remove); err != nil {
		return nil, err
	}
	return done, nil
}

// listPeers answers the Raft configuration.
func (s *Server) listPeers(r *request) (any, error) {
	if s.cfg.Peers == nil {
		return nil, compute.Errorf(compute.CodeUnavailable, "This node does not know the Raft configuration.")
	}
	peers, err := s.cfg.Peers(r.ctx)
	if err != nil {
		return nil, err
	}
	return wire.Peers{Peers: append([]wire.Peer{}, peers...), Count: len(peers)}, nil
}
