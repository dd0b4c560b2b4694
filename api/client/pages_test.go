package client_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"berth/api/client"
)

// fakeWire answers requests without a network.
type fakeWire func(r *http.Request) (*http.Response, error)

func (f fakeWire) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestWorkloadsFollowPages checks that a list of several pages is read to its end.
func TestWorkloadsFollowPages(t *testing.T) {
	const rows = 2345
	id := func(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }
	transport := fakeWire(func(r *http.Request) (*http.Response, error) {
		first := 0
		if cursor := r.URL.Query().Get("cursor"); cursor != "" {
			for id(first) != cursor {
				first++
			}
			first++
		}
		limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
		if err != nil {
			return nil, err
		}
		var page []string
		for i := first; i < min(first+limit, rows); i++ {
			page = append(page, `{"execution_id":"`+id(i)+`"}`)
		}
		return &http.Response{
			StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader("[" + strings.Join(page, ",") + "]")),
		}, nil
	})
	c, err := client.New(client.Config{Addrs: []string{"http://a"}, HTTP: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.Workloads(t.Context())
	if err != nil || len(list) != rows || list[rows-1].ExecutionID.String() != id(rows-1) {
		t.Errorf("%d rows, %v, want %d", len(list), err, rows)
	}
}
