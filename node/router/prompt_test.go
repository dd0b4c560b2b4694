package router_test

import (
	"io"
	"net/http"
	"runtime"
	"testing"
)

// TestOpenStreamsKeepNoPrompt holds that the prompt of a stream that has begun is not in
// memory any more, although the stream is open: nothing counts it then.
func TestOpenStreamsKeepNoPrompt(t *testing.T) {
	end := make(chan struct{})
	f := newFleet(t, func(_ byte, w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-end
	})
	defer close(end)
	freed := make(chan bool, 1)
	answer, err := func() (*http.Response, error) {
		view := f.Machine.View()
		service, _ := view.AnyExecution(f.id)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/v1/completions", nil)
		if err != nil {
			t.Fatal(err)
		}
		body := make([]byte, 1<<20)
		runtime.AddCleanup(&body[0], func(freed chan bool) { freed <- true }, freed)
		return f.Infer(view, service, req, body, 0, new(int))
	}()
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := answer.Request.GetBody(); err == nil {
		body.Close()
		t.Error("the body can be had again")
	}
	for range 500 {
		runtime.GC()
		select {
		case <-freed:
			runtime.KeepAlive(answer)
			return
		default:
			runtime.Gosched()
		}
	}
	t.Error("the prompt stays in memory")
	runtime.KeepAlive(answer)
}
