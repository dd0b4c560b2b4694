package node_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// deadHost has a server that answers no callback, and one beside it that takes all. The first
// one breaks its connections once the other one has got a callback.
type deadHost struct {
	dead, live *httptest.Server

	first chan struct{} // Closed by the callback of the live one.
	early atomic.Int64  // Tries of the dead one that ended before.
}

func newDeadHost(t *testing.T) *deadHost {
	t.Helper()
	d := &deadHost{first: make(chan struct{})}
	got := sync.OnceFunc(func() { close(d.first) })
	d.dead = httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body) // As in newSilent.
		select {
		case <-d.first:
		case <-req.Context().Done():
			d.early.Add(1)
		}
		panic(http.ErrAbortHandler)
	}))
	d.live = httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		got()
	}))
	t.Cleanup(d.live.Close)
	t.Cleanup(d.dead.Close)
	return d
}

// checkDeadHost has five callbacks go to a dead host and one to a live one, which gets it while
// no try of the others has ended.
func checkDeadHost(t *testing.T, api *client.Client) {
	d := newDeadHost(t)
	started, err := api.Submit(t.Context(), client.Start{Code: "1", Timeout: 60, CallbackURLs: []string{
		d.dead.URL + "/1", d.dead.URL + "/2", d.dead.URL + "/3", d.dead.URL + "/4", d.dead.URL + "/5", d.live.URL,
	}})
	if err != nil {
		t.Fatal(err)
	}
	var all []wire.Callback
	nodetest.Eventually(t, endWait, "a try of each callback", func() bool {
		if all, err = api.Callbacks(t.Context(), started.ExecutionID); err != nil {
			t.Fatal(err)
		}
		tried := 0
		for _, one := range all {
			tried += min(one.Tries, 1)
		}
		return len(all) == 6 && tried == 6
	})
	if d.early.Load() > 0 || all[5].Status != "delivered" {
		t.Errorf("the live host got its callback after %d tries of the dead one: %+v", d.early.Load(), all[5])
	}
}

// checkSelectionCallback asks for the callback of a GPU selection, which comes once and is
// about the whole selection.
func checkSelectionCallback(t *testing.T, api *client.Client, r *receiver) {
	started, err := api.SubmitSelection(t.Context(), client.StartSelection{
		Start: client.Start{Code: "print(1)", Timeout: 60, GPUTypes: []string{"h100", "t4"}, CallbackURLs: []string{r.URL + "/selection"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []wire.Callback
	nodetest.Eventually(t, endWait, "the callback of the selection to be delivered", func() bool {
		all, err = api.Callbacks(t.Context(), started.ExecutionID)
		return err == nil && len(all) > 0 && all[0].Status == "delivered"
	})
	rows := mustSelection(t, api, started.ExecutionID).Rows
	for _, row := range rows {
		if own, err := api.Callbacks(t.Context(), row.ExecutionID); err != nil || len(own) > 0 || !row.Status.Terminal() {
			t.Errorf("%s, which is %v, has callbacks %+v, %v", row.HardwareProfile, row.Status, own, err)
		}
	}
	ids := r.ids("/selection")
	if len(rows) != 2 || len(all) != 1 || len(ids) != 1 || ids[0] != all[0].WebhookID {
		t.Errorf("for %d runs there are the callbacks %+v, and came %v", len(rows), all, ids)
	}
	var body wire.CallbackBody
	r.mu.Lock()
	defer r.mu.Unlock()
	err = json.Unmarshal(r.sent["/selection"].body, &body)
	if err != nil || body.Event != "execution.completed" || body.ExecutionID != started.ExecutionID || body.ParentExecutionID != nil ||
		body.ExecutionType != compute.KindSelection || body.HardwareProfile != "gpu_selection" || body.Billed == nil || *body.Billed <= 0 {
		t.Errorf("it says %s, %v", r.sent["/selection"].body, err)
	}
}
