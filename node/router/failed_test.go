package router_test

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"berth/compute"
)

// TestRequestThatEndsReplicas repeats a request on which engines end, as clients do: two
// replicas are lost with it, and one more each time after a while that becomes longer. Other
// requests go on. Once it is answered nothing is held against it.
func TestRequestThatEndsReplicas(t *testing.T) {
	for name, end := range map[string]func(w http.ResponseWriter){
		"by ending":              func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"by an error and ending": func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
	} {
		t.Run(name, func(t *testing.T) {
			asked, next := make(chan byte, 8), byte(10)
			var good atomic.Bool
			f := newFleet(t, func(n byte, w http.ResponseWriter, _ *http.Request) {
				if asked <- n; !good.Load() {
					end(w)
				}
			})
			send := func(body string) (n int) {
				t.Helper()
				answer, err := f.inferBody(t, 0, new(int), body)
				if err == nil {
					answer.Body.Close()
				}
				for ; len(asked) > 0; n++ {
					if number := int(<-asked); !good.Load() {
						next++
						f.replace(number, replicaID(next))
					}
				}
				return n
			}
			longest := compute.DefaultBackoffReset * 5 / 4
			for i, step := range []struct {
				after time.Duration
				want  int
			}{
				{0, 2},
				{0, 0},
				{longest/4 - time.Minute, 0},
				{time.Minute, 1},
				{longest/2 - time.Minute, 0},
				{time.Minute, 1},
				{longest - time.Minute, 0},
				{time.Minute, 2},
			} {
				f.ahead += step.after
				if got := send("bad"); got != step.want {
					t.Errorf("%d: %d replicas are asked, want %d", i, got, step.want)
				}
				if got := send(fmt.Sprint("other ", i)); got != 2 {
					t.Errorf("%d: %d replicas are asked another request", i, got)
				}
			}
			f.ahead += longest / 4
			good.Store(true)
			if got := send("bad"); got != 1 {
				t.Errorf("%d replicas are asked, and answer", got)
			}
			good.Store(false)
			if got := send("bad"); got != 2 {
				t.Errorf("after it was answered %d replicas are asked, want 2", got)
			}
		})
	}
}

// TestBrokenConnections breaks the connections of a request to both replicas of a node. While
// it is not known whether they or the node were the reason, no replica of the node is asked. It
// is again once they are known to live or to have gone with their node.
func TestBrokenConnections(t *testing.T) {
	for name, test := range map[string]struct {
		then func(f *fleet)
		want int  // Replicas that are asked then.
		kept bool // The request is refused. Otherwise it is tried again soon.
	}{
		"at once":       {func(*fleet) {}, 0, false},
		"both live":     {func(f *fleet) { f.ahead += 10 * time.Second }, 2, false},
		"both failed":   {func(f *fleet) { f.replace(1, replicaID(11)); f.replace(2, replicaID(12)) }, 0, true},
		"one failed":    {func(f *fleet) { f.replace(1, replicaID(11)); f.ahead += 10 * time.Second }, 1, false},
		"node was lost": {(*fleet).loseNode, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			f := newFleet(t, func(byte, http.ResponseWriter, *http.Request) {
				asked.Add(1)
				panic(http.ErrAbortHandler)
			})
			if _, err := f.inferBody(t, 0, new(int), "x"); err == nil || //nolint:bodyclose // It gets no answer.
				asked.Swap(0) != 2 {
				t.Fatalf("the request: %v", err)
			}
			test.then(f)
			_, err := f.inferBody(t, 0, new(int), "x") //nolint:bodyclose // It gets no answer.
			if got := int(asked.Load()); got != test.want || err == nil {
				t.Errorf("%d replicas are asked, want %d: %v", got, test.want, err)
			}
			if e, ok := errors.AsType[*compute.Error](err); !ok || (e.Detail == compute.DetailReplicaLost) != test.kept {
				t.Errorf("kept from replicas, want %t: %v", test.kept, err)
			}
		})
	}
}

// TestErrorsOfLivingReplicas repeats a request that the engine answers by an error and
// survives: the client gets that answer each time.
func TestErrorsOfLivingReplicas(t *testing.T) {
	f := newFleet(t, func(_ byte, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	for range 9 {
		answer, err := f.infer(t, 0)
		if err != nil {
			t.Fatal(err)
		}
		if answer.Body.Close(); answer.StatusCode != http.StatusInternalServerError {
			t.Errorf("the answer is %d", answer.StatusCode)
		}
	}
}

// TestErrorsOfReplacedReplicas repeats a request that engines answer by an error, after their
// replicas were stopped, as an update or a pause does: nothing is held against it. While it is
// kept from replicas that were lost the client learns how long.
func TestErrorsOfReplacedReplicas(t *testing.T) {
	for _, status := range []compute.Status{compute.StatusCancelled, compute.StatusFailed} {
		var asked atomic.Int64
		f := newFleet(t, func(_ byte, w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.WriteHeader(http.StatusInternalServerError)
		})
		answer, err := f.inferBody(t, 0, new(int), "bad")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		f.replaceAfter(1, replicaID(11), status)
		f.replaceAfter(2, replicaID(12), status)
		asked.Store(0)
		answer, err = f.inferBody(t, 0, new(int), "bad")
		if status == compute.StatusCancelled {
			if err != nil || asked.Load() != 2 {
				t.Fatalf("after the replicas were stopped: %d are asked, %v", asked.Load(), err)
			}
			answer.Body.Close()
			continue
		}
		var kept *compute.Error
		if !errors.As(err, &kept) || kept.Detail != compute.DetailReplicaLost || asked.Load() != 0 || kept.RetryAfter < time.Minute {
			t.Errorf("after the replicas have failed: %d are asked, %+v", asked.Load(), err)
		}
	}
}
