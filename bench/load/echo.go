package load

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// EchoEngine is an engine for models that computes nothing. A stream has max_tokens
// events with pause_ms in between, and lasts until the client leaves if that is 0. Whole
// answers say whether the engine has had the first message before.
func EchoEngine() http.Handler {
	e := &echoEngine{seen: make(map[string]bool)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("POST /v1/chat/completions", e.chat)
	return mux
}

type echoEngine struct {
	mu   sync.Mutex
	seen map[string]bool // Conversations.
}

// echoRequest has the fields of a request that the engine reads.
type echoRequest struct {
	Messages  []message `json:"messages"`
	Stream    bool      `json:"stream"`
	MaxTokens int       `json:"max_tokens"`
	PauseMS   int64     `json:"pause_ms"`
}

// maxEcho bounds the body of a request.
const maxEcho = 1 << 20

func (e *echoEngine) chat(w http.ResponseWriter, r *http.Request) {
	var in echoRequest
	if err := json.NewDecoder(io.LimitReader(r.Body, maxEcho)).Decode(&in); err != nil || len(in.Messages) == 0 {
		http.Error(w, `{"error":{"message":"no such request"}}`, http.StatusBadRequest)
		return
	}
	name := in.Messages[0].Content
	e.mu.Lock()
	hit := e.seen[name]
	e.seen[name] = true
	e.mu.Unlock()
	if !in.Stream {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"object":"chat.completion","hit":%t,"choices":[{"index":0,"finish_reason":"stop",`+
			`"message":{"role":"assistant","content":"echo"}}],`+
			`"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`, hit)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	pause := time.NewTicker(max(time.Duration(in.PauseMS)*time.Millisecond, time.Millisecond))
	defer pause.Stop()
	for i := range max(in.MaxTokens, 1) {
		_, err := fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%d\"}}]}\n\n", i)
		if err != nil || flush.Flush() != nil {
			return
		}
		if in.MaxTokens == 0 {
			<-r.Context().Done()
			return
		}
		select {
		case <-pause.C:
		case <-r.Context().Done():
			return
		}
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

// StartEngine starts an engine as a process of this machine, and returns its URL once it
// is healthy. The argument "{port}" of its command stands for its port. The engine ends
// with ctx.
func StartEngine(ctx context.Context, command []string) (string, error) {
	free, err := freeAddress(ctx)
	if err != nil {
		return "", err
	}
	_, port, _ := net.SplitHostPort(free)
	args := slices.Clone(command[1:])
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "{port}", port)
	}
	cmd := exec.CommandContext(ctx, command[0], args...)
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start engine: %w", err)
	}
	ended := make(chan error, 1) // Nobody may be left to read it.
	go func() { ended <- cmd.Wait() }()
	address := "http://127.0.0.1:" + port
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	asked := newAsker(1)
	defer asked.close()
	for asked.ask(address, request{method: http.MethodGet, path: "/health", wants: []int{http.StatusOK}}) != nil {
		select {
		case err := <-ended:
			return "", fmt.Errorf("start engine: it ended: %w", cmp.Or(err, io.EOF))
		case <-ctx.Done():
			return "", ctx.Err()
		case <-tick.C:
		}
	}
	return address, nil
}

// MakeModel writes a tiny model by the script of an installed llama-node.
func MakeModel(ctx context.Context, dir, file string) error {
	cmd := exec.CommandContext(ctx, dir+"/bin/node", dir+"/tiny-model.js", file)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make model: %w: %s", err, out)
	}
	return nil
}
