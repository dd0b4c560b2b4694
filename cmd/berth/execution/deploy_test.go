package execution

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"berth/cmd/berth/cli"
	"berth/cmd/berth/clitest"
)

// deploymentRow returns a deployment as the API answers it.
func deploymentRow(status string, ready int, detail, update string) string {
	return fmt.Sprintf(`{"deployment_id":%q,"name":"chat","status":%q,"status_details":null,"hf_model_id":"a/b","engine":"vllm",
 "vllm_args":[],"hardware_profile":"gpu.h100.1x","target_rps":1,"target_latency_p95_ms":2000,"stabilisation_window":300,
 "min_replicas":1,"max_replicas":2,"replicas":1,"ready_replicas":%d,"created_at":"2026-01-01T00:00:00Z","billed":0,
 "base_url":"http://n1/openai/v1","update":%s,"engine_output":["bad magic"],
 "rows":[{"number":1,"execution_id":%q,"status":"running","status_details":null,"detail":%s,"ready":%t,"node":"n1","restarts":2}]}`,
		clitest.SomeID, status, ready, update, otherID, detail, ready > 0)
}

// mustDeployments serves a deployment with these answers in turn, the last one for ever,
// and returns the requests that change something.
func mustDeployments(t *testing.T, answers ...string) *[]string {
	t.Helper()
	did, asked := new([]string), 0
	do := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*did = append(*did, strings.TrimSpace(r.Method+" "+strings.TrimPrefix(r.URL.Path, clitest.APIRoot)+" "+string(body)))
		clitest.Answer(fmt.Sprintf(`{"deployment_id":%q,"status":"pending","message":"Done so."}`, clitest.SomeID))(w, r)
	}
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"POST " + clitest.APIRoot + "/inference/create": do,
		"GET " + clitest.APIRoot + "/inference/deployments": func(w http.ResponseWriter, r *http.Request) {
			row := deploymentRow("ready", 1, "null", "null")
			if r.URL.Query().Get("cursor") == "" { // The first of two pages.
				w.Header().Set("X-Next-Cursor", "n")
				row = strings.Replace(row, clitest.SomeID, otherID, 1)
			}
			clitest.Answer(`{"deployments":[`+row+`],"total":2}`)(w, r)
		},
		"GET " + clitest.APIRoot + "/inference/deployments/": func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/logs") {
				clitest.Answer(`{"logs":[{"message":"serving","level":"info","timestamp":"2026-01-01T00:00:00Z"}],"total":1}`)(w, r)
				return
			}
			clitest.Answer(answers[min(asked, len(answers)-1)])(w, r)
			asked++
		},
		"POST " + clitest.APIRoot + "/inference/deployments/":   do,
		"PATCH " + clitest.APIRoot + "/inference/deployments/":  do,
		"DELETE " + clitest.APIRoot + "/inference/deployments/": do,
	})
	return did
}

// TestDeploy deploys a model, and says on the way how far it is.
func TestDeploy(t *testing.T) {
	did := mustDeployments(t, deploymentRow("pending", 0, "null", "null"),
		deploymentRow("starting", 0, `"fetched 3 of 9 MiB of a/b"`, "null"), deploymentRow("ready", 1, "null", "null"))
	r := execute(t, "", "deploy", "create", "a/b", "--gpu", "h100", "--arg", "--max-model-len=4096", "--target-latency-p95", "1500ms")
	if r.Code != 0 || r.Out != clitest.SomeID+"\n" || !strings.Contains(r.Errors, "starting: fetched 3 of 9 MiB of a/b") {
		t.Errorf("got %+v", r)
	}
	if len(*did) != 1 {
		t.Fatalf("asked %q", *did)
	}
	for _, part := range []string{`"hf_model_id":"a/b"`, `"gpu_type":"h100"`, `"vllm_args":"--max-model-len=4096"`, `"target_latency_p95_ms":1500`} {
		if !strings.Contains((*did)[0], part) {
			t.Errorf("asked %s without %s", (*did)[0], part)
		}
	}
	mustDeployments(t, deploymentRow("failed", 0, "null", "null"))
	if r := execute(t, "", "deploy", "create", "a/b"); r.Code != cli.ExitFailed || !strings.Contains(r.Errors, "bad magic") {
		t.Errorf("of one that fails, got %+v", r)
	}
	if r := execute(t, "", "deploy", "create", "a/b", "--detach", "--json"); r.Code != 0 || !strings.Contains(r.Out, `"status": "pending"`) {
		t.Errorf("detached, got %+v", r)
	}
}

// TestDeployCommands lists, shows and changes a deployment.
func TestDeployCommands(t *testing.T) {
	did := mustDeployments(t, deploymentRow("scaling", 1, `"exit code 3"`, `{"hf_model_id":"a/c","vllm_args":["-x"]}`),
		deploymentRow("ready", 1, "null", "null"))
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"ls"}, []string{clitest.SomeID, otherID, "1/1", "gpu.h100.1x"}},
		{[]string{"ls", "--json"}, []string{`"total": 2`, clitest.SomeID, otherID}},
		{[]string{"show", clitest.SomeID}, []string{"exit code 3", "a/c", "http://n1/openai/v1", otherID}},
		{[]string{"logs", clitest.SomeID}, []string{"serving"}},
		{[]string{"stop", clitest.SomeID}, []string{"Done so."}},
		{[]string{"start", clitest.SomeID}, []string{"Done so."}},
		{[]string{"update", clitest.SomeID, "--max-replicas", "3"}, []string{"Done so."}},
		{[]string{"rm", clitest.SomeID}, []string{"Done so."}},
	} {
		r := execute(t, "", append([]string{"deploy"}, test.args...)...)
		for _, want := range test.want {
			if r.Code != 0 || !strings.Contains(r.Out, want) {
				t.Errorf("%q: got %+v without %q", test.args, r, want)
			}
		}
	}
	at := "/inference/deployments/" + clitest.SomeID
	for i, want := range []string{"POST " + at + "/stop", "POST " + at + "/start", "PATCH " + at + " ", "DELETE " + at} {
		if len(*did) != 4 || !strings.HasPrefix((*did)[i], want) {
			t.Errorf("asked %q, want %s", *did, want)
		}
	}
	if !strings.Contains((*did)[2], `"max_replicas":3}`) || !strings.Contains((*did)[2], `"min_replicas":null`) {
		t.Errorf("asked %s", (*did)[2])
	}
	if r := execute(t, "", "deploy", "show", "x"); r.Code != cli.ExitUsage {
		t.Errorf("of no id, got %+v", r)
	}
}

// TestDeployUpdate waits until the replicas are replaced.
func TestDeployUpdate(t *testing.T) {
	did := mustDeployments(t, deploymentRow("scaling", 1, "null", `{"hf_model_id":"a/c","vllm_args":[]}`), deploymentRow("ready", 1, "null", "null"))
	r := execute(t, "", "deploy", "update", clitest.SomeID, "--model", "a/c")
	if r.Code != 0 || !strings.Contains(r.Errors, "is scaling, 1 of 1 replicas ready") || !strings.Contains(r.Out, "changed") ||
		len(*did) != 1 || !strings.Contains((*did)[0], `"hf_model_id":"a/c"`) {
		t.Errorf("asked %q, got %+v", *did, r)
	}
	given := strings.Replace(deploymentRow("ready", 1, "null", "null"), `"status_details":null`, `"status_details":"the update was given up"`, 1)
	mustDeployments(t, given)
	if r := execute(t, "", "deploy", "update", clitest.SomeID, "--model", "a/c"); r.Code != cli.ExitFailed ||
		!strings.Contains(r.Errors, "given up") {
		t.Errorf("of one that fails, got %+v", r)
	}
}

// TestDeployShowsEnginesAsTheyWrite prints lines of engines as output, with tabs and
// colours, also of a deployment that fails, and other details without.
func TestDeployShowsEnginesAsTheyWrite(t *testing.T) {
	const wrote, sent = "\x1b[36m(EngineCore)\x1b[0m\tbad magic\n", `"\u001b[36m(EngineCore)\u001b[0m\tbad magic"`
	row := strings.Replace(deploymentRow("failed", 0, "null", "null"), `"bad magic"`, sent, 1)
	mustDeployments(t, strings.Replace(row, `"status_details":null`, `"status_details":"a\u001b[2Jb"`, 1))
	r := execute(t, "", "deploy", "show", clitest.SomeID)
	if r.Code != 0 || !strings.Contains(r.Out, wrote) || !strings.Contains(r.Out, `a\u001b[2Jb`) {
		t.Errorf("got %+v", r)
	}
	r = execute(t, "", "deploy", "create", "a/b", "--gpu", "h100", "--target-latency-p95", "1500ms")
	if r.Code != cli.ExitFailed || !strings.Contains(r.Errors, wrote) || !strings.Contains(r.Errors, `has failed: a\u001b[2Jb`) {
		t.Errorf("created, got %+v", r)
	}
}
