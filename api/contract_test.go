package api_test

import (
	"testing"
	"time"

	"berth/api/contracttest"
	"berth/api/edge"
	"berth/api/handler"
	"berth/compute"
)

// TestContract has a client that knows only the specification validate the
// API.
func TestContract(t *testing.T) {
	w := newWorld(t, func(cfg *handler.Config) { cfg.Models = noModels{} })
	w.pass(time.Since(begin)) // The client has a clock of its own.
	err := contracttest.Validate(t.Context(), contracttest.Config{
		BaseURL: w.url, Email: "ada@example.com", Password: password, OrgSlug: "ada-lab", Client: w.client,
		Started: func(text string) {
			id, err := compute.ParseExecutionID(text)
			w.ok(err)
			if e, _ := w.machine.View().AnyExecution(id); e.Kind == compute.KindPython {
				w.complete(id, 1, time.Second)
			}
		},
	})
	if err != nil {
		t.Error(err)
	}
}

// noModels is a node's models that nobody asks.
type noModels struct{ edge.Models }
