package node_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"berth/api/client"
	"berth/compute"
)

const hubToken = "hf_the_right_one"

// newModelHub returns the URL of a hub with the model gated/echo, which it gives to
// those with the token.
func newModelHub(t *testing.T) string {
	const size = len("from the hub")
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer "+hubToken:
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/api/models/gated/echo/revision/main":
			_ = json.NewEncoder(w).Encode(map[string]any{
				"sha": "v1", "gated": "auto", "siblings": []any{map[string]any{
					"rfilename": "model.gguf", "size": size, "blobId": "d3ef444c20bde3eccadfc52cc6f369862ba64c36",
				}},
			})
		case r.URL.Path == "/gated/echo/resolve/v1/model.gguf":
			_, _ = w.Write([]byte("from the hub"))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(hub.Close)
	return hub.URL
}

func orNone(text *string) string {
	if text == nil {
		return ""
	}
	return *text
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
