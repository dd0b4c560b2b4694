package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// TestListsHaveCursors reads lists one row at a time: every row comes once, in the order
// of the whole list, and rows that go meanwhile do not matter.
func TestListsHaveCursors(t *testing.T) {
	m := newMatrix(t)
	for i := range 3 {
		m.newMember()
		m.serial++
		m.mustDo("POST", "/orgs/cyd-lab/api-keys", m.cydKey, map[string]any{"name": fmt.Sprint("k", i)}, nil)
		m.mustDo("POST", "/auth/api-keys", m.cydKey, map[string]any{"key_name": fmt.Sprint("u", i)}, nil)
		m.mustDo("POST", "/orgs/cyd-lab/invites", m.cydKey, map[string]any{"email": fmt.Sprintf("i%d@example.com", i)}, nil)
		m.submit("service")
	}
	for i, name := range []string{"one", "two", "three"} {
		m.mustDo("POST", "/admin/environments", rootToken, map[string]any{"name": name, "path": "/" + name}, nil)
		m.session = m.login("cyd") // The login before has ended.
		m.mustDo("POST", "/orgs", m.session.AccessToken, map[string]any{"slug": "of-" + name, "name": name}, nil)
		m.must(command.SetModel{Actor: command.Actor{Root: true}, ID: name, Deployment: m.deploy()})
		m.mustDo("POST", "/billing/grant", rootToken, map[string]any{"org": "cyd-lab", "credits": 1}, nil)
		if i < 2 {
			m.later(31 * 24 * time.Hour)
		}
	}
	for _, name := range []string{"ida", "jon", "kim"} {
		key, _ := m.addUser(name, false)
		m.mustDo("POST", "/orgs/"+name+"-lab/invites", key, map[string]any{"email": "cyd@example.com"}, nil)
	}
	var members []map[string]any
	m.mustDo("GET", "/orgs/cyd-lab/members", m.cydKey, nil, &members)
	for _, member := range members {
		m.mustDo("PUT", "/orgs/cyd-lab/budgets", m.cydKey, map[string]any{"max_credits": 5, "user_id": member["user_id"]}, nil)
	}
	for _, list := range []struct{ path, bearer, field string }{
		{"/orgs/cyd-lab/members", m.cydKey, ""},
		{"/orgs/cyd-lab/api-keys", m.cydKey, ""},
		{"/auth/api-keys", m.cydKey, ""},
		{"/orgs/cyd-lab/invites", m.cydKey, ""},
		{"/services", m.cydKey, ""},
		{"/orgs/cyd-lab/budgets", m.cydKey, ""},
		{"/orgs", m.session.AccessToken, ""},
		{"/invites", m.session.AccessToken, ""},
		{"/billing/invoices", m.cydKey, "invoices"},
		{"/environments", m.cydKey, ""},
		{"/admin/environments", rootToken, ""},
		{"/admin/models", rootToken, "models"},
		{"/admin/nodes", rootToken, "nodes"},
	} {
		whole, _ := m.rows(list.path, list.bearer, list.field)
		var rows []any
		for cursor := ""; ; {
			page, next := m.rows(list.path+"?limit=1"+cursor, list.bearer, list.field)
			rows = append(rows, page...)
			if next == "" || len(rows) > len(whole) {
				break
			}
			cursor = "&cursor=" + next
		}
		all, _ := json.Marshal(whole)
		got, _ := json.Marshal(rows)
		if len(whole) < 3 || string(got) != string(all) {
			t.Errorf("%s: the pages are %s, the list %s", list.path, got, all)
		}
		m.want(422, "", "GET", list.path+"?cursor=!", list.bearer, nil)
	}
}

// rows returns the rows of a list, which is the answer or a field of it, and the cursor of the next page.
func (m *matrix) rows(path, bearer, field string) (rows []any, next string) {
	m.Helper()
	var body any
	a := m.mustDo("GET", path, bearer, nil, &body)
	if field != "" {
		body = body.(map[string]any)[field]
	}
	return body.([]any), a.header.Get("X-Next-Cursor")
}

// TestServicesComeNewestFirst holds the list to the order that it documents.
func TestServicesComeNewestFirst(t *testing.T) {
	m := newMatrix(t)
	var ids []compute.ExecutionID
	for range 3 {
		ids = append(ids, m.submit("service"))
		m.pass(time.Second)
	}
	var list []wire.Service
	m.mustDo("GET", "/services?limit=3", m.cydKey, nil, &list)
	for i, s := range list {
		if len(list) != 3 || s.ExecutionID != ids[2-i] {
			t.Errorf("place %d of %d has %s, want %s", i, len(list), s.ExecutionID, ids[2-i])
		}
	}
}

// TestListsThatGrow holds that an answer which is a list, or has one and says how many rows
// there are, takes a limit and a cursor, unless something else bounds it.
func TestListsThatGrow(t *testing.T) {
	bounded := map[string]string{
		"/execution/{id}/callbacks":    "ten URLs",
		"/execution/{id}/outputs":      "the files that an execution may leave",
		"/orgs/{slug}/callback-secret": "two",
		"/metrics/targets":             "the nodes, as Prometheus reads them",
		"/storage/uploads":             "1000 of an organization",
		"/admin/prices":                "GPU types",
		"/machine-types":               "GPU types",
		"/admin/raft/peers":            "servers",
		"/pricing":                     "GPU types, and 1000 models",
		"/logs/user":                   "limit: the newest lines",
		"/billing/activities":          "limit and offset",

		"/logs/execution/{id}":             "limit: the newest lines",
		"/inference/deployments/{id}/logs": "limit: the newest lines",
	}
	for _, rt := range api.Routes() {
		path := strings.TrimPrefix(rt.Path, root)
		if rt.Method != http.MethodGet || rt.Reply == nil || bounded[path] != "" {
			continue
		}
		list := rt.Reply.Kind() == reflect.Slice
		if rt.Reply.Kind() == reflect.Struct {
			for _, name := range []string{"Total", "Count"} {
				total, has := rt.Reply.FieldByName(name)
				list = list || has && total.Type.Kind() == reflect.Int
			}
		}
		if names := fieldsOf(rt.Query); list && !slices.Contains(names, "cursor") {
			t.Errorf("%s has the parameters %v, and no cursor", rt.Path, names)
		}
	}
}
