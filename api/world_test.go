package api_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp/fasthttputil"

	"berth/api"
	"berth/api/auth"
	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/scheduler"
	"berth/scheduler/forecast"
)

// root is where the API is.
const root = "/api/v2/external"

// rootToken is the cluster's root token in all tests.
const rootToken = "brt_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"

// password is the password of all users.
const password = "correct horse battery"

// begin is when every test begins.
var begin = time.Date(2026, 3, 31, 22, 0, 0, 0, time.UTC)

// world is a server over a real state machine, with the credentials of some
// users and a clock that the test moves.
type world struct {
	testing.TB

	machine *fsm.FSM
	logs    *fakeLogs
	series  *fakeSeries
	blobs   *fakeBlobs
	saw     func(command.Command) // Called with what the server proposes; nil for nothing.
	cfg     handler.Config
	url     string
	client  *http.Client
	dial    func() (net.Conn, error)
	stop    func() // Stops the server.
	server  *edge.Server

	adaKey, bobKey string // Keys of the owners of ada-lab and bob-lab.
	adaKeyID       string

	mu sync.Mutex

	now    time.Time     // By the stopwatch.
	ahead  time.Duration // The clock of the day, of the stopwatch.
	index  uint64
	last   uint64
	reader readerState
}

// readerState is the node's view of the cluster.
type readerState struct {
	notMade     bool // The cluster's first command is on its way.
	noLeader    bool
	lastContact time.Duration
	readErr     error
	behind      *fsm.View // The newest entry that this node has applied; nil while it lags behind nothing.
}

// numbers is a source of randomness that gives the same in every test.
type numbers struct {
	mu sync.Mutex

	n   uint64
	buf []byte
}

func (r *numbers) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.buf) < len(p) {
		r.n++
		sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, r.n))
		r.buf = append(r.buf, sum[:]...)
	}
	n := copy(p, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

// newWorld returns a world with nodes and two users: ada, an operator, and
// bob.
func newWorld(t testing.TB, change ...func(*handler.Config)) *world {
	t.Helper()
	w := &world{
		TB: t, machine: fsm.New(), now: begin,
		series: new(fakeSeries),
		logs:   &fakeLogs{lines: make(map[compute.ExecutionID][]handler.Line), done: make(map[compute.ExecutionID]bool)},
		blobs:  &fakeBlobs{data: make(map[compute.Hash][]byte)},
	}
	w.Cleanup(func() {
		if err := w.machine.View().Check(); err != nil {
			t.Errorf("the state breaks an invariant: %v", err)
		}
	})
	w.logs.changed = sync.NewCond(&w.logs.mu)
	public, private, err := ed25519.GenerateKey(&numbers{n: 1 << 40})
	w.ok(err)
	registry := prometheus.NewRegistry()
	w.cfg = handler.Config{
		Config: edge.Config{
			Proposer: w, Reader: w,
			Unseal:    func(compute.SigningKey) (ed25519.PrivateKey, error) { return private, nil },
			StreamKey: []byte("stream key"), RefreshKey: []byte("refresh key"),
			PasswordCost: auth.PasswordCost{MemoryKiB: 19 << 10, Passes: 2, Threads: 1},
			PublicURL:    "http://berth.test",
			Now:          w.clock, Stopwatch: w.stopwatch, Rand: &numbers{}, Logger: slog.New(slog.DiscardHandler),
			Registerer: registry,
			Limits:     edge.Limits{LoginRate: 1e6, LoginBurst: 1e6, AnonRate: 1e6, AnonBurst: 1e6},
		},
		Inference: handler.Inference{
			Engines: []handler.Engine{{Name: "echo", StartLimit: time.Minute}}, Starts: 2,
			Args:       func(_, text string) ([]string, error) { return strings.Fields(text), nil },
			ValidModel: func(name string) bool { return name != "" },
		},
		Logs: w.logs, Series: w.series, Blobs: w.blobs, Trees: trees{w.blobs}, BundleMax: 1 << 20, Vault: fakeVault{}, Master: fakeMaster{}, Objects: fakeObjects{w},
		S3: func(_ command.Actor, _ compute.UUID, _ compute.Hash, base string, _ bool) (wire.StorageCredentials, error) {
			return wire.StorageCredentials{Endpoint: base + edge.S3Root, ExpiresAt: compute.InstantOf(begin)}, nil
		},
		Accounts: handler.Accounts{SignUp: true, Identities: fakeIdentities{}, IdentitySignUp: true},
		Payments: &fakePayments{orders: map[string]compute.Order{}}, Judge: judge,
		Migrate: func(context.Context, bool) (wire.StorageMigration, error) {
			return wire.StorageMigration{Status: "none"}, nil
		},
		Explain: func(ctx context.Context, v *fsm.View, id compute.ExecutionID, moves bool) (compute.Explanation, error) {
			survey := scheduler.NewSurvey(v)
			out, e := survey.Explain(id), survey.Waiting(id)
			out.Estimate = forecast.Estimate(v, id, forecast.EstimateQueue(v))
			out.Calibration = v.Calibration()
			if moves && e != nil {
				out.Defragment = forecast.Defragment(ctx, v, e)
			}
			return out, nil
		},
		Chart: func(o compute.Objective, c []compute.Candidate, _ compute.Verdict) ([]byte, error) {
			return fmt.Appendf(nil, "<svg>%s of %d</svg>", o, len(c)), nil
		},
		NewJoinToken: func(role compute.Role, ttl time.Duration, uses int) (string, compute.JoinToken, error) {
			w.last++
			id := fmt.Sprintf("token%05d", w.last)
			return "bjt_" + id, compute.JoinToken{
				ID: id, Role: role, Uses: uses, ExpiresAt: compute.InstantOf(w.clock().Add(ttl)),
			}, nil
		},
		Peers: func(context.Context) ([]wire.Peer, error) {
			return []wire.Peer{{ID: compute.NodeID{UUID: uuid(7)}, Address: "127.0.0.1:6471", Voter: true, Leader: true}}, nil
		},
		Transfer: func(_ context.Context, to compute.NodeID) (compute.NodeID, error) {
			if to.IsZero() {
				return compute.NodeID{UUID: uuid(8)}, nil
			}
			return compute.NodeID{}, compute.Errorf(compute.CodeConflict, "The server does not vote.").Named("not_a_voter")
		},
		Version: "0.1.0-test", Build: "test", Gatherer: registry,
	}
	for _, f := range change {
		f(&w.cfg)
	}
	w.bootstrap(public)
	w.serve()
	w.adaKey, w.adaKeyID = w.addUser("ada", true)
	w.bobKey, _ = w.addUser("bob", false)
	return w
}

// serve starts the server.
func (w *world) serve() {
	w.Helper()
	server, err := api.New(w.cfg)
	w.ok(err)
	w.server = server
	l := fasthttputil.NewInmemoryListener()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l) }()
	w.stop = sync.OnceFunc(func() {
		w.client.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("serve: %v", err)
		}
	})
	w.Cleanup(w.stop)
	w.dial = func() (net.Conn, error) { return l.Dial() }
	w.url = "http://berth.test"
	w.client = &http.Client{
		Transport: &http.Transport{
			DialContext:        func(context.Context, string, string) (net.Conn, error) { return l.Dial() },
			DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("redirected") },
		Timeout:       time.Minute,
	}
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now.Add(w.ahead)
}

func (w *world) stopwatch() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// setClock sets the clock of the day to another time.
func (w *world) setClock(ahead time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ahead = ahead
}

// pass lets time go by.
func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// uuid returns an identifier made of n.
func uuid(n uint64) (u compute.UUID) {
	u[6], u[8] = 0x70, 0x80
	binary.BigEndian.PutUint64(u[8:], n|1<<63)
	return u
}

// Propose applies cmd at once.
func (w *world) Propose(ctx context.Context, cmd command.Command) (command.Result, uint64, error) {
	if err := ctx.Err(); err != nil {
		return command.Result{}, 0, err
	}
	clock, err := command.Encode(command.Clock{At: compute.InstantOf(w.clock()), Term: 1})
	if err != nil {
		return command.Result{}, 0, err
	}
	frame, err := command.Encode(cmd)
	if err != nil {
		return command.Result{}, 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reader.noLeader {
		return command.Result{}, 0, compute.Errorf(compute.CodeUnavailable, "No leader is known.")
	}
	if w.saw != nil {
		w.saw(cmd)
	}
	w.index++
	results := w.machine.ApplyFrames(w.index, clock, frame)
	result := results[len(results)-1]
	if result.Refusal != nil {
		return result, w.index, result.Refusal
	}
	return result, w.index, nil
}

// must applies cmd and fails if it is refused.
func (w *world) must(cmd command.Command) command.Result {
	w.Helper()
	result, _, err := w.Propose(context.Background(), cmd)
	if err != nil {
		w.Fatalf("%T: %v", cmd, err)
	}
	return result
}

// Read returns the newest view.
func (w *world) Read(context.Context) (*fsm.View, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reader.noLeader {
		return nil, compute.Errorf(compute.CodeUnavailable, "No leader is known.")
	}
	if w.reader.notMade {
		return fsm.New().View(), nil
	}
	return w.machine.View(), w.reader.readErr
}

// Stale returns the newest view, or the one that the node lags behind with.
func (w *world) Stale() (*fsm.View, time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return cmp.Or(w.reader.behind, w.machine.View()), w.reader.lastContact, !w.reader.noLeader
}

// Wait waits for a view behind after.
func (w *world) Wait(ctx context.Context, after uint64) (*fsm.View, error) {
	return w.machine.Wait(ctx, after+1)
}

// Status returns what the headers say.
func (w *world) Status() (uint64, bool, time.Duration) {
	view, lastContact, known := w.Stale()
	return view.Index(), known, lastContact
}

// know changes what the node knows of the cluster.
func (w *world) know(change func(*readerState)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.reader)
}

// bootstrap makes a cluster of three nodes.
func (w *world) bootstrap(public ed25519.PublicKey) {
	w.Helper()
	w.must(command.Bootstrap{
		ClusterID: uuid(1), RootToken: sha256.Sum256([]byte(rootToken)),
		Settings: command.Settings{
			SignupGrant: 100 * compute.Credit, Concurrent: 100, Queued: 1000, Keys: 50,
			TimeoutMax: 600 * time.Second, KeepFinished: time.Hour * 24 * 90, MaxFinished: 1000, SelectionMax: 16,
		},
		Prices:  map[string]compute.Price{"cpu": 15, "t4": 100, "l40s": 400, "a100": 550, "h100": 900},
		Signing: compute.SigningKey{ID: "first", Public: public, Sealed: []byte{1}},
	})
	w.addNode(1, "h100", "h100", "l40s", "l40s", "l40s", "l40s")
	w.addNode(2, "a100", "a100", "a100", "a100")
	w.addNode(3, "t4", "t4", "t4", "t4")
}

// nodeID returns the identifier of the n-th node.
func nodeID(n int) compute.NodeID { return compute.NodeID{UUID: uuid(uint64(100 + n))} }

// addNode joins the n-th node with GPUs of these types.
func (w *world) addNode(n int, types ...string) {
	w.Helper()
	c := command.RegisterNode{First: n == 1, Node: compute.Node{
		ID: nodeID(n), Name: fmt.Sprintf("n%d", n), API: fmt.Sprintf("http://127.0.0.1:647%d", n),
		RPC: "127.0.0.1:1", Gossip: "127.0.0.1:2", Version: "0.1.0-test",
		Metrics: fmt.Sprintf("http://127.0.0.1:647%d/metrics", n), Format: w.machine.View().Format(),
	}}
	if !c.First {
		c.TokenID = fmt.Sprintf("join%d", n)
		w.must(command.CreateJoinToken{Actor: command.Actor{Root: true}, Token: compute.JoinToken{
			ID: c.TokenID, Uses: 1, ExpiresAt: compute.InstantOf(w.clock().Add(time.Hour)),
		}})
	}
	w.must(c)
	inventory := compute.Inventory{
		Node: nodeID(n), Version: 1,
		VCPUMilli: int64(len(types)) * 8000, MemoryMiB: int64(len(types)) * 64 << 10,
	}
	if w.machine.View().Format() == format.Newest { // Older servers know no offers.
		inventory.Offers = engines()
	}
	for i, kind := range types {
		inventory.GPUs = append(inventory.GPUs, compute.GPU{
			ID: compute.GPUID(fmt.Sprintf("SIM-n%d-%d", n, i)), Index: i, Type: kind,
			Model: kind + " (simulated)", VRAMMiB: 80 << 10, Simulated: true,
		})
	}
	w.must(command.SetInventory{Term: 1, Inventory: inventory})
}

// passwordHash is the hash of password, at the least cost.
const passwordHash = "$argon2id$v=19$m=19456,t=2,p=1$LWaRxc0r8lul/5zTZAgQVg$/9F6TM0zgann1SHV3fcepkNcXaDhlTT2j7ETuQaQYYI"

// addUser creates a user with an organization and returns a key of it.
func (w *world) addUser(name string, operator bool) (text, id string) {
	w.Helper()
	w.last++
	user := compute.User{
		ID: compute.UserID{UUID: uuid(1000 + w.last)}, Email: name + "@example.com",
		FullName: strings.ToUpper(name), PasswordHash: passwordHash, Operator: operator,
	}
	org := compute.Org{ID: compute.OrgID{UUID: uuid(2000 + w.last)}, Slug: name + "-lab", Name: name + "-lab", BillingEmail: user.Email}
	w.must(command.CreateUser{Actor: command.Actor{Root: true}, User: user, Org: org})
	key, err := auth.NewAPIKey(w.cfg.Rand)
	w.ok(err)
	record := compute.Key{
		ID: compute.KeyID{UUID: uuid(3000 + w.last)}, Lookup: key.Lookup, Hash: key.Hash, Prefix: key.Prefix, Name: "test",
	}
	w.must(command.CreateKey{Actor: command.Actor{User: user.ID, Org: org.ID}, Key: record})
	return key.Text, record.ID.String()
}

// login returns the tokens of a user.
func (w *world) login(name string) wire.Session {
	w.Helper()
	var session wire.Session
	w.mustDo("POST", "/auth/login", "", map[string]any{
		"email": name + "@example.com", "password": password,
	}, &session)
	return session
}

// answer is the answer of the server.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// code returns the code of a failure.
func (a answer) code() string {
	var e wire.Error
	if err := json.Unmarshal(a.body, &e); err != nil {
		return "not an error: " + string(a.body)
	}
	return e.Code
}

// send makes a request. body is JSON text, or what becomes it; header holds
// names and values in turn.
func (w *world) send(method, path, bearer string, body any, header ...string) answer {
	w.Helper()
	var data []byte
	switch b := body.(type) {
	case nil:
	case string:
		data = []byte(b)
	default:
		var err error
		data, err = json.Marshal(b)
		w.ok(err)
	}
	url := w.url + path
	if !strings.HasPrefix(path, "/api/") && !onBase(path) {
		url = w.url + root + path
	}
	req, err := http.NewRequest(method, url, bytes.NewReader(data))
	w.ok(err)
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	if data != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := w.client.Do(req)
	w.ok(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	w.ok(err)
	return answer{resp.StatusCode, resp.Header, text}
}

// onBase reports whether path is beside the API's root.
func onBase(path string) bool {
	for _, prefix := range []string{"/livez", "/readyz", "/healthz", "/metrics", "/openapi.json", "/docs", "/nothing", "/openai/"} {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// mustDo makes a request that has to succeed, and decodes the answer.
func (w *world) mustDo(method, path, bearer string, body, out any, header ...string) answer {
	w.Helper()
	a := w.send(method, path, bearer, body, header...)
	if a.status != http.StatusOK {
		w.Fatalf("%s %s = %d %s", method, path, a.status, a.body)
	}
	if out != nil {
		w.ok(json.Unmarshal(a.body, out))
	}
	return a
}

// want makes a request that has to fail with a status and a code.
func (w *world) want(status int, code string, method, path, bearer string, body any, header ...string) answer {
	w.Helper()
	a := w.send(method, path, bearer, body, header...)
	if a.status != status || (code != "" && a.code() != code) {
		w.Errorf("%s %s = %d %s, want %d %s", method, path, a.status, a.body, status, code)
	}
	return a
}

// start starts code on a profile as ada and returns its identifier.
func (w *world) start(profile string) compute.ExecutionID {
	w.Helper()
	var started wire.Started
	w.mustDo("POST", "/execution/streaming/start", w.adaKey, map[string]any{
		"code": "print(1)", "execution_type": profile, "timeout": 120,
	}, &started)
	return started.ExecutionID
}

// place gives an execution its place on the n-th node.
func (w *world) place(id compute.ExecutionID, n int) {
	w.Helper()
	e, ok := w.machine.View().AnyExecution(id)
	if !ok {
		w.Fatalf("no execution %s", id)
	}
	node, _ := w.machine.View().Node(nodeID(n))
	a := compute.Assignment{Execution: id, Node: node.ID}
	for _, g := range node.GPUs {
		if len(a.GPUs) < e.Request.GPUs && g.Type == e.Request.GPUType && g.UsedMilli == 0 {
			a.GPUs = append(a.GPUs, compute.GPUShare{GPU: g.ID, Milli: compute.WholeGPU})
		}
	}
	if r := w.must(command.CommitPlan{Term: 1, Plan: compute.Plan{Assignments: []compute.Assignment{a}}}); r.Count != 1 {
		w.Fatalf("execution %s was not placed", id)
	}
}

// begun has the node say that the code started.
func (w *world) begun(id compute.ExecutionID) {
	w.Helper()
	a := w.attempt(id)
	now := compute.InstantOf(w.clock())
	w.must(command.StartAttempt{Node: a.Node, Start: compute.AttemptStart{
		Execution: id, Epoch: a.Epoch, ExecletAt: now, StartedAt: now,
	}})
}

// ended has the node say that the code exited after d.
func (w *world) ended(id compute.ExecutionID, status compute.Status, reason compute.Reason, exit int, d time.Duration) {
	w.Helper()
	a := w.attempt(id)
	w.pass(d)
	now := compute.InstantOf(w.clock())
	w.must(command.FinishAttempt{Node: a.Node, Outcome: compute.Outcome{
		Execution: id, Epoch: a.Epoch, Status: status, Reason: reason, Ran: true, ExitCode: exit,
		EndedAt: now, Duration: d,
		Usage: compute.Usage{CPUTime: d, PeakMemoryMiB: 100, GPUUtilPercent: 90, GPUMemoryMiB: 50, OutputBytes: 2, OutputLines: 1},
	}})
}

// attempt returns the newest attempt of an execution.
func (w *world) attempt(id compute.ExecutionID) *compute.Attempt {
	w.Helper()
	all := w.machine.View().Attempts(id)
	if len(all) == 0 {
		w.Fatalf("execution %s has no attempt", id)
	}
	return all[len(all)-1]
}

// complete lets an execution run for d on the n-th node.
func (w *world) complete(id compute.ExecutionID, n int, d time.Duration) {
	w.Helper()
	w.place(id, n)
	w.begun(id)
	w.logs.write(id, handler.Line{Seq: 1, Stream: "stdout", Text: []byte("1")})
	w.ended(id, compute.StatusCompleted, compute.ReasonNone, 0, d)
	w.logs.finish(id)
}

// eventually waits until what holds.
func (w *world) eventually(what string, holds func() bool) {
	w.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-ticker.C:
		case <-deadline:
			w.Fatalf("no %s after 30 s", what)
		}
	}
}

// streams returns how many streams and held answers are open.
func (w *world) streams() int {
	w.Helper()
	return w.gauge("berth_api_streams")
}

// gauge returns the value of a metric.
func (w *world) gauge(name string) int {
	w.Helper()
	families, err := w.cfg.Gatherer.Gather()
	w.ok(err)
	for _, f := range families {
		if f.GetName() == name {
			return int(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	w.Fatalf("no metric %s", name)
	return 0
}

// seconds returns how long the answers of a route have taken together.
func (w *world) seconds(route string) (sum float64) {
	w.Helper()
	families, err := w.cfg.Gatherer.Gather()
	w.ok(err)
	for _, f := range families {
		if f.GetName() != "berth_api_request_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "route" && label.GetValue() == route {
					sum += m.GetHistogram().GetSampleSum()
				}
			}
		}
	}
	return sum
}

// judge recommends the first candidate that completed.
func judge(_ compute.Objective, candidates []compute.Candidate) compute.Verdict {
	v := compute.Verdict{Best: -1, Rows: make([]compute.CandidateResult, len(candidates))}
	for i, c := range candidates {
		row, first := &v.Rows[i], c.Runs[0]
		row.Status, row.Reason = first.Status, first.Reason
		if first.Status != compute.StatusCompleted {
			continue
		}
		row.Completed, row.Duration, row.Credits, row.Pareto, row.Score = 1, first.Duration, first.Credits, true, 1.5
		if v.Best < 0 {
			half := 0.5
			v.Best, v.Reason, v.Confidence = i, c.Profile+" is the first that completed.", &half
		}
	}
	return v
}

// fakeLogs keeps output in memory.
type fakeLogs struct {
	mu      sync.Mutex
	changed *sync.Cond

	lines   map[compute.ExecutionID][]handler.Line
	done    map[compute.ExecutionID]bool
	deleted []compute.ExecutionID
	err     error
	broken  error // Error of Follow.
	away    bool  // The output is on another node.
	tails   int   // Calls of Tail.
}

// breakOff has no output be readable.
func (l *fakeLogs) breakOff(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = err
}

func (l *fakeLogs) write(id compute.ExecutionID, lines ...handler.Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines[id] = append(l.lines[id], lines...)
	l.changed.Broadcast()
}

func (l *fakeLogs) finish(id compute.ExecutionID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done[id] = true
	l.changed.Broadcast()
}

// Follow hands on lines until the output is complete.
func (l *fakeLogs) Follow(ctx context.Context, id compute.ExecutionID, after uint64, fn func([]handler.Line) error) error {
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.changed.Broadcast()
	})
	defer stop()
	sent := 0
	for {
		l.mu.Lock()
		if err := l.broken; err != nil {
			l.mu.Unlock()
			return err
		}
		for ctx.Err() == nil && len(l.lines[id]) == sent && !l.done[id] {
			l.changed.Wait()
		}
		all, done := l.lines[id], l.done[id]
		l.mu.Unlock()
		if err := ctx.Err(); err != nil {
			return err
		}
		fresh := slices.DeleteFunc(slices.Clone(all[sent:]), func(line handler.Line) bool { return line.Seq <= after })
		if err := fn(fresh); err != nil {
			return err
		}
		if sent = len(all); done {
			return nil
		}
	}
}

// Here reports whether the output is on this node.
func (l *fakeLogs) Here(compute.ExecutionID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.away
}

// Tail returns all that was written.
func (l *fakeLogs) Tail(_ context.Context, id compute.ExecutionID, maxBytes int) (handler.Output, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tails++
	if l.err != nil {
		return handler.Output{}, l.err
	}
	var out handler.Output
	for _, line := range l.lines[id] {
		text := append(append([]byte(nil), line.Text...), '\n')
		out.Combined = append(out.Combined, text...)
		if line.Stream == "stderr" {
			out.Stderr = append(out.Stderr, text...)
		} else {
			out.Stdout = append(out.Stdout, text...)
		}
	}
	if over := len(out.Stdout) - maxBytes; over > 0 {
		out.Stdout, out.Truncated = out.Stdout[over:], true
	}
	return out, nil
}

// Search returns the newest lines that contain the text.
func (l *fakeLogs) Search(ctx context.Context, id compute.ExecutionID, q handler.LogQuery) (handler.LogLines, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out handler.LogLines
	if err := compute.MayAsk(ctx); l.away && err != nil {
		return out, err
	}
	for _, line := range l.lines[id] {
		if line.At >= q.Since && bytes.Contains(line.Text, []byte(q.Text)) {
			out.Lines = append(out.Lines, handler.LogLine{Line: line, Level: cmp.Or(q.Level, "info"), Attempt: 1})
		}
	}
	out.Total = len(out.Lines)
	out.Lines = out.Lines[max(0, len(out.Lines)-q.Limit):]
	return out, l.err
}

// Delete forgets the output.
func (l *fakeLogs) Delete(_ context.Context, id compute.ExecutionID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.lines, id)
	l.deleted = append(l.deleted, id)
	return nil
}

// fakeBlobs keeps bundles in memory.
type fakeBlobs struct {
	mu sync.Mutex

	data map[compute.Hash][]byte
	err  error
}

// Put keeps data.
func (b *fakeBlobs) Put(_ context.Context, data []byte) (compute.Hash, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return compute.Hash{}, b.err
	}
	hash := compute.Hash(sha256.Sum256(data))
	b.data[hash] = bytes.Clone(data)
	return hash, nil
}

// Has reports whether data was kept.
func (b *fakeBlobs) Has(hash compute.Hash) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.data[hash]
	return ok
}

// Get returns what was kept.
func (b *fakeBlobs) Get(_ context.Context, hash compute.Hash) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	data, ok := b.data[hash]
	if !ok {
		return nil, compute.Errorf(compute.CodeNotFound, "No such blob.")
	}
	return data, nil
}
