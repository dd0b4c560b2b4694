package config_test

import (
	"bytes"
	"io"
	"log" //nolint:depguard // Libraries use it.
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"berth/node/config"
)

// lines passes on the lines that are written.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// TestAnswersAreNotInLogs has an engine send more than its answer, of which net/http prints a
// part: the log has that it came, and nothing of it.
func TestAnswersAreNotInLogs(t *testing.T) {
	before, flags := slog.Default(), log.Flags()
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(os.Stderr)
		log.SetFlags(flags)
	})
	logged := make(lines, 8) // More than are written.
	config.RedirectLibraries(slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelWarn})))
	url := mustServeRaw(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok a private answer")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || !bytes.Equal(body, []byte("ok")) {
		t.Errorf("%q, %v", body, err)
	}
	line := <-logged
	if !strings.Contains(line, "Unsolicited response") || strings.Contains(line, "private") {
		t.Errorf("the log has %q", line)
	}
}

// mustServeRaw returns the URL of a server that answers one request by these bytes.
func mustServeRaw(t *testing.T, answer string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Read(make([]byte, 4<<10))
		_, _ = io.WriteString(conn, answer)
		_, _ = io.Copy(io.Discard, conn) // Until the client closes it.
	}()
	return "http://" + listener.Addr().String()
}
