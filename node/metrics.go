package node

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"berth/fsm"
)

// metricsHeaderTimeout bounds how slowly a scraper may speak.
const metricsHeaderTimeout = 5 * time.Second

// serveMetrics serves /metrics and the profiles on the listener of their own,
// until ctx ends.
func (n *Node) serveMetrics(ctx context.Context) error {
	token, err := metricsToken(n.cfg.Metrics.TokenFile)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: metricsHandler(n.registry, token), ReadHeaderTimeout: metricsHeaderTimeout}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(n.metrics); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// metricsToken returns the bearer token in a file, "" when none is named. A file that is
// named and has none is an error: everybody could read the metrics.
func metricsToken(path string) (string, error) {
	token, err := readToken(path)
	if err == nil && token == "" && path != "" {
		err = fmt.Errorf("metrics.token_file: %s is missing or empty", path)
	}
	return token, err
}

// metricsHandler serves the metrics to whoever sends the token as bearer, or to
// everyone when it is empty. Profiles, which show more, need a token.
func metricsHandler(gatherer prometheus.Gatherer, token string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	if token != "" {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if token != "" && subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "The bearer token is missing or not the one of metrics.token_file.", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// brakeGauge returns a gauge of how many nodes hold the brake, which every node
// reads in its own view.
func brakeGauge(machine *fsm.FSM) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "berth_brake_nodes",
		Help: "Nodes that vanished at once and are too many to be given up; 0 while attempts are given up as usual.",
	}, func() float64 { return float64(len(machine.View().Vanished())) })
}

// buildInfo returns the metric that names the program.
func buildInfo(version, build string) prometheus.Collector {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "berth_build_info", Help: "The program of the node. The value is 1.",
		ConstLabels: prometheus.Labels{"version": version, "build": build, "go_version": runtime.Version()},
	})
	info.Set(1)
	return info
}

// leaderGauge returns the metric of whether the node knows a leader.
func leaderGauge(known func() bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "berth_raft_has_leader", Help: "Whether the node knows a leader of the cluster: 1 or 0.",
	}, func() float64 {
		if known() {
			return 1
		}
		return 0
	})
}

// knowsLeader reports whether the node knows a leader.
func (n *Node) knowsLeader() bool {
	if n.cluster == nil {
		return false // It is not open yet.
	}
	_, known := n.cluster.Leader()
	return known
}
