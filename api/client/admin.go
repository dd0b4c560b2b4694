package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"berth/api/wire"
	"berth/compute"
	berth "berth/sdk/go"
)

// CreateJoinToken makes a token with which machines may join; its text is in
// this answer only. As all calls under /admin it takes the root token, or an
// operator's.
func (c *Client) CreateJoinToken(ctx context.Context, token wire.NewJoinToken) (wire.JoinToken, error) {
	var out wire.JoinToken
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/admin/join-tokens", Once: true, Body: token, Out: &out})
	return out, err
}

// Nodes returns the nodes of the cluster.
func (c *Client) Nodes(ctx context.Context) ([]wire.Node, error) {
	return pagesOf(ctx, c, "/admin/nodes", func(page *wire.Nodes) []wire.Node { return page.Nodes })
}

// DrainNode stops new work from being placed on a node, or, with drained false,
// allows it again. Work that is already there continues.
func (c *Client) DrainNode(ctx context.Context, id compute.NodeID, drained bool) (wire.Node, error) {
	verb := "drain"
	if !drained {
		verb = "undrain"
	}
	var out wire.Node
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: nodePath(id) + "/" + verb, Out: &out})
	return out, err
}

// DrainNodeWithin stops new work from being placed on a node, and moves
// executions that may restart elsewhere at once. After a time in whole seconds
// it ends the others.
func (c *Client) DrainNodeWithin(ctx context.Context, id compute.NodeID, within time.Duration) (wire.Node, error) {
	var out wire.Node
	err := c.Do(ctx, berth.Call{
		Method: http.MethodPost, Path: nodePath(id) + "/drain", Out: &out,
		Body: wire.NewDrain{Deadline: int(within.Seconds())},
	})
	return out, err
}

// RemoveNode removes a node that executes nothing, for good. It is refused
// while too few voters would answer without it, and while other servers lack
// what it may have.
func (c *Client) RemoveNode(ctx context.Context, id compute.NodeID) error {
	return c.Do(ctx, berth.Call{Method: http.MethodDelete, Path: nodePath(id)})
}

// ForceRemoveNode removes a node as RemoveNode does, even while other servers
// lack what it may have alone: that is lost then.
func (c *Client) ForceRemoveNode(ctx context.Context, id compute.NodeID) error {
	return c.Do(ctx, berth.Call{Method: http.MethodDelete, Path: nodePath(id), Query: url.Values{"force": {"true"}}})
}

func nodePath(id compute.NodeID) string { return "/admin/nodes/" + id.String() }

// Brake returns whether too many nodes have vanished at once for any attempt to
// be given up, and which.
func (c *Client) Brake(ctx context.Context) (wire.Brake, error) {
	var out wire.Brake
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: brakePath, Out: &out})
	return out, err
}

// SetBrakeShare says that more than so many of a hundred nodes that vanish at
// once are too many to be given up: 0 is a third, 100 never.
func (c *Client) SetBrakeShare(ctx context.Context, percent int) (wire.Brake, error) {
	return c.setBrake(ctx, map[string]any{"share_percent": percent})
}

// ReleaseBrake says that the nodes which have vanished by now are gone indeed.
func (c *Client) ReleaseBrake(ctx context.Context) (wire.Brake, error) {
	return c.setBrake(ctx, map[string]any{"release": true})
}

func (c *Client) setBrake(ctx context.Context, change map[string]any) (wire.Brake, error) {
	var out wire.Brake
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: brakePath, Body: change, Out: &out})
	return out, err
}

const brakePath = "/admin/brake"

// SetQuota replaces what an organization, one of its keys or one of its tags is
// granted, and returns all that the organization is.
func (c *Client) SetQuota(ctx context.Context, quota wire.NewQuota) (wire.OrgQuotas, error) {
	var out wire.OrgQuotas
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/admin/quotas", Body: quota, Out: &out})
	return out, err
}

// OrgQuotas returns the quotas of the organization with a slug, of its keys and
// of its tags, and their use.
func (c *Client) OrgQuotas(ctx context.Context, slug string) (wire.OrgQuotas, error) {
	var out wire.OrgQuotas
	err := c.Do(ctx, berth.Call{
		Method: http.MethodGet, Path: "/admin/quotas", Query: url.Values{"org": {slug}}, Out: &out,
	})
	return out, err
}

// Peers returns the members of the Raft configuration, and which one leads.
func (c *Client) Peers(ctx context.Context) ([]wire.Peer, error) {
	var out wire.Peers
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/admin/raft/peers", Out: &out})
	return out.Peers, err
}

// TransferLeadership has another server lead, the one that has kept up best for
// a zero id, and returns which. It is not repeated: each process hands
// leadership over once.
func (c *Client) TransferLeadership(ctx context.Context, to compute.NodeID) (wire.Transfer, error) {
	var in wire.NewTransfer
	if !to.IsZero() {
		in.To = to.String()
	}
	var out wire.Transfer
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/admin/raft/transfer", Once: true, Body: in, Out: &out})
	return out, err
}

// State returns the state of the replica on the node that answers. With check
// the node first checks every invariant.
func (c *Client) State(ctx context.Context, check bool) (wire.State, error) {
	query := url.Values{}
	if check {
		query.Set("check", "true")
	}
	var out wire.State
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/admin/state", Query: query, Out: &out, Wait: historyWait})
	return out, err
}

// historyWait is how long a node may take to apply its log again.
const historyWait = 2 * time.Minute

// Replay returns the plans in the entry with a Raft index, computed again, with
// so many of the best nodes for each execution.
func (c *Client) Replay(ctx context.Context, index uint64, top int) (wire.Replay, error) {
	var out wire.Replay
	err := c.Do(ctx, berth.Call{
		Method: http.MethodGet, Path: "/admin/replay", Out: &out, Wait: historyWait,
		Query: url.Values{"index": {strconv.FormatUint(index, 10)}, "top": {strconv.Itoa(top)}},
	})
	return out, err
}

// WhatIf returns how the scheduler would place the queue on other nodes.
func (c *Client) WhatIf(ctx context.Context, question wire.WhatIf) (wire.WhatIfAnswer, error) {
	var out wire.WhatIfAnswer
	err := c.Do(ctx, berth.Call{
		Method: http.MethodPost, Path: "/admin/whatif", Body: question, Out: &out, Wait: historyWait,
	})
	return out, err
}

// Ready returns why no node is ready to serve, nil when one is.
func (c *Client) Ready(ctx context.Context) error {
	return c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/readyz", Full: true})
}
