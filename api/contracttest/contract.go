package contracttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// root is where the API is below its base URL.
const root = "/api/v2/external"

// Limits of a check.
const (
	pollEvery = 100 * time.Millisecond
	endWithin = 2 * time.Minute // For an execution that prints a word.
	maxAnswer = 16 << 20
)

// Config says whom to ask, and as whom.
type Config struct {
	BaseURL  string // URL of any node.
	Email    string
	Password string
	OrgSlug  string // An organization that the user administers.
	Client   *http.Client

	// Started is called with each execution that was started, where nothing
	// executes by itself. Nil for nothing.
	Started func(executionID string)
}

// Validate asks for everything that the specification shows and returns all
// that is not as it says. The user's credits pay for two small executions.
func Validate(ctx context.Context, cfg Config) error {
	v := &validator{cfg: cfg, ctx: ctx}
	for _, step := range []func(){
		v.login, v.keys, v.billing, v.start, v.selection, v.history, v.others, v.failures, v.models,
	} {
		if step(); len(v.faults) > 0 && v.access == "" {
			break // Without a credential nothing else means anything.
		}
	}
	return errors.Join(v.faults...)
}

// validator is one pass over the API.
type validator struct {
	cfg    Config
	ctx    context.Context //nolint:containedctx // Lives for one call of Validate.
	faults []error

	access string // The access token.
	key    string // An API key of the organization.
	ended  string // An execution that has ended.
}

// request is one request and what the specification says of its answer.
type request struct {
	method, path string
	bearer       string
	body         any
	header       map[string]string
	status       int // 200 when zero.
	shape        *shape
	array        bool // The answer is an array of the shape.
	absolute     bool // The path is not below root.
}

// fault records that something is not as the specification says.
func (v *validator) fault(format string, args ...any) {
	v.faults = append(v.faults, fmt.Errorf(format, args...))
}

// do makes a request, holds the answer against its shape and returns it.
func (v *validator) do(r request) any {
	where := r.method + " " + r.path
	status, contentType, data, err := v.exchange(r)
	if err != nil {
		v.fault("%s: %w", where, err)
		return nil
	}
	if want := max(r.status, http.StatusOK); status != want {
		v.fault("%s = %d %s, want %d", where, status, clip(data), want)
		return nil
	}
	if !strings.HasPrefix(contentType, "application/json") {
		v.fault("%s answers %q, want JSON", where, contentType)
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		v.fault("%s: %w in %s", where, err, clip(data))
		return nil
	}
	faults := r.shape.check
	if r.array {
		faults = func(value any) []error { return checkList(r.shape.name, value, r.shape) }
	}
	for _, err := range faults(value) {
		v.fault("%s: %w", where, err)
	}
	return value
}

// clip returns the beginning of an answer.
func clip(data []byte) []byte { return data[:min(len(data), 300)] }

// exchange sends a request and returns the answer.
func (v *validator) exchange(r request) (status int, contentType string, data []byte, err error) {
	var body io.Reader
	switch b := r.body.(type) {
	case nil:
	case string:
		body = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return 0, "", nil, err
		}
		body = bytes.NewReader(text)
	}
	path := root + r.path
	if r.absolute {
		path = r.path
	}
	req, err := http.NewRequestWithContext(v.ctx, r.method, v.cfg.BaseURL+path, body)
	if err != nil {
		return 0, "", nil, err
	}
	if r.bearer != "" {
		req.Header.Set("Authorization", "Bearer "+r.bearer)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	resp, err := v.cfg.Client.Do(req)
	if err != nil {
		return 0, "", nil, err
	}
	defer resp.Body.Close()
	data, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, resp.Header.Get("Content-Type"), data, err
}

// member returns the string that value, an object, has under name.
func member(value any, name string) string {
	members, _ := value.(map[string]any)
	s, _ := members[name].(string)
	return s
}

// login signs in and refreshes once.
func (v *validator) login() {
	first := v.do(request{
		method: "POST", path: "/auth/login", shape: loginResponse(),
		body: map[string]string{"email": v.cfg.Email, "password": v.cfg.Password},
	})
	second := v.do(request{
		method: "POST", path: "/auth/refresh", shape: loginResponse(),
		body: map[string]string{"refresh_token": member(first, "refresh_token")},
	})
	v.access = member(second, "access_token")
	if strings.Count(v.access, ".") != 2 {
		v.fault("the access token is not a JWT")
	}
	if member(first, "refresh_token") == member(second, "refresh_token") {
		v.fault("a refresh gives the same refresh token again")
	}
	v.do(request{
		method: "POST", path: "/auth/login", shape: failure(), status: http.StatusUnauthorized,
		body: map[string]string{"email": v.cfg.Email, "password": "x" + v.cfg.Password},
	})
}

// keys makes an API key, and checks that the list has it.
func (v *validator) keys() {
	path := "/orgs/" + v.cfg.OrgSlug + "/api-keys"
	made := v.do(request{
		method: "POST", path: path, bearer: v.access, shape: keyRecord(),
		body: map[string]string{"name": "contract", "expires_at": "2099-12-31T00:00:00Z"},
	})
	members, _ := made.(map[string]any)
	for _, value := range members {
		if s, ok := value.(string); ok && strings.HasPrefix(s, "lk_") && len(s) > len(v.key) {
			v.key = s
		}
	}
	if len(v.key) < 20 {
		v.fault("POST %s: the answer holds no key that begins with lk_", path)
	}
	for _, bearer := range []string{v.access, v.key} {
		listed := v.do(request{method: "GET", path: path, bearer: bearer, shape: keyRecord(), array: true})
		text, err := json.Marshal(listed)
		if err != nil || !strings.Contains(string(text), member(made, "id")) {
			v.fault("GET %s: the new key is not listed", path)
		}
		if v.key != "" && strings.Contains(string(text), v.key) {
			v.fault("GET %s: the list shows a key's value", path)
		}
	}
}

// billing asks for the credits.
func (v *validator) billing() {
	v.do(request{method: "GET", path: "/billing/credits", bearer: v.key, shape: anyObject()})
	details := v.do(request{method: "GET", path: "/billing/credits/details", bearer: v.key, shape: creditsDetails()})
	if got := member(details, "email"); got != v.cfg.Email {
		v.fault("credits details are of %q, want %q", got, v.cfg.Email)
	}
}

// start starts a Python execution and waits until it has ended.
func (v *validator) start() {
	answer := v.do(request{
		method: "POST", path: "/execution/streaming/start", bearer: v.key, shape: started(),
		body: map[string]any{
			"code": "print('contract')", "machine_type": "cpu",
			"user_callback_urls": []string{"https://example.com/done"},
		},
	})
	id := member(answer, "execution_id")
	if id == "" {
		return
	}
	if v.cfg.Started != nil {
		v.cfg.Started(id)
	}
	v.awaitEnd(id)
}

// selection starts a GPU selection with every field that is shown.
func (v *validator) selection() {
	answer := v.do(request{
		method: "POST", path: "/execution/gpu_selection/start", bearer: v.access, shape: selectionStarted(),
		body: map[string]any{
			"code": "print('contract')", "nbcode": 0, "timeout": 60, "requirements_content": "",
			"prior_imports": []string{"import os"}, "kernel_state": "",
			"import_files": `{"helper.py":"X = 1"}`, "file_name": "contract.py",
		},
	})
	if id := member(answer, "execution_id"); id != "" && v.cfg.Started != nil {
		v.cfg.Started(id)
	}
}

// terminal are the statuses at which an execution has ended.
func terminal() []string {
	return []string{"completed", "failed", "system_failure", "aborted", "cancelled"}
}

// awaitEnd waits until the history shows an execution as ended.
func (v *validator) awaitEnd(id string) {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	deadline := time.NewTimer(endWithin)
	defer deadline.Stop()
	for len(v.faults) == 0 {
		page := v.do(request{method: "GET", path: "/billing/history", bearer: v.key, shape: executionHistory()})
		for _, e := range executionsOf(page) {
			if member(e, "execution_id") == id && slices.Contains(terminal(), member(e, "status")) {
				v.ended = id
				return
			}
		}
		select {
		case <-ticker.C:
		case <-deadline.C:
			v.fault("execution %s has not ended after %s", id, endWithin)
		case <-v.ctx.Done():
			v.fault("execution %s has not ended: %w", id, v.ctx.Err())
		}
	}
}

// executionsOf returns the executions on a page of the history.
func executionsOf(page any) []any {
	members, _ := page.(map[string]any)
	executions, _ := members["executions"].([]any)
	return executions
}

// history asks for pages of the history.
func (v *validator) history() {
	for _, q := range []struct {
		query         string
		limit, offset float64
	}{
		{"", 50, 0}, {"?limit=1", 1, 0}, {"?limit=1&offset=1", 1, 1}, {"?offset=100000", 50, 100000},
	} {
		page, _ := v.do(request{
			method: "GET", path: "/billing/history" + q.query, bearer: v.access, shape: executionHistory(),
		}).(map[string]any)
		if page == nil {
			continue
		}
		if page["limit"] != q.limit || page["offset"] != q.offset {
			v.fault("history%s echoes limit %v and offset %v", q.query, page["limit"], page["offset"])
		}
		if n := len(executionsOf(page)); float64(n) > q.limit {
			v.fault("history%s has %d executions", q.query, n)
		}
	}
	if v.ended == "" {
		return
	}
	for _, e := range executionsOf(v.do(request{
		method: "GET", path: "/billing/history", bearer: v.key, shape: executionHistory(),
	})) {
		members, _ := e.(map[string]any)
		if member(e, "execution_id") == v.ended && members["billed"] == nil {
			v.fault("the bill of an execution that has ended is null")
		}
	}
}

// others asks for what the specification names without a shape.
func (v *validator) others() {
	for _, path := range []string{"/pricing", "/user/quotas"} {
		v.do(request{method: "GET", path: path, bearer: v.key, shape: anyObject()})
	}
	v.do(request{
		method: "GET", path: "/billing/credits", bearer: v.access, shape: anyObject(),
		header: map[string]string{"X-Org-Slug": v.cfg.OrgSlug},
	})
}

// failures makes requests that have to fail.
func (v *validator) failures() {
	malformed := http.StatusUnprocessableEntity
	for _, r := range []request{
		{method: "POST", path: "/auth/login", body: "{", shape: validationError(), status: malformed},
		{method: "POST", path: "/auth/login", body: map[string]any{}, shape: validationError(), status: malformed},
		{
			method: "POST", path: "/execution/gpu_selection/start", body: map[string]any{"timeout": "x"},
			shape: validationError(), status: malformed,
		},
		{
			method: "POST", path: "/execution/streaming/start", body: map[string]any{"code": 1},
			shape: validationError(), status: malformed,
		},
		{method: "GET", path: "/billing/history?limit=x", shape: validationError(), status: malformed},
		{method: "GET", path: "/billing/history?offset=-1", shape: validationError(), status: malformed},
		{method: "GET", path: "/orgs/no-such-organization/api-keys", shape: failure(), status: http.StatusNotFound},
	} {
		r.bearer = v.access
		v.do(r)
	}
	for _, path := range []string{
		"/billing/history", "/billing/credits", "/billing/credits/details", "/user/quotas", "/pricing",
		"/orgs/" + v.cfg.OrgSlug + "/api-keys",
	} {
		v.do(request{method: "GET", path: path, shape: failure(), status: http.StatusUnauthorized})
		v.do(request{method: "GET", path: path, bearer: v.key + "x", shape: failure(), status: http.StatusUnauthorized})
	}
	v.locations()
}

// locations holds that each fault says where it is in a way that the
// specification knows.
func (v *validator) locations() {
	answer, _ := v.do(request{
		method: "POST", path: "/execution/gpu_selection/start", bearer: v.access, body: map[string]any{},
		shape: validationError(), status: http.StatusUnprocessableEntity,
	}).(map[string]any)
	items, _ := answer["detail"].([]any)
	if len(items) == 0 {
		v.fault("a body without code has no fault")
	}
	for _, item := range items {
		members, _ := item.(map[string]any)
		loc, _ := members["loc"].([]any)
		if len(loc) == 0 {
			v.fault("loc is %v, want an array", members["loc"])
		}
		for _, part := range loc {
			switch part.(type) {
			case string, float64:
			default:
				v.fault("loc holds %v, want strings and integers", part)
			}
		}
	}
}
