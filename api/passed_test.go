package api_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"berth/api"
	"berth/api/edge"
	"berth/api/wire"
	"berth/compute"
)

// canaryOfCyd is in what only cyd's organization may see.
const canaryOfCyd = "canary-of-cyd"

// allMethods are the methods that a path is asked with.
func allMethods() []string {
	return []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
}

// takes reports whether a path has a method.
func takes(row edge.Passed, method string) bool {
	read := method == http.MethodHead && slices.Contains(row.Methods, http.MethodGet)
	return row.Methods == nil || read || slices.Contains(row.Methods, method)
}

// passedStatus returns the status that a path which takes a bearer gives to a credential.
func passedStatus(row edge.Passed, method string, is access) int {
	switch {
	case row.Model() && method == http.MethodOptions:
		return http.StatusOK // Which methods there are is no secret.
	case is == accessNone || is == accessRoot || is == accessScraper || is == accessStream:
		return http.StatusUnauthorized
	case row.Model() && is == accessWrongOrg:
		return http.StatusForbidden
	case !takes(row, method):
		return http.StatusMethodNotAllowed
	case is == accessMember || row.Path == "/models":
		return http.StatusOK
	}
	return http.StatusNotFound
}

// passedRequest returns the path and the body of a request about an execution.
func passedRequest(row edge.Passed, method, id string) (path string, body []byte) {
	path = row.Root + strings.NewReplacer("{id}", id, "{model}", id, "{rest}", "a/b").Replace(row.Path)
	if method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions {
		body = []byte(`{"model":"` + id + `","prompt":"x","input":"x","messages":[{"role":"user","content":"x"}],"max_tokens":2}`)
	}
	return path, body
}

// TestPassedOnRequests makes every request that is passed on to an engine or a program with every
// credential and every method, on a server and a worker. The row of its path says what is answered.
// Refused requests reach nobody, and another organization's deployment or service answers as one
// that does not exist.
func TestPassedOnRequests(t *testing.T) {
	p := newPassing(t)
	all := p.credentials()
	deployment, service := p.submit("deployment"), p.submit("service")
	cells := 0
	for name, node := range map[string]*world{"server": p.world, "worker": p.worker} {
		for _, row := range edge.PassedOn() {
			if row.Signed {
				continue
			}
			id := service
			if row.Model() {
				id = deployment
			}
			for _, method := range allMethods() {
				for _, who := range all {
					cells++
					where := name + " " + method + " " + row.Root + row.Path + " as " + who.name
					before, writes := p.replicas.times(id), p.proposals()
					got := p.pass(node, row, method, id.String(), who)
					want := passedStatus(row, method, who.is)
					if got.status != want {
						p.leaks++
						t.Errorf("%s: %d %s, want %d", where, got.status, got.body, want)
					}
					if who.is == accessMember {
						continue
					}
					if p.replicas.times(id) != before || p.proposals() != writes || bytes.Contains(got.body, []byte(canaryOfCyd)) ||
						row.Path == "/models" && bytes.Contains(got.body, []byte(id.String())) {
						p.leaks++
						t.Errorf("%s: it reaches the replicas, writes or shows something: %s", where, got.body)
					}
					if want == http.StatusNotFound {
						none := p.pass(node, row, method, uuidText(9), who)
						none.body = bytes.ReplaceAll(none.body, []byte(uuidText(9)), []byte(id.String()))
						p.alike(t, who, got, none)
					}
				}
			}
		}
	}
	if p.replicas.times(deployment) == 0 || p.replicas.times(service) == 0 {
		t.Error("no request of a member has reached a replica")
	}
	t.Logf("measured: %d requests that are passed on to engines and programs, on a server and a worker: %d leaks", cells, p.leaks)
}

// TestPassedOnScopes makes the requests that are passed on with keys of each scope.
func TestPassedOnScopes(t *testing.T) {
	p := newPassing(t)
	deployment, service := p.submit("deployment").String(), p.submit("service").String()
	for _, scope := range compute.Scopes() {
		var key wire.MintedKey
		p.mustDo("POST", "/orgs/cyd-lab/api-keys", p.cydKey, map[string]any{"name": "x", "scopes": []compute.Scope{scope}}, &key)
		for _, row := range edge.PassedOn() {
			if row.Signed {
				continue // A key without the scope gets no credentials of S3.
			}
			method, id, want := "GET", service, http.StatusForbidden
			if row.Model() {
				method, id = row.Methods[0], deployment
			}
			if compute.Allows([]compute.Scope{scope}, row.Scope) {
				want = http.StatusOK
			}
			path, body := passedRequest(row, method, id)
			if a := p.fetch(method, path, key.PlaintextKey, body, nil); a.status != want {
				t.Errorf("%s %s with the scope %s: %d %s, want %d", method, path, scope, a.status, a.body, want)
			}
		}
	}
}

// pass makes a request that is passed on, about an execution.
func (p *passing) pass(node *world, row edge.Passed, method, id string, who credential) answer {
	p.Helper()
	path, body := passedRequest(row, method, id)
	switch who.query {
	case "":
	case "token":
		path += "?token=" + p.streamToken(p.deployed)
	default:
		path += "?" + who.query
	}
	header := []string{"Content-Type", "application/json"}
	if who.org != "" {
		header = append(header, "X-Org-Slug", who.org)
	}
	return node.fetch(method, path, who.bearer, body, header)
}

// TestForgedPassedOnRequests presents forged keys, tokens and cookies where requests are passed on.
func TestForgedPassedOnRequests(t *testing.T) {
	p := newPassing(t)
	deployment, service := p.submit("deployment"), p.submit("service")
	tried := 0
	refused := func(name string, a answer) {
		t.Helper()
		if tried++; a.status != http.StatusUnauthorized || bytes.Contains(a.body, []byte(canaryOfCyd)) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	forged := forgedKeys(p.bobKey, p.cydKey)
	for name, text := range forgedTexts(p.session.AccessToken) {
		forged["access token: "+name] = text
	}
	forged["another cluster's access token"] = p.forged()
	cookie := p.serviceCookie(service.String())
	for place, node := range map[string]*world{"server": p.world, "worker": p.worker} {
		for _, row := range edge.PassedOn() {
			if row.Signed {
				continue
			}
			method, id := "GET", service
			if row.Model() {
				method, id = row.Methods[0], deployment
			}
			path, body := passedRequest(row, method, id.String())
			for name, text := range forged {
				where := place + " " + path + ": " + name
				refused(where, node.fetch(method, path, text, body, nil))
				if !row.Model() {
					refused(where+" in the URL", node.fetch(method, path+"?token="+url.QueryEscape(text), "", nil, nil))
				}
			}
			if row.Model() {
				continue
			}
			name, value, _ := strings.Cut(cookie, "=")
			if a := node.fetch(method, path, "", nil, []string{"Cookie", cookie}); a.status != http.StatusOK {
				t.Errorf("%s: the cookie opens nothing: %d %s", place, a.status, a.body)
			}
			for how, text := range forgedTexts(value) {
				refused(place+": cookie: "+how, node.fetch(method, path, "", nil, []string{"Cookie", name + "=" + text}))
			}
			other := p.submit("service").String()
			refused(place+": the cookie of another service", node.fetch(method, strings.Replace(path, service.String(), other, 1), "", nil,
				[]string{"Cookie", cookie}))
		}
	}
	t.Logf("measured: %d forged keys, tokens and cookies where requests are passed on", tried)
}

// serviceCookie returns the cookie that a service gives for cyd's key.
func (p *passing) serviceCookie(id string) string {
	p.Helper()
	client := *p.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	req, err := http.NewRequestWithContext(p.Context(), http.MethodGet, p.url+edge.ServiceRoot+id+"/?token="+p.cydKey, nil)
	p.ok(err)
	resp, err := client.Do(req)
	p.ok(err)
	resp.Body.Close()
	cookie, _, _ := strings.Cut(resp.Header.Get("Set-Cookie"), ";")
	if cookie == "" {
		p.Fatalf("no cookie: %d %v", resp.StatusCode, resp.Header)
	}
	return cookie
}

// pathsInSource returns all literals of the program that look like paths.
func pathsInSource(t *testing.T) (paths []string) {
	for _, dir := range []string{".", "../node", "../cluster", "../cmd"} {
		err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if text, err := strconv.Unquote(literal.Value); err == nil && strings.HasPrefix(text, "/") {
						paths = append(paths, text)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// TestEveryPathHasARow asks for each path that the source names, and for each path of the tables with
// more or less behind it. One that is answered other than as unknown has a row: in the routes, or
// among those that are passed on. So the tests that go by these tables leave nothing out.
func TestEveryPathHasARow(t *testing.T) {
	p := newPassing(t)
	asked := make(map[string]bool)
	add := func(path string) {
		for _, prefix := range []string{"", root, edge.StreamRoot} {
			for _, end := range []string{"", "/", "/x", "/x/y"} {
				text := prefix + strings.TrimSuffix(path, "/") + end
				if _, err := url.ParseRequestURI("http://a" + text); err == nil && strings.HasPrefix(text, "/") &&
					!strings.ContainsAny(text, "{}%\"<> \n?#") && len(text) < 200 {
					asked[text] = true
				}
			}
		}
	}
	for _, path := range pathsInSource(t) {
		add(path)
	}
	known := make([]string, 0, 300)
	for _, rt := range api.Routes() {
		known = append(known, rt.Path)
		add(strings.NewReplacer("{", "", "}", "").Replace(rt.Path))
	}
	for _, row := range edge.PassedOn() {
		known = append(known, row.Root+row.Path)
		add(row.Root)
	}
	answered := 0
	for path := range asked {
		for _, method := range []string{"GET", "POST", "OPTIONS"} {
			a := p.fetch(method, path, "", nil, nil)
			if a.status == http.StatusNotFound && a.code() == "not_found" {
				continue
			}
			answered++
			if !slices.ContainsFunc(known, func(row string) bool { return hasForm(path, row) }) {
				t.Errorf("%s %s is in no table and is answered %d %s", method, path, a.status, a.body)
			}
		}
	}
	if answered < 200 || len(asked) < 1000 {
		t.Errorf("of %d paths only %d requests are answered", len(asked), answered)
	}
}

// hasForm reports whether a path is one of a row, or below the root of a row that passes everything on.
func hasForm(path, row string) bool {
	for _, p := range edge.PassedOn() {
		if row == p.Root+p.Path && (path == p.Root && p.Path == "" || strings.HasPrefix(path, p.Root+"/")) {
			return true
		}
	}
	have, want := strings.Split(strings.TrimSuffix(path, "/"), "/"), strings.Split(row, "/")
	for i, segment := range want {
		switch {
		case i >= len(have):
			return false
		case strings.HasPrefix(segment, "{"):
			if i == len(want)-1 && len(have) >= len(want) {
				return true // It may be all that follows.
			}
		case segment != have[i]:
			return false
		}
	}
	return len(have) == len(want)
}
