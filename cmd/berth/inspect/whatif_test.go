package inspect

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"berth/cmd/berth/cli"
	"berth/cmd/berth/clitest"
)

// whatIfAnswer is an answer about two more nodes.
const whatIfAnswer = `{
  "index": 4711, "nodes": 6, "lost_attempts": 1, "starts": 2, "starts_unchanged": 1, "waits": 1,
  "started": [
    {"execution_id": "` + clitest.SomeID + `", "node": "added-1", "gpus": ["added-1-0", "added-1-1"]},
    {"execution_id": "0198c0de-0000-7000-8000-00000000000a", "node": "n2", "gpus": []}
  ],
  "waiting": [{"execution_id": "0198c0de-0000-7000-8000-00000000000b", "reason": "gpus_busy"}]
}`

func TestWhatIf(t *testing.T) {
	var sent map[string]any
	clitest.MustCluster(t, map[string]http.HandlerFunc{"POST " + clitest.APIRoot + "/admin/whatif": clitest.RecordSent(t, &sent, whatIfAnswer)})
	r := execute(t, "", "whatif", "--add", "h100:8 x2", "--add", "cpu:16", "--remove", "n4", "--drain", "n3",
		"--index", "4711", "--execution", clitest.SomeID)
	if r.Code != 0 {
		t.Fatalf("got %+v", r)
	}
	clitest.CheckGolden(t, "whatif", r.Out)
	want := map[string]any{
		"index": 4711.0, "add": []any{"h100:8 x2", "cpu:16"}, "remove": []any{"n4"}, "drain": []any{"n3"}, "execution": clitest.SomeID,
	}
	if !reflect.DeepEqual(sent, want) {
		t.Errorf("sent %v, want %v", sent, want)
	}
	var got map[string]any
	r = execute(t, "", "whatif", "--now", "--json")
	if err := json.Unmarshal([]byte(r.Out), &got); err != nil || got["starts"] != 2.0 {
		t.Errorf("got %+v, %v", r, err)
	}
	if r := execute(t, "", "whatif", "--now", "--index", "1"); r.Code != cli.ExitUsage || !strings.Contains(r.Errors, "exclude") {
		t.Errorf("got %+v", r)
	}
}

// TestWhatIfRefused checks that a refusal names the fault of the question.
func TestWhatIfRefused(t *testing.T) {
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"POST " + clitest.APIRoot + "/admin/whatif": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnprocessableEntity)
			clitest.Answer(`{"detail":[{"loc":["body","drain"],"msg":"no node is called \"n9\"","type":"value_error"}]}`)(w, nil)
		},
	})
	if r := execute(t, "", "whatif", "--drain", "n9"); r.Code == 0 || !strings.Contains(r.Errors, `no node is called "n9"`) {
		t.Errorf("got %+v", r)
	}
}
