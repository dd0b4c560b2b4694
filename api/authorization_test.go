package api_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api"
	"berth/api/auth"
	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// metricsToken is the scraper's token in tests that configure one.
const metricsToken = "scrape-0123456789abcdefghijklmnopqrstuvwxyz"

// access says what a credential may do with the objects of cyd's organization.
type access uint8

const (
	accessNone     access = iota // No good credential of the API.
	accessOtherOrg               // A member of another organization.
	accessWrongOrg               // Names an organization that the credential is not for.
	accessMember                 // A member of the organization.
	accessOperator               // An operator, of another organization.
	accessRoot                   // The root token.
	accessScraper                // The metrics token.
	accessStream                 // The token of the stream in the path.
)

// credential is one way to present oneself.
type credential struct {
	name, bearer string
	org          string // X-Org-Slug, "" for none.
	query        string // The query of the URL.
	home         string // The other organization that it is for.
	is           access
}

// expected returns the status that a route's access rule gives to a credential. 0 is
// the status of a request that is served.
func expected(t *testing.T, rt api.RouteDoc, is access) int {
	t.Helper()
	switch rt.Need {
	case edge.NeedNothing:
		return 0
	case edge.NeedScraper:
		if is == accessScraper {
			return 0
		}
		return http.StatusUnauthorized
	case edge.NeedStream:
		if is == accessStream {
			return 0
		}
		return member(rt, is)
	case edge.NeedCaller, edge.NeedOrg:
		return member(rt, is)
	case edge.NeedUser:
		if strings.Contains(rt.Path, "{token}") && (is == accessOtherOrg || is == accessOperator) {
			return http.StatusForbidden // The invite is for another person, who sent it on.
		}
		return member(rt, is)
	case edge.NeedOperator:
		switch is {
		case accessOperator, accessRoot:
			return 0
		case accessNone, accessScraper, accessStream:
			return http.StatusUnauthorized
		case accessOtherOrg, accessMember, accessWrongOrg:
			return http.StatusForbidden
		}
	}
	t.Fatalf("%s %s: nothing is expected of its access rule: add that to expected", rt.Method, rt.Path)
	return 0
}

// member returns the expected status where a credential with an organization is
// needed. The object of another one does not exist.
func member(rt api.RouteDoc, is access) int {
	switch is {
	case accessMember:
		return 0
	case accessWrongOrg:
		return http.StatusForbidden
	case accessOtherOrg, accessOperator:
		if strings.Contains(rt.Path, "{") {
			return http.StatusNotFound
		}
		return 0
	case accessNone, accessRoot, accessScraper, accessStream:
	}
	return http.StatusUnauthorized
}

// matrix is a world with cyd, whose objects are asked for, and all credentials.
type matrix struct {
	*world
	cydKey  string
	cyd     compute.OrgID
	session wire.Session
	serial  int

	deployed compute.ExecutionID // Behind a published model.

	writes int // Proposals, without the times at which keys were used.
	leaks  int // Requests that were answered although the access rule refuses them, or that show what is there.
}

func newMatrix(t testing.TB, change ...func(*handler.Config)) *matrix {
	m := &matrix{world: newWorld(t, func(c *handler.Config) {
		c.MetricsToken = metricsToken
		c.Replay = func(context.Context, uint64, int) ([]compute.Replay, error) { return nil, nil }
		c.WhatIf = func(
			_ context.Context, view *fsm.View, _ uint64, question func(*fsm.View) (compute.WhatIf, error),
		) (compute.Forecast, *fsm.View, error) {
			_, err := question(view)
			return compute.Forecast{}, view, err
		}
		c.Proposer = steadyRoot{c.Proposer}
		for _, f := range change {
			f(c)
		}
	})}
	m.upgrade() // Some commands are of the newest format.
	m.cydKey, _ = m.addUser("cyd", false)
	m.cyd = m.org("cyd-lab")
	m.session = m.login("cyd")
	m.mustDo("POST", "/billing/grant", rootToken, map[string]any{"org": "cyd-lab", "credits": 100_000}, nil)
	m.mustDo("POST", "/admin/quotas", rootToken, map[string]any{"org": "cyd-lab", "max_concurrent": 10_000}, nil)
	for _, key := range []string{m.adaKey, m.bobKey, m.cydKey} {
		m.store(key, "stored", "content")
	}
	m.saw = func(cmd command.Command) {
		if _, use := cmd.(command.TouchKeys); !use {
			m.writes++ // Under the world's lock.
		}
	}
	return m
}

// steadyRoot answers rotations of the root token, and leaves the token to the other requests of a
// test.
type steadyRoot struct{ edge.Proposer }

// Propose implements edge.Proposer.
func (p steadyRoot) Propose(ctx context.Context, cmd command.Command) (command.Result, uint64, error) {
	if _, is := cmd.(command.RotateRootToken); is {
		return command.Result{}, 0, nil
	}
	return p.Proposer.Propose(ctx, cmd)
}

// credentials returns all credentials.
func (m *matrix) credentials() []credential {
	m.Helper()
	made, err := auth.NewAPIKey(&numbers{n: 1 << 50})
	m.ok(err)
	old := m.login("cyd")
	m.pass(time.Hour)
	m.session = m.login("cyd")
	bob, ada, out := m.login("bob"), m.login("ada"), m.login("cyd")
	m.mustDo("POST", "/auth/logout", "", map[string]any{"refresh_token": out.RefreshToken}, nil)
	other := m.ended()
	return []credential{
		{name: "nobody"},
		{name: "a short bearer", bearer: "x"},
		{name: "a made-up key", bearer: made.Text},
		{name: "a made-up token", bearer: m.forged()},
		{name: "an expired key", bearer: m.dead("expired")},
		{name: "a revoked key", bearer: m.dead("revoked")},
		{name: "a disabled key", bearer: m.dead("disabled")},
		{name: "an expired token", bearer: old.AccessToken},
		{name: "a token after its logout", bearer: out.AccessToken},
		{name: "a refresh token", bearer: m.session.RefreshToken},
		{name: "the token of another stream", query: "token=" + m.streamToken(other)},
		{name: "the key of another organization", bearer: m.bobKey, home: "bob-lab", is: accessOtherOrg},
		{name: "the token of another organization's member", bearer: bob.AccessToken, home: "bob-lab", is: accessOtherOrg},
		{name: "another organization's key for this one", bearer: m.bobKey, org: "cyd-lab", is: accessWrongOrg},
		{name: "another organization's member for this one", bearer: bob.AccessToken, org: "cyd-lab", is: accessWrongOrg},
		{name: "an operator for this organization", bearer: ada.AccessToken, org: "cyd-lab", is: accessWrongOrg},
		{name: "the key of the organization", bearer: m.cydKey, is: accessMember},
		{name: "the key with its organization", bearer: m.cydKey, org: "cyd-lab", is: accessMember},
		{name: "the token of a member", bearer: m.session.AccessToken, is: accessMember},
		{name: "an operator's key", bearer: m.adaKey, home: "ada-lab", is: accessOperator},
		{name: "an operator's token", bearer: ada.AccessToken, is: accessOperator},
		{name: "the root token", bearer: rootToken, is: accessRoot},
		{name: "the metrics token", bearer: metricsToken, is: accessScraper},
		{name: "the token of the stream", query: "token", is: accessStream},
	}
}

// forged returns an access token for cyd that another cluster's key signed.
func (m *matrix) forged() string {
	m.Helper()
	_, private, err := ed25519.GenerateKey(&numbers{n: 1 << 41})
	m.ok(err)
	user, ok := m.machine.View().UserByEmail("cyd@example.com")
	if !ok {
		m.Fatal("no user cyd")
	}
	id := m.machine.View().ClusterID().String()
	signer := auth.NewSigner(auth.AccessConfig{
		Issuer: "berth:" + id, Audience: "berth-api:" + id, TTL: time.Hour, Now: m.clock,
	}, m.machine.View().SigningKeys()[0].ID, private, &numbers{})
	text, _, err := signer.Sign(user.ID, uuid(77), user.TokenVersion)
	m.ok(err)
	return text
}

// dead returns a key of cyd's that is no longer good.
func (m *matrix) dead(why string) string {
	m.Helper()
	body := map[string]any{"name": why}
	if why == "expired" {
		body["expires_at"] = m.clock().Add(time.Minute).Format(time.RFC3339)
	}
	fields := decodeObject(m, m.mustDo("POST", "/orgs/cyd-lab/api-keys", m.cydKey, body, nil).body)
	path := fmt.Sprintf("/orgs/cyd-lab/api-keys/%s", fields["id"])
	switch why {
	case "expired":
		m.pass(time.Minute)
	case "revoked":
		m.mustDo("DELETE", path, m.cydKey, nil, nil)
	case "disabled":
		m.mustDo("PATCH", path+"/toggle", m.cydKey, nil, nil)
	}
	return fields["plaintext_key"].(string)
}

// submit starts code as cyd.
func (m *matrix) submit(kind string) compute.ExecutionID {
	m.Helper()
	var started struct {
		ID compute.ExecutionID `json:"execution_id"`
	}
	body := `{"code":"1"}`
	switch kind {
	case "image":
		body = `{"docker_image_ref":"probe"}`
	case "compose":
		body = `{"compose_file_code":"services: {a: {image: probe}}"}`
	}
	if kind == "deployment" {
		var created wire.DeploymentCreated
		m.mustDo("POST", "/inference/create", m.cydKey, deploymentBody, &created)
		return created.ID
	}
	m.mustDo("POST", "/execution/"+kind+"/start", m.cydKey, body, &started)
	return started.ID
}

// deploymentBody deploys a model with the engine of the test's configuration.
const deploymentBody = `{"hf_model_id":"a/b","engine":"echo","gpu_type":"cpu","target_rps":1,` +
	`"target_latency_p95_ms":100,"stabilisation_window":60}`

// ended returns an execution of cyd's that has ended.
func (m *matrix) ended() compute.ExecutionID {
	m.Helper()
	id := m.submit("streaming")
	m.complete(id, 1, time.Second)
	return id
}

func (m *matrix) streamToken(id compute.ExecutionID) string {
	return auth.StreamToken(m.cfg.StreamKey, id)
}

// object returns the parameters of a path that name something of cyd's, and those
// that name nothing.
func (m *matrix) object(rt api.RouteDoc) (own, none map[string]string) {
	m.Helper()
	path := strings.TrimPrefix(rt.Path, root)
	one := func(id string) (own, none map[string]string) {
		return map[string]string{"{id}": id}, map[string]string{"{id}": uuidText(9)}
	}
	m.serial++
	switch {
	case strings.HasPrefix(path, "/orgs/{slug}/api-keys/{id}"):
		fields := decodeObject(m, m.mustDo("POST", "/orgs/cyd-lab/api-keys", m.cydKey, map[string]any{"name": "x"}, nil).body)
		id := fields["id"].(string)
		return map[string]string{"{slug}": "cyd-lab", "{id}": id}, map[string]string{"{slug}": "nobody-lab", "{id}": uuidText(9)}
	case strings.HasPrefix(path, "/orgs/{slug}/budgets/{id}"):
		id := m.newMember()
		m.must(command.SetBudget{Actor: command.Actor{Root: true}, Budget: compute.Budget{Org: m.cyd, User: id, MaxCredits: 1}})
		return map[string]string{"{slug}": "cyd-lab", "{id}": id.String()},
			map[string]string{"{slug}": "nobody-lab", "{id}": uuidText(9)}
	case strings.HasPrefix(path, "/orgs/{slug}/members/"):
		id := m.newMember().String()
		return map[string]string{"{slug}": "cyd-lab", "{user_id}": id},
			map[string]string{"{slug}": "nobody-lab", "{user_id}": uuidText(9)}
	case strings.HasPrefix(path, "/auth/api-keys/{id}"):
		fields := decodeObject(m, m.mustDo("POST", "/auth/api-keys", m.cydKey, map[string]any{"key_name": "x"}, nil).body)
		return one(fields["id"].(string))
	case path == "/admin/users/{id}":
		return one(m.newMember().String())
	case strings.HasPrefix(path, "/orgs/{slug}/invites/{id}"):
		fields := decodeObject(m, m.mustDo("POST", "/orgs/cyd-lab/invites", m.cydKey,
			map[string]any{"email": fmt.Sprintf("i%d@example.com", m.serial)}, nil).body)
		return map[string]string{"{slug}": "cyd-lab", "{id}": fields["id"].(string)},
			map[string]string{"{slug}": "nobody-lab", "{id}": uuidText(9)}
	case strings.HasPrefix(path, "/invites/{token}"):
		return map[string]string{"{token}": m.invited()}, map[string]string{"{token}": "inv_x"}
	case path == "/orgs/{slug}":
		m.submit("streaming") // An organization with live executions cannot be deleted.
		return map[string]string{"{slug}": "cyd-lab"}, map[string]string{"{slug}": "nobody-lab"}
	case strings.HasPrefix(path, "/orgs/{slug}/") && strings.Count(path, "{") == 1:
		return map[string]string{"{slug}": "cyd-lab"}, map[string]string{"{slug}": "nobody-lab"}
	case strings.HasPrefix(path, "/admin/prices/{resource}"):
		m.must(command.SetPrices{Actor: command.Actor{Root: true}, Prices: map[string]compute.Price{"h100": 7}})
		return map[string]string{"{resource}": "h100"}, map[string]string{"{resource}": "h100.2x"}
	case strings.HasPrefix(path, "/admin/models/{id}"):
		m.deployed = m.submit("deployment")
		m.must(command.SetModel{Actor: command.Actor{Root: true}, ID: "chat", Deployment: m.deployed})
		return map[string]string{"{id}": "chat"}, map[string]string{"{id}": "-"}
	case strings.HasPrefix(path, "/admin/orgs/{org}"):
		return map[string]string{"{org}": "cyd-lab"}, map[string]string{"{org}": "nobody-lab"}
	case strings.HasPrefix(path, "/execution/image/"):
		return one(m.submit("image").String())
	case strings.HasPrefix(path, "/execution/compose/"):
		return one(m.submit("compose").String())
	case strings.HasPrefix(path, "/admin/nodes/{id}"):
		m.addNode(100 + m.serial)
		return one(nodeID(100 + m.serial).String())
	case strings.HasPrefix(path, "/bundles/{id}"):
		id, blob := m.bundle(m.cydKey, fmt.Sprint("file", m.serial), "blob")
		m.mustDo("PUT", "/bundles/"+id+"/blobs/"+blob, m.cydKey, "blob", nil, "Content-Type", "application/octet-stream")
		return map[string]string{"{id}": id, "{sha256}": blob}, map[string]string{"{id}": uuidText(9), "{sha256}": blob}
	case strings.HasPrefix(path, "/execution/{id}/outputs"):
		id := m.submit("streaming")
		m.place(id, 1)
		m.begun(id)
		m.endedWith(id, map[string]string{"a": "1"})
		return map[string]string{"{id}": id.String(), "{name}": "a"}, map[string]string{"{id}": uuidText(9), "{name}": "a"}
	case strings.HasPrefix(path, "/execution/{id}/callbacks"):
		var started wire.Started
		m.mustDo("POST", "/execution/streaming/start", m.cydKey, `{"code":"1","user_callback_urls":["https://example.com/"]}`, &started)
		m.complete(started.ExecutionID, 1, time.Second)
		return one(started.ExecutionID.String())
	case strings.HasPrefix(path, "/storage/uploads/"):
		var begun wire.StartedUpload
		m.mustDo("POST", "/storage/uploads", m.cydKey, `{"key":"in parts"}`, &begun)
		part := "/storage/uploads/" + begun.UploadID + "/parts/1"
		if a := m.fetch("PUT", root+part, m.cydKey, []byte("part"), nil); a.status != http.StatusOK {
			m.Fatalf("store part: %d %s", a.status, a.body)
		}
		return map[string]string{"{upload_id}": begun.UploadID, "{number}": "1"},
			map[string]string{"{upload_id}": uuidText(9), "{number}": "1"}
	case strings.HasPrefix(path, "/storage/"):
		m.store(m.cydKey, "stored/1", "content")
		return map[string]string{"{file_key}": "stored/1", "{folder_prefix}": "stored"},
			map[string]string{"{file_key}": "nothing", "{folder_prefix}": "nothing"}
	case path == "/admin/storage/{org}":
		return map[string]string{"{org}": "cyd-lab"}, map[string]string{"{org}": "nobody-lab"}
	case path == "/billing/invoices/{id}":
		var list wire.Invoices
		m.mustDo("GET", "/billing/invoices", m.cydKey, nil, &list)
		return one(list.Invoices[0].ID)
	case strings.HasSuffix(path, "/environments/{name}"):
		env := compute.Environment{
			ID: compute.EnvironmentID{UUID: compute.UUID{77, byte(m.serial >> 8), byte(m.serial)}}, Org: m.cyd,
			Name: fmt.Sprint("of-cyd-", m.serial), Requirements: "numpy",
		}
		if strings.HasPrefix(path, "/admin/") {
			env.Org = compute.OrgID{}
		}
		m.must(command.CreateEnvironment{Actor: command.Actor{Root: true}, Environment: env})
		return map[string]string{"{name}": env.Name}, map[string]string{"{name}": "nothing"}
	case path == "/environment-variables/{id}":
		var kept wire.Variables
		m.mustDo("POST", "/environment-variables", m.cydKey, map[string]any{"name": "A", "value": "a"}, &kept)
		return one(kept.Variables[0].ID.String())
	case strings.HasPrefix(path, "/inference/deployments/"):
		return one(m.submit("deployment").String())
	case strings.HasPrefix(path, "/services/"):
		return one(m.submit("service").String())
	case strings.HasPrefix(path, "/execution/gpu_selection/"):
		return one(m.submit("gpu_selection").String())
	case strings.HasPrefix(path, "/api/v1/stream/"), path == "/execution/{id}" && rt.Method == "DELETE":
		return one(m.ended().String())
	case strings.HasPrefix(path, "/execution/"), strings.HasPrefix(path, "/workloads/"), strings.HasPrefix(path, "/logs/"):
		return one(m.submit("streaming").String())
	}
	m.Fatalf("%s %s: no object is known for its path: add one to object", rt.Method, rt.Path)
	return nil, nil
}

// invited returns the token of an invite of cyd to ada's organization.
func (m *matrix) invited() string {
	m.Helper()
	view := m.machine.View()
	cyd, _ := view.UserByEmail("cyd@example.com")
	if _, member := view.Membership(m.org("ada-lab"), cyd.ID); member {
		m.must(command.RemoveMember{Actor: command.Actor{Root: true}, Org: m.org("ada-lab"), User: cyd.ID})
	}
	fields := decodeObject(m, m.mustDo("POST", "/orgs/ada-lab/invites", m.adaKey, map[string]any{"email": cyd.Email}, nil).body)
	return fields["token"].(string)
}

// newMember returns a new member of cyd's organization.
func (m *matrix) newMember() compute.UserID {
	m.Helper()
	id := compute.UserID{UUID: uuid(uint64(50_000 + m.serial))}
	m.must(command.CreateUser{
		Actor: command.Actor{Root: true}, User: compute.User{ID: id, Email: fmt.Sprintf("m%d@example.com", m.serial)},
		Org: compute.Org{Slug: "cyd-lab"}, Join: true,
	})
	return id
}

// sample returns a body that a route accepts and the query that it needs.
func (m *matrix) sample(rt api.RouteDoc) (body, query string) {
	m.Helper()
	m.serial++
	refresh := fmt.Sprintf(`{"refresh_token":%q}`, m.session.RefreshToken)
	sample, known := map[string]string{
		"POST /auth/login":                                `{"email":"bob@example.com","password":"` + password + `"}`,
		"POST /auth/refresh":                              refresh,
		"POST /auth/logout":                               `{"refresh_token":"` + strings.Repeat("A", 43) + `"}`,
		"POST /orgs/{slug}/api-keys":                      `{"name":"x"}`,
		"POST /auth/signup":                               fmt.Sprintf(`{"email":"s%d@example.com","password":%q}`, m.serial, password),
		"POST /auth/oidc/device":                          `{}`,
		"POST /auth/oidc/token":                           `{"device_code":"x"}`,
		"POST /admin/secrets/rotate":                      `{"org":"cyd-lab"}`,
		"POST /billing/checkout":                          `{"credits_amount":10}`,
		"POST /billing/webhook":                           `{}`,
		"PUT /orgs/{slug}/budgets":                        `{"max_credits":1000000}`,
		"POST /execution/streaming/start":                 `{"code":"1"}`,
		"POST /execution/gpu_selection/start":             `{"code":"1"}`,
		"POST /execution/service/start":                   `{"code":"1"}`,
		"POST /execution/image/start":                     `{"docker_image_ref":"probe"}`,
		"POST /execution/compose/start":                   `{"compose_file_code":"services: {a: {image: probe}}"}`,
		"POST /execution/compose/complete/{id}":           `{}`,
		"PATCH /admin/orgs/{org}":                         `{"trusted":true}`,
		"POST /inference/create":                          deploymentBody,
		"PATCH /inference/deployments/{id}":               `{"max_replicas":3}`,
		"POST /services/{id}/scale":                       `{"replicas":2}`,
		"DELETE /user/delete":                             `{"password":"wrong"}`,
		"POST /orgs":                                      fmt.Sprintf(`{"name":"made %d"}`, m.serial),
		"PATCH /orgs/{slug}":                              `{"name":"Cyd"}`,
		"POST /orgs/{slug}/invites":                       fmt.Sprintf(`{"email":"p%d@example.com"}`, m.serial),
		"POST /bundles":                                   `{"files":[]}`,
		"POST /environment-variables":                     `{"name":"A","value":"a"}`,
		"POST /environments":                              fmt.Sprintf(`{"name":"e%d","requirements":"numpy"}`, m.serial),
		"POST /admin/environments":                        fmt.Sprintf(`{"name":"s%d","requirements":"numpy"}`, m.serial),
		"POST /execution/{id}/callbacks/redeliver":        `{}`,
		"PUT /bundles/{id}/blobs/{sha256}":                "blob",
		"POST /billing/grant":                             `{"org":"bob-lab","credits":1}`,
		"POST /admin/join-tokens":                         `{}`,
		"POST /admin/users":                               fmt.Sprintf(`{"email":"u%d@example.com","password":%q,"org_slug":"u%d"}`, m.serial, password, m.serial),
		"PATCH /admin/users/{id}":                         `{"disabled":true}`,
		"POST /user/password":                             `{"old_password":"wrong","new_password":"another password"}`,
		"PATCH /orgs/{slug}/members/{user_id}":            `{"role":"admin"}`,
		"POST /auth/api-keys":                             `{"key_name":"x"}`,
		"POST /auth/api-keys/validate":                    `{"api_key":"x"}`,
		"POST /admin/nodes/{id}/drain":                    `{}`,
		"POST /admin/quotas":                              `{"org":"cyd-lab","tag":"x","max_concurrent":1}`,
		"POST /admin/brake":                               `{"share_percent":30}`,
		"POST /admin/raft/transfer":                       `{}`,
		"POST /admin/whatif":                              `{}`,
		"PUT /admin/prices/{resource}":                    `{"price_per_hour":1.5}`,
		"PUT /admin/models/{id}":                          `{"deployment_id":"` + m.deployed.String() + `"}`,
		"PUT /admin/billing/mode":                         `{"mode":"enforce"}`,
		"POST /storage/upload":                            formOf("file", "a.txt", "content"),
		"POST /storage/upload-bulk":                       formOf("files", "a.txt", "content"),
		"POST /execution/{id}/outputs/store":              `{"prefix":"kept/"}`,
		"POST /storage/uploads":                           `{"key":"in parts"}`,
		"PUT /storage/uploads/{upload_id}/parts/{number}": "part",
		"POST /storage/uploads/{upload_id}/complete":      `{"key":"in parts","parts":[{"number":1,"etag":"f4c9385f1902f7334b00b9b4ecd164de"}]}`,
		"POST /storage/copy":                              `{"from":"stored","to":"copy"}`,
		"PUT /admin/storage/{org}":                        `{"max_bytes":1000}`,
	}[rt.Method+" "+strings.TrimPrefix(rt.Path, root)]
	if known != (rt.Body != nil || rt.Raw || rt.Streamed) {
		m.Fatalf("%s %s: whether it has a body and whether sample has one differ", rt.Method, rt.Path)
	}
	return sample, map[string]string{
		"/admin/quotas": "org=cyd-lab",
		"/admin/replay": "index=1",
	}[strings.TrimPrefix(rt.Path, root)]
}

// ask makes a request of a route with a credential.
func (m *matrix) ask(node *world, rt api.RouteDoc, who credential, params map[string]string) answer {
	m.Helper()
	path := rt.Path
	for name, value := range params {
		path = strings.ReplaceAll(path, name, value)
	}
	body, query := m.sample(rt)
	token := who.query
	if token == "token" { // A token for the execution in the path, if it has one.
		token = "token=none"
		if id, err := compute.ParseExecutionID(params["{id}"]); err == nil {
			token = "token=" + m.streamToken(id)
		}
	}
	query = strings.Trim(query+"&"+token, "&")
	if query != "" {
		path += "?" + query
	}
	var header []string
	if who.org != "" {
		header = []string{"X-Org-Slug", who.org}
	}
	if rt.Streamed {
		header = append(header, "Content-Type", formType)
	}
	if body == "" {
		return node.fetch(rt.Method, path, who.bearer, nil, header)
	}
	return node.fetch(rt.Method, path, who.bearer, []byte(body), header)
}

// fetch makes a request of a whole path.
func (w *world) fetch(method, path, bearer string, body []byte, header []string) answer {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), method, w.url+path, strings.NewReader(string(body)))
	w.ok(err)
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := w.client.Do(req)
	// A refused body ends the connection. This one is in memory: it has no half-close and cannot linger, so that
	// the answer may be lost. Those of TCP linger (edge/linger.go).
	if errors.Is(err, io.EOF) {
		req.Body = io.NopCloser(strings.NewReader(string(body)))
		resp, err = w.client.Do(req)
	}
	w.ok(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	w.ok(err)
	return answer{resp.StatusCode, resp.Header, text}
}

// proposals returns how often something was written.
func (m *matrix) proposals() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes
}

// TestAuthorization makes the request of every route with every kind of credential,
// on a server and on a worker. The access rule in the route's row says what is
// answered. A request that is refused writes nothing, and the object of another
// organization answers as one that does not exist.
func TestAuthorization(t *testing.T) {
	m, whole := newMatrix(t), t
	_, worker := m.newWorker(func(c *handler.Config) { c.MetricsToken = metricsToken })
	all := m.credentials()
	cells := 0
	for name, node := range map[string]*world{"server": m.world, "worker": worker} {
		m.session = m.login("cyd") // A refresh token is good for a short time once it was used.
		for _, rt := range api.Routes() {
			t.Run(name+" "+rt.Method+" "+rt.Path, func(t *testing.T) {
				m.TB, worker.TB = t, t
				defer func() { m.TB, worker.TB = whole, whole }()
				m.tryAll(t, node, rt, all)
			})
			cells += len(all)
		}
	}
	t.Logf("measured: %d requests: %d routes, %d credentials, on a server and a worker: %d leaks",
		cells, len(api.Routes()), len(all), m.leaks)
	if cells < 1_000 {
		t.Errorf("only %d requests", cells)
	}
}

// tryAll makes the request of a route with all credentials: first those that are
// refused, all for the same object.
func (m *matrix) tryAll(t *testing.T, node *world, rt api.RouteDoc, all []credential) {
	t.Helper()
	own, none := map[string]string(nil), map[string]string(nil)
	fresh := func() {
		if strings.Contains(rt.Path, "{") {
			own, none = m.object(rt)
		}
	}
	fresh()
	before := m.proposals()
	for _, who := range all {
		want := expected(t, rt, who.is)
		if want == 0 {
			continue
		}
		got := m.ask(node, rt, who, own)
		if got.status != want {
			m.leaks++
			t.Errorf("as %s: %d %s, want %d", who.name, got.status, got.body, want)
		}
		if want != http.StatusNotFound {
			continue
		}
		m.alike(t, who, got, m.ask(node, rt, who, none))
		if own["{slug}"] != "" && own["{id}"] != "" && who.home != "" {
			m.alike(t, who, m.ask(node, rt, who, map[string]string{"{slug}": who.home, "{id}": own["{id}"]}),
				m.ask(node, rt, who, map[string]string{"{slug}": who.home, "{id}": none["{id}"]}))
		}
	}
	if n := m.proposals() - before; n != 0 {
		m.leaks += n
		t.Errorf("requests that are refused write %d times", n)
	}
	for _, who := range all {
		if expected(t, rt, who.is) != 0 {
			continue
		}
		want := http.StatusOK
		if strings.HasSuffix(rt.Path, "/user/password") || strings.HasSuffix(rt.Path, "/user/delete") {
			want = http.StatusForbidden // The password is wrong: a change would end the other sessions.
		}
		if rt.Method == http.MethodDelete && strings.HasSuffix(rt.Path, "/orgs/{slug}") {
			want = http.StatusConflict // It has live executions.
		}
		if strings.HasPrefix(who.bearer, "lk_") && ofPerson(rt) {
			want = http.StatusForbidden // The keys are the organizations', which act there alone.
		}
		if got := m.ask(node, rt, who, own); got.status != want {
			t.Errorf("as %s: %d %s, want %d", who.name, got.status, got.body, want)
		}
		fresh()
	}
}

// ofPerson reports whether a route changes which organizations a person is in.
func ofPerson(rt api.RouteDoc) bool {
	path := strings.TrimPrefix(rt.Path, root)
	return rt.Method == http.MethodPost && (path == "/orgs" || strings.HasPrefix(path, "/invites/{token}/"))
}

// alike fails if the answers about a foreign object and about none differ.
func (m *matrix) alike(t *testing.T, who credential, foreign, none answer) {
	t.Helper()
	if foreign.status != http.StatusNotFound || !same(foreign, none) {
		m.leaks++
		t.Errorf("as %s: a foreign object is answered %d %v %s, none %d %v %s", who.name,
			foreign.status, foreign.header, foreign.body, none.status, none.header, none.body)
	}
}

// same reports whether two answers are the same to a client.
func same(a, b answer) bool {
	strip := func(h http.Header) http.Header {
		h = h.Clone()
		for _, own := range []string{"X-Request-Id", "X-Berth-Index", "Date"} {
			h.Del(own)
		}
		return h
	}
	return a.status == b.status && string(a.body) == string(b.body) &&
		maps.EqualFunc(strip(a.header), strip(b.header), slices.Equal)
}

// TestForeignParents asks for the children of a foreign execution and of none.
func TestForeignParents(t *testing.T) {
	m := newMatrix(t)
	parent := m.submit("gpu_selection")
	foreign := m.mustDo("GET", "/billing/history?parent="+parent.String(), m.bobKey, nil, nil)
	none := m.mustDo("GET", "/billing/history?parent="+uuidText(9), m.bobKey, nil, nil)
	if !same(foreign, none) {
		t.Errorf("of a foreign execution: %s; of none: %s", foreign.body, none.body)
	}
}

// TestSpellings spells the path of every route in other ways. None of them passes
// its access rule.
func TestSpellings(t *testing.T) {
	m := newMatrix(t)
	spell := map[string]func(path string) string{
		"a trailing slash":    func(p string) string { return p + "/" },
		"two slashes":         func(p string) string { return "/" + p },
		"slashes inside":      func(p string) string { return strings.ReplaceAll(p, "/", "//") },
		"up and down":         func(p string) string { return "/livez/.." + p },
		"encoded dots":        func(p string) string { return "/livez/%2e%2e" + p },
		"backslashes":         func(p string) string { return `/livez\..` + p },
		"here":                func(p string) string { return strings.Replace(p, "/", "/./", 2) },
		"an encoded letter":   func(p string) string { return p[:len(p)-1] + fmt.Sprintf("%%%02x", p[len(p)-1]) },
		"an encoded slash":    func(p string) string { return p[:1] + strings.Replace(p[1:], "/", "%2f", 1) },
		"capitals":            strings.ToUpper,
		"a parameter":         func(p string) string { return p + ";a=b" },
		"a NUL":               func(p string) string { return p + "%00" },
		"a fragment":          func(p string) string { return p + "#/livez" },
		"an absolute URI":     func(p string) string { return "http://berth.test" + p },
		"another host's":      func(p string) string { return "http://user@elsewhere:1" + p },
		"the path of a probe": func(p string) string { return p + "?/livez" },
	}
	m.listen()
	for _, rt := range api.Routes() {
		if rt.Need == edge.NeedNothing {
			continue
		}
		own := map[string]string{}
		if strings.Contains(rt.Path, "{") {
			own, _ = m.object(rt)
		}
		path := rt.Path
		for name, value := range own {
			path = strings.ReplaceAll(path, name, value)
		}
		before := m.proposals()
		for name, how := range spell {
			text := rt.Method + " " + how(path) + " HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
			if a := m.raw(text); a.status < 400 || a.status >= 500 {
				t.Errorf("%s %s with %s: %d %s", rt.Method, rt.Path, name, a.status, a.body)
			}
		}
		if n := m.proposals() - before; n != 0 {
			t.Errorf("%s %s: requests that are refused write %d times", rt.Method, rt.Path, n)
		}
	}
}

// TestAccessRules holds that operators' routes, those of an organization and those
// that change something have the access rule of their kind, and that the document
// says which requests need a credential.
func TestAccessRules(t *testing.T) {
	m := newMatrix(t)
	var document struct {
		Paths map[string]map[string]struct {
			Security []any `json:"security"`
		} `json:"paths"`
	}
	m.ok(json.Unmarshal(m.mustDo("GET", "/openapi.json", "", nil, nil).body, &document))
	for _, rt := range api.Routes() {
		open := rt.Need == edge.NeedNothing || rt.Need == edge.NeedScraper
		if secured := document.Paths[rt.Path][strings.ToLower(rt.Method)].Security != nil; secured == open {
			t.Errorf("%s %s: the document says that it needs a credential: %t", rt.Method, rt.Path, secured)
		}
		path := strings.TrimPrefix(rt.Path, root)
		switch {
		case strings.HasPrefix(path, "/admin/") && rt.Need != edge.NeedOperator,
			strings.Contains(path, "{slug}") && rt.Need != edge.NeedOrg,
			strings.Contains(path, "{") && open,
			rt.Method != http.MethodGet && open && !strings.HasPrefix(path, "/auth/") &&
				path != "/billing/webhook": // The payment provider signs its reports.
			t.Errorf("%s %s has the access rule %d", rt.Method, rt.Path, rt.Need)
		}
	}
}
