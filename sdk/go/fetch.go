package berth

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// Fetch writes the file at a path below /api/v2/external to w, from an offset on. It
// returns how many bytes it has written, also with an error: a caller may go on from
// there. With a tag, only the file that has it is fetched.
func (c *Client) Fetch(ctx context.Context, path, tag string, from int64, w io.Writer) (int64, error) {
	tries := c.newTries()
	var written int64
	for {
		n, retry, err := c.tryFetch(ctx, tries.addr()+apiRoot+path, tag, from+written, w)
		written += n
		if err == nil || !retry || ctx.Err() != nil {
			return written, err
		}
		if n > 0 {
			tries.succeeded()
		}
		if !tries.next(ctx, err) {
			return written, err
		}
	}
}

// tryFetch reads a file from an offset on at one address.
func (c *Client) tryFetch(
	ctx context.Context, target, tag string, from int64, w io.Writer,
) (n int64, retry bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return 0, false, fmt.Errorf("make request: %w", err)
	}
	c.identify(req.Header)
	if from > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	if tag != "" {
		req.Header.Set("If-Match", `"`+tag+`"`)
	}
	resp, err := c.cfg.HTTP.Do(req)
	if err != nil {
		return 0, true, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusOK && from > 0:
		if _, err := io.CopyN(io.Discard, resp.Body, from); err != nil {
			return 0, true, err
		}
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent:
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
		if err != nil {
			return 0, true, err
		}
		refusal := errorOf(resp.StatusCode, resp.Header, body)
		return 0, refusal.temporary(), refusal
	}
	out := &countingWriter{w: w}
	_, err = io.Copy(out, resp.Body)
	return out.n, err != nil && out.err == nil, err
}

// countingWriter counts what it passes on, and keeps the error of its writer.
type countingWriter struct {
	w   io.Writer
	n   int64
	err error
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n, c.err = c.n+int64(n), err
	return n, err
}
