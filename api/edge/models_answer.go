package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"berth/api/edge/connection"
	"berth/api/edge/openai"
	"berth/api/wire"
)

// writeModelAnswer passes the answer of an engine on as the client reads it.
func (c *modelCall) writeModelAnswer(answer *http.Response, end func()) {
	h := &c.ctx.Response
	kind := answer.Header.Get("Content-Type")
	h.Header.SetNoDefaultContentType(true)
	h.Header.Set("Content-Type", kind)
	c.writeHeaders(c.ctx, c.r)
	if after := engineRetryAfter(answer); after != "" {
		h.Header.Set("Retry-After", after)
	}
	c.ctx.SetStatusCode(answer.StatusCode)
	openai.EndWithEvent(answer)
	// The header is sent with the first whole line, most of which has come: apart it would wake the client twice.
	h.SetBodyStream(&connection.AnswerBody{From: answer.Body, Conn: c.ctx.Conn(), End: end}, int(answer.ContentLength))
	c.observe(c.r, c.r.route.Method, answer.StatusCode, c.took(c.r))
	c.observeModel(answer.StatusCode)
}

// engineRetryAfter returns in how many seconds a busy engine wants the request again, "" if it
// does not say.
func engineRetryAfter(answer *http.Response) string {
	if answer.StatusCode != http.StatusTooManyRequests && answer.StatusCode != http.StatusServiceUnavailable {
		return ""
	}
	seconds, err := strconv.ParseUint(answer.Header.Get("Retry-After"), 10, 31)
	if err != nil {
		return ""
	}
	return strconv.FormatUint(seconds, 10)
}

// writePublished passes on the answer to a request to a published model.
func (c *modelCall) writePublished(ctx context.Context, answer *http.Response, end func()) error {
	a := openai.NewPublishedAnswer(
		ctx, answer.Body, c.model.ID, c.published.ID, c.reserved, c.size, c.most.Completion, c.observeTokens,
	)
	a.AtMost(c.most.Prompt)
	if answer.StatusCode >= http.StatusBadRequest {
		a.Fail()
	}
	if strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		answer.Body = a
		answer.ContentLength = -1
		c.writeModelAnswer(answer, end)
		return nil
	}
	hold, passed := c.answerHold(c.r), false
	defer func() {
		if !passed {
			hold.Shrink(0)
		}
	}()
	data, err := a.Whole(&hold)
	a.Close()
	if err != nil {
		c.left = c.hungUp(ctx, err)
		end()
		return err
	}
	hold.Shrink(len(data))
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	c.writeModelAnswer(answer, func() {
		hold.Shrink(0)
		end()
	})
	passed = true
	return nil
}

// statusClientLeft is the status by which a request is counted whose client did not wait for
// the answer. Others use it too; no client sees it.
const statusClientLeft = 499

// failModel answers an error in the envelope of OpenAI.
func (c *modelCall) failModel(err error) {
	f := failureOf(err)
	switch {
	case openai.IsTimeout(err):
		f.status, f.retryAfter = fasthttp.StatusGatewayTimeout, ""
	case c.left:
		f.status, f.retryAfter = statusClientLeft, ""
	}
	if f.status >= fasthttp.StatusInternalServerError {
		c.logFailure(c.r, f.status, err)
	}
	type fault struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	}
	out := fault{Message: "Internal error.", Type: "invalid_request_error", Code: "internal_error"}
	if e, ok := f.body.(wire.Error); ok {
		out.Message, out.Code = e.Detail, e.Code
	}
	switch {
	case f.status == fasthttp.StatusUnauthorized:
		out.Type, out.Code = "authentication_error", "invalid_api_key"
	case f.status == fasthttp.StatusTooManyRequests:
		out.Type = "rate_limit_error"
	case f.status >= fasthttp.StatusInternalServerError:
		out.Type = "server_error"
	case out.Code == "model_not_found":
		model := "model"
		out.Param = &model
	}
	data, encodeErr := json.Marshal(map[string]any{"error": out})
	if encodeErr != nil {
		data = []byte(`{"error":{"message":"Internal error.","type":"server_error","param":null,"code":null}}`)
	}
	h := &c.ctx.Response
	c.writeHeaders(c.ctx, c.r)
	if f.retryAfter != "" {
		h.Header.Set("Retry-After", f.retryAfter)
	}
	c.ctx.SetStatusCode(f.status)
	c.ctx.SetContentType("application/json")
	h.SetBodyRaw(data)
	c.observe(c.r, c.r.route.Method, f.status, c.took(c.r))
	c.observeModel(f.status)
}
