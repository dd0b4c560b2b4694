package load

import (
	"fmt"
	"slices"
	"time"

	"github.com/valyala/fasthttp"
)

// request is a request that is sent over and over, and the answers that it accepts.
type request struct {
	method, path, token, body string

	wants []int
	op    string // Its Idempotency-Key, unless it is empty.
}

// asker sends requests. It does little for each, because clients share the processors
// with the nodes that are measured; users' clients do not.
type asker struct{ http fasthttp.Client }

// newAsker returns an asker for so many clients at once.
func newAsker(clients int) *asker {
	const patience = time.Minute
	return &asker{fasthttp.Client{
		MaxConnsPerHost: clients, ReadTimeout: patience, WriteTimeout: patience, MaxIdleConnDuration: patience,
		NoDefaultUserAgentHeader: true, DisablePathNormalizing: true,
		MaxIdemponentCallAttempts: 1, // A connection that breaks is an error.
	}}
}

func (a *asker) close() { a.http.CloseIdleConnections() }

// ask sends a request to a server and reads the answer to its end.
func (a *asker) ask(url string, r request) error {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI(url + r.path)
	req.Header.SetMethod(r.method)
	req.Header.Set("Authorization", "Bearer "+r.token)
	if r.op != "" {
		req.Header.Set("Idempotency-Key", r.op)
	}
	if r.body != "" {
		req.Header.SetContentType("application/json")
		req.SetBodyString(r.body)
	}
	if err := a.http.Do(req, resp); err != nil {
		return err
	}
	if !slices.Contains(r.wants, resp.StatusCode()) {
		return fmt.Errorf("answered %d: %.200s", resp.StatusCode(), resp.Body())
	}
	return nil
}
