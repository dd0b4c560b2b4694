package inspect

import (
	"net/http"
	"strings"
	"testing"

	"berth/cmd/berth/cli"
	"berth/cmd/berth/clitest"
)

func TestSpark(t *testing.T) {
	long := make([]float64, 10*sparkWidth)
	for i := range long {
		long[i] = float64(i)
	}
	for _, tt := range []struct {
		values []float64
		top    float64
		want   string
	}{
		{nil, 1, ""},
		{[]float64{0, 0.1, 50, 99.9, 100, 120}, 100, " ▁▄███"},
		{[]float64{0, 0}, 0, "  "},
		{long, 480, "▁▁▁▁▁▁▂▂▂▂▂▂▃▃▃▃▃▃▄▄▄▄▄▄▅▅▅▅▅▅▆▆▆▆▆▆▇▇▇▇▇▇██████"},
	} {
		if got := spark(tt.values, tt.top); got != tt.want {
			t.Errorf("%v: got %q, want %q", tt.values, got, tt.want)
		}
	}
}

func TestMetrics(t *testing.T) {
	asked := ""
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET " + clitest.APIRoot + "/execution/": func(w http.ResponseWriter, r *http.Request) {
			asked = r.URL.RawQuery
			clitest.Answer(`{"timeRange":{"start":"2026-01-01T00:00:00Z","end":"2026-01-01T00:08:00Z"},"simulated":true,
				"gpuUtilizationPercent":[{"value":50},{"value":100}],"systemRamTotalBytes":[{"value":4194304}],
				"systemRamUsedBytes":[{"value":1048576},{"value":2097152}],"warnings":["node n2 does not answer"]}`)(w, r)
		},
	})
	r := execute(t, "", "metrics", clitest.SomeID)
	if r.Code != 0 || !strings.Contains(r.Out, "GPU %        ▄█   50.0   75.0   100\n") ||
		!strings.Contains(r.Out, "memory MiB   ▂▄   1.0    1.5    2.0\n") || strings.Contains(r.Out, "PCIe") ||
		!strings.Contains(r.Errors, "n2 does not answer") || !strings.Contains(r.Errors, "simulated") {
		t.Errorf("got %+v", r)
	}
	if asked != "step=10s" {
		t.Errorf("asked %q", asked)
	}
	if r := execute(t, "", "metrics", "--step", "10ms", clitest.SomeID); r.Code != cli.ExitUsage {
		t.Errorf("got %+v", r)
	}
}

func TestCallbacks(t *testing.T) {
	asked := []string{}
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET " + clitest.APIRoot + "/execution/": clitest.Answer(`[{"webhook_id":"msg_1","url":"https://example.com/x","status":"pending",
			"tries":2,"status_code":503,"error":"the receiver answered 503"}]`),
		"POST " + clitest.APIRoot + "/execution/": func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.Path)
			clitest.Answer(`{"count":1}`)(w, r)
		},
	})
	r := execute(t, "", "callbacks", "--redeliver", clitest.SomeID)
	if r.Code != 0 || !strings.Contains(r.Out, "msg_1") || !strings.Contains(r.Out, "answered 503") ||
		!strings.Contains(r.Errors, "sent again: 1") || len(asked) != 1 || !strings.HasSuffix(asked[0], "/callbacks/redeliver") {
		t.Errorf("asked %q, got %+v", asked, r)
	}
}
