package node_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/executor/docker"
	"berth/node/executor/docker/dockertest"
	"berth/node/nodetest"
)

// engineWithOtherIsolation returns an engine whose isolation is below the minimum if that of
// this machine's engine is not, and the reverse. It is the same engine, but for the version of
// runc.
func engineWithOtherIsolation(t *testing.T, host string) *engineProxy {
	t.Helper()
	facts, err := docker.Probe(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	runc := "1.1.5"
	if facts.Weak != "" {
		runc = "1.4.0"
	}
	return newEngineProxy(t, host, func(r *http.Response) error {
		if !strings.HasSuffix(r.Request.URL.Path, "/version") {
			return nil
		}
		return replaceRunc(r, runc)
	})
}

// replaceRunc changes the version of runc in an engine's answer.
func replaceRunc(r *http.Response, version string) error {
	var answer map[string]any
	err := json.NewDecoder(r.Body).Decode(&answer)
	r.Body.Close()
	if err != nil {
		return err
	}
	parts, _ := answer["Components"].([]any)
	for _, part := range parts {
		if p, ok := part.(map[string]any); ok && p["Name"] == "runc" {
			p["Version"] = version
		}
	}
	data, err := json.Marshal(answer)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	r.Header.Set("Content-Length", strconv.Itoa(len(data)))
	return err
}

// checkTrust has an organization that nobody trusts wait while only nodes whose isolation
// is below the minimum could execute its container, and has an operator trust it.
func checkTrust(t *testing.T, c *nodetest.Cluster, api *client.Client) {
	t.Helper()
	operator := nodetest.MustClient(t, c.RootToken, c.Follower().URL())
	nodes, err := operator.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	offer := func(n *nodetest.Node, offer compute.Offer) bool {
		return slices.ContainsFunc(nodes, func(known wire.Node) bool { return known.ID == n.ID() && slices.Contains(known.Offers, offer) })
	}
	var strong, weak []*nodetest.Node
	for i, n := range c.Nodes {
		for _, trusted := range []compute.Offer{compute.DockerOffer(true), compute.ComposeOffer(true)} {
			if offer(n, trusted) != (i != 2) {
				t.Errorf("node %s has an engine, but offers %s: %t", n.Config.Name, trusted, i == 2)
			}
		}
		all := offer(n, compute.DockerOffer(false))
		if all != offer(n, compute.ComposeOffer(false)) {
			t.Errorf("node %s takes containers of everybody in one way", n.Config.Name)
		}
		if all {
			strong = append(strong, n)
		} else if i != 2 {
			weak = append(weak, n)
		}
	}
	if len(strong) == 0 || len(weak) == 0 || len(strong)+len(weak) != 3 {
		t.Fatalf("%d engines are for everybody, %d for trusted organizations", len(strong), len(weak))
	}
	drainNodes(t, c, true, strong...)
	id := mustSubmitImage(t, api, client.StartImage{Image: dockertest.Image, RunCommand: []string{"print", "isolated"}})
	var got wire.Explanation
	nodetest.Eventually(t, endWait, "the reason why it waits", func() bool {
		if got, err = api.Explain(t.Context(), id, false); err != nil {
			t.Fatal(err)
		}
		return got.Reason != nil && got.Refused["trusted_only"] > 0
	})
	if got.Status != compute.StatusQueued || got.NodesFit != 0 || got.Refused["trusted_only"] != len(weak) ||
		got.Refused["nodes_down"] != len(strong) || got.Refused["no_engine"] != 1 {
		t.Errorf("it is %v for %s, refused by %v", got.Status, *got.Reason, got.Refused)
	}
	drainNodes(t, c, false, strong...)
	e := mustFinish(t, api, id)
	isStrong := func(n *nodetest.Node) bool { return e.Metadata.Node != nil && n.Config.Name == *e.Metadata.Node }
	if e.Status != compute.StatusCompleted || e.Stdout != "isolated\n" || !slices.ContainsFunc(strong, isStrong) {
		t.Errorf("it is %v with output %q on %v, errors %v", e.Status, e.Stdout, e.Metadata.Node, e.Errors)
	}
	if org, err := operator.TrustOrg(t.Context(), "acme", true); err != nil || !org.Trusted {
		t.Fatalf("got %+v, %v", org, err)
	}
}
