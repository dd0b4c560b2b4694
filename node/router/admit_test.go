package router_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"berth/compute"
	"berth/node/router"
)

// TestAdmit lets as many requests in as this node may use of the replicas' places, and
// refuses those that would wait for too long or in too long a queue.
func TestAdmit(t *testing.T) {
	f := newFleet(t, func(byte, http.ResponseWriter, *http.Request) {})
	queues := router.Queues{Concurrency: func(*compute.Inference) int { return 3 }, Most: 1, Wait: time.Hour}
	f.SetQueues(queues)
	view := f.Machine.View()
	e, ok := view.AnyExecution(f.id)
	if !ok {
		t.Fatal("the service is gone")
	}
	model := *e
	model.Inference, model.Deployment = &compute.Inference{Engine: "x"}, &compute.Deployment{}
	admit := func(ctx context.Context) (func(int64), error) {
		return f.Admit(ctx, view, &model, f.Actor.Org, 1)
	}
	f.SetDemand(view, 2, nil) // Two other servers: this one may use 2 of 6 places.
	var leave func(int64)
	for range 2 {
		var err error
		if leave, err = admit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !f.Busy() {
		t.Error("the router is not busy")
	}
	third := make(chan error, 1)
	go func() {
		_, err := admit(t.Context())
		third <- err
	}()
	<-f.Crowded()
	if _, err := admit(t.Context()); detailOf(err) != "overloaded" {
		t.Errorf("beyond the queue: %v", err)
	}
	// The others need 2 places, so that there are 4 for this one.
	f.SetDemand(view, 2, []map[compute.ExecutionID]int{{}, {f.id: 2}})
	if err := <-third; err != nil {
		t.Error(err)
	}
	if _, err := admit(t.Context()); err != nil {
		t.Error(err)
	}
	queues.Wait = time.Millisecond
	f.SetQueues(queues)
	if _, err := admit(t.Context()); detailOf(err) != "overloaded" {
		t.Errorf("beyond the wait: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := admit(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("who is gone gets %v", err)
	}
	leave(7)
	if _, err := admit(t.Context()); err != nil {
		t.Errorf("once there is a place: %v", err)
	}
}

func detailOf(err error) string {
	if e, ok := errors.AsType[*compute.Error](err); ok {
		return e.Detail
	}
	return ""
}
