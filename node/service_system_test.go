package node_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// serviceCode answers requests on PORT. It returns the request and its replica's id,
// echoes after an upgrade, and can end itself. /health answers 500 from the message "sick" of a
// WebSocket on, until "well".
const serviceCode = `
import base64, hashlib, http.server, os, sys, socketserver
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    health = 200
    def log_message(self, *a): pass
    def answer(self, text, code=200, **headers):
        data = text.encode()
        self.send_response(code)
        for k, v in headers.items(): self.send_header(k.replace("_", "-"), v)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD": self.wfile.write(data)
    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/health": return self.answer("ok", H.health)
        if path == "/exit": os._exit(3)
        if path == "/cookie":
            return self.answer("set", Set_Cookie="a=1; Path=/; Domain=example.org", Location="/next",
                Clear_Site_Data="*", X_Own="1")
        if path == "/slow":
            self.send_response(200); self.send_header("Transfer-Encoding", "chunked"); self.end_headers()
            for part in ["one ", "two"]:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part.encode())); self.wfile.flush()
            return self.wfile.write(b"0\r\n\r\n")
        if self.headers.get("Upgrade") == "websocket": return self.websocket()
        if self.headers.get("Upgrade") == "echo":
            self.send_response(101); self.send_header("Connection", "Upgrade"); self.send_header("Upgrade", "echo")
            self.end_headers(); self.wfile.flush()
            while True:
                line = self.rfile.readline()
                if not line: break
                self.wfile.write(b"echo " + line); self.wfile.flush()
            self.close_connection = True
            return
        lines = [os.environ["BERTH_EXECUTION_ID"], self.command, self.path]
        lines += sorted("%s: %s" % (k.lower(), v) for k, v in self.headers.items())
        self.answer("\n".join(lines))
    def websocket(self): # RFC 6455, of messages in one frame of at most 65535 bytes.
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101); self.send_header("Connection", "Upgrade"); self.send_header("Upgrade", "websocket")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.close_connection = True
        def send(kind, data):
            size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + len(data).to_bytes(2, "big")
            self.wfile.write(bytes([0x80 | kind]) + size + data); self.wfile.flush()
        send(1, os.environ["BERTH_EXECUTION_ID"].encode())
        while head := self.rfile.read(2):
            kind, n = head[0] & 15, head[1] & 127
            if n == 126: n = int.from_bytes(self.rfile.read(2), "big")
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(n)))
            H.health = {b"sick": 500, b"well": 200}.get(data, H.health)
            send(kind, data)
            if kind == 8: return # A close is answered by one.
    do_HEAD = do_GET
    def do_POST(self):
        n = int(self.headers.get("Content-Length") or -1)
        size = 0
        if n >= 0:
            size = len(self.rfile.read(n))
        else:
            while True:
                part = int(self.rfile.readline(), 16)
                size += len(self.rfile.read(part)); self.rfile.readline()
                if part == 0: break
        self.answer(str(size))
class S(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64
print("serving", flush=True)
S(("127.0.0.1", int(os.environ["PORT"])), H).serve_forever()
`

// browser is an HTTP client that keeps cookies and follows no redirect.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{
		Jar: jar, Timeout: endWait,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// reply is an answer without its body.
type reply struct {
	StatusCode    int
	ContentLength int64
	Header        http.Header
}

// mustAsk returns the answer to a request with a bearer token, "" for none, and its
// body.
func mustAsk(t *testing.T, c *http.Client, method, address, bearer string, body io.Reader) (reply, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, body)
	if err != nil {
		t.Fatal(err)
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	answer, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("read %s: %v", address, err)
	}
	return reply{answer.StatusCode, answer.ContentLength, answer.Header}, string(data)
}

// serviceCluster is a cluster with quick back-offs and an account.
func serviceCluster(t *testing.T) (*nodetest.Cluster, nodetest.Account, *client.Client) {
	t.Helper()
	c := nodetest.NewWith(t, 3, func(_ int, cfg *nodetest.NodeConfig) {
		cfg.Services.BackoffFirst, cfg.Services.BackoffMost = 100*time.Millisecond, time.Second
	})
	account := c.MustAccount("acme")
	return c, account, nodetest.MustClient(t, account.Key, c.Follower().URL())
}

// mustService returns a service once it is as wanted.
func mustService(
	t *testing.T, api *client.Client, id compute.ExecutionID, what string, done func(wire.Service) bool,
) (s wire.Service) {
	t.Helper()
	nodetest.Eventually(t, endWait, what, func() bool {
		var err error
		if s, err = api.Service(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return done(s)
	})
	return s
}

// TestServices serves requests by two replicas, through every node.
func TestServices(t *testing.T) {
	t.Parallel() // It mostly waits.
	c, account, api := serviceCluster(t)
	started, err := api.SubmitService(t.Context(), client.StartService{
		Start: client.Start{Name: "web", Code: serviceCode}, Port: 8123, HealthPath: "/health", Replicas: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := mustService(t, api, started.ExecutionID, "two ready replicas", func(s wire.Service) bool { return s.Ready == 2 })
	if s.Status != compute.StatusRunning || len(s.Rows) != 2 || *s.Name != "web" || s.URL != started.URL {
		t.Errorf("the service is %+v", s)
	}
	path := "/services/" + started.ExecutionID.String()
	t.Run("every node", func(t *testing.T) {
		for _, n := range c.Nodes {
			nodetest.Eventually(t, endWait, "the node to see the replicas", func() bool {
				answer, body := mustAsk(t, http.DefaultClient, http.MethodGet, n.URL()+path+"/a%2Fb/?x=1&token=mine", account.Key, nil)
				if answer.StatusCode == http.StatusServiceUnavailable || answer.StatusCode == http.StatusNotFound {
					return false // Its replica is behind.
				}
				lines := strings.Split(body, "\n")
				if answer.StatusCode != http.StatusOK || len(lines) < 3 || lines[2] != "/a%2Fb/?x=1&token=mine" ||
					strings.Contains(body, account.Key) || !strings.Contains(body, "x-forwarded-prefix: "+path) {
					t.Fatalf("%d: %s", answer.StatusCode, body)
				}
				return true
			})
		}
	})
	url := c.Follower().URL() + path
	t.Run("bodies", func(t *testing.T) { checkServiceBodies(t, url, account.Key) })
	t.Run("credentials", func(t *testing.T) { checkServiceCredentials(t, url, account.Key, c.MustAccount("other").Key) })
	t.Run("upgrade", func(t *testing.T) { checkUpgrade(t, url, account.Key) })
	t.Run("WebSocket", func(t *testing.T) { checkWebSocket(t, c, account.Key, s) })
	t.Run("spread", func(t *testing.T) { checkSpread(t, url, account.Key) })
	t.Run("health", func(t *testing.T) { checkHealth(t, api, url, account.Key, s) })
	t.Run("restart", func(t *testing.T) { checkRestart(t, api, url, account.Key, started.ExecutionID) })
	t.Run("scale", func(t *testing.T) {
		if _, err := api.ScaleService(t.Context(), started.ExecutionID, 1); err != nil {
			t.Fatal(err)
		}
		mustService(t, api, started.ExecutionID, "one replica", func(s wire.Service) bool { return len(s.Rows) == 1 })
	})
	t.Run("delete", func(t *testing.T) {
		if _, err := api.DeleteService(t.Context(), started.ExecutionID); err != nil {
			t.Fatal(err)
		}
		if e := mustFinish(t, api, started.ExecutionID); e.Status != compute.StatusCancelled {
			t.Errorf("it is %v", e.Status)
		}
		left, err := api.Services(t.Context())
		if answer, _ := mustAsk(t, http.DefaultClient, http.MethodGet, url+"/", account.Key, nil); err != nil || len(left) != 0 ||
			answer.StatusCode != http.StatusNotFound {
			t.Errorf("%d services are left, %v; it answers %d", len(left), err, answer.StatusCode)
		}
	})
	t.Run("crashes", func(t *testing.T) { checkCrashes(t, api) })
}

// checkServiceBodies sends and reads bodies of all kinds.
func checkServiceBodies(t *testing.T, url, key string) {
	for _, size := range []int{0, 100, 100_000, 5_000_000} {
		for _, known := range []bool{true, false} {
			var body io.Reader = strings.NewReader(strings.Repeat("x", size))
			if !known {
				body = struct{ io.Reader }{body} // Sent in chunks.
			}
			if answer, text := mustAsk(t, http.DefaultClient, http.MethodPost, url+"/", key, body); text != fmt.Sprint(size) {
				t.Errorf("of %d bytes, %d: %q", size, answer.StatusCode, text)
			}
		}
	}
	if answer, text := mustAsk(t, http.DefaultClient, http.MethodGet, url+"/slow", key, nil); text != "one two" {
		t.Errorf("%d: %q", answer.StatusCode, text)
	}
	if answer, text := mustAsk(t, http.DefaultClient, http.MethodHead, url+"/", key, nil); text != "" || answer.ContentLength < 50 {
		t.Errorf("HEAD: %d bytes: %q", answer.ContentLength, text)
	}
	answer, body := mustAsk(t, http.DefaultClient, http.MethodGet, url+"/cookie", key, nil)
	if body != "set" {
		t.Errorf("%d: %s", answer.StatusCode, body)
	}
	prefix := url[strings.Index(url, "/services/"):]
	if got := answer.Header.Get("Set-Cookie"); got != "a=1; Path="+prefix+"/" {
		t.Errorf("the cookie is %q", got)
	}
	if got := answer.Header.Get("Location"); got != prefix+"/next" {
		t.Errorf("the location is %q", got)
	}
	if own, site := answer.Header.Get("X-Own"), answer.Header.Get("Clear-Site-Data"); own != "1" || site != "" {
		t.Errorf("its own header is %q, that of the origin %q", own, site)
	}
	if got := answer.Header.Get("Content-Security-Policy"); !strings.HasPrefix(got, "sandbox ") || strings.Contains(got, "same-origin") {
		t.Errorf("the policy is %q", got)
	}
}

// checkServiceCredentials exchanges a token for a cookie, and is refused without one.
func checkServiceCredentials(t *testing.T, address, key, stranger string) {
	b := browser(t)
	if answer, _ := mustAsk(t, b, http.MethodGet, address+"/", "", nil); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a credential it answers %d", answer.StatusCode)
	}
	answer, _ := mustAsk(t, b, http.MethodGet, address+"/x?a=1&token="+url.QueryEscape(key)+"&b=2", "", nil)
	to := answer.Header.Get("Location")
	if answer.StatusCode != http.StatusSeeOther || !strings.HasSuffix(to, "/x?a=1&b=2") {
		t.Fatalf("%d to %q", answer.StatusCode, to)
	}
	cookie := answer.Header.Get("Set-Cookie")
	if !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Lax") || strings.Contains(cookie, key) {
		t.Errorf("the cookie is %q", cookie)
	}
	answer, body := mustAsk(t, b, http.MethodGet, address+"/x?a=1&b=2", "", nil)
	if answer.StatusCode != http.StatusOK || strings.Contains(body, "berth_service") {
		t.Errorf("%d: %s", answer.StatusCode, body)
	}
	if answer, _ := mustAsk(t, b, http.MethodGet, address[:strings.LastIndex(address, "/")+1]+
		"0190a000-0000-7000-8000-000000000001/", "", nil); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("of another service the cookie opens %d", answer.StatusCode)
	}
	nodetest.Eventually(t, endWait, "the other key to be known", func() bool {
		answer, _ = mustAsk(t, http.DefaultClient, http.MethodGet, address+"/", stranger, nil)
		return answer.StatusCode != http.StatusUnauthorized
	})
	if answer.StatusCode != http.StatusNotFound {
		t.Errorf("a stranger is answered %d", answer.StatusCode)
	}
}

// checkUpgrade talks to the program by another protocol.
func checkUpgrade(t *testing.T, address, key string) {
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s/ws HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n",
		u.Path, u.Host, key)
	r := bufio.NewReader(conn)
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Upgrade") != "echo" {
		t.Fatalf("got %+v", answer)
	}
	for _, word := range []string{"a", "b"} {
		fmt.Fprintln(conn, word)
		if line, err := r.ReadString('\n'); err != nil || line != "echo "+word+"\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
}

// checkWebSocket talks to the program in frames of RFC 6455 through followers, and through
// one at least to a replica on another node.
func checkWebSocket(t *testing.T, c *nodetest.Cluster, key string, s wire.Service) {
	nodes := map[string]string{} // Nodes of replicas, by the id of their executions.
	for _, row := range s.Rows {
		nodes[row.ExecutionID.String()] = *row.Node
	}
	elsewhere := false
	for _, n := range c.Nodes {
		if n == c.Leader() {
			continue
		}
		for range 8 { // They stay open, so that both replicas get some.
			ws := mustDialWebSocket(t, n.URL()+"/services/"+s.ExecutionID.String()+"/ws", key)
			kind, hello := ws.mustRead(t)
			node := nodes[string(hello)]
			if kind != textFrame || node == "" {
				t.Fatalf("the program greets with frame %d: %q", kind, hello)
			}
			if node != n.Config.Name || elsewhere {
				ws.mustEcho(t)
				elsewhere = true
				break
			}
		}
	}
	if !elsewhere {
		t.Error("no connection was to a replica on another node")
	}
}

// Kinds of frames.
const (
	textFrame   = 1
	binaryFrame = 2
	closeFrame  = 8
)

// webSocket is the client's side of a connection.
type webSocket struct {
	conn net.Conn
	r    *bufio.Reader
}

// mustDial connects to the host of a URL. The connection ends with the test.
func mustDial(t *testing.T, address string) (*url.URL, net.Conn) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return u, conn
}

// mustDialWebSocket upgrades a connection, which ends with the test.
func mustDialWebSocket(t *testing.T, address, key string) *webSocket {
	t.Helper()
	u, conn := mustDial(t, address)
	if err := conn.SetDeadline(time.Now().Add(endWait)); err != nil {
		t.Fatal(err)
	}
	// The key and its answer are those of RFC 6455, section 1.3.
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", u.Path, u.Host, key)
	ws := &webSocket{conn, bufio.NewReader(conn)}
	answer, err := http.ReadResponse(ws.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Fatalf("got %+v", answer)
	}
	return ws
}

// mustRead returns the next frame.
func (ws *webSocket) mustRead(t *testing.T) (kind byte, data []byte) {
	t.Helper()
	head := make([]byte, 4)
	_, err := io.ReadFull(ws.r, head[:2])
	size := int(head[1])
	if err == nil && size == 126 {
		_, err = io.ReadFull(ws.r, head[2:])
		size = int(binary.BigEndian.Uint16(head[2:]))
	}
	data = make([]byte, size)
	if err == nil {
		_, err = io.ReadFull(ws.r, data)
	}
	if err != nil || head[0]&0x80 == 0 {
		t.Fatalf("a frame begins with %x: %v", head, err)
	}
	return head[0] & 15, data
}

// mustWrite sends a frame, masked as clients do.
func (ws *webSocket) mustWrite(t *testing.T, kind byte, data []byte) {
	t.Helper()
	frame := []byte{0x80 | kind, 0x80 | byte(min(len(data), 126))}
	if len(data) >= 126 {
		frame = binary.BigEndian.AppendUint16(frame, uint16(len(data)))
	}
	mask := []byte{7, 11, 13, 17}
	frame = append(frame, mask...)
	for i, b := range data {
		frame = append(frame, b^mask[i%len(mask)])
	}
	if _, err := ws.conn.Write(frame); err != nil {
		t.Fatal(err)
	}
}

// mustEcho sends messages, which come back, and then closes the connection, which the
// program answers.
func (ws *webSocket) mustEcho(t *testing.T) {
	t.Helper()
	status := binary.BigEndian.AppendUint16(nil, 1000) // A normal end.
	for _, sent := range []struct {
		kind byte
		data []byte
	}{{textFrame, []byte("hello, wörld")}, {binaryFrame, bytes.Repeat([]byte{0, 255, '\r', '\n'}, 16_000)}, {closeFrame, status}} {
		ws.mustWrite(t, sent.kind, sent.data)
		if kind, data := ws.mustRead(t); kind != sent.kind || !bytes.Equal(data, sent.data) {
			t.Fatalf("frame %d of %d bytes came back as %d of %d", sent.kind, len(sent.data), kind, len(data))
		}
	}
	if n, err := ws.r.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("behind the close there are %d bytes, %v", n, err)
	}
}

// answering returns the ids of the replicas that answer requests at once, sorted.
func answering(t *testing.T, address, key string) []string {
	t.Helper()
	var (
		mu     sync.Mutex
		group  sync.WaitGroup
		answer []string
	)
	for range 16 {
		group.Go(func() {
			_, body := mustAsk(t, http.DefaultClient, http.MethodGet, address+"/", key, nil)
			mu.Lock()
			defer mu.Unlock()
			answer = append(answer, strings.Split(body, "\n")[0])
		})
	}
	group.Wait()
	slices.Sort(answer)
	return slices.Compact(answer)
}

// checkSpread asks at once more than one replica should answer.
func checkSpread(t *testing.T, address, key string) {
	if answer := answering(t, address, key); len(answer) != 2 {
		t.Errorf("%d replicas answered: %q", len(answer), answer)
	}
}

// checkRestart has the program of a replica end: the service answers, and the replica
// comes back as another execution.
func checkRestart(t *testing.T, api *client.Client, address, key string, id compute.ExecutionID) {
	answer, _ := mustAsk(t, http.DefaultClient, http.MethodGet, address+"/exit", key, nil)
	if answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the program that ends answers %d", answer.StatusCode)
	}
	s := mustService(t, api, id, "a restart", func(s wire.Service) bool {
		return s.Ready == 2 && s.Rows[0].Restarts+s.Rows[1].Restarts == 1
	})
	if s.Rows[0].Crashes+s.Rows[1].Crashes != 1 {
		t.Errorf("after the restart it is %+v", s)
	}
	if x, err := api.Explain(t.Context(), id, false); err != nil || len(x.Replicas) != 2 || x.Replicas[0].Node == nil {
		t.Errorf("it is explained by %+v, %v", x.Replicas, err)
	}
}

// TestServiceNeverReady fails a service whose program never listens.
func TestServiceNeverReady(t *testing.T) {
	t.Parallel() // It mostly waits.
	_, _, api := serviceCluster(t)
	started, err := api.SubmitService(t.Context(), client.StartService{
		Start: client.Start{Code: "import time; print('up', flush=True); time.sleep(3600)"}, Restart: "never", ReadinessTimeout: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	e := mustFinish(t, api, started.ExecutionID)
	if e.Status != compute.StatusFailed || *e.StatusDetails != "replicas_ended" {
		t.Errorf("it is %v: %v", e.Status, *e.StatusDetails)
	}
	s, err := api.Service(t.Context(), started.ExecutionID)
	if err != nil || len(s.Rows) != 1 || *s.Rows[0].StatusDetails != "not_ready" {
		t.Fatalf("%+v, %v", s, err)
	}
	if replica := mustFinish(t, api, s.Rows[0].ExecutionID); !strings.Contains(replica.Stdout, "up") {
		t.Errorf("its output is %q", replica.Stdout)
	}
}
