package berth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
)

// heldFor is how long a node holds the answer about an execution that has not ended.
const heldFor = "30s"

// Terminal reports whether an execution with the status has ended.
func (s Status) Terminal() bool {
	ends := []Status{StatusCompleted, StatusFailed, StatusSystemFailure, StatusAborted, StatusCancelled}
	return slices.Contains(ends, s)
}

// Wait waits until an execution has ended, and returns its record.
func (c *Client) Wait(ctx context.Context, id string) (Execution, error) {
	for {
		e, err := c.Executions.GetExecution(ctx, id, ExecutionQuery{Wait: heldFor, Until: "end"})
		if err != nil || e.Status.Terminal() {
			return e, err
		}
	}
}

// ErrOutputMissing is the error of Run when the execution has ended and a part of its
// output is lost, such as with the node that had it.
var ErrOutputMissing = errors.New("output is missing")

// Run executes Python code, writes its output to stdout and stderr while it is printed,
// and returns the record once it has ended. When ctx ends, the execution goes on: its
// id is in the record, which then has little more.
func (c *Client) Run(ctx context.Context, start PythonStart, stdout, stderr io.Writer) (Execution, error) {
	started, err := c.Executions.StartPython(ctx, start)
	if err != nil {
		return Execution{}, err
	}
	var missing error
	known := Execution{ExecutionID: started.ExecutionID, Status: started.Status}
	for event, err := range c.Stream(ctx, started.ExecutionID, 0) {
		if err != nil {
			return known, err
		}
		if event.Finished != nil && event.Finished.Missing != "" {
			missing = fmt.Errorf("%w: %s", ErrOutputMissing, event.Finished.Missing)
		}
		to := stdout
		if event.Stderr {
			to = stderr
		}
		if _, err := io.WriteString(to, event.Content); err != nil {
			return known, err
		}
	}
	e, err := c.Wait(ctx, started.ExecutionID)
	if err != nil {
		return known, err
	}
	return e, missing
}

// Output writes a file that an execution left in its directory outputs to w, from an
// offset on. It returns how many bytes it has written, also with an error: a caller may
// go on from there.
func (c *Client) Output(ctx context.Context, id, name string, from int64, w io.Writer) (int64, error) {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return c.Fetch(ctx, "/execution/"+url.PathEscape(id)+"/outputs/"+strings.Join(parts, "/"), "", from, w)
}

// Upload stores a file in the organization's storage.
func (c *Client) Upload(ctx context.Context, f NewFile) (UploadedFile, error) {
	var out UploadedFile
	err := c.UploadInto(ctx, f, &out)
	return out, err
}

// Download writes a stored file to w, from an offset on, and returns how many bytes it
// has written. With a tag, only the file that has it is written.
func (c *Client) Download(ctx context.Context, key, tag string, from int64, w io.Writer) (int64, error) {
	return c.Fetch(ctx, "/storage/download/"+url.PathEscape(key), tag, from, w)
}
