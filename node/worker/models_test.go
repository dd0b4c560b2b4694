package worker

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/cluster/rpc"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/node/statetest"
)

const modelText = "the weights of a model"

// modelState is a state in which a worker has an attempt that serves the model a/b, and
// one that serves none. Another node has no attempts.
type modelState struct {
	*statetest.State

	worker, other  compute.NodeID
	replica, plain compute.ExecutionID
}

func newModelState(t *testing.T) modelState {
	t.Helper()
	s := modelState{
		State: statetest.New(t), other: compute.NodeID{UUID: compute.UUID{72}}, replica: compute.ExecutionID{UUID: compute.UUID{73}},
	}
	s.worker, s.plain = s.Node, s.Waiting[0] // Nothing here asks for its role.
	s.Must(command.RegisterNode{Node: compute.Node{ID: s.Node, Name: "n1", Format: format.Newest}})
	s.Must(command.SetFormat{Term: 1, Format: format.Newest})
	node, _ := s.Machine.View().Node(s.Node)
	s.Must(command.SetInventory{Term: 1, Inventory: compute.Inventory{
		Node: s.Node, Version: node.InventoryVersion + 1, VCPUMilli: node.VCPUMilli, MemoryMiB: node.MemoryMiB, GPUs: node.GPUs,
		Offers: []compute.Offer{compute.InferenceOffer("echo")},
	}})
	deployment := s.Must(command.Submit{Op: s.NextOp(), Actor: s.Actor, Execution: compute.Execution{
		ID: compute.ExecutionID{UUID: compute.UUID{74}}, Profile: "cpu", Kind: compute.KindService,
		Serving: &compute.Serving{Port: 8000, HealthPath: "/health", ReadinessTimeout: time.Minute},
		Service: &compute.Service{
			Replicas: 1, BackoffFirst: 10 * time.Second, BackoffMost: time.Minute, BackoffReset: time.Hour,
		},
		Inference: &compute.Inference{Engine: "echo", Model: "a/b"},
		Deployment: &compute.Deployment{
			Min: 1, Max: 3, TargetMilliRPS: 1000, TargetP95: time.Second, Window: time.Minute, Starts: 2,
		},
	}}).Execution
	s.Must(command.StartReplicas{Term: 1, Service: deployment, Replicas: []command.NewReplica{{Number: 1, ID: s.replica}}})
	if r := s.Must(command.CommitPlan{Term: 1, Plan: compute.Plan{Assignments: []compute.Assignment{
		{Execution: s.replica, Node: s.worker},
		{Execution: s.plain, Node: s.worker, GPUs: []compute.GPUShare{{GPU: "A", Milli: compute.WholeGPU}}},
	}}}); r.Count != 2 {
		t.Fatalf("%d executions were placed", r.Count)
	}
	return s
}

// modelServer returns a server on which the organization has the model a/b, of one file.
func (s modelState) modelServer() *Server {
	return &Server{
		Machine: s.Machine,
		Read:    func(context.Context) (*fsm.View, error) { return s.Machine.View(), nil },
		Model: func(_ *fsm.View, e *compute.Execution) StoredModel {
			if e.Org != s.Actor.Org || e.Inference.Model != "a/b" {
				return StoredModel{}
			}
			return StoredModel{Version: "v", Files: []StoredFile{modelFile()}}
		},
		CopyModel: func(_ context.Context, _ *fsm.View, _ *compute.Execution, _ string, offset int64, to io.Writer) error {
			_, err := io.WriteString(to, modelText[offset:])
			return err
		},
	}
}

func modelFile() StoredFile {
	return StoredFile{Name: "m.gguf", Size: int64(len(modelText)), Version: "1"}
}

// mustConnect returns a client of a server as a worker has it. Without a server the other
// end knows no method.
func mustConnect(t *testing.T, s *Server, worker compute.NodeID) *rpc.Client {
	t.Helper()
	server := &rpc.Server{
		Codec: rpc.NewCodec(), Logger: slog.New(slog.DiscardHandler), Allow: func(rpc.Peer, string) error { return nil },
	}
	if s != nil {
		server.Handle(methodModel, s.serveModel)
		server.HandleStream(methodModelFile, s.serveModelFile)
	}
	near, far := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() {
		_ = server.ServeConn(ctx, far, rpc.Peer{ID: worker, Role: compute.RoleWorker}) // The test closes it.
	})
	client, err := rpc.NewClient(near, rpc.NewCodec(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		cancel()
		served.Wait()
	})
	return client
}

// mustRead reads a stream of a file to its end.
func mustRead(t *testing.T, client *rpc.Client, req fileRequest) (string, error) {
	t.Helper()
	_, stream, err := client.Open(t.Context(), methodModelFile, rpc.NewCodec().Marshal(req))
	if err != nil {
		return "", err
	}
	defer stream.Close()
	data, err := io.ReadAll(stream)
	if err != nil {
		t.Fatal(err)
	}
	return string(data), nil
}

// TestServerGuardsModels asks for listings and files that a worker may have, and for
// those that it may not.
func TestServerGuardsModels(t *testing.T) {
	s := newModelState(t)
	server := s.modelServer()
	own, other := mustConnect(t, server, s.worker), mustConnect(t, server, s.other)
	for _, test := range []struct {
		name   string
		client *rpc.Client
		id     []byte
		code   compute.Code
	}{
		{"its own", own, s.replica.UUID[:], ""},
		{"another node's", other, s.replica.UUID[:], compute.CodeNotFound},
		{"without a model", own, s.plain.UUID[:], compute.CodeNotFound},
		{"of nothing", own, []byte("x"), compute.CodeInvalid},
	} {
		answer, err := test.client.Call(t.Context(), methodModel, test.id)
		if compute.CodeOf(err) != test.code {
			t.Errorf("the listing for an attempt that is %s: %v", test.name, err)
		}
		var m StoredModel
		if err == nil && (rpc.NewCodec().Unmarshal(answer, &m) != nil || len(m.Files) != 1 || m.Files[0] != modelFile()) {
			t.Errorf("the listing is %+v", m)
		}
	}
	unlisted, older, size := modelFile(), modelFile(), int64(len(modelText))
	unlisted.Name, older.Version = "../c/m.gguf", "0"
	for _, test := range []struct {
		name   string
		client *rpc.Client
		req    fileRequest
		code   compute.Code
		want   string
	}{
		{"from its beginning", own, fileRequest{s.replica, modelFile(), 0}, "", modelText},
		{"from an offset", own, fileRequest{s.replica, modelFile(), 4}, "", modelText[4:]},
		{"at its end", own, fileRequest{s.replica, modelFile(), size}, "", ""},
		{"beyond its end", own, fileRequest{s.replica, modelFile(), size + 1}, compute.CodeInvalid, ""},
		{"before its beginning", own, fileRequest{s.replica, modelFile(), -1}, compute.CodeInvalid, ""},
		{"that is not listed", own, fileRequest{s.replica, unlisted, 0}, compute.CodeConflict, ""},
		{"that has changed", own, fileRequest{s.replica, older, 0}, compute.CodeConflict, ""},
		{"of another node's attempt", other, fileRequest{s.replica, modelFile(), 0}, compute.CodeNotFound, ""},
		{"of an attempt without a model", own, fileRequest{s.plain, modelFile(), 0}, compute.CodeNotFound, ""},
	} {
		if got, err := mustRead(t, test.client, test.req); compute.CodeOf(err) != test.code || got != test.want {
			t.Errorf("a file %s: %q, %v", test.name, got, err)
		}
	}
	if _, _, err := own.Open(t.Context(), methodModelFile, []byte{0xff}); compute.CodeOf(err) != compute.CodeInvalid {
		t.Errorf("no request: %v", err)
	}
}

// TestServerLimitsModels holds that one worker reads so many files at a time, and that
// a listing is bounded.
func TestServerLimitsModels(t *testing.T) {
	s := newModelState(t)
	server := s.modelServer()
	var reading atomic.Int32
	began, goOn := make(chan struct{}, maxModelReads+1), make(chan struct{}) // One read too many fails, and does not hang.
	server.CopyModel = func(_ context.Context, _ *fsm.View, _ *compute.Execution, _ string, _ int64, to io.Writer) error {
		began <- struct{}{}
		if reading.Add(1) <= maxModelReads {
			<-goOn
		}
		return errors.New("broken")
	}
	client := mustConnect(t, server, s.worker)
	req := rpc.NewCodec().Marshal(fileRequest{Execution: s.replica, File: modelFile()})
	var reads sync.WaitGroup
	for range maxModelReads {
		reads.Go(func() {
			if _, _, err := client.Open(t.Context(), methodModelFile, req); err == nil {
				t.Error("a file of which nothing can be read is accepted")
			}
		})
		<-began
	}
	if _, _, err := client.Open(t.Context(), methodModelFile, req); compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("one more: %v", err)
	}
	close(goOn)
	reads.Wait()
	if len(server.reads.of) != 0 {
		t.Errorf("after all have ended it counts %v", server.reads.of)
	}
	server.Model = func(*fsm.View, *compute.Execution) StoredModel {
		return StoredModel{Files: make([]StoredFile, maxModelFiles+1)}
	}
	if _, err := client.Call(t.Context(), methodModel, s.replica.UUID[:]); compute.CodeOf(err) != compute.CodeInvalid {
		t.Errorf("a model of many files: %v", err)
	}
}

// modelServers are the servers of a worker, in the order in which it asks them.
type modelServers struct {
	Upstream

	clients []*rpc.Client
}

func (u modelServers) EachServer(ctx context.Context, do func(context.Context, compute.NodeID) error) (err error) {
	for i := range u.clients {
		if err = do(ctx, compute.NodeID{UUID: compute.UUID{byte(i)}}); err == nil || !elsewhere(err) {
			return err
		}
	}
	return err
}

// elsewhere is as package cluster has it.
func elsewhere(err error) bool {
	e, coded := errors.AsType[*compute.Error](err)
	return !coded || e.Code == compute.CodeUnavailable || e.Detail == rpc.NoMethod
}

func (u modelServers) Call(ctx context.Context, id compute.NodeID, method string, req []byte) ([]byte, error) {
	return u.clients[id.UUID[0]].Call(ctx, method, req)
}

func (u modelServers) OpenSome(
	ctx context.Context, method string, req []byte, take func(io.Reader) error,
) (stream io.ReadWriteCloser, err error) {
	err = u.EachServer(ctx, func(ctx context.Context, id compute.NodeID) error {
		if _, stream, err = u.clients[id.UUID[0]].Open(ctx, method, req); err != nil {
			return err
		}
		return take(stream)
	})
	return stream, err
}

// ownOf returns what a worker knows of its attempts: those of a model, with so many
// that have ended before them.
func (s modelState) ownOf(ended int) *Assignments {
	own := NewAssignments(nil)
	for i := range ended {
		own.work = append(own.work, compute.Work{Execution: &compute.Execution{
			ID:  compute.ExecutionID{UUID: compute.UUID{80, byte(i)}},
			Org: s.Actor.Org, Inference: &compute.Inference{Model: "a/b"},
		}})
	}
	own.work = append(own.work, s.Machine.View().Work(s.worker)...)
	return own
}

// TestModelsAreRead reads a model from servers, of which one knows no models, one breaks
// off, and one is whole. The first attempt that the worker knows of has ended.
func TestModelsAreRead(t *testing.T) {
	s := newModelState(t)
	broken := s.modelServer()
	breaks := 0
	broken.CopyModel = func(_ context.Context, _ *fsm.View, _ *compute.Execution, _ string, offset int64, to io.Writer) error {
		if breaks++; breaks > 1 {
			return compute.Errorf(compute.CodeUnavailable, "The disk is broken.")
		}
		_, err := io.WriteString(to, modelText[offset:offset+5])
		return cmp.Or(err, errors.New("broken"))
	}
	models := Models{Own: s.ownOf(1), Up: modelServers{clients: []*rpc.Client{
		mustConnect(t, nil, s.worker), mustConnect(t, broken, s.worker), mustConnect(t, s.modelServer(), s.worker),
	}}}
	m, err := models.List(t.Context(), s.Actor.Org, "a/b")
	if err != nil || m.Version != "v" || len(m.Files) != 1 {
		t.Fatalf("the listing is %+v, %v", m, err)
	}
	var got strings.Builder
	for range 2 {
		body, err := models.Open(t.Context(), s.Actor.Org, "a/b", m.Files[0], int64(got.Len()))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(&got, body); err != nil {
			t.Fatal(err)
		}
		body.Close()
	}
	if got.String() != modelText || breaks != 2 {
		t.Errorf("got %q after %d breaks", got.String(), breaks)
	}
	m.Files[0].Version = "0"
	if _, err := models.Open(t.Context(), s.Actor.Org, "a/b", m.Files[0], 0); compute.CodeOf(err) != compute.CodeConflict {
		t.Errorf("a file that has changed: %v", err)
	}
}

// TestModelsNeedAnAttempt holds that a worker asks for models of its live attempts alone,
// and that no answer is taken for one that the organization has no such model.
func TestModelsNeedAnAttempt(t *testing.T) {
	s := newModelState(t)
	models := Models{Own: s.ownOf(0)}
	for _, test := range []struct {
		name, model string
		org         compute.OrgID
		as          compute.NodeID
	}{
		{"that has ended", "a/b", s.Actor.Org, s.other},
		{"of another model", "a/c", s.Actor.Org, s.worker},
		{"of another organization", "a/b", compute.OrgID{UUID: compute.UUID{99}}, s.worker},
	} {
		models.Up = modelServers{clients: []*rpc.Client{mustConnect(t, s.modelServer(), test.as)}}
		if _, err := models.List(t.Context(), test.org, test.model); compute.CodeOf(err) != compute.CodeUnavailable || Older(err) {
			t.Errorf("an attempt %s: %v", test.name, err)
		}
		if _, err := models.Open(t.Context(), test.org, test.model, modelFile(), 0); compute.CodeOf(err) != compute.CodeUnavailable {
			t.Errorf("a file for an attempt %s: %v", test.name, err)
		}
	}
	models.Up = modelServers{clients: []*rpc.Client{mustConnect(t, nil, s.worker)}}
	if _, err := models.List(t.Context(), s.Actor.Org, "a/b"); !Older(err) || compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("servers that know no models: %v", err)
	}
	if _, err := models.Open(t.Context(), s.Actor.Org, "a/b", modelFile(), 0); !Older(err) || compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("a file at servers that know no models: %v", err)
	}
}
