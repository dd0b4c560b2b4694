package load

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// crowdNode is a node that answers no request, or each by an error. It counts fewer of them
// than it has.
type crowdNode struct {
	status  int // Status of each answer; 0 for none.
	missing int64

	underWay, asked atomic.Int64
	full            func() // Called when it is asked again how many it has, after it has had all.
}

const testCrowd = 5

// ServeHTTP answers as a node.
func (n *crowdNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/metrics" {
		has := n.underWay.Load()
		if has == testCrowd && n.asked.Add(1) > 1 {
			n.full()
		}
		fmt.Fprintf(w, "other{model=\"bench/turns\"} 99\nberth_inference_requests_running{model=\"bench/turns\"} %d\n",
			max(has-n.missing, 0))
		return
	}
	n.underWay.Add(1)
	defer n.underWay.Add(-1)
	if n.status != 0 {
		w.WriteHeader(n.status)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body) // Else the server does not see that the client leaves.
	<-r.Context().Done()
}

// TestCrowdIsUnderWay measures beside a crowd only once the node has all of its requests under
// way. It fails otherwise, and says how many there are or why one failed.
func TestCrowdIsUnderWay(t *testing.T) {
	for name, test := range map[string]struct {
		node *crowdNode
		want string // In the error; "" for none.
	}{
		"all":     {&crowdNode{}, ""},
		"fewer":   {&crowdNode{missing: 2}, "only 3 of the crowd's 5 requests are under way at n1"},
		"refused": {&crowdNode{status: http.StatusServiceUnavailable}, "a request of the crowd failed: answered 503"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(test.node)
			defer server.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			test.node.full = cancel // Nobody waits longer.
			m := &inferring{Cluster: &Cluster{}, cfg: InferenceConfig{Crowd: testCrowd}, http: server.Client()}
			c := m.gather(ctx, target{server.URL, turnsID, ""})
			defer c.leave()
			n, err := m.awaitCrowd(ctx, c, &Node{Name: "n1", URL: server.URL})
			if test.want == "" && (err != nil || n != testCrowd) ||
				test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%d are under way, %v", n, err)
			}
		})
	}
}
