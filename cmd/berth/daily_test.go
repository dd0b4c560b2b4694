package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"berth/cmd/berth/cli"
	"berth/cmd/berth/clitest"
)

const otherID = "0198c0de-0000-7000-8000-000000000002"

// summary returns a row of a list.
func summary(id, status, kind, tag string) string {
	return fmt.Sprintf(`{"execution_id":%q,"status":%q,"execution_type":%q,"hardware_profile":"cpu",`+
		`"created_at":"2026-01-01T00:00:00Z","metadata":{"node":"n1","tags":[%q]}}`, id, status, kind, tag)
}

// mustWork serves a running execution and one that has ended. It returns the
// requests that change something, and the query of the last history.
func mustWork(t *testing.T) (did *[]string, query *string) {
	t.Helper()
	did, query = new([]string), new(string)
	do := func(w http.ResponseWriter, r *http.Request) {
		*did = append(*did, r.Method+" "+strings.TrimPrefix(r.URL.Path, clitest.APIRoot))
		if strings.HasSuffix(r.URL.Path, clitest.SomeID) && r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusConflict)
			clitest.Answer(`{"detail":"It has not ended.","code":"not_ended"}`)(w, r)
			return
		}
		clitest.Answer(`{"execution_id":"`+clitest.SomeID+`","status":"running"}`)(w, r)
	}
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET " + clitest.APIRoot + "/workloads/list": clitest.Answer("[" + summary(clitest.SomeID, "running", "python", "red") + "]"),
		"GET " + clitest.APIRoot + "/billing/history": func(w http.ResponseWriter, r *http.Request) {
			*query = r.URL.RawQuery
			clitest.Answer(`{"executions":[`+summary(clitest.SomeID, "running", "python", "red")+","+
				summary(otherID, "failed", "gpu_selection", "blue")+`]}`)(w, r)
		},
		"POST " + clitest.APIRoot + "/workloads/":   do,
		"DELETE " + clitest.APIRoot + "/execution/": do,
		"GET " + clitest.APIRoot + "/execution/":    clitest.Answer(record),
	})
	return did, query
}

// record is an execution with all that berth show prints.
const record = `{"execution_id":"` + clitest.SomeID + `","status":"failed","execution_type":"python","hardware_profile":"gpu.t4",
 "status_details":"exit_code","created_at":"2026-01-01T00:00:00Z","start_time":"2026-01-01T00:00:01Z","end_time":"2026-01-01T00:00:03Z",
 "billed":0.25,"file_name":"train.py","return_code":3,"errors":["the code exited with code 3"],"warnings":[],"code":"exit(3)\n",
 "timeout":60,"priority":50,"network":"egress","metadata":{"node":"n1","gpus":["SIM-n1-0"],"tags":["red"]},
 "usage":{"cpu_s":1.5,"peak_memory_mib":20,"gpu_utilization_percent":90},
 "attempts":[{"attempt":1,"node":"n1","placed_at":"2026-01-01T00:00:01Z","ended_at":"2026-01-01T00:00:03Z","status":"failed"}]}`

// TestEndsAreAllTried holds that a refusal, or an unknown name, does not keep the
// other executions from being ended.
func TestEndsAreAllTried(t *testing.T) {
	did, _ := mustWork(t)
	r := execute(t, "", "abort", "nothing", "000000000001", otherID)
	if r.Code != cli.ExitUsage || !strings.Contains(r.Errors, "1 of 3 failed") || !strings.Contains(r.Errors, "berth ps -a") ||
		fmt.Sprint(*did) != "[POST /workloads/abort/"+clitest.SomeID+" POST /workloads/abort/"+otherID+"]" {
		t.Errorf("asked %q, got %+v", *did, r)
	}
	*did = nil
	r = execute(t, "", "rm", "--json", clitest.SomeID, "0002")
	if r.Code != cli.ExitFailed || len(*did) != 2 || !strings.Contains(r.Out, `"error": "It has not ended."`) ||
		!strings.Contains(r.Out, `"execution_id": "`+otherID+`"`) {
		t.Errorf("asked %q, got %+v", *did, r)
	}
	if r := execute(t, "", "stop", "-0000"); r.Code != cli.ExitUsage {
		t.Errorf("got %+v", r)
	}
}

func TestPsFilters(t *testing.T) {
	_, query := mustWork(t)
	for _, test := range []struct {
		args, query, want, not string
	}{
		{"", "", clitest.SomeID, otherID},
		{"--tag red", "", clitest.SomeID, otherID},
		{"--tag blue", "", "ID", "0198"},
		{"--status queued", "", "ID", "0198"},
		{"-a", "limit=50", otherID, "?"},
		{"-a --tag blue", "limit=50", otherID, clitest.SomeID},
		{"--status failed -n 7", "limit=7&status=failed", otherID, clitest.SomeID},
		{"-a --type gpu_selection", "limit=50&type=gpu_selection", otherID, clitest.SomeID},
		{"--parent 0002", "parent=" + otherID, "ID", "?"},
	} {
		*query = ""
		r := execute(t, "", append([]string{"ps"}, strings.Fields(test.args)...)...)
		if r.Code != 0 || !strings.Contains(r.Out, test.want) || strings.Contains(r.Out, test.not) || !strings.Contains(*query, test.query) {
			t.Errorf("ps %s: asked %q, got %+v", test.args, *query, r)
		}
		for line := range strings.Lines(r.Out) {
			if strings.HasSuffix(line, " \n") {
				t.Errorf("ps %s: a line ends with a space: %q", test.args, line)
			}
		}
	}
	if r := execute(t, "", "ps", "--since", "2h"); r.Code != 0 || !strings.Contains(*query, "from=20") {
		t.Errorf("asked %q, got %+v", *query, r)
	}
	for _, args := range []string{"--status done", "-n 0", "-n 5000"} {
		if r := execute(t, "", append([]string{"ps"}, strings.Fields(args)...)...); r.Code != cli.ExitUsage {
			t.Errorf("ps %s: got %+v", args, r)
		}
	}
}

func TestShow(t *testing.T) {
	mustWork(t)
	clitest.CheckGolden(t, "show", execute(t, "", "show", "0001").Out)
	if r := execute(t, "", "show", "--code", clitest.SomeID); r.Out != "exit(3)\n" {
		t.Errorf("got %+v", r)
	}
	if r := execute(t, "", "show", "--json", clitest.SomeID); r.Code != 0 || !strings.Contains(r.Out, `"return_code": 3`) {
		t.Errorf("got %+v", r)
	}
}

func TestCredits(t *testing.T) {
	line := func(seq int) string {
		return fmt.Sprintf(`{"seq":%d,"at":"2026-01-01T00:00:00Z","kind":"grant","amount":5,"balance":%d,"held":0}`, seq, 5*seq)
	}
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET " + clitest.APIRoot + "/billing/credits": clitest.Answer(
			`{"available_credits":4.5,"used_credits":1,"total_credits_used":2,"held_credits":0.5}`),
		"GET " + clitest.APIRoot + "/billing/ledger": func(w http.ResponseWriter, r *http.Request) {
			body := `{"entries":[` + line(1) + "," + line(2) + `],"next_cursor":2}`
			if r.URL.Query().Get("cursor") == "2" {
				body = `{"entries":[` + line(3) + `],"next_cursor":null}`
			}
			clitest.Answer(body)(w, r)
		},
	})
	clitest.CheckGolden(t, "credits", execute(t, "", "credits").Out)
	clitest.CheckGolden(t, "ledger", execute(t, "", "credits", "ledger", "-n", "2").Out)
	if r := execute(t, "", "credits", "--json"); !strings.Contains(r.Out, `"held_credits": 0.5`) {
		t.Errorf("got %+v", r)
	}
	if r := execute(t, "", "credits", "ledger", "-n", "0"); r.Code != cli.ExitUsage {
		t.Errorf("got %+v", r)
	}
}

// TestLogsTail shows the last lines, and those of the last minutes, of an execution
// that has ended and of one whose stream stays open.
func TestLogsTail(t *testing.T) {
	now := time.Now()
	event := func(seq int, ago time.Duration, text string) string {
		return fmt.Sprintf("id: %d\ndata: {\"output\":{\"content\":%q},\"stream\":\"stdout\",\"at\":%q}\n\n",
			seq, text, now.Add(-ago).UTC().Format(time.RFC3339))
	}
	lines := event(1, time.Hour, "a\nb\n") + event(2, 30*time.Minute, "c\nd\ne\n") + event(3, time.Minute, "f\n")
	end := "data: {\"jobFinished\":{\"job\":{\"result\":{\"returnCode\":\"0\",\"error\":null}}}}\n\n"
	open := false
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET " + clitest.APIRoot + "/execution/" + clitest.SomeID: func(w http.ResponseWriter, r *http.Request) {
			status := "completed"
			if open {
				status = "running"
			}
			clitest.Answer(`{"execution_id":"`+clitest.SomeID+`","status":"`+status+`","combined_output":"a\nb\nc"}`)(w, r)
		},
		"GET /api/v1/stream/": func(w http.ResponseWriter, r *http.Request) {
			if !open {
				clitest.Answer(lines+end)(w, r)
				return
			}
			clitest.Answer(lines)(w, r)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			<-r.Context().Done()
		},
	})
	for _, test := range []struct {
		args, want string
		running    bool
	}{
		{args: "", want: "a\nb\nc\nd\ne\nf\n"},
		{args: "--tail 2", want: "e\nf\n"},
		{args: "--tail 3", want: "d\ne\nf\n"},
		{args: "--tail 0", want: ""},
		{args: "-n 100", want: "a\nb\nc\nd\ne\nf\n"},
		{args: "-f --tail 1", want: "f\n"},
		{args: "--since 40m", want: "c\nd\ne\nf\n"},
		{args: "--since 40m --tail 2", want: "e\nf\n"},
		{args: "--since 1s", want: ""},
		{args: "", want: "a\nb\nc", running: true},
		{args: "--tail 2", want: "b\nc", running: true},
		{args: "--since 40m", want: "c\nd\ne\nf\n", running: true},
	} {
		open = test.running
		r := execute(t, "", append([]string{"logs", clitest.SomeID}, strings.Fields(test.args)...)...)
		if r.Code != 0 || r.Out != test.want {
			t.Errorf("logs %s (running %t): got %+v, want %q", test.args, test.running, r, test.want)
		}
	}
}

func TestRunFlagsForPreemption(t *testing.T) {
	var sent map[string]any
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"POST " + clitest.APIRoot + "/execution/streaming/start": clitest.RecordSent(t, &sent, started),
	})
	r := execute(t, "", "run", "-d", "-c", "1", "--preemptible", "--disconnect-grace", "90s")
	if r.Code != 0 || sent["preemptible"] != true || sent["disconnect_grace"] != 90.0 {
		t.Errorf("sent %v, got %+v", sent, r)
	}
}

// TestCompletion completes identifiers, and the values of flags.
func TestCompletion(t *testing.T) {
	mustWork(t)
	for args, want := range map[string]string{
		"abort ":       clitest.SomeID + "\trunning cpu",
		"show ":        otherID + "\tfailed cpu",
		"ps --status ": "system_failure",
	} {
		words := append([]string{"__complete"}, strings.Split(args, " ")...)
		if r := execute(t, "", words...); !strings.Contains(r.Out, want) {
			t.Errorf("%q: got %+v", args, r)
		}
	}
	if os.Getenv("BERTH_ADDR") == "" {
		t.Error("the fake cluster is not in use")
	}
}

// TestLogsSearch searches the output of an execution, and of all.
func TestLogsSearch(t *testing.T) {
	asked := []string{}
	answer := func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, strings.TrimPrefix(r.URL.Path, clitest.APIRoot)+"?"+r.URL.RawQuery)
		clitest.Answer(`{"logs":[{"timestamp":"`+time.Now().Add(-2*time.Minute).UTC().Format(time.RFC3339)+
			`","message":"loss is nan","level":"error","execution_id":"`+clitest.SomeID+`"}],"total":3,"warnings":["n2 is down"]}`)(w, r)
	}
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET " + clitest.APIRoot + "/logs/":          answer,
		"GET " + clitest.APIRoot + "/workloads/list": clitest.Answer("[" + summary(clitest.SomeID, "running", "python", "red") + "]"),
	})
	r := execute(t, "", "logs", "--grep", "NAN", "--level", "warning", "--since", "90m", clitest.SomeID)
	if r.Code != 0 || r.Out != "loss is nan\n" || !strings.Contains(r.Errors, "2 earlier lines") ||
		!strings.Contains(r.Errors, "n2 is down") {
		t.Errorf("got %+v", r)
	}
	if r := execute(t, "", "logs", "--mine", "-n", "5"); !strings.HasSuffix(r.Out, " error   loss is nan\n") {
		t.Errorf("got %+v", r)
	}
	if r := execute(t, "", "logs", "--mine", "--since", "1m"); r.Out != "" {
		t.Errorf("older than asked: got %+v", r)
	}
	want := "[/logs/execution/" + clitest.SomeID + "?hours=2&level=warning&limit=10000&search=NAN " +
		"/logs/user?hours=24&limit=5 /logs/user?hours=1&limit=5000]"
	if got := fmt.Sprint(asked); got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	for _, args := range [][]string{
		{"logs"},
		{"logs", "--mine", clitest.SomeID},
		{"logs", "--mine", "-f"},
		{"logs", "--mine", "--since", "25h"},
		{"logs", "--grep", "x", "-n", "10001", clitest.SomeID},
	} {
		if r := execute(t, "", args...); r.Code != cli.ExitUsage {
			t.Errorf("%v: got %+v", args, r)
		}
	}
}
