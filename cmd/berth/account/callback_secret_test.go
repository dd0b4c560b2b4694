package account

import (
	"bytes"
	"net/http"
	"os"
	"strings"
	"testing"

	"berth/cmd/berth/clitest"
)

// TestCallbackSecretOnAFullDisk shows a secret on standard error, and fails, if standard output has
// no space for it: it is not shown again.
func TestCallbackSecretOnAFullDisk(t *testing.T) {
	const secret = "whsec_new"
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET " + clitest.APIRoot + "/user/status":               clitest.Answer(status),
		"GET " + clitest.APIRoot + "/orgs":                      clitest.Answer(orgs),
		"POST " + clitest.APIRoot + "/orgs/lab/callback-secret": clitest.Answer(`{"number":2,"secret":"` + secret + `"}`),
	})
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, flags := range [][]string{nil, {"--json"}} {
		var words bytes.Buffer
		root := clitest.Root(NewOrgs())
		root.SetArgs(append([]string{"orgs", "callback-secret", "set"}, flags...))
		root.SetOut(full)
		root.SetErr(&words)
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(words.String(), "shown this once:\n"+secret+"\n") {
			t.Errorf("%v: %v, standard error has %q", flags, err, words.String())
		}
	}
}
