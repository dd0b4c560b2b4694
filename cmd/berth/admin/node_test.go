package admin

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"berth/cmd/berth/clitest"
)

const (
	firstNode  = "0198c0de-0000-7000-8000-000000000001"
	secondNode = "0198c0de-0000-7000-8000-000000000002"
	twoNodes   = `{"nodes": [
  {"id": "` + firstNode + `", "name": "gpu-1", "role": "server", "state": "up", "version": "0.1.0", "api": "http://10.0.0.1:6470",
   "offers": ["engine:docker-trusted", "image:x", "inference:vllm"]},
  {"id": "` + secondNode + `", "name": "gpu-2", "role": "server", "state": "down", "version": "0.1.0", "api": "http://10.0.0.2:6470"}
], "count": 2}`
	threePeers = `{"peers": [
  {"id": "` + firstNode + `", "address": "10.0.0.1:6471", "voter": true, "leader": true},
  {"id": "` + secondNode + `", "address": "10.0.0.2:6471", "voter": false, "leader": false},
  {"id": "0198c0de-0000-7000-8000-000000000003", "address": "10.0.0.3:6471", "voter": true, "leader": false}
], "count": 3}`
)

func TestAdminNode(t *testing.T) {
	var asked []string
	note := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.Method+" "+strings.TrimPrefix(r.URL.RequestURI(), clitest.APIRoot+"/admin/nodes/"))
			clitest.Answer(body)(w, r)
		}
	}
	drained := `{"id": "` + firstNode + `", "name": "gpu-1", "drained": true, "live_attempts": 2, "drain_by": "2026-07-01T12:00:00Z", "role": "server", "state": "up"}`
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET " + clitest.APIRoot + "/admin/nodes":               clitest.Answer(twoNodes),
		"GET " + clitest.APIRoot + "/admin/raft/peers":          clitest.Answer(threePeers),
		"POST " + clitest.APIRoot + "/admin/nodes/{id}/drain":   note(drained),
		"POST " + clitest.APIRoot + "/admin/nodes/{id}/undrain": note(strings.Replace(drained, "true", "false", 1)),
		"DELETE " + clitest.APIRoot + "/admin/nodes/{id}":       note(`{"message": "The node is removed."}`),
	})
	for _, test := range []struct{ args, asked, output string }{
		{"drain gpu-1", "POST " + firstNode + "/drain", "gpu-1 gets no new work and still executes 2"},
		{"drain gpu-1 --deadline 10m", "POST " + firstNode + "/drain", "what is left ends at 2026-07-01T12:00:00"},
		{"undrain " + firstNode, "POST " + firstNode + "/undrain", "gpu-1 gets new work again"},
		{"remove gpu-2", "DELETE " + secondNode, "gpu-2 is removed"},
		{"remove gpu-2 --force", "DELETE " + secondNode + "?force=true", "gpu-2 is removed"},
		{"remove gpu-2 --json", "DELETE " + secondNode, `"removed": "` + secondNode + `"`},
		{"drain gpu-1 --json", "POST " + firstNode + "/drain", `"live_attempts": 2`},
	} {
		asked = nil
		r := execute(t, "", append([]string{"admin", "node"}, strings.Fields(test.args)...)...)
		if r.Code != 0 || strings.Join(asked, ",") != test.asked || !strings.Contains(r.Out+r.Errors, test.output) {
			t.Errorf("%s: asked %q, got %+v", test.args, asked, r)
		}
	}
	asked = nil
	for args, want := range map[string]string{
		"drain gpu-9": "there is no node gpu-9, only gpu-1, gpu-2",
		"remove":      "accepts 1 arg(s)",

		"drain gpu-1 --deadline 0s": "must be at least 1s",
	} {
		r := execute(t, "", append([]string{"admin", "node"}, strings.Fields(args)...)...)
		if r.Code == 0 || !strings.Contains(r.Errors, want) || len(asked) > 0 {
			t.Errorf("%s: asked %q, got %+v", args, asked, r)
		}
	}
	clitest.CheckGolden(t, "nodes", execute(t, "", "admin", "node", "list").Out)
	clitest.CheckGolden(t, "peers", execute(t, "", "admin", "raft", "peers").Out)
	var peers []any
	r := execute(t, "", "admin", "raft", "peers", "--json")
	if err := json.Unmarshal([]byte(r.Out), &peers); err != nil || len(peers) != 3 {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestAdminNodeThatTwoAreNamed(t *testing.T) {
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET " + clitest.APIRoot + "/admin/nodes": clitest.Answer(strings.Replace(twoNodes, "gpu-2", "gpu-1", 1)),
	})
	if r := execute(t, "", "admin", "node", "drain", "gpu-1"); r.Code == 0 || !strings.Contains(r.Errors, "identifier") {
		t.Errorf("got %+v", r)
	}
}

func TestAdminRaftTransfer(t *testing.T) {
	var asked string
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET " + clitest.APIRoot + "/admin/nodes": clitest.Answer(twoNodes),
		"POST " + clitest.APIRoot + "/admin/raft/transfer": func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if asked = string(body); err != nil {
				t.Error(err)
			}
			clitest.Answer(`{"leader": "`+secondNode+`", "name": "gpu-2"}`)(w, r)
		},
	})
	for _, test := range []struct{ args, asked, output string }{
		{"", `{"to":""}`, "gpu-2 leads"},
		{"gpu-2", `{"to":"` + secondNode + `"}`, "gpu-2 leads"},
		{"gpu-2 --json", `{"to":"` + secondNode + `"}`, `"leader": "` + secondNode + `"`},
	} {
		r := execute(t, "", append([]string{"admin", "raft", "transfer"}, strings.Fields(test.args)...)...)
		if r.Code != 0 || asked != test.asked || !strings.Contains(r.Out+r.Errors, test.output) {
			t.Errorf("%s: asked %s, got %+v", test.args, asked, r)
		}
	}
	if r := execute(t, "", "admin", "raft", "transfer", "gpu-9"); r.Code == 0 || !strings.Contains(r.Errors, "no node gpu-9") {
		t.Errorf("got %+v", r)
	}
}

// TestAdminNodeDrainWaits checks that the command reports until the node is
// drained.
func TestAdminNodeDrainWaits(t *testing.T) {
	node := func(live, leaving int, drained bool) string {
		return fmt.Sprintf(`{"id": "%s", "name": "gpu-1", "drained": %t, "live_attempts": %d, "leaving_attempts": %d,
			"drain_by": "2026-07-01T12:00:00Z", "role": "server", "state": "up"}`, firstNode, drained, live, leaving)
	}
	for name, test := range map[string]struct {
		last   string
		code   int
		output []string
	}{
		"to the end": {node(0, 0, true), 0, []string{"still executes 3, of which 1 leave; what is left ends", "it can be removed"}},
		"undrained":  {node(1, 0, false), 1, []string{"somebody has undrained gpu-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			polls := 0
			clitest.MustCluster(t, map[string]http.HandlerFunc{
				"GET " + clitest.APIRoot + "/admin/nodes": func(w http.ResponseWriter, r *http.Request) {
					polls++
					now := node(3, 1, true)
					if polls > 2 {
						now = test.last
					}
					clitest.Answer(`{"nodes": [`+now+`], "count": 1}`)(w, r)
				},
				"POST " + clitest.APIRoot + "/admin/nodes/{id}/drain": clitest.Answer(node(3, 1, true)),
			})
			r := execute(t, "", "admin", "node", "drain", "gpu-1", "--deadline", "10m", "--wait")
			if r.Code != test.code {
				t.Errorf("got %+v", r)
			}
			for _, text := range test.output {
				if strings.Count(r.Errors, text) != 1 {
					t.Errorf("%q is not said once: %s", text, r.Errors)
				}
			}
		})
	}
}
