package client

import (
	"context"
	"net/http"
	"time"

	"berth/compute"
)

// NewJoinToken is a request for a token with which machines may join.
type NewJoinToken struct {
	Role compute.Role
	TTL  time.Duration
	Uses int
}

// JoinToken is a token with which machines may join.
type JoinToken struct {
	ID        string       `json:"id"`
	Role      compute.Role `json:"role"`
	Uses      int          `json:"uses"`
	ExpiresAt time.Time    `json:"expires_at"`
	Token     string       `json:"token"` // The secret; shown once.
}

// NewUser is a request for a user with an organization.
type NewUser struct {
	Email    string `json:"email"`
	Password string `json:"password"`
	FullName string `json:"full_name,omitempty"`
	OrgName  string `json:"org_name,omitempty"`
	OrgSlug  string `json:"org_slug,omitempty"`
}

// User is a user as the operator sees it.
type User struct {
	UserID  string `json:"user_id"`
	Email   string `json:"email"`
	OrgID   string `json:"org_id"`
	OrgSlug string `json:"org_slug"`
}

// Node is a node as the operator sees it.
type Node struct {
	ID      compute.NodeID    `json:"id"`
	Name    string            `json:"name"`
	Role    compute.Role      `json:"role"`
	State   compute.NodeState `json:"state"`
	Drained bool              `json:"drained"`
	Leader  bool              `json:"leader"`
	Voter   bool              `json:"voter"`
	API     string            `json:"api"`
	RPC     string            `json:"rpc"`
	Gossip  string            `json:"gossip"`
	Metrics string            `json:"metrics"`
	Version string            `json:"version"`
	GPUs    []NodeGPU         `json:"gpus"`
}

// NodeGPU is one GPU of a node.
type NodeGPU struct {
	ID        compute.GPUID  `json:"id"`
	Type      string         `json:"type"`
	Model     string         `json:"model"`
	VRAMMiB   int64          `json:"vram_mib"`
	Health    compute.Health `json:"health"`
	Simulated bool           `json:"simulated"`
	UsedMilli int            `json:"used_milli"`
}

// Nodes is the cluster as the operator sees it.
type Nodes struct {
	ClusterID compute.UUID `json:"cluster_id"`
	Nodes     []Node       `json:"nodes"`
}

// CreateJoinToken makes a join token. It takes the root token.
func (c *Client) CreateJoinToken(ctx context.Context, token NewJoinToken) (JoinToken, error) {
	var out JoinToken
	err := c.do(ctx, call{
		method: http.MethodPost, path: "/admin/join-tokens", once: true, out: &out,
		body: map[string]any{
			"role": token.Role, "ttl_seconds": int(token.TTL.Seconds()), "uses": token.Uses,
		},
	})
	return out, err
}

// CreateUser makes a user with an organization. It takes the root token.
func (c *Client) CreateUser(ctx context.Context, user NewUser) (User, error) {
	var out User
	err := c.do(ctx, call{method: http.MethodPost, path: "/admin/users", body: user, out: &out})
	return out, err
}

// Nodes returns the nodes of the cluster. It takes the root token.
func (c *Client) Nodes(ctx context.Context) (Nodes, error) {
	var out Nodes
	err := c.do(ctx, call{method: http.MethodGet, path: "/admin/nodes", out: &out})
	return out, err
}

// Ready returns why no node is ready to serve, nil when one is.
func (c *Client) Ready(ctx context.Context) error {
	return c.do(ctx, call{method: http.MethodGet, path: "/readyz", full: true})
}
