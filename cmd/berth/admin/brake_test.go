package admin

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"berth/cmd/berth/clitest"
)

const (
	heldBrake = `{"holds": true, "since": "2026-07-01T12:00:00Z", "share_percent": 0, "released_at": null, "vanished": [
  {"id": "` + firstNode + `", "name": "gpu-1", "down_at": "2026-07-01T12:00:00Z", "live_attempts": 3},
  {"id": "` + secondNode + `", "name": "gpu-2", "down_at": "2026-07-01T12:00:01Z", "live_attempts": 0}
]}`
	freeBrake = `{"holds": false, "since": null, "share_percent": 50, "released_at": "2026-07-01T12:05:00Z", "vanished": []}`
)

func TestAdminBrake(t *testing.T) {
	var asked string
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET " + clitest.APIRoot + "/admin/brake": clitest.Answer(heldBrake),
		"POST " + clitest.APIRoot + "/admin/brake": func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if asked = string(body); err != nil {
				t.Error(err)
			}
			clitest.Answer(freeBrake)(w, r)
		},
	})
	clitest.CheckGolden(t, "brake_held", execute(t, "", "admin", "brake", "show").Out)
	clitest.CheckGolden(t, "brake_free", execute(t, "", "admin", "brake", "release").Out)
	for _, test := range []struct{ args, asked, output string }{
		{"set --share 50", `{"share_percent":50}`, "more than 50 %"},
		{"set --share 0 --json", `{"share_percent":0}`, `"share_percent": 50`},
		{"release --json", `{"release":true}`, `"holds": false`},
		{"show --json", "", `"live_attempts": 3`},
	} {
		asked = ""
		r := execute(t, "", append([]string{"admin", "brake"}, strings.Fields(test.args)...)...)
		if r.Code != 0 || asked != test.asked || !strings.Contains(r.Out, test.output) {
			t.Errorf("%s: asked %q, got %+v", test.args, asked, r)
		}
	}
	asked = ""
	for args, want := range map[string]string{
		"set": "share", "set --share 101": "must be 0 to 100", "set --share -1": "must be 0 to 100", "release now": "now",
	} {
		r := execute(t, "", append([]string{"admin", "brake"}, strings.Fields(args)...)...)
		if r.Code == 0 || !strings.Contains(r.Errors, want) || asked != "" {
			t.Errorf("%s: asked %q, got %+v", args, asked, r)
		}
	}
}
