package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/node/nodetest"
)

// withWorkers runs three servers and two workers with a b200 and an h200.
func withWorkers(t *testing.T) (c *nodetest.Cluster, b200, h200 *nodetest.Node) {
	t.Helper()
	c = nodetest.NewWith(t, 5, func(i int, cfg *nodetest.NodeConfig) {
		if i >= 3 {
			cfg.Role, cfg.GPUs.Simulated = nodetest.Worker, []string{[]string{"b200:1", "h200:1"}[i-3]}
			cfg.API.Hosts = []string{"127.0.0.1"}
		}
	})
	return c, c.Nodes[3], c.Nodes[4]
}

// TestWorkerExecutes has two workers execute what is asked of the other one,
// and of a server.
func TestWorkerExecutes(t *testing.T) {
	t.Parallel() // It mostly waits.
	c, b200, h200 := withWorkers(t)
	account := c.MustAccount("acme")
	api := nodetest.MustClient(t, account.Key, h200.URL())
	code := "import os, sys, time\nimport note\nprint('on', os.environ['BERTH_GPU_TYPE'], len(note.text), flush=True)\n" +
		"time.sleep(1)\nprint('later', file=sys.stderr)\nsys.exit(3)\n"
	files, err := json.Marshal(map[string]string{"note.py": "text = '" + strings.Repeat("n", 64<<10) + "'\n"}) // No inline bundle.
	if err != nil {
		t.Fatal(err)
	}
	started, err := api.Submit(t.Context(), client.Start{
		Code: code, ExecutionType: "b200", Timeout: 60, ImportFiles: string(files),
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(started.StreamingURL, h200.URL()+"/") {
		t.Errorf("the stream of what was asked of %s is at %s", h200.URL(), started.StreamingURL)
	}
	live, _ := mustStream(t, api, started.ExecutionID) // Through one worker, from the other, while it executes.
	e := mustFinish(t, api, started.ExecutionID)
	if e.Status != compute.StatusFailed || e.ReturnCode == nil || *e.ReturnCode != 3 {
		t.Fatalf("got %v with code %v, want failed with 3", e.Status, e.ReturnCode)
	}
	for _, n := range c.Nodes {
		out, finished := mustStream(t, nodetest.MustClient(t, account.Key, n.URL()), started.ExecutionID)
		if out != live || !strings.Contains(out, "on b200 65536\n") || !strings.Contains(out, "later") || finished.ReturnCode != "3" {
			t.Errorf("node %s: got output %q and code %q, live it was %q", n.Config.Name, out, finished.ReturnCode, live)
		}
	}
	mustBalance(t, api)
	mustBeWorkers(t, c, b200, h200)
	mustExecuteCells(t, api, b200)
	mustPrepareOnWorkers(t, nodetest.MustClient(t, c.RootToken, b200.URL()), api)
	for i, n := range []*nodetest.Node{h200, c.Follower(), c.Leader()} {
		root := nodetest.MustClient(t, c.RootToken, n.URL())
		if b, err := root.SetBrakeShare(t.Context(), 40+i); err != nil || b.Share != 40+i {
			t.Errorf("node %s: the brake is %+v, %v", n.Config.Name, b, err)
		}
		if b, err := root.Brake(t.Context()); err != nil || b.Share != 40+i || b.Holds {
			t.Errorf("node %s: the brake is %+v, %v", n.Config.Name, b, err)
		}
	}
	mustSurvive(t, c, b200, api, started.ExecutionID, live)
}

// mustExecuteCells executes the cells of a notebook on a worker. Each has what can be pickled of
// those before it, and says what cannot. A value that is too large is left out of the state,
// and nothing else is lost. Text that no start accepts as a state is not answered as one.
func mustExecuteCells(t *testing.T, api *client.Client, worker *nodetest.Node) {
	t.Helper()
	state := ""
	left := func(e wire.Execution, output string) bool {
		return output == "" || slices.ContainsFunc(e.Outputs, func(o wire.Output) bool { return o.Name == output })
	}
	execute := func(start client.Start) wire.Execution {
		t.Helper()
		start.KernelState, start.ExecutionType, start.Timeout = state, "b200", 60
		started, err := api.Submit(t.Context(), start)
		if err != nil {
			t.Fatal(err)
		}
		return mustFinish(t, api, started.ExecutionID)
	}
	for i, cell := range []struct {
		prior                        []string
		code, stdout, stderr, output string
	}{
		{
			[]string{"import json as j", "from threading import Lock"},
			"seen, lock = j.loads('[1]'), Lock()\ndef more(x): return x + seen\nprint(seen)", "[1]\n",
			"berth: lock is not kept for the next cell: TypeError: cannot pickle '_thread.lock' object\n", "",
		},
		{
			[]string{"import sys"},
			"seen.append(2)\nprint(more([0]), 'lock' in globals(), file=sys.stdout)\nj.dumps(seen)",
			"[0, 1, 2] False\n'[1, 2]'\n", "", "",
		},
		{
			[]string{"import os, random"},
			"large, small = random.randbytes(4 << 20), 'small'\nos.makedirs('outputs', exist_ok=True)\n" +
				"open('outputs/table', 'w').write(small);\nprint(len(large))", "4194304\n",
			"berth: large is not kept for the next cell: the state would exceed 3 MiB\n", "table",
		},
		{nil, "small, 'large' in globals(), seen, more([0])", "('small', False, [1, 2], [0, 1, 2])\n", "", ""},
	} {
		e := execute(client.Start{Code: cell.code, PriorImports: cell.prior, NBCode: i + 1})
		if e.Status != compute.StatusCompleted || e.Stdout != cell.stdout || !strings.Contains(e.Stderr, cell.stderr) || !left(e, cell.output) ||
			e.KernelState == nil || e.Metadata.Node == nil || *e.Metadata.Node != worker.Config.Name {
			t.Fatalf("cell %d is %v on %v with output %q %q and outputs %+v", i+1, e.Status, e.Metadata.Node, e.Stdout, e.Stderr, e.Outputs)
		}
		state = *e.KernelState
	}
	const forge = "import os\nos.makedirs('outputs', exist_ok=True)\nopen('outputs/table', 'w').write('2')\n" +
		"open('outputs/.kernel_state', 'w').write('A' * %d)\nprint('left', flush=True)\nos._exit(0)"
	for size, is := range map[int]bool{maxKernelState: true, maxKernelState + 4: false} {
		e := execute(client.Start{Code: fmt.Sprintf(forge, size), NBCode: 5})
		if e.Status != compute.StatusCompleted || e.Stdout != "left\n" || !left(e, "table") || (e.KernelState != nil) != is {
			t.Errorf("with a state of %d bytes it is %v with output %q and outputs %+v, and has a state: %v",
				size, e.Status, e.Stdout, e.Outputs, e.KernelState != nil)
		}
	}
	state = strings.Repeat("A", maxKernelState+4)
	_, err := api.Submit(t.Context(), client.Start{Code: "1", NBCode: 5, KernelState: state})
	if refused, ok := errors.AsType[*client.Error](err); !ok || refused.Status != http.StatusUnprocessableEntity ||
		!strings.Contains(err.Error(), "kernel_state") || len(err.Error()) > 1000 {
		t.Errorf("a state of %d bytes: %.500v", len(state), err)
	}
}

// maxKernelState is how many bytes of a state a start accepts.
const maxKernelState = 4 << 20

// mustSurvive stops the worker that has the output of an execution, which a server has
// copied, and reads it through another worker.
func mustSurvive(
	t *testing.T, c *nodetest.Cluster, owner *nodetest.Node, api *client.Client, id compute.ExecutionID, output string,
) {
	t.Helper()
	nodetest.Eventually(t, endWait, "a server to have a whole copy of the output", func() bool {
		for _, n := range c.Servers() {
			path := filepath.Join(n.Config.DataDir, "copies", owner.ID().String(), id.String(), "1", "complete")
			if _, err := os.Stat(path); err == nil {
				return true
			}
		}
		return false
	})
	owner.Stop()
	nodetest.Eventually(t, endWait, "the output to be read without its worker", func() bool {
		e, err := api.Execution(t.Context(), id, 0)
		return err == nil && strings.Contains(e.CombinedOutput, "later")
	})
	if out, _ := mustStream(t, api, id); out != output {
		t.Errorf("without its worker the output is %q, before it was %q", out, output)
	}
	if m, err := api.Metrics(t.Context(), id, client.MetricsQuery{Step: 1e9}); err != nil || len(m.Warnings) > 0 || len(m.MemoryUsed) == 0 {
		t.Errorf("without its worker the metrics are %+v, %v", m, err)
	}
	owner.Start()
}

// mustBeWorkers checks that workers hold nothing that is not theirs, and that
// the cluster shows what they are.
func mustBeWorkers(t *testing.T, c *nodetest.Cluster, workers ...*nodetest.Node) {
	t.Helper()
	nodes, err := nodetest.MustClient(t, c.RootToken, workers[0].URL()).Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	roles := map[compute.Role]int{}
	for _, n := range nodes {
		roles[n.Role]++
	}
	if want := (map[compute.Role]int{compute.RoleServer: 3, compute.RoleWorker: 2}); !maps.Equal(roles, want) {
		t.Errorf("the roles of nodes are %v, want %v", roles, want)
	}
	for _, w := range workers {
		for _, name := range []string{"keys/master.key", "pki/ca.key", "raft/raft.db", "root_token", "blobs"} {
			if _, err := os.Stat(filepath.Join(w.Config.DataDir, name)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("worker %s has %s: %v", w.Config.Name, name, err)
			}
		}
		for path, want := range map[string]string{"/readyz": `"ok"`, "/metrics": "berth_executor"} {
			if body := mustFetch(t, w.URL()+path); !strings.Contains(body, want) {
				t.Errorf("%s of %s has no %q: %.200s", path, w.Config.Name, want, body)
			}
		}
		if status := mustAskAs(t, "evil.example", w.URL()+"/docs"); status != http.StatusBadRequest {
			t.Errorf("worker %s answers %d under a name that it does not have", w.Config.Name, status)
		}
	}
}

// mustAskAs sends a GET with another Host and returns the status of the answer.
func mustAskAs(t *testing.T, host, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func mustFetch(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// seriesOf returns the value of a series of metrics of a node, 0 while there is none.
func seriesOf(t *testing.T, url, series string) (value float64) {
	t.Helper()
	if _, after, found := strings.Cut(mustFetch(t, url+"/metrics"), "\n"+series+" "); found {
		if _, err := fmt.Sscan(after, &value); err != nil {
			t.Fatalf("%s: %v", series, err)
		}
	}
	return value
}

// TestWorkersRights asks a server for what a worker may and may not have, with
// a worker's certificate.
func TestWorkersRights(t *testing.T) {
	t.Parallel() // It mostly waits.
	c, b200, h200 := withWorkers(t)
	account := c.MustAccount("acme")
	api := nodetest.MustClient(t, account.Key, c.Follower().URL())
	started, err := api.Submit(t.Context(), client.Start{Code: "import time\ntime.sleep(600)\n", ExecutionType: "b200", Timeout: 600})
	if err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, endWait, "the code to execute", func() bool {
		e, err := api.Execution(t.Context(), started.ExecutionID, 0)
		return err == nil && e.Status == compute.StatusRunning
	})
	server, codec := c.Leader(), rpc.NewCodec()
	record, ok := server.Peer().View().AnyExecution(started.ExecutionID)
	if !ok {
		t.Fatal("the leader does not know the execution")
	}
	finish := codec.Marshal(compute.Outcome{Execution: record.ID, Epoch: record.Epoch, Status: compute.StatusCompleted})
	stale := codec.Marshal(compute.Outcome{Execution: record.ID, Epoch: record.Epoch + 1, Status: compute.StatusCompleted})
	call := func(from *nodetest.Node, method string, req []byte) error {
		_, err := from.Peer().Cluster().Call(t.Context(), server.ID(), method, req)
		return err
	}
	if err := call(h200, "attempts.finish", finish); compute.CodeOf(err) != compute.CodeConflict {
		t.Errorf("a word on another node's attempt: %v", err)
	}
	ready := codec.Marshal(compute.Readiness{Execution: record.ID, Epoch: record.Epoch, Ready: true})
	if err := call(h200, "attempts.ready", ready); compute.CodeOf(err) != compute.CodeConflict {
		t.Errorf("another node's attempt is ready: %v", err)
	}
	if err := call(b200, "attempts.finish", stale); compute.CodeOf(err) != compute.CodeConflict {
		t.Errorf("a word on an attempt that never was: %v", err)
	}
	if err := call(h200, "attempts.bundle", record.Bundle.Hash[:]); compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("the code of another node's attempt: %v", err)
	}
	if err := call(b200, "attempts.get", record.Bundle.Hash[:]); compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("a blob that is no file of its attempts: %v", err)
	}
	for _, method := range []string{"attempts.variables", "attempts.registry", "attempts.storage", "attempts.model"} {
		if err := call(h200, method, record.ID.UUID[:]); compute.CodeOf(err) != compute.CodeNotFound {
			t.Errorf("%s of another node's attempt: %v", method, err)
		}
	}
	if err := call(b200, "attempts.model", record.ID.UUID[:]); compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("the model of an attempt that serves none: %v", err)
	}
	output := codec.Marshal(struct {
		Execution compute.ExecutionID `cbor:"1,keyasint"`
		Epoch     uint64              `cbor:"2,keyasint"`
	}{record.ID, record.Epoch})
	if err := call(h200, "attempts.archive", output); compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("the output of another node's attempt is archived: %v", err)
	}
	if err := call(h200, "attempts.put", []byte("x")); compute.CodeOf(err) != compute.CodeConflict {
		t.Errorf("a node without attempts stores: %v", err)
	}
	for method, may := range server.Peer().Cluster().Methods() {
		err := call(b200, method, []byte{0})
		if refused := compute.CodeOf(err) == compute.CodeForbidden; refused == (may&cluster.Workers != 0) {
			t.Errorf("a worker that calls %s gets %v", method, err)
		}
		if may&cluster.Workers != 0 && !strings.Contains("cluster.status cluster.heartbeat cluster.renew cluster.servers "+
			"attempts.poll attempts.start attempts.finish attempts.bundle attempts.variables attempts.get attempts.put nodes.announce api.relay "+
			"attempts.ready attempts.registry attempts.storage attempts.model attempts.model_file attempts.archive services.relay services.drain s3.relay environments.list environments.report logs.copy", method) {
			t.Errorf("a worker may call %s, which is not in the table", method)
		}
	}
	for method := range b200.Peer().Cluster().Methods() { // Workers serve no other worker.
		_, err := h200.Peer().Cluster().Call(t.Context(), b200.ID(), method, []byte{0})
		if compute.CodeOf(err) != compute.CodeForbidden {
			t.Errorf("a worker that calls %s of another one gets %v", method, err)
		}
	}
	if e, err := api.Execution(t.Context(), started.ExecutionID, 0); err != nil || e.Status != compute.StatusRunning {
		t.Errorf("the execution is %v, %v", e.Status, err)
	}
	if err := nodetest.MustClient(t, account.Key, h200.URL()).Abort(t.Context(), started.ExecutionID); err != nil {
		t.Fatal(err)
	}
	if e := mustFinish(t, api, started.ExecutionID); e.Status != compute.StatusAborted {
		t.Errorf("aborted through a worker it is %v", e.Status)
	}
}

// TestServiceOnWorker reaches a replica on a worker through another worker, which
// asks a server, and through a server.
func TestServiceOnWorker(t *testing.T) {
	t.Parallel() // It mostly waits.
	c, _, h200 := withWorkers(t)
	account, other := c.MustAccount("acme"), c.MustAccount("other")
	api := nodetest.MustClient(t, account.Key, h200.URL())
	started, err := api.SubmitService(t.Context(), client.StartService{
		Start: client.Start{Code: serviceCode, ExecutionType: "b200"}, HealthPath: "/health",
	})
	if err != nil {
		t.Fatal(err)
	}
	mustService(t, api, started.ExecutionID, "a ready replica", func(s wire.Service) bool { return s.Ready == 1 })
	path := "/services/" + started.ExecutionID.String()
	for _, n := range []*nodetest.Node{h200, c.Follower()} {
		nodetest.Eventually(t, endWait, "the replica to be known", func() bool {
			answer, _ := mustAsk(t, http.DefaultClient, http.MethodGet, n.URL()+path+"/", account.Key, nil)
			return answer.StatusCode == http.StatusOK
		})
		checkServiceBodies(t, n.URL()+path, account.Key)
		checkUpgrade(t, n.URL()+path, account.Key)
		checkServiceCredentials(t, n.URL()+path, account.Key, other.Key)
	}
	if _, err := api.DeleteService(t.Context(), started.ExecutionID); err != nil {
		t.Fatal(err)
	}
	mustFinish(t, api, started.ExecutionID)
}
