package router_test

import (
	"io"
	"net/http"
	"testing"
)

// infer asks a replica of the fleet's service as a model.
func (f *fleet) infer(t *testing.T, prefix uint64) (*http.Response, error) {
	t.Helper()
	return f.inferAfter(t, prefix, new(int))
}

// inferAfter is infer of a request with which replicas have failed.
func (f *fleet) inferAfter(t *testing.T, prefix uint64, failed *int) (*http.Response, error) {
	t.Helper()
	return f.inferBody(t, prefix, failed, "body")
}

// inferBody is inferAfter of a request with a body.
func (f *fleet) inferBody(t *testing.T, prefix uint64, failed *int, body string) (*http.Response, error) {
	t.Helper()
	view := f.Machine.View()
	service, ok := view.AnyExecution(f.id)
	if !ok {
		t.Fatal("the service is gone")
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/v1/completions", nil)
	if err != nil {
		t.Fatal(err)
	}
	return f.Infer(view, service, req, []byte(body), prefix, failed)
}

// TestInferRetriesBeforeTheFirstByte asks replicas of which one closes its connection
// before it answers: the other one answers.
func TestInferRetriesBeforeTheFirstByte(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		f := newFleet(t, func(n byte, w http.ResponseWriter, r *http.Request) {
			if n == 1 {
				if flushed { // The header alone does not count as a byte of the answer.
					_ = http.NewResponseController(w).Flush()
				}
				panic(http.ErrAbortHandler)
			}
			name(n, w, r)
		})
		for range 4 {
			answer, err := f.infer(t, 0)
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			if err != nil || string(data) != "2 body" {
				t.Errorf("%q, %v", data, err)
			}
		}
	}
}

// TestInferFailures sends a request on which engines fail to two replicas, also over several
// calls. Replicas that it could not be sent to are not counted.
func TestInferFailures(t *testing.T) {
	die := func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	status := func(code int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.WriteHeader(code) }
	}
	for _, test := range []struct {
		name          string
		fail          func(http.ResponseWriter)
		before        int // Replicas that failed in earlier calls.
		down          int
		asked, failed int
		status        int // 0 for an error.
	}{
		{"both end", die, 0, 0, 2, 2, 0},
		{"the second ends", die, 1, 0, 1, 2, 0},
		{"one cannot be reached", die, 0, 1, 1, 1, 0},
		{"none can be reached", die, 0, 2, 0, 0, 0},
		{"both fail and say so", status(500), 0, 0, 2, 1, 500},
		{"the second fails and says so", status(500), 1, 0, 1, 2, 500},
		{"both are busy", status(503), 0, 0, 2, 0, 503},
	} {
		asked := make(chan byte, 8)
		f := newFleet(t, func(n byte, w http.ResponseWriter, _ *http.Request) {
			asked <- n
			test.fail(w)
		})
		for n := 1; n <= test.down; n++ {
			f.down[replicaID(byte(n))] = true
		}
		failed, got := test.before, 0
		answer, err := f.inferAfter(t, 0, &failed)
		if err == nil {
			answer.Body.Close()
			got = answer.StatusCode
		}
		if got != test.status || len(asked) != test.asked || failed != test.failed {
			t.Errorf("%s: status %d, %v; %d were asked, %d failed", test.name, got, err, len(asked), failed)
		}
	}
}

// TestInferFailsAfterTheFirstByte has a replica end in the middle of its answer: the reader
// gets the bytes sent so far and an error, and no other replica is asked.
func TestInferFailsAfterTheFirstByte(t *testing.T) {
	asked := make(chan byte, 4)
	f := newFleet(t, func(n byte, w http.ResponseWriter, _ *http.Request) {
		asked <- n
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	answer, err := f.infer(t, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if data, err := io.ReadAll(answer.Body); err == nil || string(data) != "first" || len(asked) != 1 {
		t.Errorf("%q, %v after %d tries", data, err, len(asked))
	}
}

// TestPrefixIsBounded holds requests of one conversation under way: of n, its replica has at
// most 5/4 of its share, rounded up.
func TestPrefixIsBounded(t *testing.T) {
	entered := make(chan byte, 1)
	f := newFleet(t, func(n byte, w http.ResponseWriter, r *http.Request) {
		entered <- n
		name(n, w, r)
	})
	counts := map[byte]int{}
	var first byte
	for total := 1; total <= 16; total++ {
		answer, err := f.infer(t, 99) // Its place is free once its body is closed.
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { answer.Body.Close() })
		n := <-entered
		if first == 0 {
			first = n
		}
		counts[n]++
		if most := (total*5 + 7) / 8; counts[n] > most {
			t.Errorf("replica %d has %d of %d requests, at most %d", n, counts[n], total, most)
		}
	}
	if counts[first] != 10 {
		t.Errorf("the replica of the prefix has %d of 16, want 10", counts[first])
	}
}
