package berth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// saveIdle is how long a node may take between two pieces of an answer.
const saveIdle = time.Minute

// errIdle ends a download that carries nothing any more.
var errIdle = errors.New("the node went silent")

// Save writes the answer of a GET of a path below /api/v2/external to w, however long
// it is. Another node is tried until the first byte has come. An answer that was cut
// is no error here: its own end has to show it.
func (c *Client) Save(ctx context.Context, path string, w io.Writer) error {
	tries := c.newTries()
	for {
		began, retry, err := c.save(ctx, tries.addr(), path, w)
		if err == nil {
			return nil
		}
		if began || !retry || ctx.Err() != nil || !tries.next(ctx, err) {
			return fmt.Errorf("GET %s: %w", path, c.unreachable(err))
		}
	}
}

// save copies the answer of one node to w. It reports whether any of it came, and
// whether another try may help.
func (c *Client) save(ctx context.Context, addr, path string, w io.Writer) (began, retry bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alarm := time.AfterFunc(saveIdle, func() { cancel(errIdle) })
	defer alarm.Stop()
	req, err := c.request(ctx, addr, &Call{Method: http.MethodGet, Path: path})
	if err != nil {
		return false, false, err
	}
	resp, err := c.cfg.HTTP.Do(req)
	if err != nil {
		return false, true, err
	}
	c.contact.made.Store(true)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
		if err != nil {
			return false, true, err
		}
		return false, temporary(resp.StatusCode), errorOf(resp.StatusCode, resp.Header, body)
	}
	n, err := io.Copy(w, &watched{resp.Body, func() { alarm.Reset(saveIdle) }})
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return n > 0, true, err
}

// watched calls alive for each piece that was read.
type watched struct {
	r     io.Reader
	alive func()
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	w.alive()
	return n, err
}
