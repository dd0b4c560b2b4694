package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"berth/compute"
)

// update makes the tests write what they would compare with.
var update = flag.Bool("update", false, "write testdata and docs instead of comparing")

// golden compares data with a file, or writes it.
func golden(t *testing.T, path string, data []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (write it with go test ./api -update)", err)
	}
	if !bytes.Equal(data, want) {
		t.Errorf("%s is not what the server answers now (go test ./api -update):\n%s\nwant:\n%s", path, data, want)
	}
}

// settled returns text with what other packages make up as they like
// (identifiers, secrets, hashes) in a form that stays: the first identifier
// becomes number 1, and so on.
func settled(text []byte) []byte {
	seen := make(map[string]int)
	text = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`).ReplaceAllFunc(text, func(id []byte) []byte {
		if seen[string(id)] == 0 {
			seen[string(id)] = len(seen) + 1
		}
		return fmt.Appendf(nil, "00000000-0000-7000-8000-%012d", seen[string(id)])
	})
	for pattern, name := range map[string]string{
		`"[0-9a-f]{64}"`:                  `"<sha256>"`,
		`"eyJ[\w.-]+"`:                    `"<access token>"`,
		`"lk_[0-9A-Za-z]{59}"`:            `"<api key>"`,
		`"lk_[0-9A-Za-z]{5}"`:             `"<prefix>"`,
		`"refresh_token": "[\w-]{43}"`:    `"refresh_token": "<refresh token>"`,
		`token=[\w-]{43}"`:                `token=<stream token>"`,
		`"(token|id)": "(bjt_)?token\d+"`: `"$1": "<join token>"`,
	} {
		text = regexp.MustCompile(pattern).ReplaceAll(text, []byte(name))
	}
	return text
}

// TestAnswers holds the exact bytes of each documented answer.
func TestAnswers(t *testing.T) {
	w := newWorld(t)
	check := func(t *testing.T, name string, a answer) {
		t.Helper()
		if a.status != 200 {
			t.Fatalf("%s = %d %s", name, a.status, a.body)
		}
		var indented bytes.Buffer
		w.ok(json.Indent(&indented, a.body, "", "  "))
		golden(t, filepath.Join("testdata", name+".golden.json"), append(settled(indented.Bytes()), '\n'))
	}
	ended, live, parent := w.goldenWorld()
	for _, step := range []struct {
		name, method, path, bearer string
		body                       any
	}{
		{"login", "POST", "/auth/login", "", map[string]any{"email": "ada@example.com", "password": password}},
		{"user_status", "GET", "/user/status", w.adaKey, nil},
		{"orgs", "GET", "/orgs", w.adaKey, nil},
		{"keys", "GET", "/orgs/ada-lab/api-keys", w.adaKey, nil},
		{"key_created", "POST", "/orgs/ada-lab/api-keys", w.adaKey, map[string]any{"name": "ci"}},
		{"start", "POST", "/execution/streaming/start", w.adaKey, map[string]any{"code": "print(1)"}},
		{"selection_start", "POST", "/execution/gpu_selection/start", w.adaKey, map[string]any{"code": "print(1)"}},
		{"execution_live", "GET", "/execution/" + live.String(), w.adaKey, nil},
		{"execution_ended", "GET", "/execution/" + ended.String(), w.adaKey, nil},
		{"execution_status", "GET", "/execution/streaming/" + ended.String() + "/status", w.adaKey, nil},
		{"timing", "GET", "/execution/" + ended.String() + "/timing", w.adaKey, nil},
		{"selection", "GET", "/execution/gpu_selection/" + parent.String(), w.adaKey, nil},
		{"selection_status", "GET", "/execution/gpu_selection/" + parent.String() + "/status", w.adaKey, nil},
		{"workloads", "GET", "/workloads/list", w.adaKey, nil},
		{"workload_stopped", "POST", "/workloads/stop/" + live.String(), w.adaKey, nil},
		{"workload_aborted", "POST", "/workloads/abort/" + live.String(), w.adaKey, nil},
		{"history", "GET", "/billing/history?limit=2&offset=1", w.adaKey, nil},
		{"history_empty", "GET", "/billing/history", w.bobKey, nil},
		{"credits", "GET", "/billing/credits", w.adaKey, nil},
		{"credits_details", "GET", "/billing/credits/details", w.adaKey, nil},
		{"ledger", "GET", "/billing/ledger?limit=3", w.adaKey, nil},
		{"ledger_verify", "GET", "/billing/ledger/verify", w.adaKey, nil},
		{"grant", "POST", "/billing/grant", rootToken, map[string]any{"org": "bob-lab", "credits": 1.5}},
		{"machine_types", "GET", "/machine-types", w.adaKey, nil},
		{"pricing", "GET", "/pricing", w.adaKey, nil},
		{"quotas", "GET", "/user/quotas", w.adaKey, nil},
		{"available_hardware", "GET", "/user/quotas/available-hardware", w.adaKey, nil},
		{"ping", "GET", "/health/ping", "", nil},
		{"version", "GET", "/health/version", "", nil},
		{"readyz", "GET", "/readyz", "", nil},
		{"targets", "GET", "/metrics/targets", "", nil},
		{"join_token", "POST", "/admin/join-tokens", rootToken, map[string]any{"ttl": 60}},
		{"user_created", "POST", "/admin/users", rootToken, map[string]any{
			"email": "eve@example.com", "password": password, "org_slug": "eve",
		}},
		{"nodes", "GET", "/admin/nodes", rootToken, nil},
		{"node_drained", "POST", "/admin/nodes/" + nodeID(3).String() + "/drain", rootToken, nil},
		{"node_undrained", "POST", "/admin/nodes/" + nodeID(3).String() + "/undrain", rootToken, nil},
		{"peers", "GET", "/admin/raft/peers", rootToken, nil},
		{"quota_set", "POST", "/admin/quotas", rootToken, map[string]any{
			"org": "ada-lab", "tag": "demo", "max_concurrent": 2, "max_gpu_milli": 1500,
		}},
		{"org_quotas", "GET", "/admin/quotas?org=ada-lab", rootToken, nil},
		{"execution_deleted", "DELETE", "/execution/" + ended.String(), w.adaKey, nil},
	} {
		t.Run(step.name, func(t *testing.T) {
			check(t, step.name, w.send(step.method, step.path, step.bearer, step.body))
		})
	}
}

// goldenWorld makes an execution that has ended, one that is live and a GPU
// selection that has ended.
func (w *world) goldenWorld() (ended, live, parent compute.ExecutionID) {
	w.Helper()
	var started struct {
		ID compute.ExecutionID `json:"execution_id"`
	}
	w.mustDo("POST", "/execution/streaming/start", w.adaKey, map[string]any{
		"code": "print(1)", "execution_type": "l40s", "file_name": "one.py",
		"import_files": `{"lib/b.py":"","a.py":""}`, "tags": []string{"demo"},
	}, &started)
	ended = started.ID
	w.pass(250 * time.Millisecond)
	w.complete(ended, 1, 1500*time.Millisecond)
	parent, children := w.selected()
	w.complete(children[0], 2, 9*time.Second)
	w.place(children[1], 1)
	w.begun(children[1])
	w.ended(children[1], compute.StatusFailed, compute.ReasonOutOfMemory, 137, 2*time.Second)
	live = w.start("t4")
	w.place(live, 3)
	w.begun(live)
	w.pass(3 * time.Second)
	return ended, live, parent
}

// TestFailures holds the exact bytes of one failure of each kind.
func TestFailures(t *testing.T) {
	w := newWorld(t)
	var out strings.Builder
	for _, step := range []struct {
		method, path, bearer string
		body                 any
	}{
		{"POST", "/execution/streaming/start", w.adaKey, `{"timeout":0}`},
		{"POST", "/execution/streaming/start", w.adaKey, `{"code":"1","execution_type":"gpu.z9"}`},
		{"POST", "/execution/streaming/start", w.adaKey, `{"code":"1","nbcode":1}`},
		{"POST", "/execution/streaming/start", w.adaKey, `{`},
		{"GET", "/billing/credits", "", nil},
		{"GET", "/admin/nodes", w.bobKey, nil},
		{"GET", "/execution/" + uuidText(1), w.adaKey, nil},
		{"GET", "/nothing", "", nil},
		{"PUT", "/billing/credits", w.adaKey, nil},
	} {
		a := w.send(step.method, step.path, step.bearer, step.body)
		out.WriteString(step.method + " " + step.path + "\n" + string(a.body) + "\n\n")
	}
	golden(t, filepath.Join("testdata", "failures.golden.txt"), []byte(out.String()))
}
