package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/compute"
)

// operation is one method of one path, as the server's own document has it.
type operation struct {
	method, path string
	secured      bool
	hasBody      bool
}

// operations returns what the server says that it serves.
func (w *world) operations() []operation {
	w.Helper()
	var document struct {
		Paths map[string]map[string]struct {
			Security    []any `json:"security"`
			RequestBody any   `json:"requestBody"`
		} `json:"paths"`
	}
	w.ok(json.Unmarshal(w.mustDo("GET", "/openapi.json", "", nil, nil).body, &document))
	var out []operation
	for path, methods := range document.Paths {
		for method, op := range methods {
			out = append(out, operation{
				strings.ToUpper(method), strings.TrimPrefix(path, root), op.Security != nil, op.RequestBody != nil,
			})
		}
	}
	slices.SortFunc(out, func(a, b operation) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	return out
}

// TestNobodyElsesObjects makes every request that names an object with every
// credential that is not its owner's.
func TestNobodyElsesObjects(t *testing.T) {
	w := newWorld(t)
	expired := w.login("ada").AccessToken
	w.pass(time.Hour)
	strangers := map[string]struct {
		bearer string
		status int
	}{
		"another organization's key":   {w.bobKey, http.StatusNotFound},
		"another organization's token": {w.login("bob").AccessToken, http.StatusNotFound},
		"nobody":                       {"", http.StatusUnauthorized},
		"expired token":                {expired, http.StatusUnauthorized},
		"revoked key":                  {w.revokedKey(), http.StatusUnauthorized},
		"root token":                   {rootToken, http.StatusUnauthorized},
	}
	mine := w.objects()
	cells := 0
	for _, op := range w.operations() {
		paths := mine.fill(op.path)
		for _, path := range paths {
			for name, who := range strangers {
				want := who.status
				if strings.HasPrefix(op.path, "/admin/") {
					want = adminStatus(name)
				}
				var body any
				if op.hasBody {
					body = map[string]any{"name": "x"}
				}
				a := w.send(op.method, path, who.bearer, body)
				if want != 0 && a.status != want {
					t.Errorf("%s %s as %s = %d %s, want %d", op.method, path, name, a.status, a.body, want)
				}
				cells++
			}
		}
	}
	if cells < 100 {
		t.Errorf("only %d cells", cells)
	}
	t.Logf("%d cells", cells)
	w.unharmed(mine)
}

// adminStatus returns what an operator's endpoint answers a stranger; 0 where
// the stranger is one of its users.
func adminStatus(name string) int {
	switch name {
	case "root token":
		return 0
	case "another organization's key", "another organization's token":
		return http.StatusForbidden
	}
	return http.StatusUnauthorized
}

// TestEveryRouteAsksWho makes every request without a credential.
func TestEveryRouteAsksWho(t *testing.T) {
	w := newWorld(t)
	open := []string{
		"/auth/login", "/auth/refresh", "/auth/logout", "/health/ping", "/health/version",
		"/livez", "/readyz", "/healthz", "/metrics", "/metrics/targets", "/openapi.json",
	}
	for _, op := range w.operations() {
		path := strings.NewReplacer("{id}", uuidText(9), "{slug}", "ada-lab").Replace(op.path)
		a := w.send(op.method, path, "", nil)
		if isOpen := slices.Contains(open, op.path); isOpen == op.secured || (a.status == 401) == isOpen {
			t.Errorf("%s %s = %d without a credential", op.method, op.path, a.status)
		}
	}
}

// objects are things of ada's that others must not reach.
type objects struct {
	executions []compute.ExecutionID // Live, ended, a GPU selection.
	key        string
}

func (w *world) objects() objects {
	w.Helper()
	ended := w.start("cpu")
	w.complete(ended, 1, time.Second)
	parent, _ := w.selected()
	return objects{[]compute.ExecutionID{w.start("cpu"), ended, parent}, w.adaKeyID}
}

// fill returns the paths that a template makes of the objects, none when it
// names no object.
func (o objects) fill(template string) []string {
	if !strings.Contains(template, "{") {
		return nil
	}
	path := strings.ReplaceAll(template, "{slug}", "ada-lab")
	switch {
	case strings.Contains(template, "api-keys"):
		return []string{strings.ReplaceAll(path, "{id}", o.key)}
	case strings.Contains(template, "/admin/nodes/"):
		return []string{strings.ReplaceAll(path, "{id}", nodeID(9).String())}
	}
	var out []string
	for _, id := range o.executions {
		out = append(out, strings.ReplaceAll(path, "{id}", id.String()))
	}
	return out
}

// revokedKey returns a key of ada's that is dead.
func (w *world) revokedKey() string {
	w.Helper()
	fields := decodeObject(w, w.mustDo("POST", "/orgs/ada-lab/api-keys", w.adaKey, map[string]any{"name": "r"}, nil).body)
	w.mustDo("DELETE", fmt.Sprintf("/orgs/ada-lab/api-keys/%s", fields["id"]), w.adaKey, nil, nil)
	return fields["plaintext_key"].(string)
}

// unharmed fails if somebody changed ada's objects.
func (w *world) unharmed(o objects) {
	w.Helper()
	want := []compute.Status{compute.StatusQueued, compute.StatusCompleted, compute.StatusRunning}
	for i, id := range o.executions {
		e, ok := w.machine.View().AnyExecution(id)
		if !ok || (e.Status != want[i] && e.Kind != compute.KindSelection) || e.Stop != compute.StopNone {
			w.Errorf("execution %d is %+v", i, e)
		}
	}
	w.mustDo("GET", "/user/status", w.adaKey, nil, nil)
}
