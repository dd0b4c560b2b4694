package execution

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/cmd/berth/cli"
	"berth/cmd/berth/clitest"
)

// TestRunCell executes two cells of a notebook, and a third that leaves nothing.
func TestRunCell(t *testing.T) {
	var sent map[string]any
	left := `"eA=="`
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"POST " + clitest.APIRoot + "/execution/streaming/start": func(w http.ResponseWriter, r *http.Request) {
			clear(sent)
			clitest.RecordSent(t, &sent, started)(w, r)
		},
		"GET /api/v1/stream/" + clitest.SomeID: clitest.Answer(stream),
		"GET " + clitest.APIRoot + "/execution/" + clitest.SomeID: func(w http.ResponseWriter, r *http.Request) {
			clitest.Answer(strings.Replace(ended, "{", `{"kernel_state":`+left+",", 1))(w, r)
		},
	})
	file := filepath.Join(t.TempDir(), "notebook.state")
	for _, cell := range []struct{ left, sent, kept string }{
		{`"eA=="`, "", "eA=="}, {`"eQ=="`, "eA==", "eQ=="}, {"null", "eQ==", "eQ=="},
	} {
		left = cell.left
		execute(t, "", "run", "--cell", file, "-c", "1")
		if state, _ := sent["kernel_state"].(string); state != cell.sent || sent["nbcode"] == nil {
			t.Errorf("sent %v, want the state %q", sent, cell.sent)
		}
		if kept, err := os.ReadFile(file); err != nil || string(kept) != cell.kept {
			t.Errorf("kept %q, %v; want %q", kept, err, cell.kept)
		}
	}
	for _, args := range []string{"-d -c 1", "-- true"} {
		r := execute(t, "", append([]string{"run", "--cell", file}, strings.Fields(args)...)...)
		if r.Code != cli.ExitUsage {
			t.Errorf("%s: got %+v", args, r)
		}
	}
}
