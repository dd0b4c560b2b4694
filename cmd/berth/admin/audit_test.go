package admin

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"berth/api/wire"
	"berth/cmd/berth/clitest"
)

// TestAuditGoesOn reads more lines than one request answers, and than an offset reaches: page by
// page below the last line.
func TestAuditGoesOn(t *testing.T) {
	const lines = 50_100
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET " + clitest.APIRoot + "/admin/audit": func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			limit, err := strconv.Atoi(q.Get("limit"))
			if err != nil || limit < 1 || limit > 1000 || q.Has("offset") {
				t.Errorf("asked for %v", q)
			}
			seq := uint64(lines)
			if below, err := strconv.ParseUint(q.Get("cursor"), 10, 64); err == nil && below > 0 {
				seq = below - 1
			}
			page := []wire.AuditLine{}
			for ; seq > 0 && len(page) < limit; seq-- {
				page = append(page, wire.AuditLine{Seq: seq, Actor: "root", Action: "key.create"})
			}
			_ = json.NewEncoder(w).Encode(page)
		},
	})
	for limit, want := range map[int]int{1: 1, 1001: 1001, 50_000: 50_000, 1_000_000: lines} {
		r := execute(t, "", "admin", "audit", "-n", strconv.Itoa(limit))
		if got := strings.Count(r.Out, "key.create"); r.Code != 0 || got != want {
			t.Errorf("-n %d prints %d lines, want %d: %d %s", limit, got, want, r.Code, r.Errors)
		}
	}
	if r := execute(t, "", "admin", "audit", "-n", "0"); r.Code == 0 {
		t.Error("no lines are asked for")
	}
}
