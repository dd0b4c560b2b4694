package node_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"berth/api/client"
	"berth/compute"
	"berth/node/nodetest"
)

const hubToken = "hf_the_right_one"

// newModelHub returns the URL of a hub with the models gated/echo and slow/echo, which it
// gives to those with the token; of the slow one only the beginning before release.
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
func checkModelSources(t *testing.T, api, foreign *client.Client) {
	gated := deploymentOf("gated/echo")
	gated.Token = hubToken
	with, err := api.Deploy(t.Context(), gated)
	if err != nil {
		t.Fatal(err)
	}
	gated.Token = "hf_a_wrong_one"
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
