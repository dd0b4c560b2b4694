package contracttest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestShapes holds that a shape finds what is wrong with an answer.
func TestShapes(t *testing.T) {
	const good = `{"executions":[{"execution_id":"x","created_at":"2026-01-02T03:04:05Z","execution_type":"python",
		"status":"completed","hardware_profile":"cpu","billed":null,"metadata":{}}],
		"total_executions":1,"total_credits_spent":0.5,"counts_by_status":{"completed":1},"limit":50,"offset":0}`
	for _, tc := range []struct{ name, old, new, want string }{
		{"good", "", "", ""},
		{"missing", `"limit":50,`, ``, "ExecutionHistory.limit is missing"},
		{"null", `"total_executions":1`, `"total_executions":null`, "ExecutionHistory.total_executions is null"},
		{"fraction", `"offset":0`, `"offset":0.5`, "ExecutionHistory.offset is 0.5"},
		{"date", `"2026-01-02T03:04:05Z"`, `"yesterday"`, "ExecutionSummary.created_at"},
		{"text", `"status":"completed"`, `"status":3`, "ExecutionSummary.status is 3"},
		{"number in words", `"billed":null`, `"billed":"1"`, "ExecutionSummary.billed"},
		{"object", `"metadata":{}`, `"metadata":[]`, "ExecutionSummary.metadata"},
		{"counts", `{"completed":1}`, `{"completed":"1"}`, "counts_by_status"},
		{"list", `"executions":[`, `"executions":3,"x":[`, "want an array"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var value any
			if err := json.Unmarshal([]byte(strings.Replace(good, tc.old, tc.new, 1)), &value); err != nil {
				t.Fatal(err)
			}
			faults := executionHistory().check(value)
			switch {
			case tc.want == "" && len(faults) > 0:
				t.Errorf("faults are %v", faults)
			case tc.want != "" && (len(faults) != 1 || !strings.Contains(faults[0].Error(), tc.want)):
				t.Errorf("faults are %v, want %s", faults, tc.want)
			}
		})
	}
}

// TestValidateFindsFaults holds that a server which always says the same does
// not pass.
func TestValidateFindsFaults(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if _, err := w.Write([]byte(`{"access_token":"a.b.c","refresh_token":"r","id":"1"}`)); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	err := Validate(t.Context(), Config{
		BaseURL: server.URL, Email: "a@b.c", Password: "p", OrgSlug: "o", Client: server.Client(),
	})
	if err == nil {
		t.Fatal("it passed")
	}
	for _, want := range []string{
		"the same refresh token again", "no key that begins with lk_", "Credits details.user_id is missing",
		"GET /billing/history = 200", "API key record is map[string]interface {}, want an array",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q was not found in\n%v", want, err)
		}
	}
}
