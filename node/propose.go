package node

import (
	"context"

	"berth/cluster"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// proposer proposes typed commands to the cluster. It holds the node because
// the cluster itself, while it is opened, is handed a Registry that proposes.
type proposer struct{ node *Node }

// Propose returns the decision of the state about cmd and its Raft index. A
// refusal comes back as the error, with its code. A command that some server of
// the cluster could not apply is never proposed.
func (p proposer) Propose(ctx context.Context, cmd command.Command) (command.Result, uint64, error) {
	if err := allows(ctx, p.node.machine.View(), p.node.reader().Read, cmd); err != nil {
		return command.Result{}, 0, err
	}
	return command.Propose(ctx, p.node.cluster, cmd)
}

// allows returns the reason for which cmd may not be proposed. A view that is behind, as
// after a start, may have an earlier format than the cluster, so it refuses nothing: the
// newest one does.
func allows(
	ctx context.Context, seen *fsm.View, newest func(context.Context) (*fsm.View, error), cmd command.Command,
) error {
	err := seen.Allows(cmd)
	if err == nil {
		return nil
	}
	view, unread := newest(ctx)
	if unread != nil {
		return unread
	}
	return view.Allows(cmd)
}

// do proposes cmd and returns only the index and the error.
func (p proposer) do(ctx context.Context, cmd command.Command) (uint64, error) {
	_, index, err := p.Propose(ctx, cmd)
	return index, err
}

// registry admits nodes to the cluster by a command that consumes their token.
type registry struct{ proposer }

// Admit records the node that asks to join, or refuses it.
func (r registry) Admit(ctx context.Context, a cluster.Admission) error {
	cmd := command.RegisterNode{Node: a.Node, TokenID: a.TokenID, TokenHash: a.SecretHash, Key: a.Key}
	if err := r.node.machine.View().CheckToken(cmd); err != nil {
		return err
	}
	if r.node.machine.View().Allows(cmd) != nil {
		cmd.Key = compute.Hash{} // A server knows no keys yet.
	}
	_, err := r.do(ctx, cmd)
	return err
}

// directory gives the cluster the records of its members.
type directory struct{ machine *fsm.FSM }

// Node returns the role of a member, and whether the node was removed.
func (d directory) Node(id compute.NodeID) (role compute.Role, removed, known bool) {
	view := d.machine.View()
	if n, ok := view.Node(id); ok {
		return n.Role, false, true
	}
	return 0, view.RemovedNode(id), false
}

// Address returns the address in a member's record.
func (d directory) Address(id compute.NodeID) string {
	if n, ok := d.machine.View().Node(id); ok {
		return n.RPC
	}
	return ""
}
