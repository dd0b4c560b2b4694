package node_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"berth/api/client"
	"berth/compute"
	"berth/node/nodetest"
)

// Tokens for the hub: the one that it knows, and another one.
const (
	hubToken      = "hf_the_right_one"
	wrongHubToken = "hf_a_wrong_one"
)

// newModelHub returns the URL of a hub with the models gated/echo and slow/echo, which it
// gives to clients with the token. Before release it sends only the beginning of the slow
// one.
func newModelHub(t *testing.T) (url string, release func()) {
	const size = len("from the hub")
	rest := make(chan struct{})
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer "+hubToken:
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/api/models/gated/echo/revision/main", r.URL.Path == "/api/models/slow/echo/revision/main":
			_ = json.NewEncoder(w).Encode(map[string]any{
				"sha": "v1", "gated": "auto", "siblings": []any{map[string]any{
					"rfilename": "model.gguf", "size": size, "blobId": "d3ef444c20bde3eccadfc52cc6f369862ba64c36",
				}},
			})
		case r.URL.Path == "/gated/echo/resolve/v1/model.gguf":
			_, _ = w.Write([]byte("from the hub"))
		case r.URL.Path == "/slow/echo/resolve/v1/model.gguf":
			_, _ = w.Write([]byte("from "))
			_ = http.NewResponseController(w).Flush()
			select {
			case <-rest:
				_, _ = w.Write([]byte("the hub"))
			case <-r.Context().Done():
			}
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(hub.Close)
	return hub.URL, sync.OnceFunc(func() { close(rest) })
}

func orNone(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// checkModelProgress deploys a model of which the hub has sent the beginning: the record
// says how far it is.
func checkModelProgress(t *testing.T, api *client.Client, release func()) {
	slow := deploymentOf("slow/echo")
	slow.Token = hubToken
	created, err := api.Deploy(t.Context(), slow)
	if err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, endWait, "the record to say how far the model is", func() bool {
		d, err := api.Deployment(t.Context(), created.ID)
		if err != nil {
			t.Fatal(err)
		}
		return len(d.Rows) == 1 && strings.Contains(orNone(d.Rows[0].Detail), "MiB of slow/echo") && d.Status == "starting"
	})
	release()
	if d := mustDeployment(t, api, created.ID, "ready"); d.Rows[0].Detail != nil {
		t.Errorf("when it is ready it says %q", *d.Rows[0].Detail)
	}
	if _, err := api.DeleteDeployment(t.Context(), created.ID); err != nil {
		t.Error(err)
	}
}

// checkModelSources deploys models from the hub, with a token and without, and from the
// storage of the organization, which others cannot have.
//
// The data key of the organization is rotated meanwhile: replicas that start later have the
// token still.
func checkModelSources(t *testing.T, api, foreign, root *client.Client, org string) {
	gated := deploymentOf("gated/echo")
	gated.Token = hubToken
	with, err := api.Deploy(t.Context(), gated)
	if err != nil {
		t.Fatal(err)
	}
	gated.Token = wrongHubToken
	without, err := api.Deploy(t.Context(), gated)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.Upload(t.Context(), bytesOf("models/own/echo/model.gguf", []byte("from the storage"))); err != nil {
		t.Fatal(err)
	}
	stored, err := api.Deploy(t.Context(), deploymentOf("own/echo"))
	if err != nil {
		t.Fatal(err)
	}
	none, err := foreign.Deploy(t.Context(), deploymentOf("own/echo"))
	if err != nil {
		t.Fatal(err)
	}
	mustDeployment(t, api, with.ID, "ready")
	mustDeployment(t, api, stored.ID, "ready")
	rotated, err := root.RotateSecrets(t.Context(), org)
	if err != nil || rotated.Resealed < 2 || rotated.Left != 0 { // It has two deployments with a token, at least.
		t.Errorf("the rotation answers %+v, %v", rotated, err)
	}
	if _, err := api.StopDeployment(t.Context(), with.ID); err != nil {
		t.Fatal(err)
	}
	mustDeployment(t, api, with.ID, "stopped")
	if _, err := api.StartDeployment(t.Context(), with.ID); err != nil {
		t.Fatal(err)
	}
	mustDeployment(t, api, with.ID, "ready")
	for _, refused := range []struct {
		api *client.Client
		id  compute.ExecutionID
	}{{api, without.ID}, {foreign, none.ID}} {
		d := mustDeployment(t, refused.api, refused.id, "failed")
		if d.Detail == nil || !strings.Contains(*d.Detail, "hf_token may not read it") || strings.Contains(*d.Detail, gated.Token) {
			t.Errorf("it says %q", orNone(d.Detail))
		}
	}
	for _, id := range []compute.ExecutionID{with.ID, without.ID, stored.ID} {
		if _, err := api.DeleteDeployment(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if _, err := foreign.DeleteDeployment(t.Context(), none.ID); err != nil {
		t.Error(err)
	}
}

// TestWorkerReadsStoredModel serves a model that only the organization's storage has with
// a replica on a worker, and asks it through a follower. Another organization does not get
// the model.
func TestWorkerReadsStoredModel(t *testing.T) {
	t.Parallel() // It mostly waits.
	const worker = 3
	c, account, _ := inferenceCluster(t, 4, func(cfg *nodetest.NodeConfig) {
		if cfg.Name == nodetest.Config(t, worker).Name {
			cfg.Role, cfg.GPUs.Simulated = nodetest.Worker, []string{"b200:1"}
		}
	})
	url := c.Follower().URL()
	api, foreign := nodetest.MustClient(t, account.Key, url), nodetest.MustClient(t, c.MustAccount("other").Key, url)
	weights := []byte(strings.Repeat("the weights of a model in several chunks\n", 9<<20/40))
	if _, err := api.Upload(t.Context(), bytesOf("models/own/echo/model.gguf", weights)); err != nil {
		t.Fatal(err)
	}
	want := deploymentOf("own/echo")
	want.GPUType, want.MaxReplicas = "b200", 1
	created, err := api.Deploy(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	d := mustDeployment(t, api, created.ID, "ready")
	if len(d.Rows) != 1 || d.Rows[0].Node == nil || *d.Rows[0].Node != c.Nodes[worker].Config.Name {
		t.Errorf("its replicas are %+v", d.Rows)
	}
	answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, url+"/openai/v1/chat/completions", account.Key,
		prompt(created.ID.String(), "hello", false))
	if answer.StatusCode != http.StatusOK || !strings.Contains(body, `"hello"`) {
		t.Errorf("%d: %s", answer.StatusCode, body)
	}
	found, err := filepath.Glob(filepath.Join(c.Nodes[worker].Config.DataDir, "models", "*", "files", "model.gguf"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the worker has the files %q, %v", found, err)
	}
	if data, err := os.ReadFile(found[0]); err != nil || !bytes.Equal(data, weights) {
		t.Errorf("the worker has %d bytes of %d, %v", len(data), len(weights), err)
	}
	if _, err := api.DeleteDeployment(t.Context(), created.ID); err != nil {
		t.Fatal(err)
	}
	none, err := foreign.Deploy(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	if d := mustDeployment(t, foreign, none.ID, "failed"); !strings.Contains(orNone(d.Detail), "own/echo") {
		t.Errorf("for another organization it says %q", orNone(d.Detail))
	}
}
