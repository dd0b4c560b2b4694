package node_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
	"berth/testsize"
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
	all := compute.ExecutionID{} // The lines of the user.
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

// checkUnreadStream has a client of a follower open the stream of an execution on another
// node and not read it, while the code prints much more than nodes and connections hold for
// it. The code ends, and another reader gets all. The first one gets all too, once it reads:
// if the node has closed its connection, it resumes behind the last event that came whole.
func checkUnreadStream(t *testing.T, c *nodetest.Cluster, account nodetest.Account) {
	follower := c.Follower()
	api := nodetest.MustClient(t, account.Key, follower.URL())
	lines := testsize.Pick(12, 60) << 10 // About as many KiB. No more than 64 MiB is kept whole.
	started, err := api.Submit(t.Context(), client.Start{
		Code:          fmt.Sprintf("text = 'x' * 1000\nfor n in range(%d): print('line', n, text)\n", lines),
		ExecutionType: typeBeside(c, follower), Timeout: 300,
	})
	if err != nil {
		t.Fatal(err)
	}
	unread, conn := mustOpenStream(t, started.StreamingURL)
	if e := mustFinish(t, api, started.ExecutionID); e.Status != compute.StatusCompleted {
		t.Fatalf("beside a client that does not read it is %v, errors %v", e.Status, e.Errors)
	}
	all, _ := mustStream(t, api, started.ExecutionID)
	if strings.Count(all, "\n") != lines || !strings.HasPrefix(all, "line 0 x") ||
		!strings.Contains(all, fmt.Sprintf("\nline %d x", lines-1)) {
		t.Errorf("beside a client that does not read another one gets %d lines of %d", strings.Count(all, "\n"), lines)
	}
	if testsize.Long { // Half a minute after the last byte was taken.
		nodetest.Eventually(t, endWait, "the node to close the connection", func() bool {
			return strings.Contains(mustFetch(t, follower.URL()+"/metrics"), "\nberth_api_streams 0\n")
		})
	}
	// A window smaller than a segment of the loopback would let through a few KiB at each probe
	// of the sender.
	if err := conn.SetReadBuffer(1 << 20); err != nil {
		t.Fatal(err)
	}
	var late strings.Builder
	last, ended := readEvents(t, unread, &late)
	if testsize.Long && ended {
		t.Error("a connection that was closed has the end of the stream")
	}
	if !ended {
		for event, err := range api.Stream(t.Context(), started.ExecutionID, last) {
			if err != nil {
				t.Fatal(err)
			}
			late.WriteString(event.Content)
		}
	}
	if late.String() != all {
		t.Errorf("a client that reads late gets %d bytes, another one %d", late.Len(), len(all))
	}
}

// typeBeside returns a GPU type that a node of a usual cluster does not have.
func typeBeside(c *nodetest.Cluster, node *nodetest.Node) string {
	i := (slices.Index(c.Nodes, node) + 1) % len(c.Nodes)
	name, _, _ := strings.Cut(nodetest.GPUs(i)[0], ":")
	return name
}

// mustOpenStream opens a stream over a connection of its own, and reads no more than its
// head.
func mustOpenStream(t *testing.T, address string) (io.Reader, *net.TCPConn) {
	t.Helper()
	u, dialed := mustDial(t, address)
	conn := dialed.(*net.TCPConn)
	if err := conn.SetReadBuffer(16 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", u.RequestURI(), u.Host); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // It ends with the connection.
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("open %s: %+v, %v", address, answer, err)
	}
	return answer.Body, conn
}

// readEvents reads a stream to its last event, or as far as it goes. It appends the output of
// whole events to out, and returns the number of the last one that has output.
func readEvents(t *testing.T, stream io.Reader, out *strings.Builder) (last uint64, ended bool) {
	t.Helper()
	var id, data string
	for lines := bufio.NewReader(stream); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return last, false
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case name == "id":
			id = value
		case name == "data":
			data = value
		case name == "" && value == "" && data != "":
			var event wire.StreamEvent
			if err := json.Unmarshal([]byte(data), &event); err != nil {
				t.Fatalf("event %q: %v", data, err)
			}
			if event.Finished != nil {
				return last, true
			}
			if last, err = strconv.ParseUint(id, 10, 64); err != nil {
				t.Fatal(err)
			}
			out.WriteString(event.Output.Content)
			data = ""
		}
	}
}
