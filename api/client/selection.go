package client

import (
	"context"
	"net/http"

	"berth/compute"
)

// Selection is what a GPU selection has found so far.
type Selection struct {
	ExecutionID    compute.ExecutionID `json:"execution_id"`
	Status         compute.Status      `json:"status"`
	Objective      compute.Objective   `json:"objective"`
	Pareto         []string            `json:"pareto"` // Hardware profiles.
	Rows           []Candidate         `json:"rows"`
	Recommendation *string             `json:"recommendation"` // A hardware profile.
	Reason         string              `json:"reason"`
}

// Candidate is one GPU type's run of a GPU selection.
type Candidate struct {
	ExecutionID     compute.ExecutionID `json:"execution_id"`
	HardwareProfile string              `json:"hardware_profile"`
	Status          compute.Status      `json:"status"`
	StatusDetails   *string             `json:"status_details"`
	Node            *string             `json:"node"`
	DurationS       *float64            `json:"duration_s"`
	Credits         *compute.Credits    `json:"credits"`
	Score           *float64            `json:"score"`
	ReturnCode      *int                `json:"return_code"`
}

// SubmitSelection starts a GPU selection.
func (c *Client) SubmitSelection(ctx context.Context, start StartSelection) (Started, error) {
	var out Started
	err := c.do(ctx, call{method: http.MethodPost, path: "/execution/gpu_selection/start", body: start, out: &out})
	return out, err
}

// Selection returns what the GPU selection has found so far.
func (c *Client) Selection(ctx context.Context, id compute.ExecutionID) (Selection, error) {
	var out Selection
	err := c.do(ctx, call{method: http.MethodGet, path: "/execution/gpu_selection/" + id.String(), out: &out})
	return out, err
}
