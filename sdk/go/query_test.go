package berth_test

import (
	"testing"

	berth "berth/sdk/go"
)

// TestQueries checks that parameters which are set are sent, and no others.
func TestQueries(t *testing.T) {
	url, asked := mustServe(t, answer(200, `{}`))
	c := mustNew(t, berth.Config{Addrs: []string{url}})
	tests := []struct {
		query berth.ExecutionQuery
		want  string
	}{
		{berth.ExecutionQuery{}, ""},
		{berth.ExecutionQuery{Wait: "2s"}, "?wait=2s"},
		{berth.ExecutionQuery{Wait: "5", Until: "end"}, "?until=end&wait=5"},
	}
	for i, tt := range tests {
		if _, err := c.Executions.GetExecution(t.Context(), "a/b", tt.query); err != nil {
			t.Fatal(err)
		}
		want := "/api/v2/external/execution/a%2Fb" + tt.want
		if got := asked.all()[i].path; got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
	}
}
