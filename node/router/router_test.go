package router_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/node/router"
	"berth/node/statetest"
)

// fleet is a service of two ready replicas whose programs are HTTP servers here.
type fleet struct {
	*router.Router
	*statetest.State
	id    compute.ExecutionID
	ahead time.Duration // The router's clock is so much ahead.

	mu       sync.Mutex
	down     map[compute.ExecutionID]bool // Replicas that accept no connection.
	crowded  map[compute.ExecutionID]bool // Replicas on nodes to which there are too many connections.
	dialled  []compute.ExecutionID
	programs map[compute.ExecutionID]*httptest.Server
}

// replicaID returns the id of the n-th replica.
func replicaID(n byte) compute.ExecutionID { return compute.ExecutionID{UUID: compute.UUID{60 + n}} }

// newFleet returns a service whose replicas answer by handle, which is given the number
// of the replica.
func newFleet(t testing.TB, handle func(n byte, w http.ResponseWriter, r *http.Request)) *fleet {
	t.Helper()
	f := &fleet{
		State: statetest.New(t), down: map[compute.ExecutionID]bool{}, crowded: map[compute.ExecutionID]bool{},
		programs: map[compute.ExecutionID]*httptest.Server{},
	}
	f.Must(command.RegisterNode{Node: compute.Node{ID: f.Node, Name: "n1", Format: format.Newest}})
	f.Must(command.SetFormat{Term: 1, Format: format.Newest})
	f.id = f.Must(command.Submit{Op: f.NextOp(), Actor: f.Actor, Execution: compute.Execution{
		ID: compute.ExecutionID{UUID: compute.UUID{50}}, Kind: compute.KindService, Profile: "cpu",
		Service: &compute.Service{Replicas: 2}, Serving: &compute.Serving{Port: 1, ReadinessTimeout: time.Minute},
	}}).Execution
	f.Must(command.StartReplicas{Term: 1, Service: f.id, Replicas: []command.NewReplica{{Number: 1, ID: replicaID(1)}, {Number: 2, ID: replicaID(2)}}})
	for n := byte(1); n <= 2; n++ {
		id := replicaID(n)
		f.start(id)
		f.programs[id] = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(n, w, r) }))
		t.Cleanup(f.programs[id].Close)
	}
	f.Router = router.New(compute.NodeID{}, f.dial, func() time.Time { return time.Now().Add(f.ahead) })
	t.Cleanup(func() { _ = f.Router.Close() })
	return f
}

// start has a replica start and become ready.
func (f *fleet) start(id compute.ExecutionID) { f.startAgain(id, 1) }

// startAgain is start as a later attempt.
func (f *fleet) startAgain(id compute.ExecutionID, epoch uint64) {
	f.Must(command.CommitPlan{Term: 1, Plan: compute.Plan{Assignments: []compute.Assignment{{Execution: id, Node: f.Node}}}})
	f.Must(command.StartAttempt{Node: f.Node, Start: compute.AttemptStart{Execution: id, Epoch: epoch, ExecletAt: 1, StartedAt: 1}})
	f.Must(command.SetReady{Node: f.Node, Execution: id, Epoch: epoch, Ready: true})
}

// replace has the replica in a slot end, and another one start with the same program.
func (f *fleet) replace(number int, id compute.ExecutionID) {
	f.replaceAfter(number, id, compute.StatusFailed)
}

// loseNode has both replicas lost with their node, and started again.
func (f *fleet) loseNode() {
	for n := range byte(2) {
		id := replicaID(n + 1)
		f.Must(command.FinishAttempt{Node: f.Node, Outcome: compute.Outcome{
			Execution: id, Epoch: 1, Status: compute.StatusSystemFailure, Reason: compute.ReasonNodeLost, StartedAt: 1, EndedAt: 2,
		}})
		f.startAgain(id, 2)
	}
}

// replaceAfter is replace of a replica that ended with a status.
func (f *fleet) replaceAfter(number int, id compute.ExecutionID, status compute.Status) {
	view := f.Machine.View()
	service, _ := view.AnyExecution(f.id)
	old := service.Service.Slots[number-1].Replica
	f.Must(command.FinishAttempt{Node: f.Node, Outcome: compute.Outcome{
		Execution: old, Epoch: 1, Status: status, ExitCode: 1, StartedAt: 1, EndedAt: 2,
	}})
	f.Must(command.StartReplicas{Term: 1, Service: f.id, Replicas: []command.NewReplica{{Number: number, ID: id}}})
	f.start(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.programs[id] = f.programs[old]
}

func (f *fleet) ready(id compute.ExecutionID, ready bool) {
	f.Must(command.SetReady{Node: f.Node, Execution: id, Epoch: 1, Ready: ready})
}

func (f *fleet) dial(ctx context.Context, to router.Replica) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dialled = append(f.dialled, to.Execution)
	if f.down[to.Execution] {
		return nil, errors.New("refused")
	}
	if f.crowded[to.Execution] {
		return nil, router.ErrManyConnections
	}
	return new(net.Dialer).DialContext(ctx, "tcp", f.programs[to.Execution].Listener.Addr().String())
}

// ask sends a request and returns the answer's body, or the case of the error.
func (f *fleet) ask(t *testing.T, method string, body io.Reader) string {
	t.Helper()
	view := f.Machine.View()
	service, ok := view.AnyExecution(f.id)
	if !ok {
		t.Fatal("the service is gone")
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://x/", body)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := f.RoundTrip(view, service, req)
	if e, coded := errors.AsType[*compute.Error](err); coded {
		return e.Detail
	} else if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestReadyByState reads which replicas are ready from the state of each request, whichever
// was read before.
func TestReadyByState(t *testing.T) {
	f := newFleet(t, name)
	was := f.Machine.View()
	f.ready(replicaID(1), false)
	f.ready(replicaID(2), false)
	is := f.Machine.View()
	for range 3 {
		for want, view := range map[bool]*fsm.View{true: was, false: is} {
			service, _ := view.AnyExecution(f.id)
			if got := f.Ready(view, service); got != want {
				t.Errorf("in the state %d it is ready: %t", view.Index(), got)
			}
		}
	}
}

// name answers with the number of the replica.
func name(n byte, w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	_, _ = w.Write(append([]byte{'0' + n, ' '}, data...))
}

// TestFewestInFlight sends a request to the replica that has none under way.
func TestFewestInFlight(t *testing.T) {
	entered, release := make(chan byte), make(chan struct{})
	f := newFleet(t, func(n byte, w http.ResponseWriter, r *http.Request) {
		entered <- n
		<-release
		name(n, w, r)
	})
	answers := make(chan string, 4)
	var got []byte
	for range 4 {
		go func() { answers <- f.ask(t, http.MethodGet, nil) }()
		got = append(got, <-entered)
	}
	close(release)
	for range 4 {
		<-answers
	}
	slices.Sort(got)
	if !bytes.Equal(got, []byte{1, 1, 2, 2}) {
		t.Errorf("the replicas %v answered", got)
	}
}

// TestAnotherReplica asks another replica only if the first one accepts no connection.
func TestAnotherReplica(t *testing.T) {
	asked := make(chan byte, 8)
	f := newFleet(t, func(n byte, w http.ResponseWriter, r *http.Request) {
		if asked <- n; r.Header.Get("Content-Type") == "" && r.Method == http.MethodDelete {
			panic(http.ErrAbortHandler)
		}
		name(n, w, r)
	})
	f.down[replicaID(1)] = true
	for range 2 {
		if got := f.ask(t, http.MethodPost, strings.NewReader("body")); got != "2 body" {
			t.Errorf("got %q", got)
		}
	}
	f.down[replicaID(1)] = false
	for len(asked) > 0 {
		<-asked
	}
	if got := f.ask(t, http.MethodDelete, nil); got != "replica_failed" || len(asked) != 1 {
		t.Errorf("of a request that may have taken effect got %q after %d tries", got, len(asked))
	}
	f.down[replicaID(1)], f.down[replicaID(2)] = true, true
	f.Router.Close() // Its connections would do.
	if got := f.ask(t, http.MethodGet, nil); got != "no_ready_replica" {
		t.Errorf("got %q", got)
	}
}

// TestOnlyReadyReplicas leaves out replicas that are not ready or whose node is down.
func TestOnlyReadyReplicas(t *testing.T) {
	f := newFleet(t, name)
	f.ready(replicaID(1), false)
	for range 4 {
		if got := f.ask(t, http.MethodGet, nil); got != "2 " {
			t.Errorf("got %q", got)
		}
	}
	f.Must(command.SetNodeState{Term: 1, Node: f.Node, State: compute.NodeDown})
	if got := f.ask(t, http.MethodGet, nil); got != "no_ready_replica" {
		t.Errorf("with its node down got %q", got)
	}
}

// TestManyConnections says why no replica gets a request while the node has too many
// connections to where they are, and uses those elsewhere.
func TestManyConnections(t *testing.T) {
	for _, test := range []struct {
		name          string
		crowded, down []byte
		service       string // Answer, or the case of the error.
		model         string
	}{
		{"both", []byte{1, 2}, nil, "too_many_requests", "too_many_requests"},
		{"the other is down", []byte{1}, []byte{2}, "too_many_requests", "too_many_requests"},
		{"the other is not", []byte{1}, nil, "2 ", "2 body"},
		{"none", nil, []byte{1, 2}, "no_ready_replica", "replica_failed"},
	} {
		f := newFleet(t, name)
		for _, n := range test.crowded {
			f.crowded[replicaID(n)] = true
		}
		for _, n := range test.down {
			f.down[replicaID(n)] = true
		}
		for range 2 { // Each replica is the first once.
			if got := f.ask(t, http.MethodGet, nil); got != test.service {
				t.Errorf("%s: a service answers %q, want %q", test.name, got, test.service)
			}
			answer, err := f.infer(t, 0)
			got := detailOf(err)
			if err == nil {
				data, _ := io.ReadAll(answer.Body)
				answer.Body.Close()
				got = string(data)
			}
			if got != test.model {
				t.Errorf("%s: a model answers %q, want %q", test.name, got, test.model)
			}
		}
	}
}
