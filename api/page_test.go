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
	var members []map[string]any
	m.mustDo("GET", "/orgs/cyd-lab/members", m.cydKey, nil, &members)
	for _, member := range members {
		m.mustDo("PUT", "/orgs/cyd-lab/budgets", m.cydKey, map[string]any{"max_credits": 5, "user_id": member["user_id"]}, nil)
	}
	for _, path := range []string{
		"/orgs/cyd-lab/members", "/orgs/cyd-lab/api-keys", "/auth/api-keys", "/orgs/cyd-lab/invites", "/services",
		"/orgs/cyd-lab/budgets",
	} {
		var whole, rows []map[string]any
		m.mustDo("GET", path, m.cydKey, nil, &whole)
		for cursor := ""; ; {
			var page []map[string]any
			a := m.mustDo("GET", path+"?limit=1"+cursor, m.cydKey, nil, &page)
			rows = append(rows, page...)
			next := a.header.Get("X-Next-Cursor")
			if next == "" || len(rows) > len(whole) {
				break
			}
			cursor = "&cursor=" + next
		}
		all, _ := json.Marshal(whole)
		got, _ := json.Marshal(rows)
		if len(whole) < 3 || string(got) != string(all) {
			t.Errorf("%s: the pages are %s, the list %s", path, got, all)
		}
		m.want(422, "", "GET", path+"?cursor=!", m.cydKey, nil)
	}
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
		"/environments":                "500 in a cluster",
		"/admin/environments":          "500 in a cluster",
		"/orgs":                        "what a person may own, and invites",
		"/invites":                     "what is open for one address",
		"/metrics/targets":             "the nodes",
		"/storage/uploads":             "1000 of an organization",
		"/admin/models":                "what operators publish",
		"/logs/user":                   "limit: the newest lines",
		"/billing/activities":          "limit and offset",
		"/billing/invoices":            "one a month",

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
			total, has := rt.Reply.FieldByName("Total")
			list = has && total.Type.Kind() == reflect.Int
		}
		if names := fieldsOf(rt.Query); list && !slices.Contains(names, "cursor") {
			t.Errorf("%s has the parameters %v, and no cursor", rt.Path, names)
		}
	}
}
