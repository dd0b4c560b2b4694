package node_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// checkLogLimits asks a follower for lines of two executions by number, age, level and text:
// the newest that match, and how many do. Numbers that are out of range are refused, all at
// once, and a stranger does not learn that there is something.
func checkLogLimits(t *testing.T, c *nodetest.Cluster, stranger nodetest.Account) {
	account, follower := c.MustAccount("logs"), c.Follower().URL()
	api := nodetest.MustClient(t, account.Key, follower)
	prints := func(level string, from, to int) compute.ExecutionID {
		code := fmt.Sprintf("for n in range(%d, %d): print('%s row', n)\n", from, to, level)
		return mustExecute(t, api, client.Start{Code: code, Timeout: 60}).ExecutionID
	}
	first, second := prints("INFO", 0, 12), prints("ERROR", 12, 16)
	all := compute.ExecutionID{} // Of the user.
	for _, tt := range []struct {
		of    compute.ExecutionID
		query client.LogQuery
		want  []int
		total int
	}{
		{first, client.LogQuery{Limit: 5}, []int{7, 8, 9, 10, 11}, 12},
		{first, client.LogQuery{Limit: 10_000, Hours: 168}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 12},
		{first, client.LogQuery{Search: "ROW 1"}, []int{1, 10, 11}, 3},
		{first, client.LogQuery{Search: "row 1", Limit: 1}, []int{11}, 3},
		{first, client.LogQuery{Level: "warning"}, nil, 0},
		{second, client.LogQuery{Level: "error", Limit: 1}, []int{15}, 4},
		{all, client.LogQuery{Limit: 5}, []int{11, 12, 13, 14, 15}, 16},
		{all, client.LogQuery{Limit: 5000, Hours: 24, Search: "Row 1"}, []int{1, 10, 11, 12, 13, 14, 15}, 7},
		{all, client.LogQuery{Limit: 2, Level: "warning", Search: "row"}, []int{14, 15}, 4},
	} {
		var got wire.Logs
		var err error
		if tt.of == all {
			got, err = api.UserLogs(t.Context(), tt.query)
		} else {
			got, err = api.ExecutionLogs(t.Context(), tt.of, tt.query)
		}
		var rows []int
		for _, line := range got.Logs {
			var level string
			var row int
			if _, err := fmt.Sscanf(line.Message, "%s row %d", &level, &row); err != nil || line.Level != strings.ToLower(level) {
				t.Errorf("%+v: %+v, %v", tt.query, line, err)
			}
			rows = append(rows, row)
		}
		if err != nil || !slices.Equal(rows, tt.want) || got.Total != tt.total || len(got.Warnings) > 0 {
			t.Errorf("%+v: got rows %v of %d with the warnings %q, %v; want %v of %d", tt.query, rows, got.Total, got.Warnings, err, tt.want, tt.total)
		}
	}

	const root = "/api/v2/external/logs/"
	one := "execution/" + first.String()
	for query, want := range map[string][]string{
		one + "?limit=0":                  {"query.limit: greater_than_equal"},
		one + "?limit=10001&hours=169":    {"query.limit: less_than_equal", "query.hours: less_than_equal"},
		one + "?hours=0&level=loud":       {"query.hours: greater_than_equal", "query.level: enum"},
		one + "?limit=many":               {"query.limit: int_parsing"},
		"user?limit=0&hours=0":            {"query.limit: greater_than_equal", "query.hours: greater_than_equal"},
		"user?limit=5001":                 {"query.limit: less_than_equal"},
		"user?hours=25":                   {"query.hours: less_than_equal"},
		"user?limit=-1&hours=1.5&level=x": {"query.limit: greater_than_equal", "query.hours: int_parsing", "query.level: enum"},
	} {
		answer, text := mustAsk(t, http.DefaultClient, http.MethodGet, follower+root+query, account.Key, nil)
		if got := faultsIn(text); answer.StatusCode != http.StatusUnprocessableEntity || !slices.Equal(got, want) {
			t.Errorf("%s: %d with the faults %q, want %q", query, answer.StatusCode, got, want)
		}
	}
	_, err := nodetest.MustClient(t, stranger.Key, follower).ExecutionLogs(t.Context(), first, client.LogQuery{})
	if statusOf(err) != http.StatusNotFound {
		t.Errorf("a stranger's search: %v", err)
	}
}
