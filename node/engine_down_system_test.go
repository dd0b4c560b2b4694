package node_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/executor/docker/dockertest"
	"berth/node/nodetest"
)

// engineProxy stands between a node and the engine of this machine.
type engineProxy struct {
	Host string // Its address, as docker.host has it.

	t       *testing.T
	handler http.Handler
	server  *http.Server
}

// newEngineProxy returns a proxy that changes the answers of the engine.
func newEngineProxy(t *testing.T, host string, change func(*http.Response) error) *engineProxy {
	t.Helper()
	_, socket, _ := strings.Cut(host, "://")
	p := &engineProxy{Host: "unix://" + filepath.Join(t.TempDir(), "docker.sock"), t: t, handler: &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "docker" },
		FlushInterval: -1, // Output is passed on as it comes.
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}},
		ModifyResponse: change,
	}}
	p.open()
	return p
}

// open takes requests.
func (p *engineProxy) open() {
	p.t.Helper()
	listener, err := net.Listen("unix", strings.TrimPrefix(p.Host, "unix://"))
	if err != nil {
		p.t.Fatal(err)
	}
	server := &http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), Handler: p.handler}
	p.server = server
	go func() { _ = server.Serve(listener) }()
	p.t.Cleanup(func() { server.Close() })
}

// shut takes no more requests. Those that are under way go on, as the output of a container.
func (p *engineProxy) shut() {
	ended, cancel := context.WithCancel(p.t.Context())
	cancel()
	_ = p.server.Shutdown(ended) // It does not wait for them.
}

// checkEngineDown stops the engine of the worker, the only node with its type of GPU. A container
// that runs there goes on, Python code starts there, and another container waits until the engine
// is back.
func checkEngineDown(t *testing.T, c *nodetest.Cluster, account nodetest.Account, proxy *engineProxy) {
	worker := c.Nodes[3]
	drainNodes(t, c, false, worker)
	api := nodetest.MustClient(t, account.Key, c.Follower().URL())
	operator := nodetest.MustClient(t, c.RootToken, c.Follower().URL())
	image := func(command ...string) compute.ExecutionID {
		t.Helper()
		start := client.StartImage{Image: dockertest.Image, RunCommand: command}
		start.ExecutionType = "b200"
		return mustSubmitImage(t, api, start)
	}
	fault := func() string {
		nodes, err := operator.Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			if n.ID != worker.ID() && n.EngineFault != "" {
				t.Errorf("the engine of %s has the fault %q", n.Name, n.EngineFault)
			}
		}
		at := slices.IndexFunc(nodes, func(n wire.Node) bool { return n.ID == worker.ID() })
		if !slices.Contains(nodes[at].Offers, compute.DockerOffer(true)) {
			t.Errorf("its offers are %v with the fault %q", nodes[at].Offers, nodes[at].EngineFault)
		}
		return nodes[at].EngineFault
	}
	running := image("term", "6")
	mustContainer(t, api, running)
	if text := fault(); text != "" {
		t.Errorf("an engine that answers has the fault %q", text)
	}
	proxy.shut()
	nodetest.Eventually(t, endWait, "the inventory to have the fault", func() bool {
		return strings.HasPrefix(fault(), "the Docker engine has not answered since 2")
	})
	waiting := image("print", "at last")
	var got wire.Explanation
	nodetest.Eventually(t, endWait, "the reason why it waits", func() (ok bool) {
		var err error
		if got, err = api.Explain(t.Context(), waiting, false); err != nil {
			t.Fatal(err)
		}
		return got.Reason != nil && *got.Reason == "engine_down"
	})
	if got.Status != compute.StatusQueued || got.NodesFit != 0 || got.Refused["engine_down"] != 1 || got.Refused["never_fits"] != 3 {
		t.Errorf("it is %v, fits %d nodes, refused by %v", got.Status, got.NodesFit, got.Refused)
	}
	e := mustFinish(t, api, mustSubmit(t, api, client.Start{Code: "print('no container')", ExecutionType: "b200", Timeout: 60}))
	if e.Status != compute.StatusCompleted || e.Stdout != "no container\n" || e.Metadata.Node == nil || *e.Metadata.Node != worker.Config.Name {
		t.Errorf("Python code is %v on %v, errors %v", e.Status, e.Metadata.Node, e.Errors)
	}
	for _, id := range []compute.ExecutionID{running, waiting} {
		if e, err := api.Execution(t.Context(), id, 0); err != nil || len(e.Errors) != 0 || e.Status.Terminal() {
			t.Errorf("%s is %v with errors %v, %v", id, e.Status, e.Errors, err)
		}
	}
	proxy.open()
	if e := mustFinish(t, api, waiting); e.Status != compute.StatusCompleted || e.Stdout != "at last\n" || len(e.Attempts) != 1 {
		t.Errorf("it is %v with output %q, errors %v, after %d attempts", e.Status, e.Stdout, e.Errors, len(e.Attempts))
	}
	if text := fault(); text != "" {
		t.Errorf("an engine that answers again has the fault %q", text)
	}
	if err := api.Stop(t.Context(), running); err != nil {
		t.Fatal(err)
	}
	if e := mustFinish(t, api, running); e.Status != compute.StatusCancelled || e.ReturnCode == nil || *e.ReturnCode != 6 || len(e.Attempts) != 1 {
		t.Errorf("the container is %v with code %v, output %q, errors %v", e.Status, e.ReturnCode, e.Stdout, e.Errors)
	}
	drainNodes(t, c, true, worker)
}
