package api_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api/handler"
)

// wireAnswers sends text over a TCP connection, then its end. It returns the final
// statuses of the answers until the server closes, and bytes that are not an
// answer.
func (w *world) wireAnswers(text string) (statuses []int, rest string) {
	w.Helper()
	conn, err := w.dial()
	w.ok(err)
	defer conn.Close()
	w.ok(conn.SetDeadline(time.Now().Add(30 * time.Second)))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		io.WriteString(conn, text)       //nolint:errcheck // The server may refuse the rest.
		conn.(*net.TCPConn).CloseWrite() //nolint:errcheck // As above.
	}()
	data, err := io.ReadAll(conn)
	<-sent
	if slow, ok := err.(net.Error); ok && slow.Timeout() { //nolint:errorlint // The connection does not wrap its errors.
		return nil, "the connection stays open"
	}
	answers := bufio.NewReader(bytes.NewReader(data))
	for {
		if ahead, err := answers.Peek(1); len(ahead) == 0 || err != nil {
			return statuses, ""
		}
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			return statuses, err.Error()
		}
		_, err = io.Copy(io.Discard, resp.Body)
		w.ok(err)
		resp.Body.Close()
		if resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			statuses = append(statuses, resp.StatusCode)
		}
	}
}

// rawRequest is bytes of a client. They are answered with status once, 0 for any
// 4xx or none, and the connection closes. Where another request follows, answers
// are all statuses.
type rawRequest struct {
	name, text string
	status     int
	answers    []int
}

// live begins a request that needs no credential; next is a whole one, which is the
// request behind a bad one.
const (
	live = "GET /livez HTTP/1.1\r\nHost: a\r\n"
	next = live + "\r\n"
)

// rawLines are requests whose lines are wrong.
func rawLines() []rawRequest {
	line := func(text string) string { return text + "\r\nHost: a\r\n\r\n" + next }
	long := strings.Repeat("a", 100<<10)
	return []rawRequest{
		{name: "line feeds alone", text: strings.ReplaceAll(next, "\r", "") + next, status: 400},
		{name: "a line feed in the header", text: live + "X-A: b\nX-B: c\r\n\r\n" + next, status: 400},
		{name: "a line feed before a length", text: live + "X-A: b\nContent-Length: 60\r\n\r\n" + next + next, status: 400},
		{name: "a line feed before a coding", text: live + "X-A: b\nTransfer-Encoding: chunked\r\n\r\n" + next, status: 400},
		{name: "a line feed at the end of the header", text: live + "\n" + next, status: 400},
		{name: "carriage returns alone", text: strings.ReplaceAll(next, "\n", "") + next, status: 400},
		{name: "a carriage return in a value", text: live + "X-A: b\rContent-Length: 60\r\n\r\n" + next, status: 400},
		{name: "a carriage return in a name", text: live + "X\rA: b\r\n\r\n" + next, status: 400},
		{name: "two carriage returns", text: live + "X-A: b\r\r\n\r\n" + next, status: 400},
		{name: "NUL in a value", text: live + "X-A: b\x00c\r\n\r\n" + next, status: 400},
		{name: "NUL in a name", text: live + "X\x00A: b\r\n\r\n" + next, status: 400},
		{name: "NUL in the host", text: "GET /livez HTTP/1.1\r\nHost: a\x00b\r\n\r\n" + next, status: 400},
		{name: "control characters", text: live + "X-A: \x01\x7f\r\n\r\n" + next, status: 400},
		{name: "a space in a name", text: live + "Content-Length x: 60\r\n\r\n" + next, status: 400},
		{name: "a tab in a name", text: live + "X\tA: b\r\n\r\n" + next, status: 400},
		{name: "a space before the colon", text: live + "X-A : b\r\n\r\n" + next, status: 400},
		{name: "a tab before the colon", text: live + "X-A\t: b\r\n\r\n" + next, status: 400},
		{name: "no colon", text: live + "X-A\r\n\r\n" + next, status: 400},
		{name: "no name", text: live + ": b\r\n\r\n" + next, status: 400},
		{name: "a parenthesis in a name", text: live + "X(A): b\r\n\r\n" + next, status: 400},
		{name: "a first header that continues", text: "GET /livez HTTP/1.1\r\n Host: a\r\n\r\n" + next, status: 400},
		{name: "a space before the request", text: " " + next, status: 400},
		{name: "many empty lines", text: strings.Repeat("\r\n", 10_000) + next},
		{name: "no version", text: line("GET /livez"), status: 400},
		{name: "HTTP/0.9", text: "GET /livez\r\n\r\n", status: 400},
		{name: "HTTP/2.0", text: line("GET /livez HTTP/2.0"), status: 400},
		{name: "HTTP/1.2", text: line("GET /livez HTTP/1.2"), status: 400},
		{name: "HTTP/1", text: line("GET /livez HTTP/1"), status: 400},
		{name: "HTTP/1.10", text: line("GET /livez HTTP/1.10"), status: 400},
		{name: "another protocol", text: line("GET /livez ICAP/1.0"), status: 400},
		{name: "a version and more", text: line("GET /livez HTTP/1.1 x"), status: 400},
		{name: "two spaces", text: line("GET  /livez HTTP/1.1"), status: 400},
		{name: "tabs", text: line("GET\t/livez\tHTTP/1.1"), status: 400},
		{name: "a space in the path", text: line("GET /li vez HTTP/1.1"), status: 400},
		{name: "a tab in the path", text: line("GET /li\tvez HTTP/1.1"), status: 400},
		{name: "no path", text: line("GET  HTTP/1.1"), status: 400},
		{name: "a path without a slash", text: line("GET livez HTTP/1.1"), status: 400},
		{name: "an asterisk", text: line("GET * HTTP/1.1"), status: 400},
		{name: "NUL in the method", text: line("GE\x00T /livez HTTP/1.1"), status: 400},
		{name: "NUL in the path", text: line("GET /livez\x00 HTTP/1.1"), status: 400},
		{name: "an address with a bad port", text: line("GET http://a:x/livez HTTP/1.1"), status: 400},
		{name: "an address that is cut", text: line("GET http://[::1/livez HTTP/1.1"), status: 400},
		{name: "a very long path", text: line("GET /" + long + " HTTP/1.1"), status: 413},
		{name: "a very long method", text: line(strings.ToUpper(long) + " /livez HTTP/1.1")},
		{name: "a very long version", text: line("GET /livez HTTP/1." + strings.Repeat("1", 100<<10))},
		{name: "a very long query", text: line("GET /livez?" + long + " HTTP/1.1"), status: 413},
		{name: "a header without end", text: live + "X-A: " + long, status: 413},
		{name: "very many headers", text: live + strings.Repeat("A: b\r\n", 20_000) + "\r\n" + next, status: 413},
		{name: "the preface of HTTP/2", text: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", status: 400},
		{name: "a handshake of TLS", text: "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\xaa", 500), status: 400},
		{name: "zeros", text: strings.Repeat("\x00", 10_000)},
		{name: "an empty line", text: "\r\n"},
		{name: "nothing"},
	}
}

// rawHeads are requests that are well formed and odd: they are answered, once each.
func rawHeads(key string) []rawRequest {
	bearer := "Authorization: Bearer " + key + "\r\n"
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: a\r\n" }
	return []rawRequest{
		{name: "empty lines before", text: "\r\n\r\n" + next, answers: []int{200}},
		{name: "an unknown method", text: "get /livez HTTP/1.1\r\nHost: a\r\n\r\n" + next, answers: []int{405, 200}},
		{name: "a tunnel", text: "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n" + next, answers: []int{404, 200}},
		{name: "a trace", text: "TRACE /livez HTTP/1.1\r\nHost: a\r\n\r\n" + next, answers: []int{405, 200}},
		{name: "an absolute URI", text: get("http://b/livez") + "\r\n" + next, answers: []int{200, 200}},
		{name: "an absolute URI of another scheme", text: get("ftp://a/nothing") + "\r\n" + next, answers: []int{404, 200}},
		{name: "two slashes", text: get("//b/livez") + "\r\n" + next, answers: []int{404, 200}},
		{name: "an encoded NUL", text: get("/livez%00") + "\r\n" + next, answers: []int{404, 200}},
		{name: "a bad escape", text: get(root+"/execution/%zz") + bearer + "\r\n", answers: []int{404}},
		{name: "half of an escape", text: get(root+"/execution/%") + bearer + "\r\n", answers: []int{404}},
		{name: "an overlong slash", text: get("/%c0%aflivez") + "\r\n", answers: []int{404}},
		{name: "a path that is not UTF-8", text: get("/\xff") + "\r\n", answers: []int{404}},
		{name: "a bad escape in the query", text: get(root+"/billing/history?limit=%zz") + bearer + "\r\n", answers: []int{422}},
		{name: "NUL in the query", text: get(root+"/billing/history?type=%00") + bearer + "\r\n", answers: []int{422}},
		{name: "very many parameters", text: get("/livez?"+strings.Repeat("a=b&", 1900)) + "\r\n", answers: []int{422}},
		{name: "an empty host", text: "GET /livez HTTP/1.1\r\nHost:\r\n\r\n" + next, answers: []int{400}},
		{name: "a host with a space", text: "GET /livez HTTP/1.1\r\nHost: a b\r\n\r\n" + next, answers: []int{400}},
		{name: "two hosts in one", text: "GET /livez HTTP/1.1\r\nHost: a, b\r\n\r\n" + next, answers: []int{400}},
		{name: "an upgrade to HTTP/2", text: live + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n" + next, answers: []int{200, 200}},
		{name: "an upgrade to a WebSocket", text: live + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n" + next, answers: []int{200, 200}},
		{name: "a header of this hop alone", text: get(root+"/user/status") + "Connection: Authorization\r\n" + bearer + "\r\n", answers: []int{200}},
		{name: "three requests at once", text: next + next + next, answers: []int{200, 200, 200}},
		{name: "a bad one between two", text: next + "BAD\r\n\r\n" + next, answers: []int{200, 400}},
		{name: "one after the last", text: live + "Connection: close\r\n\r\n" + next, answers: []int{200}},
	}
}

// rawBodies are requests whose bodies have bad frames.
func rawBodies() []rawRequest {
	const post = "POST " + root + "/auth/refresh HTTP/1.1\r\nHost: a\r\n"
	const end = "\r\n{}\r\n0\r\n\r\n" + next
	length := func(value string) string { return post + "Content-Length:" + value + "\r\n\r\n{}" + next }
	chunk := func(text string) string { return post + "Transfer-Encoding: chunked\r\n\r\n" + text }
	large := strings.Repeat("x", 20_000)
	out := []rawRequest{
		{name: "a length twice", text: post + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}" + next, status: 400},
		{name: "a huge length", text: length(" 4294967298"), status: 413},
		{name: "a length with zeros", text: length(" 0002"), answers: []int{422, 200}},
		{name: "a length that is not one", text: post + "Content_Length: 2\r\n\r\n{}" + next, answers: []int{422, 400}},
		{name: "less than its length", text: post + "Content-Length: 10\r\n\r\n{}", status: 400},
		{name: "more than its length", text: post + "Content-Length: 2\r\n\r\n{}garbage\r\n\r\n" + next, answers: []int{422, 400}},
		{name: "an extension", text: chunk("2;a=b" + end), answers: []int{422, 200}},
		{name: "a chunk that is cut", text: chunk("5\r\n{}"), status: 400},
		{name: "no end", text: chunk("2\r\n{}\r\n0\r\n"), answers: []int{422}},
		{name: "a trailer", text: chunk("2\r\n{}\r\n0\r\nX-A: b\r\n\r\n" + next), answers: []int{422, 200}},
		{name: "a trailer that is too large", text: chunk("2\r\n{}\r\n0\r\nX-A: " + strings.Repeat("a", 64<<10) + "\r\n\r\n" + next), status: 413},
		{name: "a body for no route", text: "POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n" + large + next, answers: []int{404, 200}},
		{name: "a body for another method", text: "PUT /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}" + next, answers: []int{405, 200}},
		{name: "a body that is too large", text: post + "Content-Length: 20000\r\n\r\n" + large + next, answers: []int{413, 200}},
		{name: "chunks that are too large", text: chunk("4e20\r\n" + large + "\r\n0\r\n\r\n" + next), answers: []int{413, 200}},
		{name: "a stranger's body", text: startHead("x", 20_000) + large + next, answers: []int{401, 200}},
		{name: "a huge body for no route", text: "POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n" + strings.Repeat(large, 100) + next, status: 404},
		{name: "a body where none is read", text: live + "Content-Length: 2\r\n\r\n{}" + next, answers: []int{200, 200}},
		{name: "an expectation", text: post + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}" + next, answers: []int{422, 200}},
		{name: "a stranger's expectation", text: strings.TrimSuffix(startHead("x", 20_000), "\r\n") + "Expect: 100-continue\r\n\r\n" + large + next, answers: []int{401, 200}},
		{name: "another expectation", text: post + "Expect: much\r\nContent-Length: 2\r\n\r\n{}" + next, answers: []int{422, 200}},
		{name: "an expectation without a body", text: live + "Expect: 100-continue\r\n\r\n" + next, answers: []int{200, 200}},
	}
	for _, value := range []string{" -2", " +2", " 0x2", "", " 2 0", " 2, 2", "\x0b2", " 2.0", " 18446744073709551618", " 2e0"} {
		out = append(out, rawRequest{name: fmt.Sprintf("the length %q", value), text: length(value), status: 400})
	}
	for _, size := range []string{
		"", "0x2", "-2", "+2", " 2", "2\n", "2;a\n", "2;a=\"\n\"", "2;a\rb", "1_0", "g", "2 2",
		"10000000000000002", "ffffffffffffffff", "7fffffffffffffff", strings.Repeat("0", 40) + "2",
	} {
		out = append(out, rawRequest{name: fmt.Sprintf("the chunk size %q", size), text: chunk(size + end), status: 400})
	}
	for _, after := range []string{"", "XX", "\n", "\r", "\r\n\r\n"} {
		out = append(out, rawRequest{
			name: fmt.Sprintf("%q behind a chunk", after), text: chunk("2\r\n{}" + after + "0\r\n\r\n" + next), status: 400,
		})
	}
	for _, field := range []string{"Content-Length: 5", "Transfer-Encoding: chunked", "Authorization: Bearer x", "Host: b", "bad"} {
		out = append(out, rawRequest{
			name: "the trailer " + field, text: chunk("2\r\n{}\r\n0\r\n" + field + "\r\n\r\n" + next), status: 400,
		})
	}
	for _, coding := range []string{"\"chunked\"", "chunked;q=1", "xchunked", ",chunked", "chunked\x00", "chunked, chunked", "\r\n chunked"} {
		out = append(out, rawRequest{
			name: fmt.Sprintf("the coding %q", coding), text: post + "Transfer-Encoding: " + coding + "\r\n\r\n2" + end, status: 400,
		})
	}
	return out
}

// TestRawRequests sends bytes that no good client sends to a server and a worker.
// Each is answered once, and what is malformed closes its connection. There is no
// panic, and the next client is served.
func TestRawRequests(t *testing.T) {
	var log lockedBuffer
	w := newWorld(t, func(c *handler.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	_, worker := w.newWorker()
	w.listen()
	worker.listen()
	tried := 0
	for name, node := range map[string]*world{"server": w, "worker": worker} {
		for _, requests := range [][]rawRequest{rawLines(), rawHeads(w.adaKey), rawBodies()} {
			for _, r := range requests {
				got, rest := node.wireAnswers(r.text)
				switch {
				case rest != "":
					t.Errorf("%s, %s: answered %v and %s", name, r.name, got, rest)
				case r.answers != nil && !slices.Equal(got, r.answers):
					t.Errorf("%s, %s: answered %v, want %v", name, r.name, got, r.answers)
				case r.answers == nil && r.status != 0 && !slices.Equal(got, []int{r.status}):
					t.Errorf("%s, %s: answered %v, want %d once", name, r.name, got, r.status)
				case r.answers == nil && (len(got) > 1 || len(got) == 1 && got[0]/100 != 4):
					t.Errorf("%s, %s: answered %v, want one 4xx or none", name, r.name, got)
				}
				tried++
			}
		}
		node.mustDo("GET", "/user/status", w.adaKey, nil, nil)
	}
	t.Logf("measured: %d byte sequences, on a server and a worker", tried)
	w.stop()
	if text := log.String(); strings.Contains(text, "panic") {
		t.Errorf("the log has %s", text)
	}
}
