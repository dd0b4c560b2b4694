//go:build long

package node_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/node/nodetest"
)

const (
	followers  = 1000
	readsBytes = 32 << 10  // Memory of a node for each client that reads there,
	stuckBytes = 112 << 10 // and for each that does not read a flood of output.
)

// TestThousandFollowers has a thousand clients follow one execution on the node that
// executes it, and on another. Then as many read nothing of a flood.
func TestThousandFollowers(t *testing.T) {
	c := nodetest.StartMeasured(t, 3, func(cfg *nodetest.NodeConfig) { withProfiles(t, cfg) })
	api := nodetest.MustClient(t, c.MustAccount("acme").Key, c.Nodes[0].URL)
	const prints = "import time\nfor i in range(100000):\n    print('line', i, flush=True)\n    time.sleep(1)\n"
	const floods = "import time\ntext = 'line ' + 'x' * 200\nfor i in range(100000):\n    print(text, i)\ntime.sleep(500)\n"
	for _, code := range []string{prints, floods} {
		for _, where := range []string{"here", "elsewhere"} {
			reads := code == prints
			t.Run(fmt.Sprintf("%s, reads %v", where, reads), func(t *testing.T) {
				executes, follows := c.Nodes[1], c.Nodes[1]
				if where == "elsewhere" {
					follows = c.Nodes[2]
				}
				measureFollowers(t, executes, follows, api, code, reads)
			})
		}
	}
}

// measureFollowers opens streams of one execution and measures the memory that they take.
func measureFollowers(t *testing.T, executes, follows *nodetest.Process, api *client.Client, code string, reads bool) {
	t.Helper()
	started, err := api.Submit(t.Context(), client.Start{Code: code, Timeout: 600, ExecutionType: ownGPU(executes)})
	if err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, time.Minute, "the execution to print", func() bool {
		e, err := api.Execution(t.Context(), started.ExecutionID, 0)
		return err == nil && strings.Contains(e.CombinedOutput, "\n")
	})
	before, own := memoryOf(t, follows), memoryOf(t, executes)
	conns := make([]net.Conn, 0, followers)
	for range followers {
		conn := mustFollow(t, follows, started, reads)
		defer conn.Close()
		conns = append(conns, conn)
	}
	pauseTest(t.Context(), 5*time.Second)
	each := (memoryOf(t, follows) - before) / followers
	t.Logf("a follower takes %d bytes, and %d of the node that executes", each, (memoryOf(t, executes)-own)/followers)
	most := readsBytes
	if !reads {
		most = stuckBytes
	}
	if each > most {
		t.Errorf("a follower takes %d bytes, more than %d", each, most)
	}
	if reads {
		for _, conn := range conns { // All still get what is printed now.
			if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := api.Abort(t.Context(), started.ExecutionID); err != nil {
		t.Fatal(err)
	}
}

// mustFollow opens a stream, and reads its first line if it reads at all.
func mustFollow(t *testing.T, node *nodetest.Process, started wire.Started, reads bool) net.Conn {
	t.Helper()
	_, path, _ := strings.Cut(strings.TrimPrefix(started.StreamingURL, "http://"), "/")
	host := strings.TrimPrefix(node.URL, "http://")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET /%s HTTP/1.1\r\nHost: %s\r\n\r\n", path, host); err != nil {
		t.Fatal(err)
	}
	if !reads {
		return conn
	}
	r := bufio.NewReaderSize(conn, 512)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, "line") {
			return conn
		}
	}
}

// memoryOf returns how much memory of a node is in use, without garbage. Stacks shrink by
// half with each collection.
func memoryOf(t *testing.T, node *nodetest.Process) (bytes int) {
	t.Helper()
	for range 4 {
		bytes = memoryNow(t, node)
	}
	return bytes
}

// memoryNow collects garbage and returns how much memory is in use.
func memoryNow(t *testing.T, node *nodetest.Process) (bytes int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://"+node.Config.Metrics.Addr+"/debug/pprof/heap?gc=1&debug=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+profilesToken)
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", answer.Status, err)
	}
	for line := range strings.Lines(string(text)) {
		for _, name := range []string{"# HeapAlloc = ", "# Stack = "} {
			if rest, ok := strings.CutPrefix(line, name); ok {
				n, err := strconv.Atoi(strings.Fields(rest)[0])
				if err != nil {
					t.Fatal(err)
				}
				bytes += n
			}
		}
	}
	return bytes
}

const profilesToken = "a-token-for-the-profiles-of-this-test"

// withProfiles has a node serve profiles of itself.
func withProfiles(t *testing.T, cfg *nodetest.NodeConfig) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Metrics.Addr, cfg.Metrics.TokenFile = l.Addr().String(), filepath.Join(t.TempDir(), "token")
	if err := errors.Join(l.Close(), os.WriteFile(cfg.Metrics.TokenFile, []byte(profilesToken), 0o600)); err != nil {
		t.Fatal(err)
	}
}
