package execution

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"berth/cmd/berth/cli"
	"berth/cmd/berth/clitest"
)

// serviceRow returns a service as the API answers it.
func serviceRow(status string, ready int) string {
	return fmt.Sprintf(`{"execution_id":%q,"name":"web","status":%q,"status_details":null,"detail":"why",
 "url":"http://n1/services/x/","hardware_profile":"cpu","port":8000,"replicas":2,"ready":%d,"created_at":"2026-01-01T00:00:00Z",
 "rows":[{"number":1,"execution_id":%q,"status":"failed","status_details":"exit_code","detail":"exit code 3","ready":false,
 "node":"n1","restarts":4,"next_start":"2026-01-01T00:00:10Z"}]}`, clitest.SomeID, status, ready, otherID)
}

// mustServices serves a service that is ready when it is asked for the second time,
// and returns the requests that change something.
func mustServices(t *testing.T, status string) *[]string {
	t.Helper()
	did, asked := new([]string), 0
	do := func(w http.ResponseWriter, r *http.Request) {
		*did = append(*did, r.Method+" "+strings.TrimPrefix(r.URL.Path, clitest.APIRoot))
		clitest.Answer(serviceRow("running", 1))(w, r)
	}
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"POST " + clitest.APIRoot + "/execution/service/start": do,
		"GET " + clitest.APIRoot + "/services":                 clitest.Answer("[" + serviceRow("running", 1) + "]"),
		"GET " + clitest.APIRoot + "/services/": func(w http.ResponseWriter, r *http.Request) {
			clitest.Answer(serviceRow(status, asked))(w, r)
			asked++
		},
		"POST " + clitest.APIRoot + "/services/":   do,
		"DELETE " + clitest.APIRoot + "/services/": do,
	})
	return did
}

func TestServiceRun(t *testing.T) {
	did := mustServices(t, "running")
	r := execute(t, "", "service", "run", "-c", "x", "--health-path", "/health")
	if r.Code != 0 || r.Out != "http://n1/services/x/\n" || !strings.Contains(r.Errors, "starts again at") ||
		fmt.Sprint(*did) != "[POST /execution/service/start]" {
		t.Errorf("asked %q, got %+v", *did, r)
	}
	if r := execute(t, "", "service", "run", "-c", "x", "--timeout", "5"); r.Code != cli.ExitUsage {
		t.Errorf("with a time limit, got %+v", r)
	}
	mustServices(t, "failed")
	if r := execute(t, "", "service", "run", "-c", "x"); r.Code != cli.ExitFailed || !strings.Contains(r.Errors, "the service is failed: - why") {
		t.Errorf("of one that fails, got %+v", r)
	}
}

// TestServiceLogs shows the output of a replica's newest execution: so far, and with -f to
// its end.
func TestServiceLogs(t *testing.T) {
	const thirdID = "0198c0de-0000-7000-8000-000000000003"
	service := strings.Replace(serviceRow("running", 1), `"rows":[`,
		`"rows":[{"number":2,"execution_id":"`+thirdID+`","status":"running","ready":true},{"number":3,"status":"pending"},`, 1)
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET " + clitest.APIRoot + "/services":             clitest.Answer("[" + service + "]"),
		"GET " + clitest.APIRoot + "/execution/" + otherID: clitest.Answer(ended),
		"GET /api/v1/stream/" + otherID:                    clitest.Answer(stream),
		"GET " + clitest.APIRoot + "/execution/" + thirdID: clitest.Answer(`{"status":"running","combined_output":"one\ntwo\nso far"}`),
	})
	for _, test := range []struct {
		args, out, errors string
		code              int
	}{
		{"web", "hello\n", "oops\n", 0},
		{clitest.SomeID[len(clitest.SomeID)-4:], "hello\n", "oops\n", 0},
		{"-f web", "hello\n", "oops\n", 3},
		{"--json web", `{"seq":1,"stream":"stdout","content":"hello\n"}`, "", 0},
		{"--replica 2 web", "one\ntwo\nso far", "", 0},
		{"--replica 2 -n 2 web", "two\nso far", "", 0},
		{"--replica 3 web", "", "no replica 3 yet", cli.ExitUsage},
		{"--replica 4 web", "", "no replica 4 yet", cli.ExitUsage},
		{"nothing", "", "nothing", cli.ExitUsage},
	} {
		r := execute(t, "", append([]string{"service", "logs"}, strings.Fields(test.args)...)...)
		if r.Code != test.code || !strings.HasPrefix(r.Out, test.out) || (r.Out == "") != (test.out == "") || !strings.Contains(r.Errors, test.errors) {
			t.Errorf("service logs %s: got %+v", test.args, r)
		}
	}
}

func TestServiceCommands(t *testing.T) {
	did := mustServices(t, "running")
	if r := execute(t, "", "service", "ls"); r.Code != 0 || !strings.Contains(r.Out, "1/2") || !strings.Contains(r.Out, "http://n1/services/x/") {
		t.Errorf("got %+v", r)
	}
	if r := execute(t, "", "service", "ls", "--replicas"); r.Code != 0 || !strings.Contains(r.Out, otherID) || !strings.Contains(r.Out, "exit code 3") {
		t.Errorf("got %+v", r)
	}
	for _, args := range [][]string{{"scale", "web", "3"}, {"rm", clitest.SomeID[len(clitest.SomeID)-4:]}} {
		if r := execute(t, "", append([]string{"service"}, args...)...); r.Code != 0 {
			t.Errorf("%q: got %+v", args, r)
		}
	}
	if got := fmt.Sprint(*did); got != "[POST /services/"+clitest.SomeID+"/scale DELETE /services/"+clitest.SomeID+"]" {
		t.Errorf("asked %s", got)
	}
	if r := execute(t, "", "service", "scale", "web", "65"); r.Code != cli.ExitUsage {
		t.Errorf("of too many, got %+v", r)
	}
	if r := execute(t, "", "service", "rm", "nothing"); r.Code != cli.ExitUsage || len(*did) != 2 {
		t.Errorf("of none, got %+v", r)
	}
}
