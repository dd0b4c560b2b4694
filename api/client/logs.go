package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"berth/api/wire"
	"berth/compute"
	berth "berth/sdk/go"
)

// LogQuery selects lines of output. A zero field selects as the API does by default.
type LogQuery struct {
	Limit  int // The newest so many lines.
	Hours  int // Written in the last so many hours.
	Level  string
	Search string
}

// values returns q as the parameters of a URL.
func (q LogQuery) values() url.Values {
	v := url.Values{}
	for name, n := range map[string]int{"limit": q.Limit, "hours": q.Hours} {
		if n > 0 {
			v.Set(name, strconv.Itoa(n))
		}
	}
	for name, text := range map[string]string{"level": q.Level, "search": q.Search} {
		if text != "" {
			v.Set(name, text)
		}
	}
	return v
}

// ExecutionLogs returns lines that an execution printed.
func (c *Client) ExecutionLogs(ctx context.Context, id compute.ExecutionID, q LogQuery) (wire.Logs, error) {
	var out wire.Logs
	err := c.Do(ctx, berth.Call{
		Method: http.MethodGet, Path: "/logs/execution/" + id.String(), Query: q.values(), Out: &out,
	})
	return out, err
}

// UserLogs returns lines that the caller's executions printed.
func (c *Client) UserLogs(ctx context.Context, q LogQuery) (wire.Logs, error) {
	var out wire.Logs
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/logs/user", Query: q.values(), Out: &out})
	return out, err
}
