package client

import (
	"context"
	"io"
	"iter"

	"berth/compute"
	berth "berth/sdk/go"
)

// The calls of this package share these with those of every other program in Go.
type (
	// Config has the settings of a Client.
	Config = berth.Config
	// Error is an answer of the API that refuses a call.
	Error = berth.Error
	// Fault is one thing wrong with a request.
	Fault = berth.Fault
	// UnreachableError is the error of a call when no address has ever answered.
	UnreachableError = berth.UnreachableError
	// Event is one event of the stream of an execution.
	Event = berth.Event
	// Finished is how the stream says that the execution has ended.
	Finished = berth.Finished
	// NewFile is a file to be stored.
	NewFile = berth.NewFile
)

// Client calls the API of one cluster, with the types of the server.
type Client struct{ *berth.Client }

// New returns a Client for cfg. It makes no connection.
func New(cfg Config) (*Client, error) {
	c, err := berth.New(cfg)
	if err != nil {
		return nil, err
	}
	return &Client{c}, nil
}

// WithToken returns a Client that sends token as bearer and shares everything
// else with c.
func (c *Client) WithToken(token string) *Client { return &Client{c.Client.WithToken(token)} }

// CodeOf returns the stable name that err carries, "" when it is not an answer of
// the API.
func CodeOf(err error) string { return berth.CodeOf(err) }

// Stream yields the events of an execution in order, beginning behind sequence
// number after, as the stream of package berth does.
func (c *Client) Stream(ctx context.Context, id compute.ExecutionID, after uint64) iter.Seq2[Event, error] {
	return c.Client.Stream(ctx, id.String(), after)
}

// SaveSnapshot writes a backup of the state to w: everything that was
// acknowledged before the call, by whichever node serves it. An answer that was
// cut is not an error here: the backup's own end shows it.
func (c *Client) SaveSnapshot(ctx context.Context, w io.Writer) error {
	return c.Save(ctx, "/admin/raft/snapshot", w)
}
