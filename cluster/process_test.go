package cluster_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/cluster"
	"berth/compute"
)

// peerEnv makes the test binary a peer. Its value is the peer's settings.
const peerEnv = "BERTH_CLUSTER_TEST_PEER"

func TestMain(m *testing.M) {
	settings := os.Getenv(peerEnv)
	if settings == "" {
		os.Exit(m.Run())
	}
	if err := peerMain(settings); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// peerSettings are the settings of a peer process.
type peerSettings struct {
	DataDir   string
	Bootstrap bool
	Join      string
	Token     string
}

// peerStatus is the status that a peer process reports.
type peerStatus struct {
	ID      string
	RPC     string
	Leads   bool
	Voters  int
	Term    uint64
	Applied int64
	Index   uint64
	Value   int64 // The value of the key of a read.
	Result  string
	Token   string
}

// openRegistry admits every node with a token.
type openRegistry struct{}

func (openRegistry) Admit(context.Context, cluster.Admission) error { return nil }

// peerMain runs a peer as a separate process. It serves the test over HTTP and
// prints its address as its first line.
func peerMain(text string) error {
	var s peerSettings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fsm := newToyFSM()
	cfg := cluster.Config{
		DataDir: s.DataDir, Name: filepath.Base(s.DataDir), Listen: "127.0.0.1:0", GossipListen: "127.0.0.1:0",
		Bootstrap: s.Bootstrap, JoinToken: s.Token, Profile: testProfile, PromoteAfter: time.Millisecond,
		FSM: fsm, Preamble: termFrame, Registry: openRegistry{}, Dial: dialSlowly,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Fatal: func(err error) {
			fmt.Fprintln(os.Stderr, "fatal:", err)
			os.Exit(3)
		},
	}
	if s.Join != "" {
		cfg.JoinHosts = []string{s.Join}
	}
	c, err := cluster.Open(ctx, cfg)
	if err != nil {
		return err
	}
	c.WrapListener(func(l net.Listener) net.Listener { return slowListener{l} })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(l, &peerHandler{c, fsm}) //nolint:errcheck // Ends with the process.
	fmt.Println(l.Addr())
	return errors.Join(c.Run(ctx), c.Close())
}

// dialSlowly dials through a network that delays half of the received data by
// up to 12 ms. A stopped process can then receive an acknowledgement long after
// it was sent.
func dialSlowly(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return slowConn{conn}, err
}

// slowListener accepts connections from the same network.
type slowListener struct{ net.Listener }

func (l slowListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return slowConn{conn}, err
}

type slowConn struct{ net.Conn }

func (c slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if rand.N(2) == 0 {
		<-time.After(rand.N(12 * time.Millisecond))
	}
	return n, err
}

// peerHandler serves the test's requests.
type peerHandler struct {
	c   *cluster.Cluster
	fsm *toyFSM
}

func (h *peerHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, err := h.serve(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	json.NewEncoder(w).Encode(status) //nolint:errcheck // The test may be gone.
}

func (h *peerHandler) serve(r *http.Request) (peerStatus, error) {
	ctx, cancel := context.WithTimeout(r.Context(), 20*time.Second)
	defer cancel()
	var s peerStatus
	switch r.URL.Path {
	case "/read":
		index, err := h.c.ReadIndex(ctx)
		if err != nil {
			return s, err
		}
		select {
		case <-h.fsm.reached(index):
		case <-ctx.Done():
			return s, ctx.Err()
		}
		s.Value, s.Index = h.fsm.get(r.URL.Query().Get("key")), index
		return s, nil
	case "/write":
		var c toyCommand
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			return s, err
		}
		result, index, err := h.c.Propose(ctx, opFrame(c))
		s.Result, s.Index = string(result), index
		return s, err
	case "/token":
		token, err := h.c.NewJoinToken()
		s.Token = token.String()
		return s, err
	}
	_, s.Leads = h.c.Heard(compute.NodeID{})
	s.ID, s.RPC, s.Term, s.Applied = h.c.ID().String(), h.c.RPCAddress(), h.c.Term(), h.fsm.applied()
	for _, server := range h.c.Servers() {
		if server.Voter {
			s.Voters++
		}
	}
	return s, nil
}

// process is a peer process, seen from the test.
type process struct {
	name     string
	settings peerSettings
	url      string
	cmd      *exec.Cmd
	exited   chan struct{}
	client   *http.Client
}

// mustProcess starts a peer process, and kills it at the end of the test.
func mustProcess(t testing.TB, s peerSettings) *process {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{name: filepath.Base(s.DataDir), settings: s, exited: make(chan struct{})}
	p.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), peerEnv+"="+string(text))
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	logs := &lockedBuffer{}
	p.cmd.Stderr = logs
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.exited
		p.client.CloseIdleConnections()
		if t.Failed() {
			t.Logf("%s said:\n%s", p.name, logs.tail(8000))
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	go func() {
		p.cmd.Wait() //nolint:errcheck // The error is irrelevant: the test kills it.
		close(p.exited)
	}()
	if err != nil {
		t.Fatalf("%s did not start: %v\n%s", p.name, err, logs.tail(8000))
	}
	p.url = "http://" + strings.TrimSpace(line)
	return p
}

// mustProcesses starts n peers and waits until all vote.
func mustProcesses(t testing.TB, n int) []*process {
	t.Helper()
	dir := t.TempDir()
	first := mustProcess(t, peerSettings{DataDir: filepath.Join(dir, "n1"), Bootstrap: true})
	peers := []*process{first}
	for i := 2; i <= n; i++ {
		token := first.mustDo(t, "/token", nil).Token
		peers = append(peers, mustProcess(t, peerSettings{
			DataDir: filepath.Join(dir, fmt.Sprintf("n%d", i)),
			Join:    first.mustDo(t, "/status", nil).RPC, Token: token,
		}))
	}
	eventually(t, "all vote", func() bool {
		for _, p := range peers {
			if s, err := p.do(t.Context(), "/status", nil); err != nil || s.Voters != n {
				return false
			}
		}
		return true
	})
	return peers
}

func (p *process) signal(s syscall.Signal) {
	select {
	case <-p.exited: // Another process may have its id by now.
	default:
		p.cmd.Process.Signal(s) //nolint:errcheck // It may be ending.
	}
}

// do sends a request to the peer.
func (p *process) do(ctx context.Context, path string, body any) (peerStatus, error) {
	var s peerStatus
	data, err := json.Marshal(body)
	if err != nil {
		return s, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+path, bytes.NewReader(data))
	if err != nil {
		return s, err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return s, fmt.Errorf("%s: %s", resp.Status, text)
	}
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

func (p *process) mustDo(t testing.TB, path string, body any) peerStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := p.do(ctx, path, body)
	if err != nil {
		t.Fatalf("%s%s: %v", p.name, path, err)
	}
	return s
}

// processLeader waits for one of the peers to lead.
func processLeader(t testing.TB, peers []*process) *process {
	t.Helper()
	var leader *process
	eventually(t, "a leader", func() bool {
		for _, p := range peers {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			s, err := p.do(ctx, "/status", nil)
			cancel()
			if err == nil && s.Leads {
				leader = p
				return true
			}
		}
		return false
	})
	return leader
}

// lockedBuffer collects the output of a process.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) tail(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := b.buf.String()
	return text[max(0, len(text)-n):]
}
