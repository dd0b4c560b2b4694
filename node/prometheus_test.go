package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/api/client"
	"berth/node/nodetest"
)

// TestPrometheusScrapesAllNodes starts a real Prometheus on the shipped
// configuration: it asks one node where the others are and scrapes them all.
func TestPrometheusScrapesAllNodes(t *testing.T) {
	t.Parallel() // It mostly waits.
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatal("prometheus is not installed: `make test` installs Debian's package, or apt-get install prometheus")
	}
	c := nodetest.New(t, 3)
	base := mustStartPrometheus(t, binary, c.Follower().URL())

	up := func(query string, want int) func() bool {
		return func() bool { return len(mustQuery(t, base, query)) == want }
	}
	nodetest.Eventually(t, 2*time.Minute, "three targets that are up", up(`up{job="berth"} == 1`, 3))
	nodetest.Eventually(t, time.Minute, "every simulated GPU's series", up(`DCGM_FI_DEV_GPU_UTIL`, 14))
	for _, series := range mustQuery(t, base, `DCGM_FI_DEV_GPU_UTIL`) {
		if !strings.HasSuffix(series["modelName"], "(simulated)") {
			t.Errorf("model %q of a simulated GPU does not say so", series["modelName"])
		}
	}
	nodetest.Eventually(t, time.Minute, "the applied index of three nodes", up(`berth_raft_applied_index > 0`, 3))
	for _, metric := range []string{"berth_build_info", "berth_raft_has_leader"} {
		nodetest.Eventually(t, time.Minute, metric+" of three nodes", up(metric+` == 1`, 3))
	}
	checkChargeback(t, c, base)
}

// checkChargeback has two organizations hold halves of GPUs, and asks Prometheus what the
// manual does: each query joins the holders to the series of the GPUs or to the
// organizations.
func checkChargeback(t *testing.T, c *nodetest.Cluster, base string) {
	t.Helper()
	for _, slug := range []string{"acme", "umbra"} {
		api := nodetest.MustClient(t, c.MustAccount(slug).Key, c.Follower().URL())
		started, err := api.Submit(t.Context(), client.Start{Code: "while True: pass", ExecutionType: "gpu.t4.500m", Timeout: 600})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { // It would outlive its node.
			if err := api.Stop(t.Context(), started.ExecutionID); err != nil {
				t.Error(err)
			}
			mustFinish(t, api, started.ExecutionID)
		}()
	}
	manual, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(manual), "## Metrics and chargeback")
	text, _, _ = strings.Cut(text, "\n## ")
	queries := strings.Split(text, "```promql\n")[1:]
	if len(queries) != 3 {
		t.Fatalf("the manual has %d queries", len(queries))
	}
	for i := range queries {
		query, _, _ := strings.Cut(queries[i], "```")
		query = strings.ReplaceAll(query, "[30d:1m]", "[1h:1s]") // A minute is long for a test.
		var got []map[string]string
		nodetest.Eventually(t, time.Minute, "two organizations in "+query, func() bool {
			got = mustQuery(t, base, "("+query+") > 0")
			return len(got) == 2
		})
		orgs := map[string]bool{}
		for _, series := range got {
			orgs[series["org"]] = true
			hours, energy := i == 0, i == 1
			if series["org"] == "" || (series["slug"] != "") != hours || (series["kind"] == "python") != energy {
				t.Errorf("%s gives %v", query, series)
			}
		}
		if len(orgs) != 2 {
			t.Errorf("%s gives %v", query, got)
		}
	}
}

// mustStartPrometheus runs Prometheus on deploy's configuration, pointed at a
// node and scraping each second, and returns its URL.
func mustStartPrometheus(t *testing.T, binary, node string) string {
	t.Helper()
	shipped, err := os.ReadFile("../deploy/prometheus/berth.yml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := strings.NewReplacer("http://127.0.0.1:6470", node, ": 15s", ": 1s").Replace(string(shipped))
	mustWrite(t, filepath.Join(dir, "berth.yml"), config)
	rules, err := os.ReadFile("../deploy/prometheus/berth.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(dir, "berth.rules.yml"), string(rules))
	address := freeAddress(t)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, binary,
		"--config.file="+filepath.Join(dir, "berth.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// The kernel kills it when the thread that started it ends, so the test
	// keeps that thread for itself.
	runtime.LockOSThread()
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // Killed by cancel.
	})
	return "http://" + address
}

// mustQuery returns the labels of every series of an instant query, none while
// Prometheus does not answer.
func mustQuery(t *testing.T, base, query string) []map[string]string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/v1/query?query="+url.QueryEscape(query), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	var answer struct {
		Data struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return nil
	}
	var series []map[string]string
	for _, r := range answer.Data.Result {
		series = append(series, r.Metric)
	}
	return series
}

// freeAddress returns a loopback address that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return fmt.Sprint(l.Addr())
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
