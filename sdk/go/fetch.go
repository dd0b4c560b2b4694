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
	return c.FetchPart(ctx, path, tag, from, -1, w)
}

// FetchPart is Fetch of so many bytes; a negative number is all to the end.
func (c *Client) FetchPart(ctx context.Context, path, tag string, from, length int64, w io.Writer) (int64, error) {
	tries := c.newTries()
	var written int64
	for {
		part := byteRange{from: from + written}
		if length >= 0 {
			if part.end = from + length; part.end == part.from {
				return written, nil
			}
		}
		n, retry, err := c.tryFetch(ctx, tries.addr()+apiRoot+path, tag, part, w)
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

// byteRange is a part of a file; an end of 0 is the file's.
type byteRange struct{ from, end int64 }

func (b byteRange) String() string {
	if b.end == 0 {
		return fmt.Sprintf("bytes=%d-", b.from)
	}
	return fmt.Sprintf("bytes=%d-%d", b.from, b.end-1)
}

// tryFetch reads a part of a file at one address.
func (c *Client) tryFetch(
	ctx context.Context, target, tag string, part byteRange, w io.Writer,
) (n int64, retry bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return 0, false, fmt.Errorf("make request: %w", err)
	}
	c.identify(req.Header)
	if part != (byteRange{}) {
		req.Header.Set("Range", part.String())
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
	case resp.StatusCode == http.StatusOK && part.end > 0:
		return 0, false, fmt.Errorf("the node sends all of a file that was asked for a part of it")
	case resp.StatusCode == http.StatusOK && part.from > 0:
		if _, err := io.CopyN(io.Discard, resp.Body, part.from); err != nil {
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
	if want := part.end - part.from; err == nil && part.end > 0 && out.n != want {
		return out.n, true, fmt.Errorf("%d of %d bytes came", out.n, want)
	}
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
