package enginemetrics_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/node/inference/enginemetrics"
)

// Answers of engines, shortened.
const (
	vllmAnswer = `# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 7.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{le="0.001"} 0
vllm:time_to_first_token_seconds_bucket{le="+Inf"} 9
vllm:time_to_first_token_seconds_sum 4
vllm:time_to_first_token_seconds_count 9
`
	llamaAnswer = `llamacpp:requests_processing 1
llamacpp:requests_deferred NaN
llamacpp:kv_cache_usage_ratio -1
secret{text="of a user"} 1
`
	sglangAnswer = `# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m"} 4
sglang:num_queue_reqs{model_name="m"} 5
sglang:token_usage{model_name="m"} 0.5
`
)

// world has engines that answer over connections in memory.
type world struct {
	*testing.T

	targets []enginemetrics.Target
	dials   atomic.Int64
	reader  *enginemetrics.Reader
}

func newWorld(t *testing.T) *world {
	w := &world{T: t}
	w.reader = enginemetrics.New(enginemetrics.Config{
		Targets: func() []enginemetrics.Target { return w.targets }, Logger: slog.New(slog.DiscardHandler),
	})
	return w
}

// add adds a replica whose engine answers with a handler.
func (w *world) add(deployment string, answer http.HandlerFunc) {
	w.targets = append(w.targets, enginemetrics.Target{
		Deployment: deployment, Engine: "vllm", Replica: fmt.Sprint(len(w.targets)), Path: "/metrics",
		Dial: func() (net.Conn, error) {
			w.dials.Add(1)
			client, engine := net.Pipe()
			listener := &oneConn{conn: engine}
			server := &http.Server{Handler: answer}
			go func() { _ = server.Serve(listener) }()
			return client, nil
		},
	})
}

// oneConn is a listener of one connection.
type oneConn struct{ conn net.Conn }

func (l *oneConn) Accept() (net.Conn, error) {
	if l.conn == nil {
		return nil, net.ErrClosed
	}
	conn := l.conn
	l.conn = nil
	return conn, nil
}

func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{} }

// run runs the reader for a while.
func (w *world) run(limit time.Duration) {
	ctx, cancel := context.WithTimeout(w.Context(), limit)
	defer cancel()
	if err := w.reader.Run(ctx); err != nil {
		w.Error(err)
	}
}

// want compares the metrics with lines NAME{LABELS} VALUE.
func (w *world) want(lines ...string) {
	w.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w.reader)
	var got []string
	families, err := registry.Gather()
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var of []string
			for _, l := range m.GetLabel() {
				of = append(of, l.GetName()+"="+l.GetValue())
			}
			got = append(got, fmt.Sprintf("%s{%s} %v", strings.TrimPrefix(f.GetName(), "berth_inference_engine_"),
				strings.Join(of, ","), m.GetGauge().GetValue()))
		}
	}
	if strings.Join(got, "\n") != strings.Join(lines, "\n") {
		w.Errorf("the metrics are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}

func text(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }
}

// TestFigures reads engines of all kinds: their few figures become metrics, nothing else.
func TestFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add("a", text(vllmAnswer))
		w.add("b", text(llamaAnswer))
		w.add("c", text(sglangAnswer))
		w.add("c", text(sglangAnswer)) // A second replica.
		w.run(time.Second)
		w.want("cache_usage_ratio{deployment=a,engine=vllm} 0.75", "cache_usage_ratio{deployment=c,engine=vllm} 0.5",
			"requests_running{deployment=a,engine=vllm} 5", "requests_running{deployment=b,engine=vllm} 1",
			"requests_running{deployment=c,engine=vllm} 8",
			"requests_waiting{deployment=a,engine=vllm} 7", "requests_waiting{deployment=c,engine=vllm} 10")
	})
}

// TestReadings reads an engine every 15 s while it is ready, and shows nothing of it
// afterwards.
func TestReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run(time.Minute)
		w.want()
		w.add("a", text("llamacpp:requests_processing 1\n"))
		if w.run(59 * time.Second); w.dials.Load() != 4 {
			t.Errorf("in 59 s it is asked %d times, want 4", w.dials.Load())
		}
		w.want("requests_running{deployment=a,engine=vllm} 1")
		w.targets = nil
		if w.run(time.Minute); w.dials.Load() != 4 {
			t.Errorf("once it is not ready it is asked %d times more", w.dials.Load()-4)
		}
		w.want()
	})
}

// TestBadAnswers holds that an engine costs little whatever it answers, and has then no
// figures.
func TestBadAnswers(t *testing.T) {
	const good = "llamacpp:requests_processing 1\n"
	for name, answer := range map[string]http.HandlerFunc{
		"long": func(w http.ResponseWriter, _ *http.Request) {
			line := good + "# " + strings.Repeat("x", 1000) + "\n"
			for range 1200 {
				if _, err := io.WriteString(w, line[len(good):]); err != nil {
					return
				}
			}
			_, _ = io.WriteString(w, good)
		},
		"endless": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, good)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		"silent":      func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"no metrics":  text("<html>" + good),
		"refusal":     func(w http.ResponseWriter, _ *http.Request) { http.Error(w, good, http.StatusNotFound) },
		"redirection": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Location", "/x"); w.WriteHeader(302) },
		"headers": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
			_, _ = io.WriteString(w, good)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.add("bad", answer)
				w.add("good", text(good))
				begin := time.Now()
				w.run(10 * time.Second)
				if w.dials.Load() != 2 || time.Since(begin) > 10*time.Second {
					t.Errorf("it is asked %d times in %s", w.dials.Load(), time.Since(begin))
				}
				w.want("requests_running{deployment=good,engine=vllm} 1")
			})
		})
	}
}
